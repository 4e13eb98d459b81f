"""The accuracy room: what the engine refuses on a CPU, and what one patch of ours lets in there.

An FP8 cache of a CPU is read by kernels for Intel AMX alone; without them, or beside another
backend, the engine stops while it makes its pools. The patch spares torch_native that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firstlight.accuracy import rules
from firstlight.accuracy.kvchoice import REFUSED, UNKNOWN, Ask, Effective, Evidence
from firstlight.accuracy.rules import Span

# Below patches/; what it lifts is told at its head.
LIFTS = "sglang/0002-fp8-kv-cache-on-cpu-with-torch-native.patch"
_LIFTED = ("fp8_e4m3", "fp8_e5m2")
_AMX, _NATIVE = "intel_amx", "torch_native"


@dataclass(frozen=True)
class Refusal(Span):
    """A dtype that no CPU gets, whatever its processor and backend."""

    dtypes: tuple[str, ...]
    said: str


_FP8 = Span(
    "0.5.20",
    "",
    "0.5.20 mem_cache/kv_cache_configurator.py:313, 0.5.23 :457",
)
_REFUSALS = (
    Refusal(
        "0.5.20",
        "",
        "0.5.20 mem_cache/kv_cache_dtype.py:50, 0.5.23 :61",
        ("fp8_e5m2",),
        "fp8_e5m2 is not supported on a CPU",
    ),
    Refusal(
        "0.5.9",
        "",
        "0.5.9 server_args.py:2053, 0.5.16 :5146, 0.5.23 arg_groups/kv_cache_hook.py:318",
        ("nvfp4", "fp4_mx_block16", "fp4_e2m1"),
        "a cache of four bits is for CUDA alone",
    ),
    Refusal(
        "0.5.16",
        "",
        "0.5.16 server_args.py:5070, 0.5.23 arg_groups/kv_cache_hook.py:107",
        ("mxfp8",),
        "mxfp8 is for Blackwell alone",
    ),
)


def on_device(made: Effective, ask: Ask, version: str) -> Effective:
    """The same, unless it is for a CPU and refused there; `version` is one that was read."""
    # What a version outside the table refuses, no rule of this one says.
    if not ask.is_cpu or not rules.neighbours(ask.version):
        return made
    lifted = LIFTS in ask.patches
    if lifted and made.dtype in _LIFTED and _backends(ask) == {_NATIVE}:
        line = Evidence(f"patches/{LIFTS}", "lets it in on a CPU, with torch_native")
        return replace(made, evidence=(*made.evidence, line))
    for row in _REFUSALS:
        if made.dtype in row.dtypes and row.holds(version):
            return _with(made, REFUSED, f"rule {row.source}", row.said)
    if made.dtype == "fp8_e4m3" and _FP8.holds(version):
        return _needs_amx(made, ask, lifted)
    return made


def _needs_amx(made: Effective, ask: Ask, lifted: bool) -> Effective:
    others = sorted(_backends(ask) - {_AMX})
    needs = "on a CPU an FP8 cache needs Intel AMX and the intel_amx backend"
    if ask.amx is False:
        return _with(made, REFUSED, f"rule {_FP8.source}", f"{needs}; this one has no AMX")
    if others:
        return _with(made, REFUSED, f"rule {_FP8.source}", f"{needs}, not {', '.join(others)}")
    # With the patch both ways of the engine's own choice are open.
    if ask.amx is None and not lifted:
        return _with(made, UNKNOWN, f"rule {_FP8.source}", f"{needs}; no CPU was asked for AMX")
    return made


def _with(made: Effective, dtype: str, where: str, said: str) -> Effective:
    return Effective(dtype, made.argument, (*made.evidence, Evidence(where, said)))


def _backends(ask: Ask) -> set[str]:
    """Of prefill and decode, as they are resolved: intel_amx gives way where there is no AMX
    (0.5.23 arg_groups/platform_hook.py:166, overrides.py:1303)."""
    usual = ask.flag("attention_backend") or _AMX
    if usual == _AMX and ask.amx is False:
        usual = _NATIVE
    names = ("prefill_attention_backend", "decode_attention_backend")
    return {ask.flag(name) or usual for name in names}
