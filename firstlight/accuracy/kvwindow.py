"""The accuracy room: how many tokens the pool of a sliding window holds.

By default a share of the tokens of the other pool. From 0.5.14 on, without a radix cache and with
--max-running-requests, just what those requests can hold, and the rest is the other pool's
(`SWAChunkCapPoolConfigurator`, 0.5.14 pool_configurator.py:339-436).
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvlaunch import Launch
from firstlight.accuracy.kvrules import since

# SGLANG_SWA_EVICTION_INTERVAL, the same in all versions that have it.
_EVICTED_AFTER = 128

# With a hierarchical cache these have one pool: since when, and until which version.
_HIERARCHICAL_IN_ONE = {
    "MiMoV2FlashForCausalLM": ("0.5.7", "0.5.16"),
    "MiMoV2ForCausalLM": ("0.5.11", "0.5.16"),
    "Step3p5ForCausalLM": ("0.5.9", ""),
    "Step3p7ForConditionalGeneration": ("0.5.13", ""),
}


def in_one_pool(name: str, version: str, args: Mapping[str, JsonValue]) -> bool:
    """Whether flags keep the layers that slide of class `name` beside the others
    (`disable_hybrid_swa_memory`, which the engine sets by itself in some launches: 0.5.8
    server_args.py:1278-1340, 0.5.9:1354-1442, 0.5.12:2162-2177, 0.5.23 overrides.py:359)."""
    if args.get("disable_hybrid_swa_memory"):
        return True
    if name == "GptOssForCausalLM" and since(version, "0.5.8"):
        return _gpt_oss_in_one(version, args)
    first, last = _HIERARCHICAL_IN_ONE.get(name, ("", ""))
    held = bool(first) and since(version, first) and not (last and since(version, last))
    return held and bool(args.get("enable_hierarchical_cache"))


def _gpt_oss_in_one(version: str, args: Mapping[str, JsonValue]) -> bool:
    backends = {args.get(f"{side}attention_backend") for side in ("", "prefill_", "decode_")}
    drafts = args.get("speculative_algorithm") or args.get("speculative_algo")
    if not since(version, "0.5.9"):
        return bool(drafts) or "trtllm_mha" in backends
    return not since(version, "0.5.10") and "trtllm_mha" in backends


def by_requests(geometry: Geometry, launch: Launch) -> bool:
    """Whether the requests decide, not the ratio."""
    asked = launch.rules.pools_capped and not launch.radix and launch.max_running
    return bool(asked and geometry.window and geometry.sliding and geometry.full)


def window_cap(geometry: Geometry, launch: Launch) -> int | None:
    """Tokens that the requests can hold in the window's pool, in whole pages; None where the ratio
    decides, or where the prefill chunk that is part of them is not known."""
    if not by_requests(geometry, launch) or not launch.chunk:
        return None
    tokens = request_cap(geometry.window, on_one_rank(launch.max_running or 0, launch), launch)
    return -(-tokens // launch.page_size) * launch.page_size


def on_one_rank(asked: int, launch: Launch) -> int:
    """Requests on one rank of DP attention of those asked for; before 0.5.23 it can be none."""
    each = asked // launch.dp
    return max(1, each) if since(launch.version, "0.5.23") else each


def request_cap(window: int, requests: int, launch: Launch) -> int:
    """Tokens of a window that `requests` hold at most, with the prefill chunks that are under way;
    DP attention shares a chunk among its ranks (`compute_swa_request_cap`, 0.5.23
    pool_configurator.py:924, arg_groups/parallel_hook.py:331)."""
    each = window + _EVICTED_AFTER * _drafted(launch) + launch.page_size + _ahead(launch)
    chunks = (launch.chunk or 0) // launch.dp * (2 if launch.overlap else 1)
    return each * requests + chunks + launch.page_size


def requests_in(window: int, tokens: int, launch: Launch) -> int:
    """How many requests a window's pool of `tokens` holds in the worst case."""
    nobody = request_cap(window, 0, launch)
    return max(0, tokens - nobody) // (request_cap(window, 1, launch) - nobody)


def _drafted(launch: Launch) -> int:
    return max(1, launch.speculation.draft_tokens) if launch.speculation else 1


def _ahead(launch: Launch) -> int:
    """What a decode step allocates for a request: two steps of drafts, without the overlap schedule
    one in whole pages, or a page."""
    if launch.speculation is None:
        return launch.page_size
    once = max(launch.speculation.tree or 0, _drafted(launch))
    return 2 * once if launch.overlap else -(-once // launch.page_size) * launch.page_size


def sliding_tokens(geometry: Geometry, launch: Launch, tokens: int) -> int:
    """Tokens of the window's pool that stand beside `tokens` of the other."""
    if (cap := window_cap(geometry, launch)) is not None:
        return cap
    return int(tokens * launch.swa_ratio) // launch.page_size * launch.page_size
