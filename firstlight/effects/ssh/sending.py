"""Files to the host: only what it lacks, several at once, resumed, checked, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.core.words import size
from firstlight.effects.library import program
from firstlight.effects.shell import MAKE_ROOM, Progress, Result

Run = Callable[[Script, float, Iterable[bytes] | None], Result]
"""Runs a script with a time limit in seconds, and perhaps bytes for it to read."""


class Origin(Protocol):
    """Where the bytes of files come from; raises HostError when they cannot be had."""

    def length(self, file: ShipFile) -> int: ...

    def pieces(self, file: ShipFile, offset: int) -> Iterator[bytes]: ...

    def sha256(self, file: ShipFile) -> str: ...


_STREAMS = 4
_CHUNK = 1 << 18
_CANNOT_WRITE, _CUT, _NOT_OURS, _WRONG = 73, 74, 75, 76


@dataclass(frozen=True)
class _Missing:
    """A file that the host lacks; `come` bytes of it have arrived before."""

    file: ShipFile
    bytes: int
    come: int
    filesystem: str
    free: int


@dataclass
class _Meter:
    """How far all files together are; says so once a second."""

    total: int
    files: int
    tell: Progress
    sent: int = 0
    done: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    _start: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, count: int) -> None:
        with self._lock:
            self.sent += count
            if time.monotonic() - self._told >= 1:
                self._say()

    def finish(self) -> None:
        with self._lock:
            self.done += 1
            if self.done == self.files:
                self._say()

    def _say(self) -> None:
        self._told = time.monotonic()
        rate = self.sent / max(self._told - self._start, 0.001)
        far = f"{size(self.sent)} of {size(self.total)}, {size(rate)}/s"
        self.tell(f"sending: {self.done} of {self.files} files, {far}")


class Disk:
    """This machine's own files."""

    def length(self, file: ShipFile) -> int:
        """How many bytes there are to send."""
        with _readable(file):
            return file.source.stat().st_size

    def pieces(self, file: ShipFile, offset: int) -> Iterator[bytes]:
        """The bytes from an offset on."""
        with _readable(file):
            stream = file.source.open("rb")
        with stream:
            stream.seek(offset)
            while piece := _read(file, stream):
                yield piece

    def sha256(self, file: ShipFile) -> str:
        """What the bytes really are."""
        with _readable(file), file.source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(file: ShipFile, stream: BinaryIO) -> bytes:
    with _readable(file):
        return stream.read(_CHUNK)


@contextlib.contextmanager
def _readable(file: ShipFile) -> Iterator[None]:
    """A disk's refusal is told as what it is; an OSError would pass for the link's."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"cannot read {file.source} on this machine: {error.strerror}",
            remedy="run the command again to get it anew",
        ) from None


def send(
    run: Run,
    files: Sequence[ShipFile],
    progress: Progress,
    where: str,
    origin: Origin | None = None,
) -> None:
    """Put every file in place; raises HostError before sending when the host has no room."""
    origin = origin or Disk()
    once = list({file.target: file for file in files}.values())
    missing = _ask(run, once, where, origin)
    _check_room(missing, where)
    meter = _Meter(sum(m.bytes - m.come for m in missing), len(missing), progress)
    pool = ThreadPoolExecutor(_STREAMS)
    try:
        for done in [pool.submit(_deliver, run, m, meter, where, origin) for m in missing]:
            done.result()
    finally:
        meter.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _ask(run: Run, files: Sequence[ShipFile], where: str, origin: Origin) -> list[_Missing]:
    text = program("missing.sh")
    targets = tuple(str(file.target) for file in files)
    result = run(Script(text, targets), 120, None)
    lines = result.text.splitlines()
    if not result.ok or lines[-1:] != ["end"]:
        what = f"cannot make the folders for our files: {_last(result)}"
        raise HostError(what, where=where, remedy="see who owns them and whether they are writable")
    try:
        return [_missing(files, line.split(), origin) for line in lines[:-1]]
    except HostError as error:
        error.where = error.where or where
        raise


def _missing(files: Sequence[ShipFile], words: list[str], origin: Origin) -> _Missing:
    _, number, come, filesystem, blocks, block = words
    file = files[int(number)]
    length = origin.length(file)
    already = int(come) if int(come) <= length else 0
    return _Missing(file, length, already, filesystem, int(blocks) * int(block))


def _check_room(missing: Sequence[_Missing], where: str) -> None:
    disks = defaultdict(list)
    for one in missing:
        disks[one.filesystem].append(one)
    for ones in disks.values():
        needed = sum(one.bytes - one.come for one in ones)
        if needed > ones[0].free:
            folder = ones[0].file.target.parent
            what = f"no room in {folder}: {size(needed)} needed, {size(ones[0].free)} free"
            raise HostError(what, where=where, remedy=MAKE_ROOM)


def _deliver(run: Run, missing: _Missing, meter: _Meter, where: str, origin: Origin) -> None:
    result = _transfer(run, missing, missing.come, meter, origin)
    if result.rc in (_NOT_OURS, _WRONG) and missing.come:
        # What was there is another's, still being written, or damaged: start afresh.
        meter.add(-missing.bytes)
        result = _transfer(run, missing, 0, meter, origin)
    if not result.ok:
        raise _failure(result, missing, where, origin)
    meter.finish()


def _transfer(run: Run, missing: _Missing, offset: int, meter: _Meter, origin: Origin) -> Result:
    file = missing.file
    args = (str(file.target), file.sha256, str(missing.bytes), str(offset))
    script = Script(program("receive.sh"), args)
    # The limit is for what follows the last byte: the host reads the file again to check it.
    limit = 60 + missing.bytes / 20e6
    return run(script, limit, _metered(origin.pieces(file, offset), meter))


def _metered(pieces: Iterator[bytes], meter: _Meter) -> Iterator[bytes]:
    # After a Ctrl-C or another file's failure what has come is kept, to go on from later.
    while not meter.stopped.is_set() and (piece := next(pieces, b"")):
        yield piece
        meter.add(len(piece))


def _failure(result: Result, missing: _Missing, where: str, origin: Origin) -> HostError:
    file = missing.file
    match result.rc:
        case rc if rc == _WRONG:
            return _wrong(result.text.strip(), file, where, origin)
        case rc if rc == _NOT_OURS:
            what, remedy = f"somebody else is sending {file.target} too", "wait for it to finish"
        case rc if rc == _CUT:
            what, remedy = f"{file.target} arrived cut short", "run the command again to go on"
        case _:
            need = size(missing.bytes - missing.come)
            free = size(missing.free)
            what = f"cannot write {file.target}: {_last(result)} ({need} needed, {free} were free)"
            remedy = MAKE_ROOM
    return HostError(what, where=where, remedy=remedy)


def _wrong(found: str, file: ShipFile, where: str, origin: Origin) -> HostError:
    ours = origin.sha256(file)
    if ours == file.sha256:
        what, remedy = f"{file.target} was damaged on its way (sha256 {found})", "run again"
    else:
        what = f"{file.source} has sha256 {ours}, expected {file.sha256}"
        remedy = "the file changed or is damaged; delete it and run the command again"
    return HostError(what, where=where, remedy=remedy)


def _last(result: Result) -> str:
    lines = result.error_text.strip().splitlines()
    return lines[-1] if lines else f"exit status {result.rc}"
