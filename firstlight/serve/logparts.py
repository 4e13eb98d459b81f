"""The log parts room: of one line of a server's log its rank, its message, its progress bar."""

from __future__ import annotations

import re

from firstlight.build.loglines import clean, plain

# Of a longer line its beginning is read: a file full of zeros is one line of gigabytes.
LONGEST = 1 << 16
ENDS = re.compile(r"([\r\n])")
_STAMP = re.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<rank>(?: [A-Z_]+\d+)*)\] ?"
)
# Of loggers that name the level and the place in the source behind the stamp.
_PLACE = re.compile(r"(?:INFO|ERROR|CRITICAL) [\w./-]+\.py:\d+: ")
# A rank without a time: of the oldest versions, and of loggers that were told to leave it out.
_BARE_RANK = re.compile(r"\[(gpu(?:_id)?=\d+|(?:(?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+ ?)+)\] ")
_BAR = re.compile(r"\b(\d+)/(\d+) \[\d+:\d\d")


def parts(line: str) -> tuple[str, str, bool]:
    """A line's rank, its message, and whether the engine's own stamp stood before it.

    The stamp stands behind a bar that was being drawn, and behind whatever a journal or a
    container puts before each line.
    """
    line = clean(line)
    stamp = _STAMP.search(line)
    rank = stamp["rank"].strip() if stamp else ""
    message = line[stamp.end() :] if stamp else plain(line)
    place = _PLACE.match(message) if stamp else None
    message = message[place.end() :] if place else message
    bare = None if rank else _BARE_RANK.match(message)
    return (bare[1], message[bare.end() :], True) if bare else (rank, message, bool(stamp))


def bar(line: str) -> tuple[int, int] | None:
    """Steps done and in all by the last progress bar in a line, None without one."""
    bars = _BAR.findall(line) if " [" in line else []
    return (int(bars[-1][0]), int(bars[-1][1])) if bars else None
