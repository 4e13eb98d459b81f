"""The accuracy room: what else would be quietly wrong, or quietly other than was meant.

None of these changes the verdict on the cache; each names the place where it is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from firstlight.accuracy import rules
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.kvchoice import AUTO, WIDE, Ask
from firstlight.accuracy.values import human_count

# Runners that fall back or change from release to release (facts on SM120, "What repeats").
_FP4_RUNNERS = ("moe_runner_backend", "fp4_gemm_backend")
_FP8_RUNNERS = ("moe_runner_backend", "fp8_gemm_backend")
# The compute capability from which weights of a kind are multiplied as they are.
_NATIVE = {"NVFP4": 100, "MXFP4": 100, "MXFP8": 100, "FP8": 89}


@dataclass(frozen=True)
class Threat:
    """`where` is a key of the profile or a file of the checkpoint; `fix` may be empty."""

    severity: Literal["warning", "note"]
    kind: str
    where: str
    what: str
    fix: str = ""


def threats(checkpoint: Checkpoint, ask: Ask, dtype: str) -> tuple[Threat, ...]:
    """All of them; `dtype` is what the target's cache gets."""
    return (
        *_draft(checkpoint, ask, dtype),
        *_backends(checkpoint, ask),
        *_weight_only(checkpoint, ask),
        *_context(checkpoint, ask),
        *_sampling(checkpoint, ask),
        *_template(checkpoint, ask),
        *_code(checkpoint, ask),
    )


def _draft(checkpoint: Checkpoint, ask: Ask, dtype: str) -> Iterator[Threat]:
    """The KV cache of a draft model (facts §2.4, draft exception)."""
    if not ask.flag("speculative_algorithm") or ask.flag("speculative_algorithm") == "NGRAM":
        return
    own, target = ask.flag("speculative_draft_kv_cache_dtype"), ask.flag("kv_cache_dtype") or AUTO
    apart = _at_least(ask.version, rules.DRAFT_APART)
    argument = own if own and apart else target
    if argument in ("bf16", "bfloat16"):
        return
    key = "args.speculative_draft_kv_cache_dtype" if apart else "args.kv_cache_dtype"
    fix = f"write {key}: bf16"
    held = checkpoint.draft_scales.state
    told = f"; scales of the draft in this checkpoint: {held}" if checkpoint.draft.groups else ""
    if argument != AUTO:
        what = f"the draft's cache is {argument}{told}"
        yield Threat("warning", "draft-kv", key, what, fix)
    elif dtype not in WIDE and not apart:
        what = f"the draft's cache becomes {dtype} with the target's{told}"
        yield Threat("warning", "draft-kv", key, what, fix)
    elif dtype not in WIDE or checkpoint.quantisation.used:
        what = f"the draft's cache follows its own class and checkpoint, not the target's{told}"
        yield Threat("warning", "draft-kv", key, f"{what}; engine code not asked", fix)


def _backends(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    both = ("prefill_attention_backend", "decode_attention_backend")
    split = all(ask.flag(name) not in ("", AUTO) for name in both)
    if ask.flag("attention_backend") in ("", AUTO) and not split:
        what = "the engine chooses the attention backend, and may choose another after an upgrade"
        yield Threat("note", "auto-backend", "args.attention_backend", what, "name one")
    for name in _runners(checkpoint):
        if ask.flag(name) in ("", AUTO):
            what = "left to the engine, whose choice moves between right, slow and garbage"
            yield Threat("warning", "auto-backend", f"args.{name}", what, "name a tested one")


def _runners(checkpoint: Checkpoint) -> tuple[str, ...]:
    used = checkpoint.quantisation.used
    algo = used.algo if used else ""
    found = _FP4_RUNNERS if "FP4" in algo else _FP8_RUNNERS if "FP8" in algo else ()
    experts = any(".experts." in group.name for group in checkpoint.reading.groups)
    return tuple(name for name in found if experts or "moe" not in name)


def _weight_only(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    used = checkpoint.quantisation.used
    least = _NATIVE.get(used.algo) if used else None
    if used and least and ask.sm is not None and ask.sm < least:
        what = (
            f"{used.algo} weights on SM{ask.sm} are widened before they are multiplied "
            f"(weight-only); native from SM{least} on"
        )
        yield Threat("warning", "weight-only", used.place, what)
    for name in _FP4_RUNNERS:
        if "marlin" in ask.flag(name):
            what = f"{ask.flag(name)} multiplies by widened weights: safe, and slower"
            yield Threat("note", "weight-only", f"args.{name}", what)


def _context(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    limit, tokens = checkpoint.context.limit, checkpoint.context.tokenizer_limit
    wanted = human_count(ask.flag("context_length"))
    if wanted and limit and wanted > limit:
        what = f"{wanted} tokens, and the checkpoint was made for {limit}"
        yield Threat("warning", "context", "args.context_length", what, f"write {limit}, or less")
    if not wanted and limit and tokens and tokens < limit:
        what = f"the tokenizer says {tokens} tokens, config.json {limit}; the engine takes {limit}"
        yield Threat("note", "context", "tokenizer_config.json: model_max_length", what)
    override = ask.flag("json_model_override_args")
    if "rope" in override or "max_position" in override:
        what = "rope or positions are changed against the checkpoint's own"
        yield Threat("warning", "context", "args.json_model_override_args", what)


def _sampling(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    if ask.flag("sampling_defaults") == "openai":
        return
    for key, value in checkpoint.sampling.penalties.items():
        what = f"{key} {value:g} is applied to every request that does not say otherwise"
        fix = "write args.sampling_defaults: openai, or send neutral values"
        yield Threat("warning", "sampling", f"generation_config.json: {key}", what, fix)


def _template(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    if not checkpoint.templates and not ask.flag("chat_template"):
        what = "the checkpoint has no chat template; the engine guesses one, or joins messages"
        yield Threat("warning", "chat-template", "args.chat_template", what, "name one")


def _code(checkpoint: Checkpoint, ask: Ask) -> Iterator[Threat]:
    code, key = checkpoint.remote_code, "args.trust_remote_code"
    trusted = bool(ask.flag("trust_remote_code"))
    if trusted and code.auto_map:
        what = f"Python of the checkpoint runs: {', '.join(sorted(set(code.auto_map.values())))}"
        yield Threat("note", "remote-code", key, what)
    elif trusted:
        what = "the checkpoint brings no Python, so nothing needs it"
        yield Threat("note", "remote-code", key, what, "leave it out")
    for name in code.elsewhere if trusted else ():
        what = f"{name} is fetched from another repository, at no fixed revision"
        yield Threat("warning", "remote-code", key, what)


def _at_least(version: str, least: str) -> bool:
    try:
        return Version(version) >= Version(least)
    except InvalidVersion:
        return False
