#!/usr/bin/env python3
"""Runs on a host, inside a detached job: memory in use, its ceiling, and what it cost.

usage: memory.py        prints one line as the job's log carries it (see `line`)

The kernel counts a job's memory where the job has a cgroup of its own (named firstlight-*), v2 or
v1. Without one, the resident memory of the job's processes is added up, and pages that they share
count more than once.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MIB = 1 << 20
# cgroup v1 says "no limit" with a number near 2^63.
NO_LIMIT = 1 << 60
JOB = "FIRSTLIGHT_JOB"
PROC = Path("/proc")


@dataclass(frozen=True)
class Group:
    """The cgroup that counts our memory: its folder, where its tree begins, and its version."""

    folder: Path
    top: Path
    version: int

    @property
    def ours(self) -> bool:
        """True when it holds nothing but one job."""
        return self.folder.name.startswith("firstlight-")

    def above(self) -> Iterator[Path]:
        """Its folder and those above it, as far as they can be seen."""
        yield self.folder
        if self.folder != self.top:
            yield from self.folder.parents[: len(self.folder.relative_to(self.top).parts)]


def used(proc: Path = PROC) -> int:
    """Bytes that the job holds and that the kernel cannot take back by dropping files."""
    group = find_group(proc)
    if group is None or not group.ours:
        return resident(proc)
    names = ("memory.usage_in_bytes", "memory.current")
    whole = _number(group.folder / names[group.version - 1])
    stat = _pairs(group.folder / "memory.stat")
    prefix = "" if group.version == 2 else "total_"
    files = sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    return resident(proc) if whole is None else max(0, whole - files)


def limit(proc: Path = PROC) -> int | None:
    """The lowest ceiling above the job in bytes, its own or its container's; None without one."""
    group = find_group(proc)
    if group is None:
        return None
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    found = (_number(folder / name) for folder in group.above())
    return min((size for size in found if size is not None and size < NO_LIMIT), default=None)


def oom_kills(proc: Path = PROC) -> int:
    """How many processes the kernel killed for lack of memory, so far: compare two moments.

    Of the job's cgroup; where it has none, of whatever it shares one with, or of the whole host.
    """
    group = find_group(proc)
    files = [proc / "vmstat"]
    if group is not None:
        files = [group.folder / name for name in ("memory.events", "memory.oom_control")] + files
    found = (_pairs(file).get("oom_kill") for file in files)
    return next((count for count in found if count is not None), 0)


def line(proc: Path = PROC) -> str:
    """What a log carries every few seconds: MiB used, MiB allowed (0 = no limit), and the time."""
    most = (limit(proc) or 0) // MIB
    return f"@@firstlight memory {used(proc) // MIB} {most} {time.time():.0f}"


def find_group(proc: Path = PROC) -> Group | None:
    """The cgroup that counts our memory; None where we can see none.

    Version 2 counts only where its memory controller is on, for us or for a group above us.
    """
    paths = _paths(proc)
    for top, root, version in _mounts(proc):
        path = paths.get(version)
        if path is None:
            continue
        below = PurePosixPath(path)
        inside = below.is_relative_to(root) and ".." not in below.parts
        # A container may see its own group as the top, whatever /proc says.
        folder = top / below.relative_to(root) if inside else top
        group = Group(folder if folder.is_dir() else top, top, version)
        if version == 1 or any((place / "memory.max").exists() for place in group.above()):
            return group
    return None


def _paths(proc: Path) -> dict[int, str]:
    """Our path in the tree of version 2, and in the one of version 1 that counts memory."""
    found: dict[int, str] = {}
    for entry in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = entry.split(":", 2)
        if "memory" in controllers.split(","):
            found[1] = path
        elif number == "0" and not controllers:
            found[2] = path
    return found


def _mounts(proc: Path) -> list[tuple[Path, PurePosixPath, int]]:
    """Where those trees are mounted, from which of their folders on; version 2 first."""
    found = []
    for entry in _text(proc / "self" / "mountinfo").splitlines():
        before, _, after = entry.partition(" - ")
        place, kind = before.split(), after.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        version = {"cgroup2": 2, "cgroup": 1}.get(kind[0], 0)
        if version == 2 or (version == 1 and "memory" in kind[2].split(",")):
            found.append((Path(place[4]), PurePosixPath(place[3]), version))
    return sorted(found, key=lambda mount: -mount[2])


def resident(proc: Path = PROC) -> int:
    """Bytes of memory of all processes of our job, added up; of our session outside of a job."""
    page = os.sysconf("SC_PAGE_SIZE")
    mark = os.environ.get(JOB)
    total = 0
    for folder in proc.glob("[0-9]*"):
        if _is_ours(folder, mark):
            fields = _text(folder / "statm").split()
            total += int(fields[1]) * page if len(fields) > 1 else 0
    return total


def _is_ours(folder: Path, mark: str | None) -> bool:
    if mark is not None:
        return f"{JOB}={mark}" in _text(folder / "environ").split("\0")
    fields = _text(folder / "stat").rpartition(") ")[2].split()
    return len(fields) > 3 and fields[3] == str(os.getsid(0))


def _text(path: Path) -> str:
    """A file of the kernel; "" for one that is not there, not for us, or gone meanwhile."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """The number in a file; None for the word `max`, or no file."""
    found = re.fullmatch(r"\d+", _text(path).strip())
    return int(found[0]) if found else None


def _pairs(path: Path) -> dict[str, int]:
    """A file of `name number` lines."""
    words = (entry.split() for entry in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


if __name__ == "__main__":
    print(line())
