"""`invoke explain`: why a log ends badly, told by the rules of recipes/failures.yaml."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from firstlight.build.failures import UNKNOWN_FIX, Explanation, Rules, explain
from firstlight.build.loglines import cut
from firstlight.core.report import Report
from firstlight.core.words import size
from firstlight.effects.console import Console
from firstlight.flows.failures import known
from firstlight.hosts.inventory import UnknownName
from firstlight.serve.causes import UNKNOWN, Cause
from firstlight.serve.serverlog import Phase, ServerLog, begin, cause, feed, finish

_CHUNK = 1 << 20
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def run(root: Path, console: Console, *, log: str = "") -> Report:
    """The cause, the line that shows it, the fix and a link; exit code 1 when none is known.

    `log` is a file, "-" is standard input. A log of any size is read piece by piece.
    """
    if not log:
        remedy = "invoke explain --log FILE (or - for standard input)"
        raise UnknownName("which log?", remedy=remedy)
    rules, shown = known(root), "standard input" if log == "-" else log
    try:
        with sys.stdin.buffer if log == "-" else Path(log).open("rb") as file:
            _require_end(file, shown)
            found = _read(_decoded(_noted(file, shown, console)), rules)
    except OSError as error:
        remedy = "check that path, and that you may read it"
        raise UnknownName(f"cannot read {log}: {error.strerror}", remedy=remedy) from None
    if found is None:
        return Report(f"nothing in {shown} looks like an error", {"log": shown, "rule": None}, 1)
    data = {"log": shown, "known": found.known, **asdict(found)}
    return Report(text(found, shown), data, 0 if found.known else 1)


def text(found: Explanation, log: str) -> str:
    """An explanation as a person reads it; what is unknown comes with the lines around it."""
    lines = [f"cause: {found.cause}", f"evidence: {log}:{found.line}: {found.text}"]
    if not found.known:
        lines += [_around(found, number, line) for number, line in found.context]
    lines += [f"fix: {found.fix}"]
    lines += [f"link: {found.link}"] if found.link else []
    return "\n".join(lines)


def _around(found: Explanation, number: int, line: str) -> str:
    mark = ">" if number == found.line and line.strip() == found.text else " "
    return f"  {mark} {number:>6} | {line}"


def _read(pieces: Iterable[str], rules: Rules) -> Explanation | None:
    """A server's log is read as one: what a server survived is no cause of its end."""
    server = _Server(begin(rules))
    found = explain(cut(server.watch(pieces)), rules)
    return server.judge(found) if server.log else found


class _Server:
    """Reads along while a log is read; `log` is None once it is seen to be no server's."""

    def __init__(self, log: ServerLog) -> None:
        self.log: ServerLog | None = log

    def watch(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            if self.log is not None:
                self.log = feed(self.log, piece)
                if not self.log.boots and self.log.phase is Phase.STARTING:
                    self.log = None
            yield piece

    def judge(self, found: Explanation | None) -> Explanation | None:
        """The cause of the server's end; `found` is what its lines alone would say."""
        died = cause(finish(self.log)) if self.log else None
        if died is None or (found and found.line == died.line):
            return found if died else None
        return _explained(died)


def _explained(died: Cause) -> Explanation:
    if died.kind in UNKNOWN:
        return Explanation("", f"unknown: {died.cause}", died.line, died.text, UNKNOWN_FIX)
    return Explanation(died.kind, died.cause, died.line, died.text, died.fix, died.link)


def _noted(file: BinaryIO, shown: str, console: Console) -> Iterator[bytes]:
    """The bytes of a log, while the console shows how far it is read."""
    read, length = 0, os.fstat(file.fileno()).st_size if file.seekable() else 0
    while data := file.read(_CHUNK):
        yield data
        read += len(data)
        whole = f" of {size(length)}" if length > read else ""
        console.note(f"reading {shown}: {size(read)}{whole}")


def _decoded(pieces: Iterator[bytes]) -> Iterator[str]:
    first = next(pieces, b"")
    decoder = codecs.getincrementaldecoder(_encoding(first))("replace")
    for data in chain((first,), pieces):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def _encoding(data: bytes) -> str:
    """What a log says of itself by its first bytes, as those of Windows do; else UTF-8.

    Two such bytes may also be the beginning of rubbish: text in UTF-16 has many zeros.
    """
    is_wide = data.count(0) * 10 >= len(data)
    return "utf-16" if data[:2] in _WIDE and is_wide else "utf-8-sig"


def _require_end(file: BinaryIO, log: str) -> None:
    """Raise UnknownName for a device: /dev/zero, or a disk, never comes to an end."""
    try:
        told = os.fstat(file.fileno())
    except OSError:
        return
    is_device = stat.S_ISCHR(told.st_mode) or stat.S_ISBLK(told.st_mode)
    if is_device and not file.isatty() and told.st_rdev != Path(os.devnull).stat().st_rdev:
        raise UnknownName(f"{log} is a device and no log", remedy="name a file or a pipe")
