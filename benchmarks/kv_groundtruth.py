"""How often the KV arithmetic agrees with boots that others have published.

    python benchmarks/kv_groundtruth.py FILE.jsonl [--json] [--all]

FILE has one JSON object a line, in the form of kv-groundtruth.jsonl. Bytes per token count as right
within 1 %, or within the two decimals that a log prints; tokens from memory within 2 %. `bytes` are
rows marked consistent and not circular; `others` are sizes of all other rows. `split` is how tokens
or slots divide between two pools, `rule` the budget alone where no config is known. Every miss is
listed, every row whose fields or facts do not allow it to be scored, and with --all every row that
has nothing to check. Exits with 1 when a line is no JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.kv_row import Check, Scored, score
from firstlight.core.words import harmless

# Kinds of rows that have figures, and could not be scored: they are told without being asked.
UNSCORED = ("unknown", "unreadable")
COLUMNS = ("bytes", "others", "states", "draft", "tokens", "split", "rule", "boot")


def scored(lines: Iterable[str]) -> Iterator[Scored]:
    """One result for each line that is not blank; ValueError for one that is no object."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            yield score(row)


def column(row: Scored, check: Check) -> str:
    """Where a check is counted: sizes of rows that are not asked for stand apart."""
    return "others" if check.about == "bytes" and not row.asked else check.about


def tally(rows: Sequence[Scored]) -> dict[str, dict[str, tuple[int, int]]]:
    """Right and all checks by kind of model and column; "all" sums the kinds."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for row in rows:
        for check in row.checks:
            for kind in (row.kind, "all"):
                place = counts[kind][column(row, check)]
                place[0] += check.verdict != "miss"
                place[1] += 1
    return {
        kind: {c: (a, b) for c, (a, b) in of.items()}
        for kind, of in sorted(counts.items(), key=lambda item: item[0] == "all")
    }


def table(rows: Sequence[Scored]) -> Iterator[str]:
    """The score by kind of model."""
    counts = tally(rows)
    wide = max((len(kind) for kind in counts), default=4)
    yield f"{'':{wide}}  " + "".join(f"{name:>9}" for name in COLUMNS)
    for kind, of in counts.items():
        cells = (f"{of[c][0]}/{of[c][1]}" if c in of else "" for c in COLUMNS)
        yield f"{kind:{wide}}  " + "".join(f"{cell:>9}" for cell in cells)


def told(row: Scored, check: Check) -> str:
    """One check as a line."""
    off = f"{check.off:+.1%}" if check.published else ""
    figures = f"{check.predicted:,.2f} predicted, {check.published:,.2f} published {off}"
    name = harmless(row.id)
    return f"  {name}: {check.what}: {figures}{f' ({check.note})' if check.note else ''}"


def listed(rows: Sequence[Scored], verdict: str, title: str) -> Iterator[str]:
    """All checks of one verdict under a title, or nothing."""
    lines = [told(r, c) for r in rows for c in r.checks if c.verdict == verdict]
    if lines:
        yield f"\n{title} ({len(lines)}):"
        yield from lines


def report(rows: Sequence[Scored], every: bool) -> Iterator[str]:
    """The whole score as lines."""
    yield from table(rows)
    yield from listed(rows, "miss", "Misses")
    yield from listed(rows, "layout", "Right, by another reading of what the row leaves open")
    yield from listed(rows, "rounding", "Right within the two decimals of the log, not within 1 %")
    skipped = [row for row in rows if row.skipped]
    yield f"\n{len(rows)} rows, {len(skipped)} of them with nothing to check"
    told = skipped if every else [row for row in skipped if _lacks(row)]
    yield from (f"  {harmless(f'{row.id}: {row.skipped}')}" for row in told)


def _lacks(row: Scored) -> bool:
    return row.kind in UNSCORED or row.skipped.startswith("missing")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--json", action="store_true", help="every row and check as JSON lines")
    parser.add_argument("--all", action="store_true", help="also rows with nothing to check")
    options = parser.parse_args(argv)
    try:
        # Not splitlines: a text of a log may hold what that takes for the end of a line.
        rows = list(scored(options.file.read_text(encoding="utf-8").split("\n")))
    except (OSError, ValueError, RecursionError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    lines = (json.dumps(asdict(r)) for r in rows) if options.json else report(rows, options.all)
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # a reader like head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
