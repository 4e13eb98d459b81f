"""The Shell protocol: one way to run a script and send files; and this machine's own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.hosts.inventory import Host

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What a script left: its exit status and its two streams as bytes."""

    rc: int
    out: bytes = b""
    err: bytes = b""

    @property
    def ok(self) -> bool:
        """True for exit status 0."""
        return self.rc == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 show as U+FFFD."""
        return self.out.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text; bytes that are no UTF-8 show as U+FFFD."""
        return self.err.decode("utf-8", "replace")


class Shell(Protocol):
    """An open way to one host.

    `run` returns whatever the script's exit status is; it raises ConnectionLost when the link
    broke and HostError when `timeout_s` passed or root was refused. `send` puts files in place
    by content: what is there already is not sent, what arrives is checked, then renamed.
    `forward` gives the URL under which the controller reaches a port of the host's loopback.
    """

    host: Host
    connections: int
    scripts: int

    def run(self, script: Script, timeout_s: float = 60.0) -> Result: ...

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None: ...

    def forward(self, port: int) -> AbstractContextManager[str]: ...

    def close(self) -> None: ...


class LocalShell:
    """This machine, reached without SSH."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.connections = 0
        self.scripts = 0

    def run(self, script: Script, timeout_s: float = 60.0) -> Result:
        """Run through `bash -s`; a program that outlives the time limit is killed."""
        self.scripts += 1
        argv = ["/bin/bash", "-s"]
        if script.sudo and os.geteuid() != 0:
            argv = ["sudo", "--", *argv]
        try:
            done = subprocess.run(
                argv, input=script.source().encode(), capture_output=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise HostError(
                f"a script gave no result within {timeout_s:.0f} s", where=self.host.name
            ) from None
        return Result(done.returncode, done.stdout, done.stderr)

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None:
        """Copy what is missing, checked by sha256 and renamed into place."""
        for file in files:
            target = Path(file.target)
            if not target.exists():
                progress(f"copying {file.target.name}")
                _copy_checked(file, target, self.host.name)

    @contextlib.contextmanager
    def forward(self, port: int) -> Iterator[str]:
        """Loopback is loopback."""
        yield f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """Nothing is held open."""


def _copy_checked(file: ShipFile, target: Path, host: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial.{os.getpid()}")
    try:
        shutil.copyfile(file.source, partial)
        found = _sha256(partial)
        if found != file.sha256:
            raise HostError(
                f"{file.source} has sha256 {found}, expected {file.sha256}",
                where=host,
                remedy="the file changed or is damaged; delete it and run the command again",
            )
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
