"""The HTTP door, against real servers on the loopback."""

import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from firstlight.effects.http import Piece, Reply, get, get_piece, post_json


class Desk(http.server.BaseHTTPRequestHandler):
    """Answers by path, and says back what it was given."""

    def do_GET(self) -> None:
        answers = {"/json": (200, b'{"a": 1}'), "/busy": (503, b""), "/bytes": (200, b"a\xff")}
        status, body = answers.get(self.path, (302, b""))
        self.send_response(status)
        self.send_header("Location", "/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        given = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/break":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = json.dumps(
            {"given": json.loads(given), "key": self.headers.get("Authorization")}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_get(url: str) -> None:
    reply = get(f"{url}/json")
    assert (reply.status, reply.json, reply.text, reply.ok) == (200, {"a": 1}, '{"a": 1}', True)
    assert reply.seconds > 0
    busy = get(f"{url}/busy")
    assert (busy.status, busy.json, busy.trouble, busy.ok) == (503, None, "", False)
    assert get(f"{url}/bytes").text == "a\ufffd"


def test_a_redirect_is_shown_not_followed(url: str) -> None:
    assert get(f"{url}/elsewhere").status == 302


def test_a_piece_is_no_more_than_was_asked_for(url: str) -> None:
    """This server knows no ranges: it sends the whole file, and what is behind is not taken."""
    assert get_piece(f"{url}/json", 0, 4) == Piece(200, b'{"a"')
    assert get_piece(f"{url}/json", 2, 4) == Piece(200)
    assert get_piece(f"{url}/elsewhere", 0, 9) == Piece(200, b'{"a": 1}')
    assert get_piece(f"{url}/busy", 0, 4) == Piece(503)
    gone = get_piece("http://127.0.0.1:1/", 0, 4)
    assert (gone.status, "refused" in gone.error) == (0, True)


def test_post_json(url: str) -> None:
    reply = post_json(f"{url}/x", {"é": [1, None]}, headers={"Authorization": "Bearer k"})
    assert reply.json == {"given": {"é": [1, None]}, "key": "Bearer k"}


def test_the_environments_proxies_are_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(f"{url}/json").ok


def test_troubles_are_replies(url: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        refused = get(f"http://127.0.0.1:{port}/")
        listener.listen()
        late = get(f"http://127.0.0.1:{port}/", timeout_s=0.2)
    broken = post_json(f"{url}/break", {})
    wrong = get("http://[not-an-address/")
    assert [r.trouble for r in (refused, late, broken, wrong)] == [
        "refused",
        "timeout",
        "broken",
        "broken",
    ]
    for reply in (refused, late, broken, wrong):
        assert isinstance(reply, Reply)
        assert (reply.status, reply.ok) == (0, False)
        assert reply.error and "\n" not in reply.error and "object at" not in reply.error


def test_importing_the_door_does_not_import_requests() -> None:
    code = "import sys, firstlight.effects.http; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
