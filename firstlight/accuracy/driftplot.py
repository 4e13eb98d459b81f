"""The accuracy room: drift against position as a picture, SVG written by hand.

Each mark is the mean loss of the tokens of half an octave of positions, its line the 95 % of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from firstlight.accuracy.comparison import Against, Comparison
from firstlight.accuracy.drift import Drift, drift

_WIDE, _HIGH = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 24, 56, 56
_COLOURS = ("#b3261e", "#1f5fbf", "#2e7d32", "#8a4b08", "#6a1b9a")
_FIRST = 64
_STYLE = "font-family:system-ui,sans-serif;font-size:12px"


@dataclass(frozen=True)
class _Mark:
    position: float
    loss: Drift


@dataclass(frozen=True)
class _Frame:
    """From positions and nats to points of the picture."""

    longest: float
    low: float
    high: float

    def x(self, position: float) -> float:
        share = math.log2(position / _FIRST) / math.log2(self.longest / _FIRST)
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT)

    def y(self, loss: float) -> float:
        share = (loss - self.low) / (self.high - self.low)
        return _HIGH - _BOTTOM - share * (_HIGH - _TOP - _BOTTOM)


def svg(found: Comparison) -> str:
    """The picture of a comparison; one without a second precision says that there is nothing."""
    curves = [(other.measured.kv, _marks(other)) for other in found.others]
    frame = _frame([mark for _, marks in curves for mark in marks])
    first = found.first.kv if found.first else "nothing"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" style="{_STYLE}">',
        f'<rect width="{_WIDE}" height="{_HIGH}" fill="#ffffff"/>',
        _text(_LEFT, 22, f"{found.profile}: loss against {first}, by position in the context"),
        *(_axes(frame) if curves else [_text(_LEFT, 60, "no second precision was measured")]),
    ]
    for number, (kv, marks) in enumerate(curves):
        parts += _curve(frame, kv, marks, number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _marks(other: Against) -> list[_Mark]:
    longest = max(pair.position for pair in other.pairs)
    marks, low, high = [], 0.0, float(_FIRST)
    while low <= longest:
        group = [pair for pair in other.pairs if low <= pair.position < high]
        found = drift(f"{low:.0f}", group)
        if found is not None:
            middle = sum(pair.position for pair in group) / len(group)
            marks.append(_Mark(max(middle, _FIRST), found))
        low, high = high, high * math.sqrt(2)
    return marks


def _frame(marks: Sequence[_Mark]) -> _Frame:
    ends = [0.0]
    for mark in marks:
        span = mark.loss.interval
        ends += [span.low, span.high] if span else [mark.loss.difference]
    room = 0.08 * (max(ends) - min(ends)) or 0.001
    longest = max([2.0 * _FIRST, *(mark.position for mark in marks)])
    return _Frame(longest, min(ends) - room, max(ends) + room)


def _axes(frame: _Frame) -> Iterator[str]:
    right, bottom = _WIDE - _RIGHT, _HIGH - _BOTTOM
    for loss in _ticks(frame.low, frame.high):
        y, colour = frame.y(loss), "#555555" if loss == 0 else "#dddddd"
        yield _line(_LEFT, y, right, y, colour)
        yield _text(_LEFT - 8, y + 4, f"{loss:+.4g}" if loss else "0", "end")
    position = _FIRST
    while position <= frame.longest:
        x = frame.x(position)
        yield _line(x, bottom, x, bottom + 5, "#555555")
        name = f"{position // 1024}k" if position >= 1024 else str(position)
        yield _text(x, bottom + 20, name, "middle")
        position *= 2
    yield _text((_LEFT + right) / 2, _HIGH - 12, "tokens before it (k is 1024)", "middle")
    upright = _text(-(_TOP + bottom) / 2, 16, "nats by token", "middle")
    yield f'<g transform="rotate(-90)">{upright}</g>'


def _ticks(low: float, high: float) -> list[float]:
    """Round figures between two, 0 among them."""
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(step * n for n in (1, 2, 5, 10) if (high - low) / (step * n) <= 6)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _curve(frame: _Frame, kv: str, marks: Sequence[_Mark], number: int) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    points = [(frame.x(mark.position), frame.y(mark.loss.difference)) for mark in marks]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    for (x, y), mark in zip(points, marks, strict=True):
        if span := mark.loss.interval:
            yield _line(x, frame.y(span.low), x, frame.y(span.high), colour)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    x = _LEFT + 150 * number
    yield f'<circle cx="{x + 4}" cy="38" r="4" fill="{colour}"/>'
    yield _text(x + 14, 42, kv)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
