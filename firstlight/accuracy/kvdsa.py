"""The accuracy room: whether a DSA model's FP8 rows lie bare, or with scales beside them.

The kernels decide, and which of them run is decided by the flags, else by version, card and class
(`_set_default_nsa_backends`, 0.5.9 server_args.py:1149, 0.5.12:1702;
`_dsa_split_backend_resolution`, 0.5.16 arg_groups/overrides.py:1290, 0.5.23:601;
`calculate_mla_kv_cache_dim`, 0.5.23 kv_cache_configurator.py:3412).
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from firstlight.accuracy.kvrules import since

Args = Mapping[str, JsonValue]

_SIDES = ("prefill", "decode")
# Since when the engine takes bare rows by itself on any card.
_BARE_SINCE = "0.5.10"
_ROCM = ("tilelang", "triton", "aiter")


def bare_rows(args: Args, name: str, version: str, sm: int | None, *, rocm: bool = False) -> bool:
    """Whether the FP8 rows of class `name` have no scales. `sm` is the compute capability without
    its dot; where it is not known, a side without a named kernel is taken to have scales."""
    if _forced_bare(version, sm) and not rocm:
        return True
    usual = _usual(args, name, version, sm, rocm)
    kernels = [named(args, side) or usual for side in _SIDES]
    role = args.get("disaggregation_mode")
    if since(version, "0.5.23") and role in _SIDES:
        kernels = [kernels[_SIDES.index(str(role))]]
    if rocm and since(version, _BARE_SINCE) and any(kernel in _ROCM for kernel in kernels):
        return True
    # Before 0.5.23 TileLang's rows have scales on CUDA, and from 0.5.17 on it is refused there.
    if since(version, "0.5.23") and all(kernel == "tilelang" for kernel in kernels):
        return True
    return "trtllm" in kernels


def named(args: Args, side: str) -> str:
    """The kernel that flags name for prefill or decode, "" for none."""
    found = (args.get(f"{name}_{side}_backend") for name in ("dsa", "nsa"))
    return next((str(kernel) for kernel in found if kernel), "")


def depends_on_card(args: Args, version: str) -> bool:
    """Whether the card has a say: a side is left to a version that goes by the card."""
    left = not all(named(args, side) for side in _SIDES)
    return left and since(version, _BARE_SINCE) and not args.get("enable_hisparse")


def _forced_bare(version: str, sm: int | None) -> bool:
    """0.5.10 takes trtllm from SM100 on whatever is named (0.5.10 server_args.py:1465)."""
    return since(version, "0.5.10") and not since(version, "0.5.11") and (sm or 0) >= 100


def _usual(args: Args, name: str, version: str, sm: int | None, rocm: bool) -> str:
    """The kernel of a side that names none, "" for one whose rows have scales."""
    if not since(version, _BARE_SINCE) or args.get("enable_hisparse"):
        return ""
    if rocm:
        return "tilelang"
    # GLM-5 on SM120 and SM121 has a kernel of its own (0.5.17 arg_groups/overrides.py:1600).
    glm = name == "GlmMoeDsaForCausalLM" and sm is not None and 120 <= sm < 130
    if glm and since(version, "0.5.17"):
        return ""
    return "trtllm" if (sm or 0) >= 100 else ""
