"""The gate of a deploy: what the audit says of the profile's own KV cache, before anything starts.

`invoke audit` tells the same in full; a deploy stops where the profile's choice is against its
own policy, and says in a line what it lets through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from pydantic import JsonValue

from firstlight.accuracy.audit import Ask, Audit, Evidence, audit
from firstlight.accuracy.checkpoint import Checkpoint, describe
from firstlight.core.command import typed
from firstlight.core.errors import Fault, ProofError
from firstlight.core.schema import Document, Place
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import readings, recipes
from firstlight.flows.checkpoint import there
from firstlight.flows.probe import ask_engine
from firstlight.flows.target import Case
from firstlight.hosts.facts import Facts
from firstlight.serve.capabilities import Capabilities, engine_lines, key_of
from firstlight.serve.deploy import Target
from firstlight.serve.policy import check_cache
from firstlight.serve.profile import Profile

KV_FLAG, OVERRIDE = "--kv-cache-dtype", "json_model_override_args"


@dataclass(frozen=True)
class Engine:
    """Its version, and, where the release is on the host already, what it accepts and where it is.

    `release` is the release's folder on the host, `patches` those of the stack that are in it."""

    version: str
    capabilities: Capabilities | None = None
    release: PurePosixPath | None = None
    patches: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values of `--kv-cache-dtype`."""
        flag = self.capabilities.flags.get(KV_FLAG) if self.capabilities else None
        return tuple(map(str, flag.choices)) if flag and flag.choices else None


@dataclass(frozen=True)
class Judged:
    """A checkpoint, the audit of it, and the line of the profile that must change, if one must."""

    found: Checkpoint
    made: Audit
    fault: Fault | None


def engine_of(case: Case, target: Target) -> Engine:
    """The engine that a launch would have, which is on the host."""
    rendered = target.rendered
    assert rendered.capabilities is not None
    found, patches = rendered.capabilities, recipes.patches_of(case.root, case.profile.stack)
    return Engine(found.version, found, rendered.release, patches)


def judge(case: Case, engine: Engine, facts: Facts) -> Judged:
    """Audit a profile's model, as the host or its hub has it, against the profile's policy.

    Raises HostError where neither has it."""
    profile, shell, console = case.profile, case.shell, case.console
    reading = readings.own(shell, case.inventory, profile.model, case.seen, console)
    asking = asked(profile, engine, facts)
    reading = there(reading, shell.host.name, "put it there, or correct model.path")
    found = describe(reading, asking.flag(OVERRIDE))
    return held(case.document, found, probed(shell, asking, engine, found, console))


def refused(
    case: Case, engine: Engine, facts: Facts, values: tuple[str, ...]
) -> dict[str, Evidence]:
    """Those values of `kv_cache_dtype` with which the profile's engine does not start, and why.

    Of a model that is not there yet the flags tell."""
    profile = case.profile
    reading = readings.own(case.shell, case.inventory, profile.model, case.seen, case.console)
    asking = asked(profile, engine, facts)
    # Faults of files are for the launch to tell, and make every verdict unknown.
    found, why = replace(describe(reading, asking.flag(OVERRIDE)), flaws=()), {}
    for value in values:
        flags = {**asking.flags, "kv_cache_dtype": value}
        cell = audit(found, replace(asking, flags=flags)).cell(value)
        if cell.verdict == "refused":
            why[value] = cell.evidence[-1]
    return why


def held(document: Document[Profile], found: Checkpoint, ask: Ask) -> Judged:
    """The audit of a profile against its policy, and against that policy's own rule: it wants its
    value written down, also where `auto` would give the same today."""
    made = audit(found, ask, document.value.policy.kv)
    if not made.within:
        return Judged(found, made, fault_of(document, made))
    if written := check_cache(document):
        return Judged(found, replace(made, within=False, change="bf16"), written[0])
    return Judged(found, made, None)


def asked(profile: Profile | None, engine: Engine, facts: Facts | None) -> Ask:
    """The engine and its flags, on the host of these facts; without a profile it has none."""
    return Ask(
        version=engine.version,
        flags=flags_of(profile, engine.capabilities) if profile else {},
        sm=sm_of(profile, facts),
        choices=engine.choices,
        amx=None if facts is None else "amx_tile" in facts.cpu.flags,
        patches=engine.patches,
    )


def sm_of(profile: Profile | None, facts: Facts | None) -> int | None:
    """The compute capability that the profile asks for, or that the host's cards have."""
    if facts is None or names_sm(profile):
        return profile.match.sm if profile else None
    cards = [gpu.compute_capability for gpu in facts.gpus]
    return min((major * 10 + minor for major, minor in filter(None, cards)), default=None)


def names_sm(profile: Profile | None) -> bool:
    """Whether a profile says by itself what it runs on, so that no card has to be asked."""
    return profile is not None and (profile.match.sm is not None or profile.match.gpus == 0)


def probed(shell: Shell, ask: Ask, engine: Engine, found: Checkpoint, console: Console) -> Ask:
    """The same question, with what the release's own engine answers for this checkpoint."""
    if engine.release is None or not found.architectures:
        return ask
    there = "://" not in found.reading.folder
    folder = PurePosixPath(found.reading.folder) if there and found.config else None
    console.note(f"asking the engine of {engine.release.name} about {found.architectures[0]}")
    flags = ask.flag("quantization"), ask.flag(OVERRIDE)
    probe, why = ask_engine(shell, engine.release, found.architectures[0], folder, *flags)
    if why:
        console.say(f"# {why}")
    return replace(ask, probe=probe)


def require(judged: Judged, profile: Profile, host: str, console: Console) -> None:
    """Say what is let through; raises ProofError with the line to change where nothing is."""
    if judged.fault is not None:
        more = typed("audit", {"profile": profile.name, "host": host})
        raise ProofError(str(judged.fault), remedy=f"`{more}` shows every value and why")
    console.say(f"  {told(summary(judged, profile))}")
    for one in judged.made.threats:
        if one.severity == "warning":
            console.say(f"  {one.where}: {one.what}")


def summary(judged: Judged, profile: Profile) -> dict[str, Any]:
    """What a proof keeps of it."""
    made = judged.made
    cell = made.cell(made.own)
    return {
        "asked": cell.asked,
        "dtype": cell.dtype,
        "scales": cell.scales,
        "verdict": cell.verdict,
        "policy": made.policy,
        "reason": profile.policy.reason or "",
        "evidence": [str(line) for line in cell.evidence],
    }


def told(data: dict[str, Any]) -> str:
    """The summary in a line; a policy that somebody loosened is told with its reason."""
    line = f"kv_cache_dtype {data['asked']} is {data['verdict']}: {data['dtype']}"
    if data["policy"] == "require_bf16":
        return line
    return f"{line}; allowed by policy.kv {data['policy']}: {data['reason'] or 'no reason given'}"


def flags_of(profile: Profile, capabilities: Capabilities | None) -> dict[str, JsonValue]:
    """Every flag by its first name, args before extra_args, of which the engine takes the last."""
    found: dict[str, JsonValue] = {}
    for option, *words in engine_lines(profile, capabilities):
        name, equals, value = option.partition("=")
        found[key_of(first_name(name, capabilities))] = (
            value if equals else " ".join(words) if words else True
        )
    return found


def first_name(option: str, capabilities: Capabilities | None) -> str:
    """A flag's first name. The engine takes a flag's beginning for it where no other begins so;
    without a release only that of the cache is known."""
    known = capabilities.options if capabilities else {KV_FLAG: KV_FLAG}
    if option in known or (capabilities and not capabilities.abbreviations):
        return known.get(option, option)
    owners = {first for name, first in known.items() if name.startswith(option)}
    return owners.pop() if len(owners) == 1 and option != "--" else option


def fault_of(document: Document[Profile], made: Audit) -> Fault:
    """The line of the profile that must change, and to what."""
    if made.broken:
        said = f"its files are broken, and no policy.kv allows that: {made.broken}"
        return document.fault(("model",), f"{said}; put a whole copy of the model there")
    place, cell = _place(document.value), made.cell(made.own)
    said = f"kv_cache_dtype {made.own} is {cell.verdict} ({cell.dtype}, scales {cell.scales})"
    if cell.verdict == "refused":
        said = f"kv_cache_dtype {made.own} is refused by the engine ({cell.evidence[-1]})"
    if made.change:
        fix = f"write args.kv_cache_dtype: {made.change}"
    elif cell.verdict == "unknown":
        fix = f"what is missing: {cell.evidence[-1]}"
    else:
        fix = "no value is known to be within it here; measure before you allow one"
    return document.fault(place, f"{said}, and policy.kv is {made.policy}; {fix}")


def _place(profile: Profile) -> Place:
    for index, word in enumerate(profile.extra_args):
        if word.startswith("--") and first_name(word.partition("=")[0], None) == KV_FLAG:
            return "extra_args", index
    return ("args", "kv_cache_dtype") if "kv_cache_dtype" in profile.args else ("args",)
