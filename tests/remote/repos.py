"""Small git repositories whose commits are always the same, and servers for them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WHEN = "1700000000 +0000"
WHO = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": WHEN,
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_COMMITTER_DATE": WHEN,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(repo: Path, *words: object, stdin: str | None = None) -> str:
    """git in that repository; what it printed."""
    argv = ["git", "-C", str(repo), "-c", "protocol.file.allow=always", *map(str, words)]
    done = subprocess.run(
        argv, env=os.environ | WHO, input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(repo: Path, message: str = "more") -> str:
    git(repo, "add", "--all", "--force")
    git(repo, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(repo, "rev-parse", "HEAD")


def repository(path: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit of these files; `run.sh` and its kind are executable."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    write(path, files)
    commit(path, "first")
    return path


def write(path: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if name.endswith(".sh"):
            file.chmod(0o755)


def hand_made(repo: Path, rows: Mapping[str, tuple[str, str]]) -> str:
    """A commit of a tree that git itself would not make: path to (mode, content)."""
    tree = b""
    for name, (mode, text) in rows.items():
        oid = git(repo, "hash-object", "-w", "--stdin", stdin=text)
        tree += f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid)
    done = subprocess.run(
        ["git", "-C", repo, "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        input=tree,
        capture_output=True,
        check=True,
    )
    made = git(repo, "commit-tree", done.stdout.decode().strip(), "-m", "hostile")
    git(repo, "branch", "--force", "hostile", made)
    return made


class Smart(BaseHTTPRequestHandler):
    """git's own server program behind http; `directory` holds the repositories."""

    def __init__(self, *words: Any, directory: str) -> None:
        self.directory = directory
        super().__init__(*words)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        length = self.headers.get("Content-Length", "0")
        surroundings = os.environ | {
            "GIT_PROJECT_ROOT": self.directory,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": length,
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(length))
        done = subprocess.run(
            ["git", "http-backend"], env=surroundings, input=body, capture_output=True
        )
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        rows = [line.split(": ", 1) for line in head.decode().splitlines()]
        status = next((value for name, value in rows if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in rows:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Quiet(SimpleHTTPRequestHandler):
    """Plain files: what git calls the dumb protocol."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path, handler: Any = Quiet) -> Iterator[str]:
    """That folder over http; its url."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
