"""`invoke kv`: the capacity card, what BF16, FP8 and FP4 hold, before or after a launch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from firstlight.accuracy import attention, card, cardjson, cardtext, checkpoint, kvneed
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.configkeys import architecture
from firstlight.accuracy.declared import CONFIG
from firstlight.accuracy.fitting import Workload
from firstlight.accuracy.geometry import Geometry, Unknown
from firstlight.accuracy.kvdsv4flags import unmodelled
from firstlight.accuracy.kvflags import COUNTS, Flags, flags, from_words
from firstlight.accuracy.kvmemory import (
    Memory,
    Missing,
    Served,
    estimate,
    measured,
    odd_rows,
    served_by,
)
from firstlight.accuracy.kvwindow import in_one_pool
from firstlight.accuracy.values import human_count
from firstlight.core.errors import HostError
from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import readings, recipes, target
from firstlight.flows.facts import ask_facts
from firstlight.flows.gate import OVERRIDE, sm_of
from firstlight.flows.given import number
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.hosts.survey import Survey
from firstlight.serve.manifest import current
from firstlight.serve.profile import HubModel, Profile

# No GPU has as much.
_MOST_GIB = 65536.0
_NOBODYS = "no profile is named: by the engine's own defaults on one GPU; --profile says more"
_ALONE = "name --model DIR, a folder with at least its config.json; or deploy the model first"


@dataclass(frozen=True)
class Ground:
    """What the card stands on: where the files are, what they say, and how they are served."""

    host: str
    profile: Profile
    found: Checkpoint
    geometry: Geometry
    flags: Flags

    @property
    def work(self) -> Workload | None:
        """The profile's workload."""
        work = self.profile.workload
        return Workload(work.concurrency, work.context) if work else None


def run(
    root: Path,
    console: Console,
    *,
    profile: str = "",
    host: str = "",
    model: str = "",
    memory: str = "",
) -> Report:
    """The card of a profile, or of a folder alone; `model` is another folder, `memory` the GiB
    that are left on one GPU."""
    given = _given(memory)
    inventory = catalog.inventory(root)
    asked = recipes.profile_name(inventory, inventory.host(host), profile)
    wanted = recipes.profile(root, asked).value
    if model and not profile:
        wanted = _nobodys(wanted)
    goal = _where(inventory, wanted, host, model, given)
    version = recipes.engine(root, wanted.stack)
    with reached(opener(inventory, goal, console), console) as shell:
        seen = look(shell)
        found = _checkpoint(shell, inventory, wanted, model, seen, console)
        if given is not None:
            sm = sm_of(wanted, None) or recipes.least_capability(root, wanted.stack)
            return _report(ground_of(goal, wanted, version, found, sm), given, "")
        facts = ask_facts(shell, seen.root)
        sm = sm_of(wanted, facts) or recipes.least_capability(root, wanted.stack)
        ground = ground_of(goal, wanted, version, found, sm)
        served, words = (None, "") if model else _served(root, shell.host, seen, wanted)
    mib = [gpu.memory_mib for gpu in facts.gpus if gpu.memory_mib]
    guess = estimate(ground.found, ground.geometry, ground.flags, mib, goal.name)
    return _told(ground, guess, served, words)


def _nobodys(usual: Profile) -> Profile:
    """A folder alone goes by no profile's flags; its engine is that of the usual one."""
    kept = {name: getattr(usual, name) for name in ("stack", "model", "served_model_name")}
    return Profile.model_construct(**kept, name="", schema_=1)


def _given(memory: str) -> Memory | None:
    if not memory:
        return None
    what = "the GiB that are left on one GPU, like 17.4"
    gib = number("--memory", memory, _MOST_GIB, what)
    return Memory(gib, "given", f"given: {gib:g} GiB left on each GPU")


def _where(
    inventory: Inventory, wanted: Profile, host: str, model: str, given: Memory | None
) -> Host:
    """The host that is asked; planning asks none where this machine can tell all."""
    if not host and (model or (given and isinstance(wanted.model, HubModel))):
        return inventory.hosts["local"]
    return inventory.host(host)


def _checkpoint(
    shell: Shell, inventory: Inventory, wanted: Profile, model: str, seen: Survey, console: Console
) -> Checkpoint:
    """The files of the model, or of the folder that is named instead. Raises UnknownName for one
    that is named without a config.json, HostError for a model that the host does not have."""
    if model:
        reading = readings.named(shell, model)
    else:
        reading = readings.own(shell, inventory, wanted.model, seen, console)
    if not reading.documents.get(CONFIG):
        why = next((flaw.what for flaw in reading.findings if flaw.severity == "error"), "none")
        what = f"no config.json in {reading.folder}: {why}"
        if model:
            raise UnknownName(f"{shell.host.name}: {what}", remedy="correct --model")
        raise HostError(what, where=shell.host.name, remedy=_ALONE)
    return checkpoint.describe(reading, args_of(wanted).get(OVERRIDE))


def args_of(profile: Profile) -> dict[str, JsonValue]:
    """Its flags by their keys, those that hold a count as the engine reads it: of two it takes the
    last, and extra_args stand behind args."""
    args: dict[str, JsonValue] = {**profile.args, **from_words(profile.extra_args)}
    counts = {key: human_count(args[key]) for key in COUNTS if key in args}
    return args | {key: found for key, found in counts.items() if found is not None}


def ground_of(
    goal: Host, wanted: Profile, version: str, found: Checkpoint, sm: int | None
) -> Ground:
    """The shapes and flags to compute with; raises HostError for a model that no rule knows.

    `sm` is the card's compute capability without its dot, None where it is not known.
    `found` is the checkpoint as the engine takes it, with what the flags lay over its config."""
    args, name = args_of(wanted), architecture(found.config)
    one_pool = in_one_pool(name, version, args)
    geometry = attention.describe(found.config, version, one_pool=one_pool)
    if isinstance(geometry, Unknown):
        fix = "the figures would be a guess; add the class to firstlight/accuracy/classes.py"
        raise HostError(f"not computed: {geometry}", where=found.reading.folder, remedy=fix)
    said = flags(version, args, wanted.env, geometry=geometry, sm=sm)
    if lacks := unmodelled(geometry, said.launch, args, wanted.env, sm):
        fix = "the figures would be a guess: launch without it, or say what is not given"
        raise HostError(f"not computed: {'; '.join(lacks)}", where="the profile's args", remedy=fix)
    return Ground(goal.name, wanted, found, geometry, said)


def _served(root: Path, host: Host, seen: Survey, wanted: Profile) -> tuple[Served | None, str]:
    """What the current deployment said of its pool, if it is what the profile asks for today."""
    made = current(seen, wanted.name, host.name)
    if made is None:
        return None, f"{wanted.name} is not served on {host.name} yet: nothing is measured"
    today = target.expected_id(root, host, wanted, made.release, made.launcher)
    if made.id != today:
        return None, f"what is served on {host.name} is an older form of the profile: not used"
    found = served_by(seen.deployments[wanted.name].proof)
    return found, "" if found else f"the proof on {host.name} holds no figures of the pool"


def _told(ground: Ground, guess: Memory | Missing, served: Served | None, words: str) -> Report:
    """The card by what was measured, else by the estimate, else without a memory."""
    expected = guess if isinstance(guess, Memory) else None
    if served:
        odd = odd_rows(ground.geometry, ground.flags, served)
        if known := measured(ground.geometry, ground.flags, served, expected):
            return _report(ground, known, odd)
        words = "the server's tokens do not tell the memory with these flags"
    if expected:
        return _report(ground, expected, words)
    assert isinstance(guess, Missing)
    return _without(ground, guess, words)


def _report(ground: Ground, memory: Memory, words: str) -> Report:
    launch, whole = ground.flags.launch, ground.flags.context or ground.found.context.limit
    made = card.card(ground.geometry, launch, memory.left, ground.work, whole)
    data = _head(ground) | {"memory": memory.source, "told": memory.told, "missing": []}
    notes = _notes(ground, words)
    lines = [_line(ground, memory), memory.told, cardtext.text(made), *notes]
    return Report("\n".join(lines), {**data, "notes": notes, **cardjson.to_json(made)})


def _without(ground: Ground, missing: Missing, words: str) -> Report:
    """What can be said while the memory is not known."""
    found = kvneed.needs(ground.geometry, ground.flags.launch, ground.work)
    notes = _notes(ground, words)
    data = _head(ground) | {"memory": None, "missing": list(missing.facts), "notes": notes}
    lacks = [f"MISSING: {fact}" for fact in missing.facts]
    fix = "say --memory GIB (what is left on one GPU), or --host one that has GPUs and the weights"
    lines = [_line(ground), "", kvneed.text(found, ground.work), "", *lacks, f"-> {fix}", *notes]
    return Report("\n".join(lines), {**data, "dtypes": [vars(need) for need in found]})


def _line(ground: Ground, memory: Memory | None = None) -> str:
    """What the card is of; where the memory is given, no GPU of the host is meant."""
    folder, flags_ = ground.found.reading.folder, ground.flags
    where = folder if "://" in folder else f"{folder} on {ground.host}"
    gpus = f"{flags_.gpus} GPU{'s' * (flags_.gpus != 1)}"
    if ground.profile.args.get("device") == "cpu":
        gpus = "no GPU"
    elif memory and memory.source == "given":
        gpus = f"planned for {gpus}"
    whose = f"{ground.profile.name}: " if ground.profile.name else ""
    return f"{whose}{where}, {gpus}, kv_cache_dtype {flags_.kv_dtype}"


def _head(ground: Ground) -> dict[str, Any]:
    return {
        "profile": ground.profile.name or None,
        "host": ground.host,
        "model": ground.found.reading.folder,
        "architecture": ground.geometry.name,
        "attention": ground.geometry.kind,
        "kv_cache_dtype": ground.flags.kv_dtype,
        "gpus": ground.flags.gpus,
        "replicas": ground.flags.replicas,
        "launch": cardjson.launch_json(ground.flags.launch),
    }


def _notes(ground: Ground, words: str) -> list[str]:
    first = words if ground.profile.name else _NOBODYS
    return [f"Note: {note}" for note in (first, *ground.flags.notes) if note]
