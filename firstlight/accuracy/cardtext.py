"""The accuracy room: the capacity card as people read it, plain lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.accuracy.card import Card, Column, Price
from firstlight.accuracy.fitting import Fit
from firstlight.accuracy.kvlaunch import FP8

_BOUNDS = {
    "tokens": "",
    "window": " (windows)",
    "states": " (states)",
    "max_running": " (max running)",
}


def text(card: Card) -> str:
    """The whole card: a table by dtype, the price of BF16, the knobs, and the verdict."""
    return "\n".join((*_head(card), "", *_table(card), "", *_below(card)))


def _head(card: Card) -> Iterator[str]:
    launch = card.launch
    parallel = [f"tp {launch.tp}"] + [
        f"{name} {n}" for name, n in (("dp", launch.dp), ("pp", launch.pp)) if n > 1
    ]
    name = card.geometry.name or "model"
    yield f"{name}: {card.geometry.kind}, SGLang {launch.version}, {', '.join(parallel)}"
    how = "" if card.measured else " (an estimate from the weights on disk, until it has run once)"
    yield f"{card.rest_gib:.2f} GiB on each GPU for KV and states{how}"


def _table(card: Card) -> list[str]:
    rows = [("", *(column.kv_dtype for column in card.columns))]
    figures = [*_figures(card)]
    figures += [
        (f"requests of {length:,} at once", [_fit(c.fits[n]) for c in card.columns])
        for n, length in enumerate(card.contexts)
    ]
    rows += [(name, *_with_layout(card, name, cells)) for name, cells in figures]
    widths = [max(len(line[n]) for line in rows) for n in range(len(rows[0]))]
    return [_aligned(line, widths) for line in rows]


def _with_layout(card: Card, name: str, cells: list[str]) -> Iterator[str]:
    """The cells of a row, without figures for a dtype that the pools have no layout of."""
    for column, cell in zip(card.columns, cells, strict=True):
        none = card.geometry.compressed and column.kv_dtype != FP8
        yield ("no layout" if name == "tokens" else "-") if none else cell


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    cells = zip(line[1:], widths[1:], strict=True)
    return f"{line[0]:<{widths[0]}}" + "".join(f"  {cell:>{width}}" for cell, width in cells)


def _fit(fit: Fit) -> str:
    return f"{fit.requests:,}{_BOUNDS[fit.bound]}"


def _figures(card: Card) -> Iterator[tuple[str, list[str]]]:
    geometry, columns = card.geometry, card.columns
    yield "bytes of a token on one GPU", [f"{c.capacity.row_bytes:,}" for c in columns]
    windows = geometry.sliding or geometry.compressed
    if windows:
        yield "bytes of a token in a window", [_window_bytes(c) for c in columns]
    yield "tokens", [_tokens(c) for c in columns]
    if windows:
        yield "tokens of the sliding pool", [_sliding(c) for c in columns]
    yield "GiB of KV", [f"{c.capacity.target_gib - _compressing(c):.2f}" for c in columns]
    if geometry.compressed:
        yield "GiB of states", [f"{_compressing(c):.2f}" for c in columns]
    if card.launch.speculation:
        yield "GiB of the draft's rows", [f"{_draft_gib(c):.2f}" for c in columns]
    if geometry.states:
        yield "bytes of a state slot", [f"{c.capacity.states.slot_bytes:,}" for c in columns]
        yield "state slots", [f"{c.capacity.states.slots:,}" for c in columns]
        yield "GiB of states", [f"{_state_gib(c):.2f}" for c in columns]
        yield "requests the states allow", [f"{c.capacity.states.requests:,}" for c in columns]


def _window_bytes(column: Column) -> str:
    pool = column.capacity.sliding
    return f"{pool.row.stored_bytes:,}" if pool else "-"


def _tokens(column: Column) -> str:
    return "does not start" if column.capacity.refused else f"{column.capacity.tokens:,}"


def _sliding(column: Column) -> str:
    pool = column.capacity.sliding
    return f"{pool.tokens:,}" if pool else "-"


def _draft_gib(column: Column) -> float:
    return sum(pool.stored_gib for pool in column.capacity.pools if pool.name == "draft")


def _state_gib(column: Column) -> float:
    return column.capacity.states.charged_gib + column.capacity.states.spec_gib


def _compressing(column: Column) -> float:
    """GiB of the states that rows are compressed in."""
    return sum(p.stored_gib for p in column.capacity.pools if p.name.endswith(" state"))


def _below(card: Card) -> Iterator[str]:
    if card.price:
        yield _price(card, card.price)
    if card.knobs:
        yield f"In {'FP8' if card.geometry.compressed else 'BF16'} these give more:"
        yield from (f"  {line}" for line in _knobs(card))
    yield card.sentence
    notes = dict.fromkeys(note for column in card.columns for note in column.capacity.notes)
    if card.geometry.compressed:
        yield "Note: the compressed pools have a layout of FP8 alone: there is no BF16 and no FP4"
    yield from (f"Note: {note}" for note in notes)


def _price(card: Card, price: Price) -> str:
    """What BF16 costs, and whether an argument bounds FP8, so that more memory buys nothing."""
    most, page = card.launch.max_total_tokens, card.launch.page_size
    capped = most is not None and card.column(FP8).capacity.tokens >= most // page * page
    said = f"max_total_tokens {most:,}" if capped else ""
    if capped and not price.tokens:
        return f"BF16 costs no tokens: {said} bounds the pool, not the memory."
    lost = f"BF16 costs {price.tokens:,} tokens, {price.percent:.1f} % of FP8's"
    return f"{lost}, which {said} bounds." if capped else f"{lost}."


def _knobs(card: Card) -> Iterator[str]:
    narrow = card.columns[1].capacity.tokens
    for knob in card.knobs:
        share = f", {knob.tokens / narrow:.0%} of FP8 as launched" if narrow > 0 else ""
        states = f", states for {knob.states:,} requests" if knob.states is not None else ""
        yield f"{knob.flags}: {knob.tokens:,} tokens{share}{states}; {knob.cost}"
