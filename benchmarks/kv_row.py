"""One published boot as arithmetic: what the library predicts of it, beside what its log said.

A row is as in kv-groundtruth.jsonl: an object with the published figures (GiB with two decimals,
null = not published), `config` with the config facts, and `calc` with what others worked out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.kv_fields import faults, straightened
from benchmarks.kv_published import (
    Published,
    budget_of,
    config_of,
    gib,
    in_one_pool,
    launch_of,
    tp_of,
)
from benchmarks.kv_version import possible, stated_version
from firstlight.accuracy.attention import describe
from firstlight.accuracy.geometry import Geometry, Heads, Latent, Layer, Unknown
from firstlight.accuracy.kvbytes import Row, row, stages, stored
from firstlight.accuracy.kvcache import Capacity, capacity
from firstlight.accuracy.kvlaunch import FP8, GIB, Launch, is_fp4
from firstlight.accuracy.kvrules import NEWEST
from firstlight.accuracy.kvstate import state_bytes
from firstlight.core.errors import FirstlightError

Verdict = Literal["hit", "rounding", "layout", "miss"]

BYTES_LIMIT, TOKENS_LIMIT = 0.01, 0.02
_HALF_DIGIT = 0.005 + 1e-9
# torch takes large buffers off the card in such steps (CUDACachingAllocator, kRoundLarge).
_STEP_BYTES = 2 << 20


@dataclass(frozen=True)
class Check:
    """One figure of one row. `about` is bytes, states, draft, tokens, split, boot or rule."""

    about: str
    what: str
    predicted: float
    published: float
    verdict: Verdict
    note: str = ""

    @property
    def off(self) -> float:
        """How far the prediction lies from what was published, as a share of that."""
        return self.predicted / self.published - 1 if self.published else 0.0


@dataclass(frozen=True)
class Scored:
    """One row: its kind, its checks, and why nothing could be checked, if so. `asked`: its bytes
    are marked consistent and not circular."""

    id: str
    kind: str
    asked: bool
    checks: tuple[Check, ...]
    skipped: str = ""


def score(published: Published) -> Scored:
    """All checks of one row; one whose fields are odd, or whose figures cannot be together, says so
    and has none."""
    name, row_of = str(published.get("id")), straightened(published)
    if odd := faults(row_of):
        return Scored(name, "unreadable", False, (), "; ".join(odd))
    calc = row_of.get("calc") or {}
    asked = calc.get("consistent") is True and not calc.get("circular")
    try:
        return _score(row_of, name, asked)
    except FirstlightError as error:
        return Scored(name, "unknown", asked, (), error.what)


def _score(published: Published, name: str, asked: bool) -> Scored:
    boots = tuple(_boot(published))
    told = published.get("config")
    if not told:
        checks = (*boots, *_rule(published))
        return Scored(name, "no config", asked, checks, "" if checks else "no config")
    geometry = describe(config_of(published), stated_version(published) or NEWEST)
    if isinstance(geometry, Unknown):
        return Scored(name, "unknown", asked, boots, f"missing: {'; '.join(geometry.missing)}")
    launch = launch_of(published, geometry)
    if launch is None:
        kv_dtype = published.get("kv_cache_dtype_arg")
        return Scored(name, geometry.kind, asked, boots, f"KV dtype {kv_dtype} is none of SGLang's")
    checks = tuple(_checks(published, geometry, launch))
    if checks and (lack := _lacks_parallel(published, geometry)):
        return Scored(name, geometry.kind, asked, boots, lack)
    boots = tuple(_boot(published, geometry, launch))
    if any(check.verdict == "miss" for check in checks):
        checks = _otherwise(published, geometry, launch) or checks
    checks = (*boots, *checks)
    return Scored(name, geometry.kind, asked, checks, "" if checks else "no size and no budget")


def _checks(published: Published, geometry: Geometry, launch: Launch) -> Iterator[Check]:
    first = tuple(next(iter(stages(geometry.layers, launch.pp))))  # a row is of stage 0
    yield from _sized(published, replace(geometry, layers=first), launch)
    yield from _counted(published, geometry, launch)


def _otherwise(published: Published, geometry: Geometry, launch: Launch) -> tuple[Check, ...]:
    """The checks by another reading of what the row leaves open, where all of them then agree."""
    for other, changed, note in _readings(published, geometry, launch):
        checks = tuple(_checks(published, other, changed))
        if checks and not any(check.verdict == "miss" for check in checks):
            return tuple(replace(check, verdict="layout", note=note) for check in checks)
    return ()


def _readings(
    published: Published, geometry: Geometry, launch: Launch
) -> Iterator[tuple[Geometry, Launch, str]]:
    if geometry.sliding and published.get("swa_tokens") is None:
        one = describe(in_one_pool(config_of(published)))
        if isinstance(one, Geometry):
            yield one, launch, "this build keeps one pool for all layers"
    if not published.get("kv_dtype") and published.get("kv_cache_dtype_arg") in (None, "auto"):
        for raw in (launch.dsa_raw, not launch.dsa_raw):
            halved = replace(launch, kv_dtype=FP8, dsa_raw=raw)
            yield geometry, halved, "the row leaves the dtype open: FP8"
    if not stated_version(published):
        for version in reversed(possible(published)):
            if moved := launch_of(published, geometry, version):
                yield geometry, moved, f"the row leaves the version open: {version}"


def judged(
    about: str, what: str, predicted: float, published: float, limit: float = BYTES_LIMIT
) -> Check:
    """A check with its verdict: within the limit, or within two printed decimals, or a miss."""
    off = abs(predicted / published - 1) if published else float(abs(predicted) > _HALF_DIGIT)
    if off <= limit:
        return Check(about, what, predicted, published, "hit")
    near = about in ("bytes", "states", "draft") and abs(predicted - published) <= _HALF_DIGIT
    return Check(about, what, predicted, published, "rounding" if near else "miss")


def _sized(published: Published, geometry: Geometry, launch: Launch) -> Iterator[Check]:
    tokens = published.get("tokens")
    if isinstance(tokens, int) and tokens > 0:
        yield from _pool(published, "", stored(geometry.layers, launch), tokens, launch)
        yield from _dropped(published, geometry, launch, tokens)
    if isinstance(window := published.get("swa_tokens"), int) and geometry.sliding:
        yield from _pool(published, "swa_", geometry.sliding, window, launch)
    drafts = published.get("draft_tokens") or tokens
    nextn = "nextn" in str(published.get("draft_model_class") or "").lower()
    if geometry.draft and nextn and isinstance(drafts, int):
        for check in _pool(published, "draft_", geometry.draft, drafts, launch):
            yield replace(check, about="draft")
    yield from _states(published, geometry, launch)


def _pool(
    published: Published, prefix: str, layers: Sequence[Layer], tokens: int, launch: Launch
) -> Iterator[Check]:
    if not layers:
        return
    kept, rows = row(layers, launch), tokens + launch.page_size
    k, v = gib(published, f"{prefix}k_gib"), gib(published, f"{prefix}v_gib")
    if isinstance(layers[0].rows, Latent):
        if (whole := gib(published, f"{prefix}kv_gib")) is not None:
            yield _laid_out(f"{prefix}KV", kept, rows, whole, layers, launch)
        return
    scales = kept.scale_bytes // 2
    for what, size, told in (("K", kept.k_bytes, k), ("V", kept.v_bytes, v)):
        if told is None:
            continue
        check = judged("bytes", prefix + what, (size + scales) * rows / GIB, told)
        if check.verdict == "miss" and is_fp4(launch.kv_dtype):
            check = _other(check, size * rows / GIB, "the line leaves the scales out")
        yield check


def _lacks_parallel(published: Published, geometry: Geometry) -> str:
    """Heads and states are spread over cards, rows of a rank are not."""
    rows = (layer.rows for layer in geometry.layers)
    spread = geometry.states or any(isinstance(kept, Heads) for kept in rows)
    return "missing: attn_tp or tp" if spread and not tp_of(published, 1) else ""


def _laid_out(
    what: str, kept: Row, rows: int, published: float, layers: Sequence[Layer], launch: Launch
) -> Check:
    check = judged("bytes", what, kept.stored_bytes * rows / GIB, published)
    if check.verdict == "miss" and kept.index_bytes:
        bare = (kept.stored_bytes - kept.index_bytes) * rows / GIB
        check = _other(check, bare, "the line leaves the index keys out")
    if check.verdict == "miss" and kept.index_bytes and not launch.dsa_raw:
        raw = row(layers, replace(launch, dsa_raw=True)).stored_bytes * rows / GIB
        check = _other(check, raw, "the DSA kernels of this boot read rows without scales")
    return check


def _other(check: Check, predicted: float, note: str) -> Check:
    again = judged(check.about, check.what, predicted, check.published)
    return check if again.verdict == "miss" else replace(again, verdict="layout", note=note)


def _dropped(
    published: Published, geometry: Geometry, launch: Launch, tokens: int
) -> Iterator[Check]:
    """Logs without sizes: the drop of free memory less the table of requests (4 B a position).

    The oldest builds, which print no max_running_requests, have 256 x tokens / context of them.
    Each layer has a buffer of its own for K and for V, or one for both.
    """
    sizes = [gib(published, key) for key in ("k_gib", "v_gib", "kv_gib")]
    after, pooled = (gib(published, f"avail_after_{k}_gib") for k in ("load", "pool"))
    context = published.get("context_len")
    if any(sizes) or after is None or pooled is None or not context or geometry.states:
        return
    if geometry.sliding:
        return
    requests = published.get("max_running_requests") or int(tokens / context * 256)
    table = requests * (context + 8) * 4 / GIB
    buffers = [2 - isinstance(layer.rows, Latent) for layer in geometry.full]
    each = row(geometry.full, launch).stored_bytes * tokens // max(1, sum(buffers))
    stored = -(-each // _STEP_BYTES) * _STEP_BYTES * sum(buffers) / GIB
    yield judged("bytes", "drop of free memory", stored, after - pooled - table)


def _states(published: Published, geometry: Geometry, launch: Launch) -> Iterator[Check]:
    slots = published.get("mamba_slots")
    if not geometry.states or not isinstance(slots, int):
        return
    for what, key in (("conv", "mamba_conv_gib"), ("ssm", "mamba_ssm_gib")):
        told = gib(published, key)
        if told is None:
            continue
        sizes = state_bytes(geometry, launch)
        size = sizes.conv_bytes if what == "conv" else sizes.ssm_bytes
        check = judged("states", what, size * (slots + 1) / GIB, told)
        if check.verdict == "miss" and what == "ssm":
            half = state_bytes(geometry, replace(launch, ssm_dtype="bfloat16")).ssm_bytes
            check = _other(check, half * (slots + 1) / GIB, "--mamba-ssm-dtype bfloat16")
        yield check


def _counted(published: Published, geometry: Geometry, launch: Launch) -> Iterator[Check]:
    budget, tokens = budget_of(published), published.get("tokens")
    stated = gib(published, "avail_before_load_gib") is not None
    if budget is None or not stated or not isinstance(tokens, int) or tokens <= 0:
        return
    if launch.max_total_tokens is not None:
        return
    if geometry.states and launch.speculation and not launch.speculation.draft_tokens:
        return
    found = capacity(geometry, launch, budget.rest_gib)
    count = _hidden(_tokens(found, tokens), found)
    slots = published.get("mamba_slots")
    if geometry.states and isinstance(slots, int):
        split = judged("split", "state slots", found.states.slots, slots, TOKENS_LIMIT)
        if split.verdict == "miss":
            given = replace(launch, state_slots=slots * launch.dp)
            count = _tokens(capacity(geometry, given, budget.rest_gib), tokens)
        if split.verdict == "miss" and count.verdict == "hit":
            note = "slots by an argument that the row does not have"
            split = replace(split, verdict="layout", note=note)
        yield split
    yield count
    if found.sliding and isinstance(window := published.get("swa_tokens"), int):
        yield judged("split", "sliding tokens", found.sliding.tokens, window, TOKENS_LIMIT)


def _tokens(found: Capacity, tokens: int) -> Check:
    return judged("tokens", "tokens from memory", found.announced, tokens, TOKENS_LIMIT)


def _hidden(check: Check, found: Capacity) -> Check:
    """A count that is off by less memory than the two decimals of two figures hide, and by less
    than the slot that this can give or take."""
    off_gib = abs(check.predicted - check.published) * found.priced_bytes / GIB
    if check.verdict != "miss" or off_gib > 2 * _HALF_DIGIT + found.states.slot_bytes / GIB:
        return check
    return replace(check, verdict="rounding")


def _rule(published: Published) -> Iterator[Check]:
    """Without a config: whether the pools of the log fill the budget that the rule gives."""
    budget, pools = budget_of(published), (published.get("calc") or {}).get("pool_gib_total")
    capped = published.get("max_total_tokens_arg") is not None
    if budget is None or capped or gib(published, "avail_before_load_gib") is None:
        return
    if isinstance(pools, bool) or not isinstance(pools, int | float) or not pools > 0:
        return
    drafts = ("draft_k_gib", "draft_v_gib", "draft_kv_gib")
    target = pools - sum(gib(published, key) or 0.0 for key in drafts)
    yield judged("rule", "budget from the log's own sizes", budget.rest_gib, target, TOKENS_LIMIT)


def _boot(
    published: Published, geometry: Geometry | None = None, launch: Launch | None = None
) -> Iterator[Check]:
    """Whether the engine refuses what was published as refused: for want of memory at all, or,
    where the model is known, of memory for its states, its window or a page."""
    budget = budget_of(published)
    if budget is None or "pool init" not in str(published.get("outcome")):
        return
    refused = (
        "" if budget.rest_gib > 0 else f"least mem_fraction_static {budget.least_fraction:.4f}"
    )
    if not refused and geometry and launch:
        refused = capacity(geometry, launch, budget.rest_gib).refused
    verdict: Verdict = "hit" if refused else "miss"
    yield Check("boot", "GiB left", budget.rest_gib, 0.0, verdict, refused)
