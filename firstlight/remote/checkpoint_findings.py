"""Part of read_checkpoint.py: what is wrong with a checkpoint, and files opened with care."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A broken checkpoint has one thing wrong a thousand times; nobody reads them all.
EACH_KIND = 8
LONGEST_WORD = 300


@dataclass
class Findings:
    """`error`: the engine cannot load it, or loads something else; `warning`: it may matter;
    `note`: only worth knowing."""

    kept: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, severity: str, kind: str, where: str, what: str) -> None:
        self.counts[kind, severity] += 1
        if self.counts[kind, severity] <= EACH_KIND:
            words = {"where": shown(where), "what": shown(what)}
            self.kept.append({"severity": severity, "kind": kind, **words})

    def listed(self) -> list[dict[str, str]]:
        """All that were kept, and how many more of each kind there were."""
        more = [
            {"severity": severity, "kind": kind, "where": "", "what": f"{n - EACH_KIND} more such"}
            for (kind, severity), n in self.counts.items()
            if n > EACH_KIND
        ]
        return self.kept + more


@dataclass
class Meter:
    """Bytes that were read from files, and files that were opened."""

    read: int = 0
    opened: int = 0


class Unreadable(Exception):
    """Why a file cannot be read, and the kind of finding that is."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass
class File:
    """An open file: what is read is counted, and nothing is read ahead."""

    fd: int
    size: int
    meter: Meter

    def read(self, count: int) -> bytes:
        return self._counted(os.read(self.fd, count))

    def read_at(self, at: int, count: int) -> bytes:
        return self._counted(os.pread(self.fd, count, at))

    def _counted(self, data: bytes) -> bytes:
        self.meter.read += len(data)
        return data


@contextmanager
def opened(path: Path, meter: Meter) -> Iterator[File]:
    """Open a regular file; raises Unreadable for all else, and never waits for a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError:
        raise Unreadable("missing-file", "no file can have that name") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("no-file", "it is no regular file")
        meter.opened += 1
        yield File(fd, found.st_size, meter)
    except OSError as error:
        raise unreadable(path, error) from None
    finally:
        os.close(fd)


def unreadable(path: Path, error: OSError) -> Unreadable:
    if isinstance(error, PermissionError):
        return Unreadable("no-permission", f"it may not be read by uid {os.geteuid()}")
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return Unreadable("broken-link", f"it is a link to {path.readlink()}, which is not there")
    if isinstance(error, FileNotFoundError):
        return Unreadable("missing-file", "it is not there")
    return Unreadable("read-error", error.strerror or type(error).__name__)


def shown(name: str) -> str:
    """A name as a person may read it: of a tensor, a file, a template."""
    return harmless(name[:LONGEST_WORD])


def harmless(text: str) -> str:
    """A text in one line: a stranger's may have any signs, and a terminal obeys some."""
    # A lone surrogate cannot be printed.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(value: Any) -> str:
    """A value of somebody's JSON in a few words."""
    return repr(value)[:60]
