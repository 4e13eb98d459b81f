"""The accuracy room: tokens from memory, and memory for tokens, as the engine will have them.

    capacity(geometry, launch, rest_gib) -> Capacity

`rest_gib` is what one GPU has left for KV and states (kvlaunch.Budget). All figures are of one GPU;
`tokens` are the whole replica's, since with tensor parallelism every GPU holds the same tokens
(with DP attention: of one rank). The steps are those of facts §3.2 to §3.5: take the states off,
price a token, divide, cap, round down to pages, and take the least of the pipeline stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firstlight.accuracy.geometry import Geometry, Layer
from firstlight.accuracy.kvbytes import (
    Row,
    in_pools,
    own_draft,
    row,
    stages,
    stored,
    with_draft,
    with_draft_in_pools,
)
from firstlight.accuracy.kvdsv4 import Part, Solved, priced, solved
from firstlight.accuracy.kvlaunch import FP8, GIB, Launch, is_fp4, reserve_gib
from firstlight.accuracy.kvrules import rules_for, since
from firstlight.accuracy.kvstate import StatePool, state_pool
from firstlight.accuracy.kvwindow import by_requests, sliding_tokens, window_cap
from firstlight.core.errors import FirstlightError

_HEADROOM_BUFFER = 100
_COMPRESSED_POOLS = ("c4", "c128", "c1", "c2")
_ONE_LAYOUT = "the compressed pools have a layout of FP8 alone, and none of {kv_dtype}"


@dataclass(frozen=True)
class Pool:
    """One pool on one GPU: `tokens` to give out, one page more in rows, and what those take;
    `padded_bytes` more where pages have a size of their own."""

    name: str
    tokens: int
    rows: int
    row: Row
    padded_bytes: int = 0

    @property
    def stored_gib(self) -> float:
        """The memory that its rows take, with what pads them."""
        return (self.rows * self.row.stored_bytes + self.padded_bytes) / GIB

    @property
    def line_gib(self) -> float:
        """What the log's line of it says."""
        return self.rows * self.row.line_bytes / GIB


@dataclass(frozen=True)
class Capacity:
    """What one launch holds. `priced_bytes` is what the engine divides by: a token of all pools.

    `kv_gib` is what was left for the pools, `refused` the reason why the engine would not start,
    "" when it would. `headroom` are tokens that a version adds for drafts, beyond its budget.
    `fixed_gib` is what DeepSeek-V4 keeps for requests, whatever the tokens.
    """

    kv_dtype: str
    tokens: int
    priced_bytes: float
    kv_gib: float
    rest_gib: float
    reserve_gib: float
    pools: tuple[Pool, ...]
    states: StatePool
    headroom: int = 0
    refused: str = ""
    notes: tuple[str, ...] = ()
    fixed_gib: float = 0.0

    @property
    def announced(self) -> int:
        """What the server calls max_total_num_tokens."""
        return self.tokens + self.headroom

    @property
    def target_gib(self) -> float:
        """The memory that the pools take, those of a draft left out."""
        return sum(pool.stored_gib for pool in self.pools if pool.name != "draft")

    @property
    def row_bytes(self) -> int:
        """Bytes of one token in the pool of all tokens, as stored on one GPU; of compressed pools
        what it is charged with, since it has a share in many rows."""
        if any(pool.name in _COMPRESSED_POOLS for pool in self.pools):
            return round(self.priced_bytes)
        return self.pools[0].row.stored_bytes if self.pools else 0

    @property
    def sliding(self) -> Pool | None:
        """The pool of the sliding window, where there is one."""
        return next((pool for pool in self.pools if pool.name == "sliding"), None)


def capacity(geometry: Geometry, launch: Launch, rest_gib: float) -> Capacity:
    """The tokens, pools and states that `rest_gib` of free memory gives on one GPU."""
    reserve = reserve_gib(launch, geometry.multimodal)
    left = rest_gib - reserve
    if geometry.compressed:
        return _compressed(geometry, launch, rest_gib, left)
    states = state_pool(geometry, launch, left)
    kv_gib = left - states.spec_gib - states.charged_gib
    tokens = max(0, _tokens(geometry, launch, int(kv_gib * GIB)))
    headroom = _headroom(launch, tokens)
    return Capacity(
        kv_dtype=launch.kv_dtype,
        tokens=tokens,
        priced_bytes=price(geometry, launch),
        kv_gib=kv_gib,
        rest_gib=rest_gib,
        reserve_gib=reserve,
        pools=tuple(_pools(geometry, launch, tokens + headroom)) if tokens > 0 else (),
        states=states,
        headroom=headroom,
        refused=_no_memory(left, kv_gib) or _refusal(geometry, launch, states, tokens),
        notes=tuple(_notes(geometry, launch)),
    )


def _compressed(geometry: Geometry, launch: Launch, rest_gib: float, left: float) -> Capacity:
    """The pools of DeepSeek-V4, which have rows of one dtype."""
    reserve, note = rest_gib - left, rules_for(launch.version)[1]
    notes = (note,) if note else ()
    if launch.kv_dtype != FP8:
        none = _ONE_LAYOUT.format(kv_dtype=launch.kv_dtype)
        dtype, states = launch.kv_dtype, StatePool()
        return Capacity(dtype, 0, 0.0, left, rest_gib, reserve, (), states, 0, none, notes)
    made = solved(geometry, launch, int(left * GIB))
    return Capacity(
        kv_dtype=launch.kv_dtype,
        tokens=0 if made.refused else made.tokens,
        priced_bytes=made.priced_bytes,
        kv_gib=left - made.fixed_bytes / GIB,
        rest_gib=rest_gib,
        reserve_gib=reserve,
        pools=() if made.refused else tuple(_pool_of(part) for part in made.parts),
        states=StatePool(),
        refused=_no_memory(left, left) or made.refused,
        notes=(*notes, *_over(made)),
        fixed_gib=made.fixed_bytes / GIB,
    )


def _over(made: Solved) -> Iterator[str]:
    """Pools that take more than they are priced with, by pages that are padded (before 0.5.21)."""
    over = sum(part.bytes_ for part in made.parts) - made.tokens * made.priced_bytes
    if made.parts and (gib := (over - made.fixed_bytes) / GIB) > 0.1:
        yield f"pages are padded, which is not priced: the pools take {gib:.2f} GiB more than that"


def _pool_of(part: Part) -> Pool:
    padded = part.bytes_ - part.tokens * part.row_bytes
    return Pool(part.name, part.tokens, part.tokens, Row(k_bytes=part.row_bytes), padded)


def price(geometry: Geometry, launch: Launch) -> float:
    """Bytes that one token is charged with on one GPU, over all pools; whole unless two pools."""
    if geometry.compressed:
        return priced(geometry, launch)
    return max(_stage_price(geometry, launch, stage) for stage in _stages(geometry, launch))


def _stages(geometry: Geometry, launch: Launch) -> Iterator[tuple[Layer, ...]]:
    for stage in stages(geometry.layers, launch.pp):
        if kept := _with_rows(stage):
            yield kept


def _with_rows(stage: Sequence[Layer]) -> tuple[Layer, ...]:
    return tuple(layer for layer in stage if layer.rows)


def _parts(stage: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    full = tuple(layer for layer in stage if not layer.sliding)
    return full, tuple(layer for layer in stage if layer.sliding)


def _stage_price(geometry: Geometry, launch: Launch, stage: tuple[Layer, ...]) -> float:
    full, sliding = _parts(stage)
    if not sliding:
        return with_draft(row(full, launch), full, geometry, launch)
    priced = with_draft_in_pools(in_pools(full, launch), len(full), geometry, launch)
    if full and window_cap(geometry, launch) is not None:
        return priced
    return priced + (launch.swa_ratio if full else 1) * in_pools(sliding, launch)


def _tokens(geometry: Geometry, launch: Launch, kv_bytes: int) -> int:
    counts = [_stage_tokens(geometry, launch, s, kv_bytes) for s in _stages(geometry, launch)]
    return min(counts, default=0)


def _stage_tokens(
    geometry: Geometry, launch: Launch, stage: tuple[Layer, ...], kv_bytes: int
) -> int:
    priced = _stage_price(geometry, launch, stage)
    full, sliding = _parts(stage)
    if sliding and (cap := window_cap(geometry, launch)) is not None:
        kv_bytes -= cap * in_pools(sliding, launch)
    if sliding and full and launch.rules.two_steps:
        each = in_pools(full, launch) + in_pools(sliding, launch)
        first = _capped(launch, kv_bytes // each) // launch.page_size * launch.page_size
        tokens = int(first * each / priced)
    else:
        tokens = _capped(launch, int(kv_bytes // priced))
    return tokens // launch.page_size * launch.page_size


def _headroom(launch: Launch, tokens: int) -> int:
    """Tokens for what is drafted and verified, in whole pages (0.4.4 to 0.5.6).

    `asked` are the requests of all ranks: that version did not divide them."""
    spec = launch.speculation
    if not launch.rules.headroom or spec is None or spec.tree is None or tokens <= 0:
        return 0
    more = (launch.asked or 0) * (spec.tree + spec.draft_tokens) + _HEADROOM_BUFFER
    page = launch.page_size
    return _capped(launch, tokens + more) // page * page - tokens


def _capped(launch: Launch, tokens: int) -> int:
    return tokens if launch.max_total_tokens is None else min(tokens, launch.max_total_tokens)


def _pools(geometry: Geometry, launch: Launch, tokens: int) -> Iterator[Pool]:
    """The pools of the GPU that holds most: of the largest pipeline stage."""
    every = [stage for stage in stages(geometry.layers, launch.pp) if any(la.rows for la in stage)]
    widest = max(every, key=lambda s: _stage_price(geometry, launch, _with_rows(s)))
    full, sliding = _parts(_with_rows(widest))
    if full:
        yield Pool("full", tokens, tokens + launch.page_size, row(stored(widest, launch), launch))
    if sliding:
        window = sliding_tokens(geometry, launch, tokens) if full else tokens
        yield Pool("sliding", window, window + launch.page_size, row(sliding, launch))
    draft = own_draft(geometry, launch)
    if draft.stored_bytes:
        yield Pool("draft", tokens, tokens + launch.page_size, draft)


def _no_memory(left_gib: float, kv_gib: float) -> str:
    if left_gib <= 0:
        return "the weights leave no memory for the KV cache: raise --mem-fraction-static"
    return "the states leave no memory for the KV cache: take fewer slots" if kv_gib <= 0 else ""


def _refusal(geometry: Geometry, launch: Launch, states: StatePool, tokens: int) -> str:
    if geometry.states and states.slots <= 0:
        return "not enough memory for one slot of the state pool"
    if geometry.states and states.requests <= 0:
        slots, need = states.slots, launch.slots_per_request
        return f"the state pool has {slots} slots, one request takes {need}"
    if tokens <= 0:
        return "the memory that is left holds no page of tokens: raise --mem-fraction-static"
    window = sliding_tokens(geometry, launch, tokens)
    if geometry.sliding and launch.rules.swa_floor and geometry.full:
        floor = geometry.window + launch.page_size
        if geometry.window and floor >= window:
            return f"the sliding pool of {window:,} tokens holds no request of {floor:,}"
    return ""


def _notes(geometry: Geometry, launch: Launch) -> Iterator[str]:
    if note := rules_for(launch.version)[1]:
        yield note
    yield from _before_two_pools(geometry, launch.version)
    full = geometry.full
    priced = row(full, launch).priced_bytes
    takes = row(stored(geometry.layers, launch), launch).stored_bytes
    if full and not is_fp4(launch.kv_dtype) and takes != priced:
        yield f"a token is priced {priced:,} bytes and takes {takes:,}: the pool is off its budget"
    if geometry.sliding and is_fp4(launch.kv_dtype) and not launch.rules.two_steps:
        yield "two pools are sized for eight bits where four are asked for: no more tokens than FP8"
    if by_requests(geometry, launch) and not launch.chunk:
        yield "--chunked-prefill-size is not given: the sliding pool is sized by its ratio"
    if launch.speculation and launch.rules.draft == "outside":
        yield "the draft's pool lies outside the budget in this version"
    yield from geometry.notes


def _before_two_pools(geometry: Geometry, version: str) -> Iterator[str]:
    if since(version, first := geometry.two_pools_since):
        return
    if geometry.sliding:
        yield f"{version} does not have {geometry.name}: the figures are as {first} has them"
    else:
        yield f"{version} keeps one pool for all layers of {geometry.name}; {first} has two"


def memory_for(geometry: Geometry, launch: Launch, tokens: int) -> float:
    """GiB of free memory (`rest_gib`) on one GPU with which it starts and holds `tokens` or more;
    the reverse of `capacity`. Found by halving, since slots and pages make steps; FirstlightError
    when the arguments cap a pool below that.
    """

    def enough(rest_gib: float) -> bool:
        found = capacity(geometry, launch, rest_gib)
        return not found.refused and found.tokens >= max(1, tokens)

    high = 1.0
    while not enough(high):
        high *= 2
        if high > 1 << 20:
            raise FirstlightError(
                f"no memory gives {tokens:,} tokens",
                where="KV capacity",
                remedy="raise --max-total-tokens, or choose another split of the pools",
            )
    low = 0.0
    while high - low > 1 / GIB:
        middle = (low + high) / 2
        if enough(middle):
            high = middle
        else:
            low = middle
        if math.isclose(low, high, rel_tol=1e-12):
            break
    return high
