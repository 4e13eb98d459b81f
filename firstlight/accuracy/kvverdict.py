"""The accuracy room: from a cache's dtype and the checkpoint's scales to a verdict.

`safe` is said of a cache of 16 bits or more alone. One of 16 bits can still be wrong: where
scales are loaded, some backends multiply by them on reading what was written without (facts §2.6).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy import rules
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.declared import Family, KvStatement
from firstlight.accuracy.kvbackends import backends, does, leaves_alone, multiplies
from firstlight.accuracy.kvchoice import (
    NOT_ASKED,
    WIDE,
    Ask,
    Effective,
    Evidence,
    Probe,
    read_as,
    statement_of,
)
from firstlight.accuracy.methods import taken
from firstlight.accuracy.reading import ScaleTensor, as_ranges
from firstlight.accuracy.scales import stack_of

# Names that end as the engine's own do, and are not where its map looks for them.
_OWN = re.compile(r"\.(?:k|v|kv)_scale$|_fake_quantizer\.qscale_act$")

Fate = Literal["no", "yes", "ignored", "unknown"]
Verdict = Literal["safe", "lossy-calibrated", "lossy-uncalibrated", "wrong", "unknown", "refused"]


@dataclass(frozen=True)
class Judged:
    """A verdict, what becomes of the scales, and why."""

    verdict: Verdict
    scales: Fate
    evidence: tuple[Evidence, ...]


def judge(checkpoint: Checkpoint, ask: Ask, made: Effective, version: str) -> Judged:
    """The verdict on a dtype in one version that was read."""
    if made.dtype == "refused":
        return Judged("refused", "unknown", ())
    fate, lines = fate_of(checkpoint, ask, version)
    lines = (held(checkpoint), *lines)
    if made.dtype == "unknown":
        return Judged("unknown", fate, lines)
    if made.dtype in WIDE:
        verdict, why = _wide(checkpoint, ask, fate, version)
    else:
        verdict, why = _narrow(checkpoint, ask, made, fate, version)
    loaded = made.dtype not in WIDE and fate == "yes"
    if loaded and backends(checkpoint, ask, version).all(does("ignores")):
        fate = "ignored"
    return Judged(verdict, fate, (*lines, *why))


def held(checkpoint: Checkpoint) -> Evidence:
    """The scales of the target in one line, at the first tensor that is one."""
    found = checkpoint.target
    tensors = _tensors(checkpoint)
    if not tensors:
        return Evidence("*.safetensors", f"none of {len(found.layers)} layers has a k or v scale")
    more = f" and {len(tensors) - 1} more" if len(tensors) > 1 else ""
    where = f"{tensors[0].file}: {tensors[0].name}{more}"
    if found.state == "ones":
        said = f"exactly 1.0 in all {len(found.layers)} layers: written, not calibrated"
        return Evidence(where, said)
    least, most = found.span or (0.0, 0.0)
    says = f"scales of {len(found.layers - found.missing)} layers, {least:g} to {most:g}"
    if found.state == "partial":
        says += f"; layers {as_ranges(found.missing)} have none, which is worse than none at all"
    return Evidence(where, says)


def _tensors(checkpoint: Checkpoint) -> list[ScaleTensor]:
    """Scales of the target whose names the engine maps."""
    return [
        one
        for one in checkpoint.reading.scales
        if one.form != "unknown"
        and one.layer is not None
        and stack_of(one.name, one.layer, checkpoint.depth) == "target"
    ]


def fate_of(checkpoint: Checkpoint, ask: Ask, version: str) -> tuple[Fate, tuple[Evidence, ...]]:
    """Whether the engine loads the checkpoint's scales."""
    tensors = _tensors(checkpoint)
    if not tensors and (strange := [one for one in checkpoint.target.unmapped if _OWN.search(one)]):
        return _strange(checkpoint, ask, version, strange[0])
    if not tensors:
        return "no", (Evidence("rule §2.5", "without scales the engine takes 1.0, silently"),)
    if unread := [one for one in tensors if one.most is None]:
        where = f"{unread[0].file}: {unread[0].name}"
        return "unknown", (Evidence(where, "its value is no finite number, or was not read"),)
    if not any(one.most and one.most > 0 for one in tensors):
        where = f"{tensors[0].file}: {tensors[0].name}"
        return "no", (Evidence(where, "no scale is above 0: the engine takes 1.0, silently"),)
    room, line = _room(checkpoint, ask, version)
    if room is False:
        return "ignored", (line,)
    loaded, told = _reached(checkpoint, ask, version)
    if room is None and loaded is not False:
        return "unknown", (line,)
    if loaded and (odd := _odd_spelling(checkpoint, version)):
        return "unknown", (Evidence(NOT_ASKED, f"whether the class takes scales spelled {odd}"),)
    return ("unknown" if loaded is None else "yes" if loaded else "ignored"), (told,)


def _odd_spelling(checkpoint: Checkpoint, version: str) -> str:
    """A spelling that the class does not take, "" where there is none."""
    name = checkpoint.architectures[0] if checkpoint.architectures else ""
    forms = checkpoint.target.forms
    return next((form for form in forms if not rules.takes(name, version, form)), "")


def _strange(
    checkpoint: Checkpoint, ask: Ask, version: str, name: str
) -> tuple[Fate, tuple[Evidence, ...]]:
    """Scales under names that the engine's map passes over, and a class may take by itself."""
    room, line = _room(checkpoint, ask, version)
    loaded, told = _reached(checkpoint, ask, version)
    architecture = checkpoint.architectures[0] if checkpoint.architectures else ""
    if loaded and not ask.is_generic and rules.maps_alone(architecture, version):
        loaded, told = False, Evidence("rule §2.5", f"the engine's map of names has no {name}")
    if room is False or loaded is False:
        return "ignored", (line if room is False else told,)
    said = f"whether the class takes {name}, which the engine's map of names passes over"
    return "unknown", (Evidence(NOT_ASKED, said),)


def _reached(checkpoint: Checkpoint, ask: Ask, version: str) -> tuple[bool | None, Evidence]:
    """Whether scales of the checkpoint reach the attention of the class that runs."""
    if ask.is_generic:
        said = f"whether --model-impl {ask.flag('model_impl')} loads scales"
        return None, Evidence(NOT_ASKED, said)
    return _asked(ask.probe) or _loaded(checkpoint, version)


def _room(checkpoint: Checkpoint, ask: Ask, version: str) -> tuple[bool | None, Evidence]:
    """Whether the quantisation gives the attention a place for scales, whatever its class."""
    statement, flag = statement_of(checkpoint, version), ask.flag("quantization")
    whose = taken(statement, flag)
    if whose == "unknown" or (statement is None and flag):
        return None, Evidence(NOT_ASKED, f"whether --quantization {flag} makes room for scales")
    if statement is None:
        return False, Evidence("rule §2.5", "a model without quantisation has no place for scales")
    if whose == "roomless":
        return False, Evidence("rule §2.5", f"{flag or statement.method} has no place for scales")
    family, algo = statement.family, read_as(checkpoint, ask, version)[0]
    if family == "other":
        return None, Evidence(NOT_ASKED, f"whether {statement.method} loads scales of the cache")
    # These make room for scales only where they know of a quantised cache.
    if family in ("compressed-tensors", "modelopt_fp8", "modelopt_mixed") and algo == "":
        if any(one.says and _is_name(one, family) for one in statement.kv):
            said = f"whether {family} makes room for scales of {statement.kv_says}"
            return None, Evidence(NOT_ASKED, said)
        said = f"{family} in {version} knows of no quantised cache here, and has no place for them"
        return False, Evidence("rule §2.5", said)
    if algo is None:
        return None, Evidence(NOT_ASKED, "whether it makes room for scales")
    return True, Evidence("rule §2.5", f"{family} has a place for scales")


def _is_name(one: KvStatement, family: Family) -> bool:
    """ModelOpt's reader keeps whatever name stands there, and a quantised cache it is."""
    said_so = one.form in ("nested-algo", "flat-algo")
    return family == "modelopt_mixed" or (family == "modelopt_fp8" and said_so)


def _asked(probe: Probe | None) -> tuple[bool, Evidence] | None:
    """What the release's own class says, None where it says nothing."""
    if probe is None or probe.loads is None:
        return None
    said = "the class loads scales" if probe.loads else "the class passes scales over"
    if probe.ignores:
        said += f"; its lists of names to ignore have {', '.join(probe.ignores)}"
    return probe.loads, Evidence(probe.source, said)


def _loaded(checkpoint: Checkpoint, version: str) -> tuple[bool | None, Evidence]:
    name = checkpoint.architectures[0] if checkpoint.architectures else ""
    loaded = rules.loads(name, version)
    if loaded is None:
        return None, Evidence(NOT_ASKED, f"whether {name or 'the class'} loads scales")
    said = "loads scales" if loaded else "passes scales over: its attention is built without them"
    return loaded, Evidence(f"rule §2.5, models of {version}", f"{name} {said}")


def _wide(
    checkpoint: Checkpoint, ask: Ask, fate: Fate, version: str
) -> tuple[Verdict, tuple[Evidence, ...]]:
    found = checkpoint.target
    if fate in ("no", "ignored"):
        return "safe", ()
    values = [*found.k.values(), *found.v.values()]
    if values and all(value == 1.0 for value in values):
        return "safe", (Evidence("rule §2.6", "scales of 1.0 change nothing in a 16-bit cache"),)
    if fate == "unknown":
        said = "a 16-bit cache would be wrong with scales loaded; whether they are is not known"
        return "unknown", (Evidence("rule §2.6", said),)
    running = backends(checkpoint, ask, version)
    told, where = running.told, running.source
    if running.all(leaves_alone):
        return "safe", (Evidence(where, f"{told} does not apply scales here"),)
    if running.surely(multiplies):
        said = f"{told} multiplies by scales what was stored without (read, not run); test it"
        return "wrong", (Evidence(where, said),)
    return "unknown", (Evidence(where, f"{told}: whether it multiplies by them is not known"),)


def _narrow(
    checkpoint: Checkpoint, ask: Ask, made: Effective, fate: Fate, version: str
) -> tuple[Verdict, tuple[Evidence, ...]]:
    found, dtype = checkpoint.target, made.dtype
    # The engine looks at that file for this very argument alone (§2.4).
    if made.argument == "fp8_e4m3" and (path := ask.flag("quantization_param_path")):
        return "unknown", (Evidence("--quantization-param-path", f"{path} was not read"),)
    if fate in ("no", "ignored") or found.state in ("partial", "ones"):
        return "lossy-uncalibrated", ()
    if fate == "unknown":
        return "unknown", ()
    if dtype != "fp8_e4m3":
        said = f"the scales were made for e4m3, and the cache is {dtype}"
        return "lossy-uncalibrated", (Evidence("scales", said),)
    return _applied(checkpoint, ask, version)


def _applied(
    checkpoint: Checkpoint, ask: Ask, version: str
) -> tuple[Verdict, tuple[Evidence, ...]]:
    """Calibrated scales are loaded: what the backends make of them."""
    running = backends(checkpoint, ask, version)
    told, where = running.told, running.source
    if running.surely(does("forgets")):
        said = f"{told} forgets the scales on a prefix hit, so that the answer is another"
        return "wrong", (Evidence(where, said),)
    if running.all(does("applies")):
        return "lossy-calibrated", (Evidence(where, f"{told} applies the scales"),)
    if running.all(does("ignores")):
        return "lossy-uncalibrated", (Evidence(where, f"{told} ignores scales"),)
    return "unknown", (Evidence(where, f"{told}: what it does with scales is not known"),)
