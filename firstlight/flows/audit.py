"""`invoke audit`: whether a profile's KV cache would be quietly wrong, said before the launch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import JsonValue

from firstlight.accuracy import audittext
from firstlight.accuracy.audit import Ask, Audit, audit
from firstlight.accuracy.checkpoint import Checkpoint, describe
from firstlight.accuracy.reading import Reading
from firstlight.core.errors import ConfigError, Fault, HostError, ProofError
from firstlight.core.report import Report
from firstlight.core.schema import Document, Place
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import recipes
from firstlight.flows.checkpoint import read_folder, read_model
from firstlight.flows.facts import ask_facts
from firstlight.flows.orders import all_orders, built_release
from firstlight.flows.reach import look, opener, reached, read_remote
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.hosts.survey import Survey
from firstlight.serve.capabilities import Capabilities, engine_lines, key_of, read_capabilities
from firstlight.serve.profile import Profile

_ENGINE, _FLAG = "sglang", "--kv-cache-dtype"


@dataclass(frozen=True)
class Engine:
    """Its version, and what it accepts where the release is on the host already."""

    version: str
    capabilities: Capabilities | None

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values of `--kv-cache-dtype`."""
        flag = self.capabilities.flags.get(_FLAG) if self.capabilities else None
        return tuple(map(str, flag.choices)) if flag and flag.choices else None


def run(
    root: Path,
    console: Console,
    *,
    profile: str = "",
    host: str = "",
    stack: str = "",
    model: str = "",
) -> Report:
    """Audit a profile, or a folder of the host alone; exit code 5 where the profile's own choice
    is against its policy, with the line to change."""
    inventory = catalog.inventory(root)
    goal = inventory.host(host)
    # A folder alone is nobody's choice; its engine is that of --stack, or of the usual profile.
    judged = bool(profile) or not model
    document = _profile(root, inventory, goal, profile) if judged or not stack else None
    wanted = document.value if document and judged else None
    with reached(opener(inventory, goal, console), console) as shell:
        seen = look(shell)
        engine = _engine(root, shell, seen, stack or (document.value.stack if document else ""))
        reading = _reading(shell, inventory, wanted, model, seen, console)
        ask = Ask(
            version=engine.version,
            flags=flags_of(wanted, engine.capabilities) if wanted else {},
            sm=_sm(shell, wanted, seen),
            choices=engine.choices,
        )
    found = describe(reading)
    if document is None or wanted is None:
        return _unjudged(found, audit(found, ask))
    return _judged(document, found, audit(found, ask, wanted.policy.kv))


def _profile(root: Path, inventory: Inventory, goal: Host, wanted: str) -> Document[Profile]:
    """The profile as it is written: what its policy says of its own value is judged here."""
    name = recipes.profile_name(inventory, goal, wanted)
    return catalog.find(root, recipes.PROFILES, name, Profile)


def _engine(root: Path, shell: Shell, seen: Survey, stack: str) -> Engine:
    """What a release on the host says of itself, or else the recipe of the stack."""
    component = recipes.stack(root, stack)[0].value.components.get(_ENGINE)
    if component is None:
        raise UnknownName(f"stack {stack} has no {_ENGINE}", remedy="name another with --stack")
    try:
        release = built_release(all_orders(root, stack, seen.root), seen)
    except ConfigError:
        # A stack that is not locked yet is built nowhere; `check` says what it lacks.
        release = None
    if release is None:
        return Engine(component.version, None)
    file = seen.root / "releases" / release / "capabilities.json"
    found = read_capabilities(read_remote(shell, file), f"{shell.host.name}:{file}")
    return Engine(found.version, found)


def _reading(
    shell: Shell,
    inventory: Inventory,
    profile: Profile | None,
    model: str,
    seen: Survey,
    console: Console,
) -> Reading:
    if model or profile is None:
        local = shell.host.is_local
        folder = Path(model).expanduser().absolute() if local else PurePosixPath(model)
        found = read_folder(shell, PurePosixPath(folder))
    else:
        with reached(opener(inventory, inventory.hosts["local"], console), console) as here:
            found = read_model(shell, here, profile.model, seen.root, os.environ, console.note)
    if any(flaw.kind == "no-folder" for flaw in found.findings):
        what = f"the model is not there: {found.folder}"
        fix = "deploy it first, or name a folder with --model"
        raise HostError(what, where=shell.host.name, remedy=fix)
    return found


def flags_of(profile: Profile, capabilities: Capabilities | None) -> dict[str, JsonValue]:
    """Every flag by its first name, args before extra_args, of which the engine takes the last."""
    found: dict[str, JsonValue] = {}
    for option, *words in engine_lines(profile, capabilities):
        name, equals, value = option.partition("=")
        primary = capabilities.options.get(name, name) if capabilities else name
        found[key_of(primary)] = value if equals else " ".join(words) if words else True
    return found


def _sm(shell: Shell, profile: Profile | None, seen: Survey) -> int | None:
    """The compute capability that the profile asks for, or that the host's cards have."""
    if profile and (profile.match.sm is not None or profile.match.gpus == 0):
        return profile.match.sm
    cards = [gpu.compute_capability for gpu in ask_facts(shell, seen.root).gpus]
    return min((major * 10 + minor for major, minor in filter(None, cards)), default=None)


def _unjudged(found: Checkpoint, made: Audit) -> Report:
    """A folder alone: the table, and no choice to be held against a policy."""
    data = audittext.to_json(made, found) | {"own": None, "policy": None, "within": None}
    return Report(audittext.text(made, found, judged=False), data)


def _judged(document: Document[Profile], found: Checkpoint, made: Audit) -> Report:
    text = audittext.text(made, found, document.value.policy.reason or "")
    data = {"profile": document.value.name, **audittext.to_json(made, found)}
    if made.within:
        return Report(text, data)
    fault = _line(document, made)
    data["line"] = vars(fault)
    return Report(f"{text}\n\nrefused: {fault}", data, ProofError.exit_code)


def _line(document: Document[Profile], made: Audit) -> Fault:
    """The line of the profile that must change, and to what."""
    place, cell = _place(document.value), made.cell(made.own)
    said = f"kv_cache_dtype {made.own} is {cell.verdict} ({cell.dtype}, scales {cell.scales})"
    if made.change:
        fix = f"write args.kv_cache_dtype: {made.change}"
    elif cell.verdict == "unknown":
        fix = f"what is missing: {cell.evidence[-1]}"
    else:
        fix = "no value is known to be within it here; measure before you allow one"
    return document.fault(place, f"{said}, and policy.kv is {made.policy}; {fix}")


def _place(profile: Profile) -> Place:
    for index, word in enumerate(profile.extra_args):
        if word.partition("=")[0] == _FLAG:
            return "extra_args", index
    return ("args", "kv_cache_dtype") if "kv_cache_dtype" in profile.args else ("args",)
