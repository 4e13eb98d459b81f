"""This machine, reached without SSH: the same scripts, the same marks, no network."""

from __future__ import annotations

import contextlib
import getpass
import glob
import hashlib
import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.core.words import size
from firstlight.effects.frame import Answer, Stream
from firstlight.effects.homes import expanded
from firstlight.effects.root import Sudo
from firstlight.effects.shell import MAKE_ROOM, AskPassword, Progress, Result
from firstlight.effects.talk import Talk

if TYPE_CHECKING:
    from firstlight.hosts.inventory import Host

_CHUNK = 1 << 16


class LocalShell:
    """This machine as a host."""

    def __init__(self, host: Host, ask_password: AskPassword | None = None) -> None:
        self.host = host
        self.connections = 0
        self.scripts = 0
        root = os.geteuid() == 0
        sudo = None if root else Sudo(getpass.getuser(), host.name, ask_password)
        self._talk = Talk(host, sudo, self._exchange)

    def run(self, script: Script, timeout_s: float = 60.0) -> Result:
        """Run through bash; what outlives the time limit is stopped, children and all."""
        return self._talk.run(script, timeout_s)

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None:
        """Copy what is missing, checked by sha256 and renamed into place."""
        wanted = {expanded(str(file.target)): file for file in files}
        for target, file in wanted.items():
            if not target.exists():
                progress(f"copying {target.name}")
                _copy(file, target, self.host.name)

    def feed(self, script: Script, timeout_s: float, payload: Iterable[bytes] | None) -> Result:
        """Run a script that reads bytes of ours, as a host would."""
        return self._talk.run(script, timeout_s, payload)

    @contextlib.contextmanager
    def forward(self, port: int) -> Iterator[str]:
        """Loopback is loopback."""
        yield f"http://127.0.0.1:{port}"

    def reopen(self) -> None:
        """Nothing can break."""

    def close(self) -> None:
        """Nothing is held open."""

    def _exchange(
        self, argv: tuple[str, ...], sent: Iterable[bytes], answer: Answer, timeout_s: float
    ) -> None:
        self.scripts += 1
        pipe = subprocess.PIPE
        # A session of its own: a Ctrl-C reaches us alone, and the group can be stopped whole.
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        unread: list[HostError] = []
        threading.Thread(target=_feed, args=(process, sent, unread), daemon=True).start()
        try:
            _listen(process, answer, time.monotonic() + timeout_s)
        finally:
            # Somebody must wait for it, or a stopped script stays a zombie and seems alive.
            threading.Thread(target=process.wait, daemon=True).start()
        if unread:
            raise unread[0]
        if answer.status is not None and answer.status < 0:
            raise HostError(
                f"the script's shell was killed by signal {-answer.status}",
                where=self.host.name,
                remedy="was it out of memory? `dmesg` says so; then run the command again",
            )


@dataclass(frozen=True)
class _Here:
    """All that running a script asks of a host; a whole Host costs a schema's import."""

    env: Mapping[str, str]
    name: str = "local"


def run_here(script: Script, env: Mapping[str, str]) -> Result:
    """Run a script on this machine with the variables of its inventory entry."""
    return LocalShell(cast("Host", _Here(env))).run(script)


def _feed(process: subprocess.Popen[bytes], sent: Iterable[bytes], unread: list[HostError]) -> None:
    """Send all there is; `unread` takes why it ends early, before the program sees that it does."""
    assert process.stdin
    # A program may end without reading all of its input: its exit status tells the story.
    with contextlib.suppress(OSError), process.stdin:
        try:
            for piece in sent:
                process.stdin.write(piece)
        except HostError as error:
            unread.append(error)


def _listen(process: subprocess.Popen[bytes], answer: Answer, deadline: float) -> None:
    assert process.stdout and process.stderr
    with process.stdout as out, process.stderr as err, selectors.DefaultSelector() as ready:
        ready.register(out, selectors.EVENT_READ, answer.out)
        ready.register(err, selectors.EVENT_READ, answer.err)
        while ready.get_map() and not answer.ended:
            events = ready.select(0.2)
            for key, _ in events:
                _take(ready, key)
            # A child in the background may hold the pipes of a shell that was killed.
            if not events and process.poll() is not None:
                break
            if time.monotonic() > deadline:
                raise TimeoutError
    if not answer.ended:
        answer.status = _status(process, deadline)


def _status(process: subprocess.Popen[bytes], deadline: float) -> int:
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


def _take(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    stream: Stream = key.data
    piece = os.read(key.fd, _CHUNK)
    if piece:
        stream.feed(piece)
    else:
        ready.unregister(key.fileobj)


def _copy(file: ShipFile, target: Path, host: str) -> None:
    partial = target.with_name(f"{target.name}.partial.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_left(target)
        _check_room(file.source, target.parent, host)
        shutil.copyfile(file.source, partial)
        _check(file, partial, host)
        partial.rename(target)
    except OSError as error:
        what = f"cannot copy {error.filename or file.source}: {error.strerror}"
        raise HostError(what, where=host, remedy="put that right and run again") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _clear_left(target: Path) -> None:
    """Remove what a process that was killed while it copied to that place left behind."""
    for left in target.parent.glob(f"{glob.escape(target.name)}.partial.*"):
        if not Path("/proc", left.name.rpartition(".")[2]).exists():
            left.unlink(missing_ok=True)


def _check_room(source: Path, folder: Path, host: str) -> None:
    needed, free = source.stat().st_size, shutil.disk_usage(folder).free
    if needed > free:
        raise HostError(
            f"no room for {source.name} in {folder}: {size(needed)} needed, {size(free)} free",
            where=host,
            remedy=MAKE_ROOM,
        )


def _check(file: ShipFile, copy: Path, host: str) -> None:
    with copy.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise HostError(
            f"{file.source} has sha256 {found}, expected {file.sha256}",
            where=host,
            remedy="the file changed or is damaged; delete it and run the command again",
        )
