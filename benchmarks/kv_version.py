"""Which versions a published boot can be of, where it names none: by its lines and its date."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from firstlight.accuracy.kvrules import parsed

Published = Mapping[str, Any]

# The day each version's wheel was made.
RELEASED: Mapping[str, str] = {
    "0.4.0": "2024-12-03",
    "0.4.1": "2024-12-25",
    "0.4.2": "2025-01-27",
    "0.4.3": "2025-02-14",
    "0.4.4": "2025-03-13",
    "0.4.5": "2025-04-07",
    "0.4.6": "2025-04-27",
    "0.4.7": "2025-06-10",
    "0.4.8": "2025-06-24",
    "0.4.9": "2025-07-06",
    "0.4.10": "2025-07-31",
    "0.5.1": "2025-08-23",
    "0.5.2": "2025-09-11",
    "0.5.3": "2025-10-06",
    "0.5.4": "2025-10-24",
    "0.5.5": "2025-11-06",
    "0.5.6": "2025-12-03",
    "0.5.7": "2026-01-01",
    "0.5.8": "2026-01-23",
    "0.5.9": "2026-02-23",
    "0.5.10": "2026-04-05",
    "0.5.11": "2026-05-07",
    "0.5.12": "2026-05-16",
    "0.5.13": "2026-06-11",
    "0.5.14": "2026-06-26",
    "0.5.15": "2026-07-10",
    "0.5.16": "2026-07-25",
    "0.5.17": "2026-08-08",
    "0.5.18": "2026-08-21",
    "0.5.19": "2026-09-04",
    "0.5.20": "2026-09-18",
    "0.5.21": "2026-10-01",
    "0.5.22": "2026-10-15",
    "0.5.23": "2026-10-30",
}
# A line, and the first and last version that writes it.
LINES: tuple[tuple[str, str, str], ...] = (
    (r"Load weight end\. type=", "0.4.0", "0.5.8"),
    (r"Load weight end\. elapsed=", "0.5.9", "0.5.23"),
    (r"elapsed=[^,]*, type=[^,]*, dtype=", "0.5.9", "0.5.9"),
    (r"Using KV cache dtype", "0.5.3", "0.5.12"),
    (r"allocated\. dtype:", "0.5.13", "0.5.23"),
    (r"allocated\. #tokens", "0.4.0", "0.5.12"),
)
# Who writes of a boot does not run what came out this week.
_AGE = timedelta(days=14)
# For a row without a date and without a line that tells.
_USUAL = "0.5.12"


def version_of(published: Published) -> str:
    """The version that is stated, else the newest that was out for two weeks and fits the lines."""
    if stated := stated_version(published):
        return stated
    able, day = possible(published), _day(published)
    if day is None:
        return _USUAL if _USUAL in able else able[0] if able else _USUAL
    old = [one for one in able if date.fromisoformat(RELEASED[one]) + _AGE <= day]
    return old[-1] if old else able[0] if able else next(iter(RELEASED))


def stated_version(published: Published) -> str:
    """The version that the row names, "" where it names none: 0.0.0 is a build that knows none."""
    found = re.match(r"v?(\d+\.\d+\.\d+)", str(published.get("sglang_version") or ""))
    return found[1] if found and found[1] != "0.0.0" else ""


def possible(published: Published) -> tuple[str, ...]:
    """Versions that write such lines and were out, oldest first; all that write them where none
    was: a build between two releases."""
    spans = tuple(_spans(published))
    able = [v for v in RELEASED if all(a <= parsed(v) <= b for a, b in spans)]
    day = _day(published)
    out = [v for v in able if day is None or date.fromisoformat(RELEASED[v]) <= day]
    return tuple(out or able[:1])


def _spans(published: Published) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    text = " ".join(map(str, published.get("log_figures") or ()))
    for line, first, last in LINES:
        if re.search(line, text):
            yield parsed(first), parsed(last)
    if published.get("spec_algorithm") and published.get("draft_model_class"):
        # From 0.5.14 on the draft loads before the pools are sized.
        before = published.get("draft_loaded_before_pool")
        if before is True:
            yield parsed("0.5.14"), parsed("0.5.23")
        elif before is False:
            yield parsed("0.4.0"), parsed("0.5.13")


def _day(published: Published) -> date | None:
    try:
        return date.fromisoformat(str(published.get("date"))[:10])
    except ValueError:
        return None
