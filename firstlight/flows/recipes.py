"""The recipes of a project, looked up by name and checked before anything is done with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from firstlight.build.check import check_patches, check_stack
from firstlight.build.component import Component
from firstlight.build.componentcheck import check_component
from firstlight.build.lock import LockFile
from firstlight.build.lockcheck import remedy, require_lock
from firstlight.build.recipe import PatchRegistry, Stack, patches_for
from firstlight.core.errors import ConfigError, Fault, PolicyError
from firstlight.core.schema import Document, nearest
from firstlight.effects import catalog
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.serve.policy import check_cache, check_profile
from firstlight.serve.profile import Profile

COMPONENTS, STACKS = "recipes/components", "recipes/stacks"
PROFILES, LOCKS, LOCK_SUFFIX = "recipes/profiles", "recipes/locks", ".lock.yaml"
ENGINE = "sglang"
REGISTRY = Path("patches") / "registry.yaml"


def profile_name(inventory: Inventory, host: Host, wanted: str) -> str:
    """What a person means by `--profile`, or by leaving it out."""
    name = wanted or host.profile or inventory.default_profile
    if not name:
        remedy = "say --profile NAME, or --stack NAME where the verb has it, "
        remedy += "or set defaults.profile in inventory/"
        raise UnknownName(f"no profile is named, and host {host.name} has none", remedy=remedy)
    return name


def profile(root: Path, name: str) -> Document[Profile]:
    """A profile without faults of its own; raises ConfigError with all of them, and PolicyError
    where they are all about its KV cache."""
    document = catalog.find(root, PROFILES, name, Profile)
    faults = list(check_profile(document))
    stacks = catalog.names(root, STACKS)
    if document.value.stack not in stacks:
        near = nearest(document.value.stack, stacks)
        faults.append(document.fault(("stack",), f"no stack {document.value.stack!r}{near}"))
    if faults:
        raise PolicyError(faults) if faults == check_cache(document) else ConfigError(faults)
    return document


def stack(root: Path, name: str) -> tuple[Document[Stack], dict[str, Component]]:
    """A stack and the project's components; raises ConfigError with every fault in them."""
    document = catalog.find(root, STACKS, name, Stack)
    names = catalog.names(root, COMPONENTS)
    parts, faults = _components(root, names)
    components = {part.value.name: part.value for part in parts}
    faults += [fault for part in parts for fault in check_component(part)]
    faults += misnamed(document, name)
    faults += check_stack(document, names, components)
    if faults:
        raise ConfigError(faults)
    return document, components


def engine(root: Path, name: str) -> str:
    """The version of the engine in a stack; raises UnknownName for a stack that has none."""
    found = stack(root, name)[0].value.components.get(ENGINE)
    if found is None:
        fix = (
            "name one that serves: as `stack` of the profile, or with --stack where the verb has it"
        )
        raise UnknownName(f"stack {name} has no {ENGINE}", remedy=fix)
    return found.version


def patches_of(root: Path, name: str) -> tuple[str, ...]:
    """The patches that the engine of a stack gets, by their files below patches/."""
    found = patches_for(registry(root).value, ENGINE, engine(root, name), name)
    return tuple(entry.file for entry in found)


def least_capability(root: Path, name: str) -> int | None:
    """The least compute capability that a stack is built for, without its dot; None for none."""
    capabilities = stack(root, name)[0].value.arch_list
    found = (re.match(r"(\d+)\.(\d)", one) for one in capabilities)
    return min((int(one[1] + one[2]) for one in found if one), default=None)


def part(choices: Mapping[str, object], name: str, stack: str) -> str:
    """A component of a stack; raises UnknownName for none, with the nearest."""
    if name not in choices:
        raise UnknownName(f"stack {stack} has no component {name!r}{nearest(name, choices)}")
    return name


def misnamed(document: Document[Any], name: str) -> Iterable[Fault]:
    """A fault when a recipe says another name than that of its file."""
    place = "stack" if isinstance(document.value, LockFile) else "name"
    said = getattr(document.value, place)
    if said != name:
        yield document.fault((place,), f"the file is called {name!r}, and this says {said!r}")


def _components(root: Path, names: Iterable[str]) -> tuple[list[Document[Component]], list[Fault]]:
    """The components that can be read, and the faults of those that cannot."""
    found: list[Document[Component]] = []
    faults: list[Fault] = []
    for name in names:
        try:
            part = catalog.find(root, COMPONENTS, name, Component)
            faults += misnamed(part, name)
            found.append(part)
        except ConfigError as error:
            faults += error.faults
    return found, faults


def locked(root: Path, stack_: Document[Stack], components: dict[str, Component]) -> LockFile:
    """The lock that goes with a stack; raises ConfigError that says what moved."""
    name = stack_.value.name
    if name not in catalog.names(root, LOCKS, LOCK_SUFFIX):
        fault = stack_.fault((), f"there is no {LOCKS}/{name}{LOCK_SUFFIX}")
        raise ConfigError([fault], remedy=remedy(name))
    lock = catalog.find(root, LOCKS, name, LockFile, LOCK_SUFFIX)
    return require_lock(stack_, lock, components)


def registry(root: Path) -> Document[PatchRegistry]:
    """The patch registry as it is written."""
    return catalog.read(root / REGISTRY, root, PatchRegistry)


def checked_registry(root: Path, components: dict[str, Component]) -> PatchRegistry:
    """The patch registry; raises ConfigError with every fault in it."""
    document = registry(root)
    stacks = catalog.names(root, STACKS)
    faults = check_patches(document, components, stacks, patch_files(root))
    if faults:
        raise ConfigError(faults)
    return document.value


def patch_files(root: Path) -> dict[str, bytes]:
    """The patch files that exist, below patches/."""
    folder = root / "patches"
    found = (path for path in sorted(folder.rglob("*.patch")) if path.is_file())
    return {str(path.relative_to(folder)): _bytes(path, root) for path in found}


def _bytes(path: Path, root: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError([Fault(catalog.shown(path, root), 0, 0, what)]) from None
