"""Progress of a compilation, folded out of its log one line at a time: ninja's, CMake's, make's.

A log may hold several runs of ninja one after another, indented or not (pip indents what a backend
says). Lines of ours, `@@firstlight memory USED LIMIT [TIME]` (MiB; LIMIT 0 = none; TIME in seconds
since 1970), carry the memory in use, and a clock: where the log has one it is the only one that
counts, so that a log read afresh in one go shows the same rate as one that was watched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MARK = "@@firstlight"

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_COUNT = re.compile(r"^[\s|>│]*\[\s*(\d{1,6})(?:/(\d{1,6})|%)\]\s(.*)$")
_MEMORY = re.compile(MARK + r" memory (\d{1,12}) (\d{1,12})(?: (\d{1,11}(?:\.\d{1,9})?))?\s*$")
_SOURCE = r"[^\s\"'/=]+\.(?:cu|cpp|cc|cxx|c\+\+|c|hip|S)"
_COMPILED = re.compile(rf"\s-c\s+(?:-c\s+)?[\"']?(?:[^\s\"']*/)?({_SOURCE})(?=[\s\"']|$)")
_BUILDING = re.compile(rf"Building \S+ object (?:\S*/)?({_SOURCE})\.(?:o|obj)\b")
_LINKED = re.compile(r"(?:Linking\b.*\s|\s-o\s+)[\"']?(?:[^\s\"']*/)?([^\s\"'/]+\.(?:so|a)[0-9.]*)")
_ANY_SOURCE = re.compile(rf"(?:^|[\s\"'/=])({_SOURCE})(?=[\s\"',:;)]|$)")


@dataclass(frozen=True)
class Progress:
    """How far a compilation is. `done` of `total` units are finished, in percent for make.

    `file` is the unit that ninja named last, the one that has just been finished. `runs` counts
    runs of ninja. `rate` is finished units a minute since this run began, `eta_s` the seconds that
    are left at that rate; None before they can be known. `memory_mib` and `limit_mib` are 0 when
    nothing told them.
    """

    done: int = 0
    total: int = 0
    percent: bool = False
    file: str = ""
    runs: int = 0
    rate: float | None = None
    eta_s: float | None = None
    memory_mib: int = 0
    limit_mib: int = 0
    # The clock of the log, if it has one; the time of the last line; where the run began.
    log_s: float | None = None
    spoke_s: float | None = None
    began: tuple[float, int] | None = None


def fold(seen: Progress, line: str, now_s: float | None) -> Progress:
    """What is known after one more line of a log, which came at `now_s` on any one clock.

    None says that nobody knows when the line came: it was in the log before anybody watched.
    """
    if line.startswith(MARK):
        return _told(seen, line)
    when = now_s if seen.log_s is None else seen.log_s
    found = _COUNT.match(_COLOUR.sub("", line))
    counted = _count(found) if found else None
    if found is None or counted is None:
        return replace(seen, spoke_s=when)
    return _unit(seen, counted, not found[2], _file(found[3]), when)


def text(seen: Progress) -> str:
    """One line: `[12/73] 4.1 a minute, about 15 min left, 9.3 GiB, flash_fwd_hdim64.cu`."""
    count = f"[{seen.done}%]" if seen.percent else f"[{seen.done}/{seen.total}]"
    parts = [f"run {seen.runs}"] if seen.runs > 1 else []
    if seen.rate and not seen.percent:
        parts.append(f"{seen.rate:.1f} a minute")
    if seen.eta_s is not None:
        parts.append(f"about {_about(seen.eta_s)} left")
    if seen.memory_mib:
        limit = f" of {seen.limit_mib / 1024:.1f}" if seen.limit_mib else ""
        parts.append(f"{seen.memory_mib / 1024:.1f}{limit} GiB")
    return f"{count} {', '.join([*parts, seen.file] if seen.file else parts)}".rstrip()


def _told(seen: Progress, line: str) -> Progress:
    """After a line of ours; one that says nothing about memory changes nothing."""
    found = _MEMORY.match(line)
    if found is None:
        return seen
    told = replace(seen, memory_mib=int(found[1]), limit_mib=int(found[2]))
    if found[3] is None:
        return told
    clock = float(found[3])
    if seen.log_s is None:
        # Times of another clock mean nothing from now on.
        began = None if seen.began is None else (clock, seen.done)
        spoke = None if seen.spoke_s is None else clock
        told = replace(told, began=began, spoke_s=spoke, rate=None, eta_s=None)
    passed = clock - seen.log_s if seen.log_s is not None else 0.0
    left = None if told.eta_s is None else max(0.0, told.eta_s - max(0.0, passed))
    return replace(told, log_s=clock, eta_s=left)


def _count(found: re.Match[str]) -> tuple[int, int] | None:
    done, total = int(found[1]), int(found[2] or 100)
    return (done, total) if 0 < total >= done else None


def _unit(
    seen: Progress, counted: tuple[int, int], percent: bool, file: str, when: float | None
) -> Progress:
    done, total = counted
    runs, began = seen.runs, seen.began
    if _is_new_run(seen, done, total, percent):
        # The line before the first unit is taken for the beginning: that unit took time as well.
        runs, began = runs + 1, None if seen.spoke_s is None else (seen.spoke_s, 0)
    if began is None and when is not None:
        began = (when, done)
    rate = _rate(began, done, when)
    return replace(
        seen,
        done=done,
        total=total,
        percent=percent,
        file=file or seen.file,
        runs=runs,
        rate=rate,
        eta_s=60 * (total - done) / rate if rate else None,
        spoke_s=when,
        began=began,
    )


def _is_new_run(seen: Progress, done: int, total: int, percent: bool) -> bool:
    """Ninja counts upwards, and says a number twice only for an edge that owns the console."""
    if seen.runs == 0 or percent != seen.percent or done < seen.done:
        return True
    if percent or done > seen.done:
        return False
    return total != seen.total or done == total


def _rate(began: tuple[float, int] | None, done: int, when: float | None) -> float | None:
    if began is None or when is None or when <= began[0] or done <= began[1]:
        return None
    return 60 * (done - began[1]) / (when - began[0])


def _file(rest: str) -> str:
    """The source file that a line of ninja is about, or the library that it links."""
    for pattern in (_BUILDING, _COMPILED, _LINKED):
        if found := pattern.findall(f" {rest}"):
            return str(found[-1])
    found = _ANY_SOURCE.findall(rest)
    return str(found[-1]) if found else ""


def _about(seconds: float) -> str:
    """A time that is only a guess: `40 s`, `15 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60 // 10 * 10:02d} min"
