"""Test hosts: a process by id and start time, so that a recycled id is never taken for it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Process:
    """One process of this machine; `started` is in clock ticks since the boot `boot`."""

    pid: int
    started: int
    boot: str

    def line(self) -> str:
        """The form in which a file keeps it."""
        return f"{self.pid} {self.started} {self.boot}\n"


def parse(text: str) -> tuple[Process, ...]:
    """The processes that a file keeps, one a line."""
    words = [line.split() for line in text.splitlines()]
    return tuple(Process(int(pid), int(started), boot) for pid, started, boot in words)


def identify(pid: int) -> Process | None:
    """The process that has this id now; None when there is none, or only its exit status."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[19]), BOOT_ID.read_text().strip())


def is_alive(process: Process) -> bool:
    """True while that very process runs."""
    return identify(process.pid) == process


def end(process: Process, grace_s: float = 20.0) -> None:
    """Ask the process to end; kill it when it has not within `grace_s`."""
    for number, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if is_alive(process):
            os.kill(process.pid, number)
        if wait_gone(process, patience):
            break
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def wait_gone(process: Process, patience_s: float) -> bool:
    """True once the process has ended; False when it still runs after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def children(pid: int) -> tuple[int, ...]:
    """The ids of a process's children; none when it has ended."""
    try:
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return ()
