"""Part of a remote program: read unified diffs and apply them to texts, exactly or not at all.

A hunk may have moved, and then it is said; but every line of its context must be there. Nothing
here touches a disk: files come through a function, and what becomes of them goes back as a value.
It lies beside the programs that import it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")

Read = Callable[[str], "str | None"]
Changes = dict[str, "str | None"]


class Fault(Exception):
    """What went wrong, what to do about it, and lines that show it."""

    def __init__(self, error: str, fix: str, shown: tuple[str, ...] = ()) -> None:
        super().__init__(error)
        self.fix, self.shown = fix, shown


class Misfit(Fault):
    """The files are not as a patch expects them: where, and the first line that differs."""

    def __init__(self, where: str, shown: tuple[str, ...] = ()) -> None:
        fix = "write the patch again for this version, or build the version it was made for"
        super().__init__(where, fix, shown)


@dataclass(frozen=True)
class Hunk:
    """Lines of one place with their line ends; the starts count from 0."""

    header: str
    start: int
    old: tuple[str, ...]
    new_start: int
    new: tuple[str, ...]


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file; no `old` path creates it, no `new` path deletes it."""

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]

    def reverse(self) -> FileDiff:
        hunks = (Hunk(h.header, h.new_start, h.new, h.start, h.old) for h in self.hunks)
        return FileDiff(self.new, self.old, tuple(hunks))


def lines_of(text: str) -> list[str]:
    """Lines with their ends; only a newline ends one, so nothing is lost or added."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def stripped(header: str, patch: str) -> str | None:
    """The path of a `--- ` or `+++ ` line, one folder stripped; None stands for /dev/null."""
    name = header[4:].rstrip("\n").split("\t")[0].strip()
    if name == "/dev/null":
        return None
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or len(parts) < 2:
        raise Fault(f"{patch}: {name!r} leads out of the wheel", "write paths as a/PACKAGE/FILE")
    return "/".join(parts[1:])


def parse_hunk(lines: list[str], at: int, patch: str) -> tuple[Hunk, int]:
    """One hunk, and where the next line of the patch is."""
    header = lines[at].rstrip("\n")
    found = HUNK.fullmatch(header)
    if not found:
        raise Fault(f"{patch}:{at + 1}: {header!r} is no hunk", "make the patch again with diff -u")
    counts = [int(found[group] or 1) for group in (2, 4)]
    sides: dict[str, list[str]] = {"-": [], "+": []}
    while [len(side) for side in sides.values()] != counts:
        at += 1
        line = lines[at] if at < len(lines) else "\n"
        if line[0] not in " -+":
            text = f"{patch}:{at + 1}: hunk {header} ends too early"
            raise Fault(text, "make the patch again; some editors cut spaces off line ends")
        is_last = at + 1 < len(lines) and lines[at + 1].startswith("\\")
        for side in sides if line[0] == " " else line[0]:
            sides[side].append(line[1:].removesuffix("\n") if is_last else line[1:])
        at += is_last
    # A side without lines is named by the line before it.
    starts = [int(found[group]) - (count > 0) for group, count in zip((1, 3), counts, strict=True)]
    return Hunk(header, starts[0], tuple(sides["-"]), starts[1], tuple(sides["+"])), at + 1


def parse(text: str, patch: str) -> Iterator[FileDiff]:
    """The files of a patch; what stands before and between them is for people."""
    lines, at = lines_of(text), 0
    while at + 1 < len(lines):
        if lines[at].startswith(("rename ", "copy ", "GIT binary patch")):
            text = f"{patch}:{at + 1}: renames and binary files are not supported"
            raise Fault(text, "write it as text files that are deleted and created")
        if not (lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")):
            at += 1
            continue
        paths = stripped(lines[at], patch), stripped(lines[at + 1], patch)
        at += 2
        hunks = []
        while at < len(lines) and lines[at].startswith("@@"):
            hunk, at = parse_hunk(lines, at, patch)
            hunks.append(hunk)
        yield FileDiff(*paths, tuple(hunks))


def fits(lines: list[str], hunk: Hunk, place: int) -> bool:
    """The hunk's old lines are there, and no line would run into the next one."""
    end = place + len(hunk.old)
    torn_before = place > 0 and not lines[place - 1].endswith("\n")
    torn_after = end < len(lines) and bool(hunk.new) and not hunk.new[-1].endswith("\n")
    return tuple(lines[place:end]) == hunk.old and not torn_before and not torn_after


def find(lines: list[str], hunk: Hunk, wanted: int, earliest: int) -> int | None:
    """Where the hunk fits, the place nearest to the wanted one first."""
    places = range(earliest, len(lines) - len(hunk.old) + 1)
    # Without lines to hold on to it goes where it says or nowhere.
    near = [wanted] if not hunk.old else sorted(places, key=lambda place: abs(place - wanted))
    return next((place for place in near if place in places and fits(lines, hunk, place)), None)


def difference(lines: list[str], hunk: Hunk, wanted: int) -> tuple[str, ...]:
    """The first line that is not as the hunk expects it, where it expects it."""
    for number, expected in enumerate(hunk.old, start=max(wanted, 0)):
        found = lines[number] if number < len(lines) else None
        if found != expected:
            seen = "(end of file)" if found is None else repr(found)
            return f"  line {number + 1}", f"  expected: {expected!r}", f"  found:    {seen}"
    return ("  the lines are there, but not where this hunk can go",)


def apply_hunks(text: str, diff: FileDiff) -> tuple[str, list[str]]:
    """The text after all hunks, and a note for each that was found elsewhere."""
    lines, notes, shift, earliest = lines_of(text), [], 0, 0
    for number, hunk in enumerate(diff.hunks, start=1):
        wanted = hunk.start + shift
        place = find(lines, hunk, wanted, earliest)
        where = f"{diff.old}, hunk {number} of {len(diff.hunks)} ({hunk.header})"
        if place is None:
            raise Misfit(where, difference(lines, hunk, wanted))
        if place != wanted:
            notes.append(f"{where}: {place - wanted:+d} lines from where it says")
        lines[place : place + len(hunk.old)] = hunk.new
        shift += place - wanted + len(hunk.new) - len(hunk.old)
        earliest = place + len(hunk.new)
    return "".join(lines), notes


def apply_patch(diffs: list[FileDiff], read: Read) -> tuple[Changes, list[str]]:
    """The files that the patch makes, changes or (None) deletes; a Misfit when one hunk is off."""
    changes: Changes = {}
    notes: list[str] = []
    for diff in diffs:
        path = diff.new or diff.old or ""
        before = changes[path] if path in changes else read(path)
        if (before is None) != (diff.old is None) or diff.old not in (None, path):
            there = "not there" if before is None else "there already, or under another name"
            raise Misfit(f"{path} is {there}")
        after, more = apply_hunks(before or "", diff)
        if not diff.new and after:
            raise Misfit(f"{path} is to be deleted, but holds more than the patch says")
        changes[path] = after if diff.new else None
        notes += more
    return changes, notes


def is_applied(diffs: list[FileDiff], read: Read) -> bool:
    with contextlib.suppress(Misfit):
        apply_patch([diff.reverse() for diff in reversed(diffs)], read)
        return True
    return False
