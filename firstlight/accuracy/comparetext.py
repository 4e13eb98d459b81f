"""The accuracy room: a comparison as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstlight.accuracy.comparison import Against, Comparison, Refusal, longest, nll
from firstlight.accuracy.divergence import Divergence
from firstlight.accuracy.drift import Bucket, Drift
from firstlight.accuracy.scores import Measured, Retrieval
from firstlight.core.words import columns

Row = tuple[str, ...]
_HEAD = (
    *("", "tokens", "KV", "mean NLL", "loss", "95 % of the loss", "same top-1"),
    "largest jump of a token",
)


def text(found: Comparison) -> str:
    """What was served, the table, the answers, the needles, and what could not be measured."""
    if found.first is None:
        return "\n".join(["nothing was measured", *map(_refusal, found.refused)])
    parts = [columns(_servers(found.first, found.others)), _table(found.first, found.others)]
    parts += [_answers(found.first, found.others), _needles(found.first, found.others)]
    parts.append(_noise(found.first, found.others))
    return "\n\n".join([*parts, *map(_refusal, found.refused)])


def _servers(first: Measured, others: Iterable[Against]) -> list[Row]:
    rows: list[Row] = [("KV", "pool, by the server's log", "measured")]
    for one in (first, *(other.measured for other in others)):
        size = "" if one.pool_gib is None else f", {one.pool_gib:.2f} GiB"
        tokens = "" if one.pool_tokens is None else f", {one.pool_tokens:,} tokens"
        rows.append((one.kv, f"{one.dtype}{tokens}{size}", f"{one.at} on {one.host}"))
    return rows


def _table(first: Measured, others: tuple[Against, ...]) -> str:
    rows: list[Row] = [_HEAD]
    if not others:
        count = sum(len(text.logprobs) for text in first.texts)
        rows.append(("all", f"{count:,}", first.kv, f"{nll(first):.4f}", "", "", "", ""))
        return columns(rows)
    rows += _group("all", first.kv, [(o.measured.kv, o.whole) for o in others])
    for number, (bucket, _) in enumerate(others[0].positions):
        held = [(o.measured.kv, o.positions[number][1]) for o in others]
        rows += _bucket(bucket, first, held)
    for number, one in enumerate(others[0].texts):
        rows += _group(one.name, first.kv, [(o.measured.kv, o.texts[number]) for o in others])
    note = (
        "NLL and loss in nats by token; loss above 0: the true text became less likely. k is 1024."
    )
    return f"{columns(rows)}\n{note}"


def _bucket(bucket: Bucket, first: Measured, held: list[tuple[str, Drift | None]]) -> list[Row]:
    there = [(kv, one) for kv, one in held if one is not None]
    if not there:
        why = f"no data: no text was longer than {_most(first):,} of {longest(first):,} tokens"
        return [(bucket.name, "0", why, "", "", "", "", "")]
    return _group(bucket.name, first.kv, there)


def _group(name: str, first: str, held: list[tuple[str, Drift]]) -> list[Row]:
    one = held[0][1]
    rows: list[Row] = [(name, f"{one.tokens:,}", first, f"{one.nll:.4f}", "", "", "", "")]
    return rows + [("", "", kv, *_figures(drift)) for kv, drift in held]


def _figures(one: Drift) -> Row:
    span = "too few tokens"
    if one.interval is not None:
        span = f"{one.interval.low:+.4f} to {one.interval.high:+.4f}"
    jump = f"{one.jump.difference:+.2f}, token {one.jump.position:,} of {one.jump.text}"
    return (f"{one.other:.4f}", f"{one.difference:+.4f}", span, f"{one.agreement:.1%}", jump)


def _answers(first: Measured, others: Iterable[Against]) -> str:
    count = len(first.answer.tokens)
    lines = [f"greedy answer of {first.kv}: {count} tokens, ended by {first.answer.finish or '?'}"]
    lines += [line for other in others for line in _parted(other.measured.kv, first, other.parted)]
    return "\n".join(lines)


def _parted(kv: str, first: Measured, parted: Divergence | None) -> Iterator[str]:
    if parted is None:
        yield f"  {kv}: the same to its end"
        return
    yield f"  {kv}: parts at token {parted.at}, after {_quoted(parted.before)}"
    yield f"    {first.kv}: {_quoted(parted.first)}"
    yield f"    {kv}: {_quoted(parted.other)}"


def _quoted(piece: str) -> str:
    return repr(piece) if piece else "its end"


def _needles(first: Measured, others: Iterable[Against]) -> str:
    depths = sorted({one.depth for one in first.needles})
    rows: list[Row] = [("needle in", "KV", *(f"at {depth:.0%}" for depth in depths))]
    every = (first, *(other.measured for other in others))
    for length in sorted({one.length for one in first.needles}):
        for measured in every:
            told = {one.depth: one for one in measured.needles if one.length == length}
            cells = (_needle(told.get(depth)) for depth in depths)
            rows.append((f"{length:,} tokens", measured.kv, *cells))
    return columns(rows) if len(rows) > 1 else "no needle was laid"


def _needle(one: Retrieval | None) -> str:
    return "not asked" if one is None else "found" if one.found else "lost"


def _noise(first: Measured, others: Iterable[Against]) -> str:
    told = (first, *(other.measured for other in others))
    figures = ", ".join(f"{one.kv} {one.noise:.4f}" for one in told)
    return f"the same text twice, largest difference of a token (the server's own noise): {figures}"


def _refusal(one: Refusal) -> str:
    said = [f"  | {line}" for line in one.lines.splitlines()]
    where = [f"  its log: {one.log}"] if one.log else []
    return "\n".join([f"{one.kv} was not measured: {one.what}", *said, *where])


def _most(first: Measured) -> int:
    return max(len(text.ids) for text in first.texts)
