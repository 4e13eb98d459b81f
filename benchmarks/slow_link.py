"""A TCP link that is made slow on purpose: the time that is added tells how often it is waited for.

Each byte arrives `delay_s` late, in both directions, and in order. A program whose messages go
there and back N times, one after the other, takes 2 * N * delay_s longer than over the same link
without a delay. Messages that nobody waits for add nothing, which counting packets cannot tell.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

_CHUNK = 1 << 16
_Parcel = tuple[float, bytes]


class SlowLink:
    """Listens on `port` of the loopback; `connections` counts those that were made."""

    def __init__(self, address: str, port: int) -> None:
        self.delay_s = 0.0
        self.connections = 0
        self._far = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        far = socket.create_connection(self._far)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((near, far), (far, near)):
            parcels: queue.SimpleQueue[_Parcel] = queue.SimpleQueue()
            threading.Thread(target=self._take, args=(source, parcels), daemon=True).start()
            threading.Thread(target=_hand_on, args=(parcels, target), daemon=True).start()

    def _take(self, source: socket.socket, parcels: queue.SimpleQueue[_Parcel]) -> None:
        piece = b"first"
        while piece:
            try:
                piece = source.recv(_CHUNK)
            except OSError:
                piece = b""
            parcels.put((time.monotonic() + self.delay_s, piece))


def _hand_on(parcels: queue.SimpleQueue[_Parcel], target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, piece = parcels.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(piece)


@contextlib.contextmanager
def slow_link(address: str, port: int) -> Iterator[SlowLink]:
    """A link to a port, for as long as it is needed."""
    link = SlowLink(address, port)
    try:
        yield link
    finally:
        link.close()
