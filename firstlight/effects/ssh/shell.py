"""A shell on a host over SSH."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import paramiko

from firstlight.core.command import Script
from firstlight.core.plan import ShipFile
from firstlight.effects.frame import Answer
from firstlight.effects.root import Sudo
from firstlight.effects.shell import AskPassword, Progress, Result
from firstlight.effects.ssh.channel import exchange
from firstlight.effects.ssh.connect import connect, disconnect
from firstlight.effects.ssh.forward import forwarded
from firstlight.effects.ssh.pulse import Pulse
from firstlight.effects.ssh.sending import send
from firstlight.effects.talk import Talk
from firstlight.hosts.inventory import Host


class SshShell:
    """One connection to a host, open from the start; `run` never tries a second time by itself."""

    def __init__(
        self, host: Host, hosts: Mapping[str, Host], ask_password: AskPassword | None = None
    ) -> None:
        self.host = host
        self.connections = 0
        self.scripts = 0
        self._hosts = hosts
        self._connect()
        user = self._connection.user
        account = f"{user} on {host.name}"
        sudo = None if user == "root" else Sudo(account, host.name, ask_password)
        self._talk = Talk(host, sudo, self._exchange)

    def run(self, script: Script, timeout_s: float = 60.0) -> Result:
        """Run through bash; raises ConnectionLost when the link broke, HostError when too late."""
        return self._talk.run(script, timeout_s)

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None:
        """Send what is missing, checked by sha256 on the host and renamed into place."""
        if files:
            send(self._talk.run, files, progress, self.host.name)

    def feed(self, script: Script, timeout_s: float, payload: Iterable[bytes] | None) -> Result:
        """Run a script that reads bytes of ours; the time limit is for what follows the last."""
        return self._talk.run(script, timeout_s, payload)

    @contextlib.contextmanager
    def forward(self, port: int) -> Iterator[str]:
        """A URL on this machine's loopback that leads to a port of the host's loopback."""
        with forwarded(self._transport, port) as local:
            yield f"http://127.0.0.1:{local}"

    def reopen(self) -> None:
        """Connect anew, after ConnectionLost; what sudo needs is remembered."""
        self.close()
        self._connect()

    def close(self) -> None:
        """End the connection and its hops; what was detached on the host goes on."""
        self._pulse.stop()
        disconnect(self._connection)

    def _connect(self) -> None:
        self._connection = connect(self.host, self._hosts)
        self.connections += 1
        self._pulse = Pulse(self._transport)

    @property
    def _transport(self) -> paramiko.Transport:
        transport: paramiko.Transport = self._connection.transport
        return transport

    def _exchange(
        self, argv: tuple[str, ...], sent: Iterable[bytes], answer: Answer, timeout_s: float
    ) -> None:
        self.scripts += 1
        exchange(self._transport, argv, sent, answer, timeout_s, self.host.name)
