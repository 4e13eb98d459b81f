"""This process as a holder of something on a host, and whether such a holder is gone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SPACE = Path("/proc/self/ns/pid")


def mark() -> str:
    """A holder's mark, new with each call: MACHINE-PID-TICKS-RANDOM, fit for the name of a file.

    The machine is one boot of one host, seen from one space of process ids. With the ticks since
    boot at which a process started, its number is never taken for that of another.
    """
    pid = os.getpid()
    return f"{_machine()}-{pid}-{_ticks(pid)}-{secrets.token_hex(4)}"


def is_gone(mark: str) -> bool:
    """True when the holder was a process of this machine that has ended; False where unknown."""
    machine, _, rest = mark.partition("-")
    pid, _, rest = rest.partition("-")
    ticks = rest.partition("-")[0]
    if machine != _machine() or not (pid.isdecimal() and ticks.isdecimal()):
        return False
    now = _ticks(int(pid))
    return now != ticks if now else not _is_there(int(pid))


def is_one(mark: str, other: str) -> bool:
    """True when both marks are of one process."""
    return mark.rpartition("-")[0] == other.rpartition("-")[0]


def _machine() -> str:
    words = [platform.node()]
    with contextlib.suppress(OSError):
        words += [_BOOT.read_text(), str(_SPACE.readlink())]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _ticks(pid: int) -> str:
    """When a process started, "" where that cannot be read; a zombie is "gone"."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "gone" if fields[0] in "ZX" else fields[19]


def _is_there(pid: int) -> bool:
    """For where /proc hides what others run."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
