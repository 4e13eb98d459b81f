"""The accuracy room: from a value of `--kv-cache-dtype` to the dtype that the cache really gets.

Evaluated for one version that was read; facts §2.2 and §2.3 say how, `rules` holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from firstlight.accuracy import rules
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.declared import KvStatement, Statement
from firstlight.accuracy.methods import taken
from firstlight.accuracy.rules import Override
from firstlight.accuracy.values import a_text

AUTO: Final = "auto"
UNKNOWN: Final = "unknown"
REFUSED: Final = "refused"
WIDE = frozenset({"bfloat16", "float16", "float32"})
NOT_ASKED = "engine code not asked"
_KNOWN = ("FP8", "NVFP4")
_SHORT = {"half": "float16", "float": "float32"}


@dataclass(frozen=True)
class Evidence:
    """One line: where it was found (a file and its key, a tensor, a rule), and what it says."""

    where: str
    says: str

    def __str__(self) -> str:
        return f"{self.where}: {self.says}"


@dataclass(frozen=True)
class Probe:
    """What the engine's own code answered in the release's venv; None where it was not asked.

    `algo` is `kv_cache_quant_algo` of its configuration, "" for none; `shows`: the top-level
    object has `quant_config`; `loads`: names of scales are mapped for this architecture; `ignores`:
    names of scales on its lists of what to ignore, which matter where no mapping comes first.
    """

    source: str
    algo: str | None = None
    shows: bool | None = None
    loads: bool | None = None
    ignores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ask:
    """An engine and how it is launched.

    `flags` are those of the engine by their first names in snake_case; `sm` is the compute
    capability without its dot; `choices` are the values that this very release takes; `amx` says
    whether the processor has Intel AMX, None where it was not asked; `patches` are ours that are
    in this engine, by their files below patches/.
    """

    version: str
    flags: Mapping[str, JsonValue]
    sm: int | None = None
    choices: tuple[str, ...] | None = None
    probe: Probe | None = None
    amx: bool | None = None
    patches: tuple[str, ...] = ()

    @property
    def is_cpu(self) -> bool:
        """Whether it is launched on the CPU."""
        return self.flag("device") == "cpu"

    def flag(self, name: str) -> str:
        """A flag's value as one word, "" where it is not given."""
        value = self.flags.get(name)
        if value is None or value is False:
            return ""
        return "true" if value is True else str(value)

    @property
    def is_generic(self) -> bool:
        """Whether a class for all models stands in for the one that the checkpoint names."""
        return self.flag("model_impl").lower() in ("transformers", "mindspore")


@dataclass(frozen=True)
class Effective:
    """The dtype, `unknown` or `refused`; `argument` is the value after what rewrites it."""

    dtype: str
    argument: str
    evidence: tuple[Evidence, ...]


def effective(checkpoint: Checkpoint, ask: Ask, asked: str, version: str) -> Effective:
    """What one value of the flag becomes in one version that was read."""
    rows = [row for row in rules.OVERRIDES if row.holds(version) and _meant(row, checkpoint, ask)]
    if refusal := next(_refusals(rows, ask, asked, version), None):
        return Effective(REFUSED, asked, (refusal,))
    forced = next((row for row in rows if row.always), None)
    if forced and asked != forced.always:
        said = f"{forced.name} rewrites {asked} to {forced.always}"
        made = _explicit(forced.always, version)
        return replace(made, evidence=(Evidence(_rule(forced), said), *made.evidence))
    if asked != AUTO:
        return _explicit(asked, version)
    if row := next((row for row in rows if row.auto), None):
        return _overridden(row, checkpoint, ask, version)
    return _followed(checkpoint, ask, version)


def _meant(row: Override, checkpoint: Checkpoint, ask: Ask) -> bool:
    name = checkpoint.architectures[0] if checkpoint.architectures else ""
    used = checkpoint.quantisation.used
    return (
        (not row.architectures or name in row.architectures)
        and (not row.key or checkpoint.text.get(row.key) not in (None, False))
        and (not row.algo or (used is not None and used.algo == row.algo))
        and (not row.flags or any(ask.flag(flag) in row.words for flag in row.flags))
    )


def _refusals(rows: list[Override], ask: Ask, asked: str, version: str) -> Iterator[Evidence]:
    if ask.choices is not None and asked not in ask.choices:
        yield Evidence("capabilities.json", f"this release takes {', '.join(ask.choices)}")
    value = next((v for v in rules.VALUES if v.name == asked and v.holds(version)), None)
    if asked != AUTO and value is None:
        yield Evidence("--kv-cache-dtype", f"{version} does not take {asked} (§2.3)")
    elif value and ask.sm is not None and ask.sm < value.least_sm:
        said = f"{asked} needs SM{value.least_sm} or newer, this is SM{ask.sm}"
        yield Evidence(f"rule {value.source}", said)
    for row in rows:
        # Under its least_sm a row that says nothing of `below` does not apply.
        applies = row.below or not row.least_sm or (ask.sm or 0) >= row.least_sm
        spared = () if row.strict and not any(one.auto for one in rows) else (AUTO,)
        if row.allowed and applies and asked not in (*spared, *row.allowed):
            yield Evidence(_rule(row), f"{row.name} takes {' or '.join(row.allowed)} alone")
    prefill = ask.flag("prefill_attention_backend") or ask.flag("attention_backend")
    if prefill == "trtllm_mha" and ask.sm in (120, 121):
        yield from _trtllm_mha(asked, version)


def _trtllm_mha(asked: str, version: str) -> Iterator[Evidence]:
    """Facts §1: what trtllm_mha does on SM120."""
    if rules.READ.index(version) < rules.READ.index("0.5.20"):
        where = "0.5.9 server_args.py:1896, 0.5.16 server_args.py:5026"
        yield Evidence(f"rule {where}", "trtllm_mha is refused for prefill on SM120")
    elif asked == "fp8_e4m3":
        said = "trtllm_mha on SM120 is refused with the argument fp8_e4m3"
        yield Evidence("rule 0.5.23 arg_groups/attention_hook.py:207", said)


def _explicit(asked: str, version: str) -> Effective:
    value = next(v for v in rules.VALUES if v.name == asked and v.holds(version))
    said = f"the argument {asked} is {value.dtype}, whatever the checkpoint declares"
    return Effective(value.dtype, asked, (Evidence(f"rule {value.source}", said),))


def _overridden(row: Override, checkpoint: Checkpoint, ask: Ask, version: str) -> Effective:
    if row.least_sm and ask.sm is None:
        said = f"{row.name}: auto depends on the GPU, which is not known here"
        return Effective(UNKNOWN, AUTO, (Evidence(_rule(row), said),))
    becomes = row.auto
    if row.least_sm and (ask.sm or 0) < row.least_sm:
        becomes = row.below
    if not becomes:
        return _followed(checkpoint, ask, version)
    said = f"{row.name} rewrites auto to {becomes} before anything is loaded"
    return Effective(becomes, becomes, (Evidence(_rule(row), said),))


def _followed(checkpoint: Checkpoint, ask: Ask, version: str) -> Effective:
    """`auto`, which follows the checkpoint where the class shows it (§2.3)."""
    algo, lines = read_as(checkpoint, ask, version)
    probe = ask.probe
    if algo is None:
        return Effective(UNKNOWN, AUTO, (*lines, Evidence(NOT_ASKED, "what it makes of that")))
    if algo.upper() != "FP8":
        return _as_model(checkpoint, ask, lines)
    name = checkpoint.architectures[0] if checkpoint.architectures else ""
    shown, where = rules.shows(name, version), f"rule §2.3, models of {version}"
    if probe and probe.shows is not None:
        shown, where = probe.shows, probe.source
    if shown is None or ask.is_generic:
        name = f"the class of --model-impl {ask.flag('model_impl')}" if ask.is_generic else name
        said = f"whether {name or 'the class'} shows its quantisation to `auto`"
        return Effective(UNKNOWN, AUTO, (*lines, Evidence(NOT_ASKED, said)))
    if not shown:
        said = f"{name} has no quant_config, so auto does not see that"
        return _as_model(checkpoint, ask, (*lines, Evidence(where, said)))
    said = f"{name} has quant_config, so auto becomes fp8_e4m3, and no warning is printed"
    return Effective("fp8_e4m3", AUTO, (*lines, Evidence(where, said)))


def _as_model(checkpoint: Checkpoint, ask: Ask, lines: tuple[Evidence, ...]) -> Effective:
    dtype, where = _model_dtype(checkpoint, ask)
    if dtype == UNKNOWN:
        said = "auto is the model's dtype, which is none of 16 or 32 bits that floats have"
        return Effective(UNKNOWN, AUTO, (*lines, Evidence(where, said)))
    said = f"auto is the model's dtype, {dtype}"
    return Effective(dtype, AUTO, (*lines, Evidence(where, said)))


def _model_dtype(checkpoint: Checkpoint, ask: Ask) -> tuple[str, str]:
    given = _SHORT.get(ask.flag("dtype"), ask.flag("dtype"))
    if given in WIDE:
        return given, "--dtype"
    names = {key: a_text(checkpoint.text.get(key)) for key in ("torch_dtype", "dtype")}
    key, name = next(((k, v.removeprefix("torch.")) for k, v in names.items() if v), ("", ""))
    where = f"config.json: {key}" if key else "config.json: it names no dtype"
    if (name := _SHORT.get(name, name)) in WIDE - {"float32"}:
        return name, where
    if name not in ("", "float32"):
        return UNKNOWN, f"{where} is {name}"
    # Nothing is float32 to the engine, which it serves in 16 bits (0.5.23 model_config.py:2304).
    gemma = a_text(checkpoint.text.get("model_type")).startswith("gemma")
    return "bfloat16" if gemma else "float16", where


def statement_of(checkpoint: Checkpoint, version: str) -> Statement | None:
    """The block that this version reads; one of mixed precision may be completed (§2.1)."""
    found = checkpoint.quantisation
    completed = rules.READ.index(version) >= rules.READ.index("0.5.16")
    return found.instead if found.instead and completed else found.used


def declared(
    checkpoint: Checkpoint, version: str, flag: str = ""
) -> tuple[str | None, tuple[Evidence, ...]]:
    """`kv_cache_quant_algo` as this version reads it, "" for none, None where no rule says it;
    `flag` is what --quantization says."""
    statement = statement_of(checkpoint, version)
    whose = taken(statement, flag)
    if whose == "unknown":
        return None, (Evidence("--quantization", f"{flag} is not what the checkpoint declares"),)
    if statement is None:
        return "", (Evidence("config.json", "nothing is declared about quantisation"),)
    if whose == "roomless":
        said = f"{flag or statement.method} knows of no quantised cache"
        return "", (Evidence("--quantization" if flag else statement.place, said),)
    if unsaid := rules.UNSAID.get(statement.family):
        return _unsaid(statement, version, *unsaid)
    passed: list[Evidence] = []
    for one in statement.kv:
        place = f"{statement.file}: {one.key}"
        rule = next(_rules_of(statement, one, version), None)
        # A null is no statement, and leaves room for the next key.
        if not one.says:
            continue
        if rule is None:
            passed.append(Evidence(place, f"{one.says} for the KV cache, in a form without a rule"))
            return None, tuple(passed)
        line = Evidence(place, f"declares {one.says} for the KV cache")
        if rule.read and not (statement.family == "compressed-tensors" and not one.per_tensor):
            read = Evidence(f"rule {rule.source}", "this form is read")
            # Whatever else is said means `auto` to the engine.
            return one.says if one.says in _KNOWN else "", (*passed, line, read)
        passed += [line, Evidence(f"rule {rule.source}", "this form is passed over")]
        if one.form == "flat-scheme" and statement.family != "fp8":
            break
    if not passed:
        passed.append(Evidence(statement.place, "nothing is declared about the KV cache"))
    return "", tuple(passed)


def read_as(
    checkpoint: Checkpoint, ask: Ask, version: str
) -> tuple[str | None, tuple[Evidence, ...]]:
    """What is declared, or what the release's own reader made of it where it was asked."""
    algo, lines = declared(checkpoint, version, ask.flag("quantization"))
    statement, probe = statement_of(checkpoint, version), ask.probe
    # The method of these is settled by arguments, of which the reader that is asked knows nothing.
    by_itself = statement is None or statement.family not in rules.UNSAID
    if probe is None or probe.algo is None or not by_itself:
        return algo, lines
    return probe.algo, (
        *lines,
        Evidence(probe.source, f"the engine reads {probe.algo or 'nothing'}"),
    )


def _unsaid(
    statement: Statement, version: str, since: str, source: str
) -> tuple[str | None, tuple[Evidence, ...]]:
    """Weights of a kind whose cache is FP8 whatever the file says of it."""
    if rules.READ.index(version) < rules.READ.index(since):
        return None, (Evidence(statement.place, f"{statement.family} is not known before {since}"),)
    return "FP8", (Evidence(f"rule {source}", f"{statement.family} has a cache of FP8, unsaid"),)


def _rules_of(statement: Statement, one: KvStatement, version: str) -> Iterator[rules.FormRule]:
    for row in rules.FORMS:
        if row.form == one.form and statement.family in row.families and row.holds(version):
            yield row


def _rule(row: Override) -> str:
    return f"rule {row.source}"
