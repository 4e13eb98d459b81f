"""A port of the host's loopback as a port of ours, for as long as somebody needs it."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

import paramiko
from paramiko.ssh_exception import SSHException

_CHUNK = 1 << 16


@contextlib.contextmanager
def forwarded(transport: paramiko.Transport, port: int) -> Iterator[int]:
    """Listen on a free port of 127.0.0.1; each connection goes to 127.0.0.1:port of the host.

    A connection that the host refuses is closed at once. On leaving, open ones are closed too.
    """
    channels: set[paramiko.Channel] = set()

    class Visitor(socketserver.BaseRequestHandler):
        """One connection; its thread ends when both directions are done."""

        def handle(self) -> None:
            with contextlib.suppress(SSHException, EOFError, OSError):
                ends = ("127.0.0.1", port), self.client_address
                channel = transport.open_channel("direct-tcpip", *ends, timeout=20)
                channels.add(channel)
                try:
                    _join(self.request, channel)
                finally:
                    channels.discard(channel)

    with _Listener(("127.0.0.1", 0), Visitor) as listener:
        serving = threading.Thread(target=listener.serve_forever, args=(0.1,), daemon=True)
        serving.start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()
            for channel in tuple(channels):
                channel.close()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


def _join(near: socket.socket, far: paramiko.Channel) -> None:
    with contextlib.closing(far):
        # Else each token of a streamed answer waits for the acknowledgement of the one before.
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upward = threading.Thread(
            target=_pump, args=(near.recv, far.sendall, far.shutdown_write), daemon=True
        )
        upward.start()
        _pump(far.recv, near.sendall, lambda: near.shutdown(_half(far)))
        upward.join()


def _half(far: paramiko.Channel) -> int:
    return socket.SHUT_RDWR if far.closed else socket.SHUT_WR


def _pump(
    read: Callable[[int], bytes], write: Callable[[bytes], object], finish: Callable[[], object]
) -> None:
    with contextlib.suppress(OSError, EOFError):
        while piece := read(_CHUNK):
            write(piece)
    with contextlib.suppress(OSError, EOFError):
        finish()
