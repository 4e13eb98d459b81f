"""`invoke check`: load and validate every file of the project; no host is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

from firstlight.build.check import check_patches, check_stack
from firstlight.build.component import Component
from firstlight.build.componentcheck import check_component
from firstlight.build.lock import LockFile
from firstlight.build.lockcheck import check_lock
from firstlight.build.recipe import PatchRegistry, Stack
from firstlight.core.errors import ConfigError, Fault
from firstlight.core.report import Report
from firstlight.core.schema import Document, Model, nearest
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.flows import recipes, target
from firstlight.flows.failures import faults, table
from firstlight.hosts.inventory import InventoryFile, merge
from firstlight.serve.manifest import FLAVOURS
from firstlight.serve.policy import check_profile
from firstlight.serve.profile import Profile
from firstlight.serve.render import Deployment, render_launch, render_unit

T = TypeVar("T")
M = TypeVar("M", bound=Model)

_INVENTORY = "inventory"
_NAMED = (Component, Stack, LockFile)
# Where YAML files are read, by which endings.
_ENDINGS = {
    _INVENTORY: ".yaml",
    "patches": ".yaml",
    "recipes": ".yaml",
    recipes.COMPONENTS: ".yaml",
    recipes.STACKS: ".yaml",
    recipes.PROFILES: ".yaml",
    recipes.LOCKS: recipes.LOCK_SUFFIX,
}


class _Findings:
    """Faults as they are found, so that one bad file does not hide the next."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.files = 0

    def tried(self, load: Callable[[], T]) -> T | None:
        """What `load` gives, or None with its faults kept."""
        try:
            self.files += 1
            return load()
        except ConfigError as error:
            self.faults += error.faults
            return None

    def folder(self, root: Path, folder: str, model: type[M]) -> dict[str, Document[M]]:
        """Every file of a folder that can be read."""
        found: dict[str, Document[M]] = {}
        suffix = recipes.LOCK_SUFFIX if model is LockFile else ".yaml"
        for name in catalog.names(root, folder, suffix):
            path = root / folder / f"{name}{suffix}"
            document = self.tried(lambda path=path: catalog.read(path, root, model))  # type: ignore[misc]
            if document is not None:
                found[name] = document
                # A profile says so itself, with the rest of its faults.
                self.faults += recipes.misnamed(document, name) if model in _NAMED else ()
        return found


def run(root: Path, _console: Console) -> Report:
    """Say what is wrong in which file, or that all is well; exit code 2 for faults."""
    findings = _Findings()
    findings.faults += _unread(root)
    inventories = findings.folder(root, _INVENTORY, InventoryFile)
    findings.faults += _inventory_faults(root, inventories)
    components = findings.folder(root, recipes.COMPONENTS, Component)
    stacks = findings.folder(root, recipes.STACKS, Stack)
    profiles = findings.folder(root, recipes.PROFILES, Profile)
    locks = findings.folder(root, recipes.LOCKS, LockFile)
    registry = findings.tried(lambda: recipes.registry(root))
    findings.faults += _recipe_faults(root, components, stacks, registry)
    findings.faults += _lock_faults(root, components, stacks, locks)
    findings.faults += _profile_faults(root, profiles)
    failures = findings.tried(lambda: table(root))
    findings.faults += faults(failures) if failures else ()
    templates = findings.tried(lambda: target.templates(root))
    if templates is not None:
        findings.faults += _template_faults(templates, profiles)
    return _report(findings, _unlocked(root, stacks))


def _unread(root: Path) -> Iterable[Fault]:
    """What no verb would read, and nobody would be told of."""
    for folder, ending in _ENDINGS.items():
        for path in sorted((root / folder).glob("*.[yY]*[mM][lL]")):
            if path.is_file() and not path.name.endswith(ending):
                stem = path.stem.removesuffix(".lock") if folder == recipes.LOCKS else path.stem
                message = f"no verb reads a file called so; rename it to {stem}{ending}"
                yield Fault(catalog.shown(path, root), 1, 1, message)


def _inventory_faults(root: Path, files: dict[str, Document[InventoryFile]]) -> Iterable[Fault]:
    # What one file says may stand in another: only all of them can be held together.
    if len(files) == len(catalog.names(root, _INVENTORY)):
        try:
            merge(files.values())
        except ConfigError as error:
            yield from error.faults
    known = catalog.names(root, recipes.PROFILES)
    for file in files.values():
        hosts = enumerate(file.value.hosts)
        asked = [(("hosts", index, "profile"), host.profile) for index, host in hosts]
        for place, name in [(("defaults", "profile"), file.value.defaults.profile), *asked]:
            if name is not None and name not in known:
                yield file.fault(place, f"no profile {name!r}{nearest(name, known)}")


def _recipe_faults(
    root: Path,
    components: dict[str, Document[Component]],
    stacks: dict[str, Document[Stack]],
    registry: Document[PatchRegistry] | None,
) -> Iterable[Fault]:
    # By the names of the files: one that cannot be read is there all the same.
    parts = catalog.names(root, recipes.COMPONENTS)
    for component in components.values():
        yield from check_component(component)
    for stack in stacks.values():
        known = {name: document.value for name, document in components.items()}
        yield from check_stack(stack, parts, known)
    if registry is not None:
        stacks_there = catalog.names(root, recipes.STACKS)
        yield from check_patches(registry, parts, stacks_there, recipes.patch_files(root))


def _lock_faults(
    root: Path,
    components: dict[str, Document[Component]],
    stacks: dict[str, Document[Stack]],
    locks: dict[str, Document[LockFile]],
) -> Iterable[Fault]:
    # One that says another name than its file is told of already.
    parts = ((name, document.value) for name, document in components.items())
    known = {name: part for name, part in parts if part.name == name}
    there = catalog.names(root, recipes.LOCKS, recipes.LOCK_SUFFIX)
    for name, stack in stacks.items():
        if name in there and name in locks and set(stack.value.components) <= set(known):
            yield from check_lock(stack, locks[name], known)


def _profile_faults(root: Path, profiles: dict[str, Document[Profile]]) -> Iterable[Fault]:
    stacks = catalog.names(root, recipes.STACKS)
    for profile in profiles.values():
        yield from check_profile(profile)
        stack = profile.value.stack
        if stack not in stacks:
            yield profile.fault(("stack",), f"no stack {stack!r}{nearest(stack, stacks)}")


def _template_faults(
    templates: Mapping[str, str], profiles: dict[str, Document[Profile]]
) -> Iterable[Fault]:
    """What goes wrong when every profile is rendered for every kind of launcher."""
    nowhere = PurePosixPath("/nowhere")
    for profile in profiles.values():
        for flavour in FLAVOURS.values():
            made = Deployment(profile.value, nowhere, nowhere, nowhere, flavour)
            for render in (render_launch, render_unit):
                try:
                    render(made, templates)
                except ConfigError as error:
                    yield from error.faults


def _unlocked(root: Path, stacks: dict[str, Document[Stack]]) -> list[str]:
    """Stacks that nothing can be built from yet: no fault, for resolving may take another place."""
    there = catalog.names(root, recipes.LOCKS, recipes.LOCK_SUFFIX)
    return [
        str(stack.fault((), f"not locked yet; run: invoke lock --stack {name}"))
        for name, stack in sorted(stacks.items())
        if name not in there
    ]


def _report(findings: _Findings, notes: list[str]) -> Report:
    faults = sorted(set(findings.faults))
    data = {"files": findings.files, "faults": [vars(f) for f in faults], "notes": notes}
    told = [f"note: {note}" for note in notes]
    if not faults:
        return Report("\n".join([*told, f"{findings.files} files, no fault"]), data)
    lines = [*map(str, faults), *told, f"{len(faults)} fault(s) in {findings.files} files"]
    return Report("\n".join(lines), data, ConfigError.exit_code)
