"""The Shell protocol: one way to run a script, send files and reach a port of a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from firstlight.core.command import Script
from firstlight.core.plan import ShipFile

if TYPE_CHECKING:
    # What says in place must be said quickly, and reading an inventory is not quick.
    from firstlight.hosts.inventory import Host

Progress = Callable[[str], None]
AskPassword = Callable[[str], str]
"""Shows a prompt to a person and gives back what was typed, unseen."""
MAKE_ROOM = "free some space there, or set another `root` for this host in the inventory"
"""What to do where a disk of a host is full."""


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
    `reopen` makes a new connection after ConnectionLost; a sudo password given before is kept.
    """

    host: Host
    connections: int
    scripts: int

    def run(self, script: Script, timeout_s: float = 60.0) -> Result: ...

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None: ...

    def forward(self, port: int) -> AbstractContextManager[str]: ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...
