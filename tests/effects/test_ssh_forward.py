"""A port of the host's loopback, reached through the connection."""

import contextlib
import http.server
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from firstlight.effects.shell import Shell
from tests.effects.test_ssh_connect import free_port


class Echo(http.server.BaseHTTPRequestHandler):
    """Gives back what it was sent, and a large page for any GET."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"0123456789" * 300_000)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def web() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def fetch(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def test_requests_and_large_answers_pass_at_the_same_time(shell: Shell) -> None:
    with web() as port, shell.forward(port) as url:
        assert url != f"http://127.0.0.1:{port}"
        found: list[bytes] = []
        threads = [threading.Thread(target=lambda: found.append(fetch(url))) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert fetch(url, "ü€".encode() * 100_000) == "ü€".encode() * 100_000
        for thread in threads:
            thread.join()
        assert [len(page) for page in found] == [3_000_000] * 6


def test_a_half_closed_connection_still_brings_the_answer(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_after_eof() -> None:
            visitor, _ = server.accept()
            with visitor:
                data = b""
                while piece := visitor.recv(100):
                    data += piece
                visitor.sendall(data[::-1])

        threading.Thread(target=answer_after_eof, daemon=True).start()
        with shell.forward(server.getsockname()[1]) as url:
            near = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
            with near:
                near.sendall(b"abc")
                near.shutdown(socket.SHUT_WR)
                assert near.recv(100) == b"cba"
                assert near.recv(100) == b""


def test_a_port_where_nobody_listens_closes_at_once_and_the_rest_goes_on(shell: Shell) -> None:
    with shell.forward(free_port()) as url:
        for _ in range(2):
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                fetch(url)


def test_after_the_end_the_port_is_gone_and_open_connections_are_cut(shell: Shell) -> None:
    with web() as port:
        with shell.forward(port) as url:
            local = int(url.rpartition(":")[2])
            held = socket.create_connection(("127.0.0.1", local))
            held.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n01234")
            fetch(url)
        held.settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert held.recv(100) == b""
        held.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", local))
