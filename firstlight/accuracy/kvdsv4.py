"""The accuracy room: tokens and pools of DeepSeek-V4, as the engine solves them on NVIDIA.

    solved(geometry, launch, kv_bytes) -> Solved

A token of the whole context takes compressed rows, and by `swa_ratio` a share of a row in every
layer's window and of the state beside it; states that go by requests are taken off first
(`DSV4PoolConfigurator`, 0.5.12 pool_configurator.py:309, 0.5.23:1067). Sums are in the order of
the engine's own, so that the last bit agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from firstlight.accuracy.geometry import Compressed, Geometry
from firstlight.accuracy.kvbytes import stages
from firstlight.accuracy.kvlaunch import Launch
from firstlight.accuracy.kvrules import since
from firstlight.accuracy.kvwindow import on_one_rank, request_cap

# Requests at once where nobody says (0.5.12 deepseek_v4_hook.py:22, 0.5.23:137).
RUNNING = 256
# In this order the engine sums.
_ORDER = (4, 128, 1, 2)
_STATE_BYTES = 4  # SGLANG_DSV4_COMPRESS_STATE_DTYPE
_LINE = 576  # a page is whole lines (0.5.23 kernels/ops/attention/dsv4/kv_layout.py:101)
_INDEX_PAGE = 64  # 0.5.23 deepseek_v4_memory_pool.py:522
_TAILS = 4  # prefixes that stay usable, by request (0.5.23 pool_configurator.py:1321)


@dataclass(frozen=True)
class V4Rules:
    """What one version does.

    `sliced`: a stage prices its own layers, and not all that the config lists. `by_request`: the
    state of ratio 128 goes by requests, not by the window's tokens. `checked`: a draft longer than
    the states keep is refused. `floor`: a window's pool that holds no request is refused. `paged`:
    rows are priced with the padding of their pages, states go by pages, and the window's pool may
    go by requests. `padding`: the pages that ratio 1 and 2 keep in reserve are priced.
    """

    version: str
    sliced: bool = True
    by_request: bool = True
    checked: bool = True
    floor: bool = True
    paged: bool = True
    padding: bool = True
    source: str = ""


_0523 = V4Rules("0.5.23", source="0.5.23 pool_configurator.py:1067-1712")
_0521 = replace(_0523, version="0.5.21", padding=False, source="0.5.21:953-1545, 0.5.22:1040-1629")
_0520 = replace(_0521, version="0.5.20", paged=False, source="0.5.20:926-1350")
_0518 = replace(_0520, version="0.5.18", floor=False, source="0.5.18:715-1007, 0.5.19:763-1051")
_0515 = replace(_0518, version="0.5.15", checked=False, source="0.5.15:513-776, 0.5.17:610-876")
_0513 = replace(_0515, version="0.5.13", by_request=False, source="0.5.13:309-473, 0.5.14:449-640")
_0512 = replace(_0513, version="0.5.12", sliced=False, source="0.5.12:309-466")
READ = (_0512, _0513, _0515, _0518, _0520, _0521, _0523)


def rules_of(version: str) -> V4Rules:
    """The rules of a version; those of the oldest for what is older."""
    return next((r for r in reversed(READ) if since(version, r.version)), READ[0])


@dataclass(frozen=True)
class Stage:
    """The layers of one pipeline stage: all of them, and by ratio those with rows of their own."""

    layers: int
    owners: tuple[tuple[int, int], ...]

    def of(self, ratio: int) -> int:
        """Layers that own rows of that ratio."""
        return dict(self.owners).get(ratio, 0)


@dataclass(frozen=True)
class Part:
    """One pool on one GPU: `tokens` to give out in all rows, `row_bytes` of one row in all layers,
    `bytes_` all that it takes, with what its pages pad and keep in reserve."""

    name: str
    tokens: int
    row_bytes: int
    bytes_: int


@dataclass(frozen=True)
class Solved:
    """The pools of the largest stage. `priced_bytes` is what a token is charged with, `fixed_bytes`
    what is taken off before for requests; `refused` as in a capacity."""

    tokens: int
    priced_bytes: float
    fixed_bytes: float
    parts: tuple[Part, ...]
    refused: str = ""


def solved(geometry: Geometry, launch: Launch, kv_bytes: int) -> Solved:
    """The pools that `kv_bytes` of one GPU give; all stages take the tokens of the least."""
    every = tuple(_stages(geometry, launch))
    tokens = min(_tokens(geometry, launch, stage, kv_bytes) for stage in every)
    if launch.max_total_tokens is not None:
        tokens = min(tokens, launch.max_total_tokens)
    tokens = max(0, tokens // launch.page_size * launch.page_size)
    widest = max(every, key=lambda stage: price(geometry, launch, stage))
    held = max(_slices(geometry, launch), key=lambda stage: price(geometry, launch, stage))
    window = window_tokens(geometry, launch, tokens)
    return Solved(
        tokens,
        price(geometry, launch, widest),
        _fixed(geometry, launch, widest),
        tuple(_parts(geometry, launch, held, tokens)) if tokens else (),
        _refused(geometry, launch, tokens, window),
    )


def priced(geometry: Geometry, launch: Launch) -> float:
    """Bytes that a token is charged with, in the largest stage."""
    return max(price(geometry, launch, stage) for stage in _stages(geometry, launch))


def _kept(geometry: Geometry) -> Compressed:
    assert geometry.compressed is not None
    return geometry.compressed


def _stages(geometry: Geometry, launch: Launch) -> Iterator[Stage]:
    """The stages as they are priced."""
    if rules_of(launch.version).sliced:
        return _slices(geometry, launch)
    kept = _kept(geometry)
    return iter([_stage(kept, range(len(kept.ratios)))])


def _slices(geometry: Geometry, launch: Launch) -> Iterator[Stage]:
    """The stages as they are stored."""
    lengths = [len(stage) for stage in stages(geometry.layers, launch.pp)]
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    slices = (range(start, start + n) for start, n in zip(starts, lengths, strict=True) if n)
    return (_stage(_kept(geometry), one) for one in slices)


def _stage(kept: Compressed, numbers: range) -> Stage:
    counts = {
        ratio: sum(1 for n in numbers if kept.ratios[n] == ratio and kept.owns(n))
        for ratio in _ORDER
    }
    return Stage(len(numbers), tuple((ratio, n) for ratio, n in counts.items() if n))


def _ring(ratio: int, launch: Launch) -> int:
    """Rows of state that one request or one page keeps (`get_compress_state_ring_size`)."""
    drafts = launch.speculation.draft_tokens if launch.speculation else 0
    if ratio == 2:
        return 1 << (drafts + 1).bit_length() if drafts else 2
    return {4: 16, 128: 256}[ratio] if drafts else {4: 8, 128: 128}[ratio]


def _row(kept: Compressed, uniform: bool) -> int:
    """Bytes of one row: 8-bit values, the rope in 16, and 8 bytes of scales; with trtllm 8-bit
    values alone."""
    return kept.width if uniform else kept.nope + kept.rope * 2 + 8


def _page(kept: Compressed, launch: Launch, ratio: int = 1) -> int:
    """Bytes of one page of rows of a ratio, as stored."""
    raw = launch.page_size // ratio * _row(kept, launch.uniform_rows)
    return raw if launch.uniform_rows else -(-raw // _LINE) * _LINE


def _priced_row(kept: Compressed, launch: Launch, ratio: int = 1, *, padded: bool = True) -> float:
    """Bytes of one row as it is priced; 0.5.20 has no other price for trtllm's."""
    if not rules_of(launch.version).paged:
        return _row(kept, uniform=False)
    if launch.uniform_rows or not padded:
        return _row(kept, launch.uniform_rows)
    return _page(kept, launch, ratio) / (launch.page_size // ratio)


def _infl(launch: Launch, stage: Stage) -> float:
    """A draft is priced as one layer more of a token's share."""
    return (stage.layers + 1) / stage.layers if launch.speculation else 1.0


def price(geometry: Geometry, launch: Launch, stage: Stage) -> float:
    """Bytes that one token is charged with in a stage."""
    kept = _kept(geometry)
    whole = _paged_price if rules_of(launch.version).paged else _plain_price
    return whole(geometry, kept, launch, stage) * _infl(launch, stage)


def _plain_price(geometry: Geometry, kept: Compressed, launch: Launch, stage: Stage) -> float:
    """Before 0.5.21, whose sum has its terms in this order."""
    swa, row, n4 = launch.swa_ratio, _priced_row(kept, launch), stage.of(4)
    by_window = _ring(4, launch) / geometry.window
    by_128 = 0 if rules_of(launch.version).by_request else _ring(128, launch) / geometry.window
    return (
        swa * row * stage.layers
        + 1 / 4 * row * n4
        + 1 / 128 * row * stage.of(128)
        + 1 / 4 * kept.index_bytes * n4
        + swa * by_window * _state(kept.width, 4) * n4
        + swa * by_128 * _state(kept.width, 128) * stage.of(128)
        + swa * by_window * _state(kept.index_dim, 4) * n4
    )


def _state(width: int, ratio: int) -> int:
    """Bytes of one row of state: values and scores, of ratio 4 twice since windows overlap."""
    return (4 if ratio == 4 else 2) * width * _STATE_BYTES


def _paged_price(geometry: Geometry, kept: Compressed, launch: Launch, stage: Stage) -> float:
    swa = 0 if window_cap(geometry, launch) is not None else launch.swa_ratio
    rows = sum(_compressed_row(kept, launch, ratio) * n for ratio, n in stage.owners)
    return swa * _window_row(kept, launch, stage) + rows


def _window_row(kept: Compressed, launch: Launch, stage: Stage) -> float:
    """Bytes of one token of the window in all layers, with the state of ratio 4 that follows."""
    ring = _ring(4, launch) if stage.of(4) else 0
    state = _state(kept.width, 4) + _state(kept.index_dim, 4)
    states = ring / launch.page_size * state * stage.of(4)
    return _priced_row(kept, launch) * stage.layers + states


def _compressed_row(kept: Compressed, launch: Launch, ratio: int) -> float:
    """Bytes that one token of the context adds to a layer of `ratio`."""
    if ratio in (1, 2):
        row = _priced_row(kept, launch, ratio, padded=rules_of(launch.version).padding)
        return (row + kept.low_index_bytes) / ratio
    if ratio == 4:
        return 1 / 4 * _priced_row(kept, launch, 4) + 1 / 4 * kept.index_bytes
    return 1 / 128 * _priced_row(kept, launch, 128)


def window_cap(geometry: Geometry, launch: Launch) -> int | None:
    """Tokens of the window's pool where the requests decide and not the ratio: from 0.5.21 on,
    for DeepSeek-V4.1 without --swa-full-tokens-ratio (0.5.23 pool_configurator.py:1328)."""
    if not _kept(geometry).v41 or launch.swa_given or not launch.chunk:
        return None
    tails = launch.prefix_tails
    if tails is None:
        tails = _TAILS * _requests(launch) if launch.radix else 0
    tokens = request_cap(geometry.window, _requests(launch), launch)
    tokens += tails * (geometry.window + launch.page_size)
    return -(-tokens // launch.page_size) * launch.page_size


def window_tokens(geometry: Geometry, launch: Launch, tokens: int) -> int:
    """Tokens of the window's pool beside `tokens` of the context."""
    if (cap := window_cap(geometry, launch)) is not None:
        return cap
    return int(tokens * launch.swa_ratio) // launch.page_size * launch.page_size


def _requests(launch: Launch) -> int:
    return on_one_rank(launch.max_running or RUNNING, launch)


def _request_rows(ratio: int, requests: int, launch: Launch) -> int:
    """Rows of a state that goes by requests, one slot and one ring in reserve."""
    ring = _ring(ratio, launch)
    return -(-((requests + 1) * ring + ring + 1) // ratio) * ratio


def _fixed(geometry: Geometry, launch: Launch, stage: Stage) -> float:
    """What is taken off before the tokens are counted: states by requests, and a capped window."""
    kept, fixed = _kept(geometry), 0.0
    if not rules_of(launch.version).by_request:
        return fixed
    for ratio in (128, 2):
        if layers := stage.of(ratio):
            rows = _request_rows(ratio, _requests(launch), launch)
            fixed += rows * _state(kept.width, ratio) * layers
    if (cap := window_cap(geometry, launch)) is not None:
        fixed += cap * (_window_row(kept, launch, stage) * _infl(launch, stage))
    return fixed


def _tokens(geometry: Geometry, launch: Launch, stage: Stage, kv_bytes: int) -> int:
    left, each = kv_bytes - _fixed(geometry, launch, stage), price(geometry, launch, stage)
    page = launch.page_size
    tokens = int(left / each) // page * page
    if rules_of(launch.version).padding:
        while tokens > 0 and tokens * each + _reserve(geometry, launch, stage, tokens) > left:
            tokens -= page
    return tokens


def _reserve(geometry: Geometry, launch: Launch, stage: Stage, tokens: int) -> float:
    """Pages of ratio 1 and 2 beyond the tokens' own (0.5.23 pool_configurator.py:1406)."""
    kept, found = _kept(geometry), 0.0
    if launch.uniform_rows:
        return found
    for ratio in (1, 2):
        if layers := stage.of(ratio):
            rows = launch.page_size * _priced_row(kept, launch, ratio)
            index = _index_slots(launch, tokens, ratio) - tokens // ratio
            found += (rows + index * kept.low_index_bytes) * layers
    return found


def _index_slots(launch: Launch, tokens: int, ratio: int) -> int:
    """Slots of the index of ratio 1 or 2: whole pages of its own, one of them in reserve."""
    size = (tokens + launch.page_size) // ratio
    return -(-(size + _INDEX_PAGE) // _INDEX_PAGE) * _INDEX_PAGE


def _refused(geometry: Geometry, launch: Launch, tokens: int, window: int) -> str:
    rules, drafts = rules_of(launch.version), launch.speculation
    # Of ratio 4 a ring of 16 keeps a window of 8 and 10 drafts.
    most = _ring(4, launch) - 8 + 2
    if drafts and rules.checked and 4 in _kept(geometry).ratios and drafts.draft_tokens > most:
        return f"the states keep {most} draft tokens at most, {drafts.draft_tokens} are asked for"
    if tokens <= 0:
        return "the memory that is left holds no page of tokens: raise --mem-fraction-static"
    floor = geometry.window + launch.page_size
    if rules.floor and window_cap(geometry, launch) is None and floor >= window:
        return f"the sliding pool of {window:,} tokens holds no request of {floor:,}"
    return ""


def _parts(geometry: Geometry, launch: Launch, stage: Stage, tokens: int) -> Iterator[Part]:
    kept, window = _kept(geometry), window_tokens(geometry, launch, tokens)
    for ratio, layers in stage.owners:
        yield _rows(kept, launch, ratio, layers, tokens)
    yield _window(kept, launch, "sliding", stage.layers, window)
    yield from _states(geometry, launch, stage, tokens, window)
    if launch.speculation and launch.speculation.algorithm == "eagle":
        yield _window(kept, launch, "draft", 1, window)


def _rows(kept: Compressed, launch: Launch, ratio: int, layers: int, tokens: int) -> Part:
    """Compressed rows and their index. From 0.5.21 on a whole page of the context lies in reserve,
    before that one page of compressed rows."""
    size, slots = tokens // ratio, launch.page_size // ratio
    spare = launch.page_size if rules_of(launch.version).paged else slots
    pages = -(-(size + spare) // slots)
    bytes_ = pages * _page(kept, launch, ratio)
    index = {4: kept.index_bytes, 128: 0}.get(ratio, kept.low_index_bytes)
    if ratio == 4:
        # The index keeps one page in reserve; from 0.5.22 on as many as the rows do.
        held = pages if since(launch.version, "0.5.22") else size // slots + 1
        bytes_ += held * slots * index
    elif index:
        bytes_ += _index_slots(launch, tokens, ratio) * index
    row = (_row(kept, launch.uniform_rows) + index) * layers
    return Part(f"c{ratio}", size, row, bytes_ * layers)


def _window(kept: Compressed, launch: Launch, name: str, layers: int, tokens: int) -> Part:
    pages = tokens // launch.page_size + 1
    bytes_ = pages * _page(kept, launch) * layers
    return Part(name, tokens, _row(kept, launch.uniform_rows) * layers, bytes_)


def _states(
    geometry: Geometry, launch: Launch, stage: Stage, tokens: int, window: int
) -> Iterator[Part]:
    """The states of each ratio; those of 4 go by the window, as do those of 128 before 0.5.15."""
    kept, rules = _kept(geometry), rules_of(launch.version)
    pages = window // (launch.page_size if rules.paged else geometry.window)
    for ratio in (4, 128, 2):
        if not (layers := stage.of(ratio)):
            continue
        ring = _ring(ratio, launch)
        requests = min(_requests(launch), tokens // 2)
        by_window = ratio == 4 or not rules.by_request
        size = pages * ring if by_window else (requests + 1) * ring
        rows = -(-(size + ring + 1) // ratio) * ratio
        each = _state(kept.width, ratio) + (_state(kept.index_dim, 4) if ratio == 4 else 0)
        yield Part(f"c{ratio} state", size, each * layers, rows * each * layers)
