"""A hub on loopback that answers as the real one does, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

REPO, COMMIT = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"


def blob_id(data: bytes) -> str:
    """git's name for these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Hub:
    """What it holds and how it fails; `asked` are the requests that came, with Range and token.

    `cuts` are the bytes after which the link breaks while a large file is sent, one for each time;
    the last one holds for all that follow.
    """

    files: dict[str, bytes]
    large: frozenset[str] = frozenset()
    refusal: tuple[int, str] | None = None
    broken: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)
    url: str = ""

    def listing(self) -> list[dict[str, object]]:
        return [
            {
                "type": "file",
                "path": path,
                "size": len(data),
                "oid": blob_id(data),
                **({"lfs": self.pointer(data)} if path in self.large else {}),
            }
            for path, data in self.files.items()
        ] + [{"type": "directory", "path": "sub", "oid": "0" * 40}]

    def pointer(self, data: bytes) -> dict[str, object]:
        return {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}

    def etag(self, path: str) -> str:
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if path in self.large else blob_id(data)


class Answer(BaseHTTPRequestHandler):
    """One request; the hub it belongs to hangs on the server."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, *_: object) -> None:
        """Say nothing: a test prints what it needs."""

    def answer(self, body: bool) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        seen = self.headers.get("Range", ""), self.headers.get("Authorization", "")
        hub.asked.append((self.command, self.path, *seen))
        path = unquote(self.path.partition("?")[0])
        prefix = f"/{REPO}/resolve/{COMMIT}/"
        if hub.refusal:
            self.send(hub.refusal[0], b"{}", {"X-Error-Code": hub.refusal[1]}, body)
        elif path == f"/api/models/{REPO}/tree/{COMMIT}":
            self.send(200, json.dumps(hub.listing()).encode(), {}, body)
        elif path.startswith(prefix) and path.removeprefix(prefix) in hub.files:
            self.send_file(hub, path.removeprefix(prefix), body)
        else:
            self.send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, body)

    def send_file(self, hub: Hub, path: str, body: bool) -> None:
        data = hub.broken.get(path, hub.files[path])
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        head = {"ETag": f'"{hub.etag(path)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            head["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = None
        if body and path in hub.large and hub.cuts:
            cut = hub.cuts.pop(0) if len(hub.cuts) > 1 else hub.cuts[0]
        self.send(206 if start else 200, data[start:], head, body, cut)

    def send(
        self, code: int, data: bytes, head: dict[str, str], body: bool, cut: int | None = None
    ) -> None:
        self.send_response(code)
        for name, value in {**head, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.hub = hub  # type: ignore[attr-defined]
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
