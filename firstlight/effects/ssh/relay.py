"""Files from one host to another through this machine, which keeps nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.shell import Progress, Result, Shell
from firstlight.effects.ssh.sending import send

_BLOCK = 4 << 20
# An sshd takes ten sessions on one connection (MaxSessions), and some are for others.
_READERS = 6
_READ = 'tail -c "+$(($2 + 1))" -- "$1" | head -c "$3"'


class Feeding(Protocol):
    """A shell whose scripts can read bytes of ours."""

    def feed(self, script: Script, timeout_s: float, payload: Iterable[bytes] | None) -> Result: ...


class Relay:
    """The files of a host, read in blocks, each asked for while the one before it is sent.

    `lengths` are the files' sizes in bytes, by path there.
    """

    def __init__(self, shell: Shell, lengths: Mapping[str, int]) -> None:
        self._shell, self._lengths = shell, lengths
        self._readers = ThreadPoolExecutor(_READERS)

    def length(self, file: ShipFile) -> int:
        """How many bytes there are to send."""
        return self._lengths[str(file.source)]

    def pieces(self, file: ShipFile, offset: int) -> Iterator[bytes]:
        """The bytes from an offset on."""
        ahead = self._ask(file, offset)
        while ahead is not None:
            piece = ahead.result()
            offset += len(piece)
            ahead = self._ask(file, offset)
            yield piece

    def sha256(self, file: ShipFile) -> str:
        """What the bytes really are."""
        found = self._shell.run(Script('sha256sum <"$1"', (str(file.source),)), 900)
        if not found.ok:
            raise self._unreadable(str(file.source), found)
        return found.text.partition(" ")[0]

    def close(self) -> None:
        """Ask for nothing more."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _ask(self, file: ShipFile, offset: int) -> Future[bytes] | None:
        rest = self.length(file) - offset
        if rest <= 0:
            return None
        return self._readers.submit(self._read, str(file.source), offset, min(rest, _BLOCK))

    def _read(self, path: str, offset: int, count: int) -> bytes:
        found = self._shell.run(Script(_READ, (path, str(offset), str(count))), 120)
        if len(found.out) != count:
            raise self._unreadable(path, found)
        return found.out

    def _unreadable(self, path: str, found: Result) -> HostError:
        return HostError(
            f"cannot read {path}: {found.error_text.strip() or 'it has become shorter'}",
            where=self._shell.host.name,
            remedy="see whether it is there and readable, then run the command again",
        )


def relay(
    origin: Relay, target: Feeding, files: Sequence[ShipFile], progress: Progress, where: str
) -> None:
    """Put every file of a host in place on another, checked there; what is there is not sent."""
    if files:
        send(target.feed, files, progress, where, origin)
