"""Words as people read them: bytes in binary units, times, lists, and texts of strangers."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a terminal obeys (control characters of both sets), what turns the direction of writing, and
# halves of a pair, which cannot be printed at all.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BRIEF = 60
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Bytes in the largest binary unit that leaves at least 1: `1.5 GiB` (GiB is 2^30)."""
    value, unit = float(count), 0
    # What would be shown as 1024.0 of a unit is 1.0 of the next.
    while abs(value) >= 1024 - 0.05 * (unit > 0) and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def span(seconds: float) -> str:
    """A length of time: `4.2 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def brief(text: str) -> str:
    """A text of a person's in quotes, as a message repeats it: of a long one its beginning."""
    if len(text) <= _BRIEF:
        return repr(text)
    return f"{text[:_BRIEF]!r}... ({len(text)} characters)"


def listed(text: str) -> tuple[str, ...]:
    """What a person lists with commas, each once: `a` and `b` for `a, b,a`."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def harmless(text: str) -> str:
    """A text of anybody's as a terminal may be given it: what it would obey is spelled out, as
    `\\x1b`; new lines and tabs stay. JSON stays the JSON that it was."""
    return _OBEYED.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    # JSON has no control character below a space in it; the others it can spell so.
    code = ord(found[0])
    return f"\\x{code:02x}" if code < ord(" ") else f"\\u{code:04x}"


def columns(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as aligned columns, two spaces apart."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(f"{c:<{w}}" for c, w in zip(r, widths, strict=True)) for r in table)
    return "\n".join(line.rstrip() for line in lines)
