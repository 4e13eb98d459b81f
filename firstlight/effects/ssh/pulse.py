"""Noticing a dead link: a question now and then; no answer ends the connection.

TCP alone notices a dead first hop; a host behind a gateway or a ProxyCommand goes unnoticed.
"""

from __future__ import annotations

import contextlib
import threading

import paramiko
from paramiko.ssh_exception import SSHException

EVERY_S = 10.0
PATIENCE_S = 20.0


class Pulse:
    """Asks the far sshd for a sign of life until stopped; its silence closes the transport."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(EVERY_S) and self._transport.is_active():
            asking = threading.Thread(target=self._ask, daemon=True)
            asking.start()
            asking.join(PATIENCE_S)
            if asking.is_alive():
                self._transport.close()
                return

    def _ask(self) -> None:
        with contextlib.suppress(SSHException, OSError, EOFError):
            self._transport.global_request("keepalive@openssh.com")
