"""The accuracy room: what a launch of DeepSeek-V4 becomes, and what of one is not modelled.

The engine sets page, requests and window by itself, whatever is asked for (0.5.12
deepseek_v4_hook.py:16, 0.5.15 arg_groups/overrides.py:680, 0.5.23 arg_groups/model_overrides/
deepseek_v4.py:20 and deepseek_v4_hook.py:63).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvdsv4 import RUNNING
from firstlight.accuracy.kvlaunch import FP8, Launch
from firstlight.accuracy.kvrules import since
from firstlight.accuracy.values import a_text

Args = Mapping[str, JsonValue]

_PAGE = 256
# The window's share where nobody says, and the value that counted as nobody's before 0.5.20.
_RATIO, _UNSAID = 0.1, 0.8
_DRAFTS = ("EAGLE", "NEXTN", "DSPARK")
_ARGS = {
    "enable_hisparse": "a pool of ratio 4 that is smaller than its addresses",
    "enable_encoder_swa_bounded_replay": "the windows of requests",
    "enable_unified_memory": "pools in one buffer",
}
# Switches that change rows, states or what stands beside them (0.5.23 environ.py:730, :1754-1832).
_ENV = (
    *("SGLANG_DSV4_COMPRESS_STATE_DTYPE", "SGLANG_OPT_USE_ONLINE_COMPRESS"),
    *("SGLANG_DSV4_KV_LAYOUT", "SGLANG_DSV4_COMPRESSED_KV_LAYOUT", "SGLANG_DSV4_UNIFIED_KV_FP8"),
    *("SGLANG_SWA_EVICTION_INTERVAL", "SGLANG_OPT_SM120_DIRECT_SWA_KV"),
    "SGLANG_HACK_FLASHMLA_BACKEND",
)


def settled(launch: Launch, args: Args, ratio: float | None, tails: int | None) -> Launch:
    """The launch as the engine makes it; `ratio` and `tails` are the two flags of the window, None
    where they are not given."""
    given = ratio is not None and (since(launch.version, "0.5.20") or ratio != _UNSAID)
    return replace(
        launch,
        kv_dtype=FP8 if a_text(args.get("kv_cache_dtype")) in ("", "auto") else launch.kv_dtype,
        page_size=_PAGE,
        max_running=launch.max_running or RUNNING,
        swa_ratio=ratio if given and ratio else _RATIO,
        swa_given=given,
        prefix_tails=tails,
        uniform_rows=_backend(args) == "trtllm",
    )


def _backend(args: Args) -> str:
    return a_text(args.get("dsv4_attn_backend")) or "auto"


def notes(args: Args) -> Iterator[str]:
    """What to know of figures that are computed."""
    if args.get("enable_deepseek_v4_fp4_indexer"):
        yield "index keys of four bits are priced as of eight: the pool takes less than is said"
    if args.get("page_size") not in (None, _PAGE, str(_PAGE)):
        yield f"DeepSeek-V4 has pages of {_PAGE} tokens, whatever is asked for"


def unmodelled(
    geometry: Geometry, launch: Launch, args: Args, env: Mapping[str, str], sm: int | None
) -> tuple[str, ...]:
    """What of this launch has pools that are not sized here, one a line; () where all of it is.

    `sm` is the card's compute capability without its dot, None where it is not known."""
    if geometry.compressed is None:
        return ()
    found = [f"{name} ({what})" for name, what in _ARGS.items() if args.get(name)]
    found += [name for name in _ENV if env.get(name)]
    found += _of_host(args)
    found += _of_drafts(args)
    if geometry.compressed.v41:
        found += _of_v41(launch, args, sm)
    return tuple(f"DeepSeek-V4 with {what}: not modelled here" for what in found)


def _of_host(args: Args) -> Iterator[str]:
    if (device := a_text(args.get("device"))) not in ("", "cuda"):
        yield f"the pools of device {device}"
    if args.get("disaggregation_mode") == "decode":
        yield "the slots that a server of decode keeps in reserve"
    if str(args.get("dcp_size") or 1) != "1":
        yield "dcp_size"


def _of_drafts(args: Args) -> Iterator[str]:
    asked = a_text(args.get("speculative_algorithm") or args.get("speculative_algo")).upper()
    if asked and asked not in _DRAFTS:
        yield f"drafts by {asked}, which the engine refuses"


def _of_v41(launch: Launch, args: Args, sm: int | None) -> Iterator[str]:
    if launch.pp > 1:
        yield "pipeline stages of DeepSeek-V4.1, which the engine refuses"
    if not launch.swa_given and args.get("chunked_prefill_size") is None:
        yield "a window sized by --chunked-prefill-size, which is not given"
    # FlashMLA's rows of 2026 (0.5.23 deepseek_v4_hook.py:45, deepseek_v4_memory_pool.py:224).
    backend, apart = _backend(args), args.get("disaggregation_mode") not in (None, "null")
    usual = launch.attn_tp == 1 or apart or args.get("enable_prefill_cp")
    mega = backend == "auto" and since(launch.version, "0.5.23") and sm in (100, 103) and usual
    if mega or backend == "flashmla_mega":
        yield "the rows of flashmla_mega"
