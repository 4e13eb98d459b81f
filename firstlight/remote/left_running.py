"""Part of a remote program: a build that has ended but for what it left running comes to its end.

uv waits until nobody holds the output of a build's own program any more. What that program left
running, a cache's server for example, holds it for as long as it lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process as /proc has it; `over` when it only waits to be collected."""

    pid: int
    parent: int
    over: bool


def adopt(wanted: bool) -> None:
    """Have what loses its parent below us become our own child, so that we can still tell it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


class Leftovers:
    """Looks every few seconds at a build that runs as `argv`, below a sandbox's own processes.

    Where it has no process of its own at work for two looks, and others from it run still, these
    are asked to end, and at the next look killed. What we started before `child` is not from it.
    """

    def __init__(self, argv: list[str], child: int) -> None:
        self._argv, self._child = argv, child
        ours = (pid for pid, one in processes().items() if one.parent == os.getpid())
        self._others = set(ours) - {child}
        self._looks = 0

    def look(self) -> list[int]:
        """One look; the processes that were told to end."""
        every = {pid: one for pid, one in processes().items() if pid not in self._others}
        ours = below(os.getpid(), every)
        self._collect(ours)
        running = {pid: one for pid, one in ours.items() if not one.over}
        program = self._build(running)
        if program is None or any(one.parent == program for one in running.values()):
            self._looks = 0
            return []
        left = sorted(set(running) - above(program, running))
        self._looks = self._looks + 1 if left else 0
        if self._looks < 2:
            return []
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if self._looks == 2 else signal.SIGKILL)
        return left

    def _build(self, running: Iterable[int]) -> int | None:
        """The build itself: its words are the end of what the sandbox's programs were told."""
        told = [(pid, words) for pid in running if (words := words_of(pid))]
        ours = [(len(words), pid) for pid, words in told if self._argv[-len(words) :] == words]
        return min(ours)[1] if ours else None

    def _collect(self, ours: dict[int, Process]) -> None:
        for one in ours.values():
            if one.over and one.parent == os.getpid() and one.pid != self._child:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)


def processes() -> dict[int, Process]:
    """Every process that we can see."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(") ")[2].split()
            pid = int(folder.name)
            found[pid] = Process(pid, int(fields[1]), fields[0] in "ZX")
    return found


def below(top: int, every: dict[int, Process]) -> dict[int, Process]:
    """The children of a process, theirs, and so on."""
    found: dict[int, Process] = {}
    new = {top}
    while new:
        more = {pid: one for pid, one in every.items() if one.parent in new and pid not in found}
        found |= more
        new = set(more)
    return found


def above(pid: int, every: dict[int, Process]) -> set[int]:
    """A process and those that it comes from."""
    found = set()
    while pid in every and pid not in found:
        found.add(pid)
        pid = every[pid].parent
    return found


def words_of(pid: int) -> list[str]:
    """The words that a process was started with; none for one that is gone."""
    with contextlib.suppress(OSError):
        text = (PROC / str(pid) / "cmdline").read_bytes()
        return [os.fsdecode(word) for word in text.split(b"\0")[:-1]]
    return []
