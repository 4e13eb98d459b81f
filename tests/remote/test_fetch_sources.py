"""fetch_sources.py and find_sdist.py with indexes, archives and repositories of this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import find_sdist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote.programs import PROGRAMS, Ended, run, sha256
from tests.remote.repos import repository

DEAD = "http://127.0.0.1:1"


@dataclass
class Store:
    """Files over http; `cuts` are bytes after which the link breaks, one for each time, and
    `refusals` what is answered instead of a file.

    `asked` are the requests that came: path, Range, Authorization.
    """

    files: dict[str, bytes | tuple[str, str]] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    ranges: bool = True
    slow: float = 0.0
    login: str = ""
    url: str = ""

    def put(self, path: str, data: bytes) -> str:
        self.files[path] = data
        return hashlib.sha256(data).hexdigest()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        store: Store = self.server.store  # type: ignore[attr-defined]
        asked = self.headers.get("Range", "")
        given_ = self.headers.get("Authorization", "")
        store.asked.append((self.path, asked, given_))
        if store.login and given_ != store.login:
            return self.send_error(401)
        if store.refusals:
            return self.send_error(store.refusals.pop(0))
        if self.path not in store.files:
            return self.send_error(404)
        found = store.files[self.path]
        kind, data = (found[0], found[1].encode()) if isinstance(found, tuple) else ("x/y", found)
        start = int(asked[6:-1]) if asked and store.ranges else 0
        if start and start >= len(data):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = start + store.cuts.pop(0) if store.cuts else len(data)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for at in range(start, min(end, len(data)), 65536):
                self.wfile.write(data[at : min(at + 65536, end)])
                time.sleep(store.slow)
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def store() -> Iterator[Store]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    held = Store(url=f"http://127.0.0.1:{server.server_address[1]}")
    server.store = held  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield held
    server.shutdown()
    server.server_close()
    thread.join()


def entry(name: str, digest: str, url: str | None, **more: Any) -> dict[str, Any]:
    file = more.pop("file", f"{name}.tar.gz")
    kind = "archive" if url else "sdist"
    return {"name": name, "kind": kind, "file": file, "sha256": digest, "url": url, **more}


def surroundings(index: str = f"{DEAD}/simple", **env: str) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index, **env}


def fetch(
    tmp: Path, *entries: dict[str, Any], mirrors: dict[str, str] | None = None, **env: str
) -> Ended:
    request = tmp / "request.json"
    request.write_text(json.dumps({"sources": entries, "mirrors": mirrors or {}}))
    return run("fetch_sources.py", request, tmp / "dest", env=surroundings(**env))


def find(tmp: Path, name: str, version: str, index: str, **asked: Any) -> Ended:
    request = tmp / "find.json"
    request.write_text(
        json.dumps({"name": name, "version": version, "sha256": None, "mirrors": {}, **asked})
    )
    return run("find_sdist.py", request, env=surroundings(index))


def there(tmp: Path) -> list[str]:
    return sorted(str(p.relative_to(tmp / "dest")) for p in (tmp / "dest").glob("[0-9a-f]*/*"))


def test_every_kind_comes_to_its_hash(tmp_path: Path, store: Store) -> None:
    tree = repository(tmp_path / "tree", {"a.txt": "a"})
    (tmp_path / "pack.json").write_text(json.dumps({"url": str(tree), "ref": "main"}))
    packed = json.loads(run("pack_git.py", tmp_path / "pack.json", tmp_path / "other").out)
    git = {key: packed[key] for key in ("file", "sha256", "size", "commit", "tree", "time")}
    archive = store.put("/fmt.tar.gz", b"fmt")
    sdist = store.put("/files/a_b-1.0.tar.gz", b"sdist")
    store.files["/simple/a-b/"] = ("text/html", "<a href='/files/a_b-1.0.tar.gz'>x</a>")
    ended = fetch(
        tmp_path,
        {"name": "tree", "kind": "git", "url": str(tree), "submodules": "none", **git},
        entry("fmt", archive, f"{store.url}/fmt.tar.gz"),
        entry("a-b", sdist, None, file="a_b-1.0.tar.gz", size=5),
        PIP_INDEX_URL=f"{store.url}/simple",
    )
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("0 of 3 sources are here, ")
    assert [line.split()[0] for line in lines if line[0] == "["] == ["[1/3]", "[2/3]", "[3/3]"]
    assert lines[-1].startswith("3 sources fetched, ")
    homes = [tmp_path / "dest" / digest for digest in (git["sha256"], archive, sdist)]
    assert [sha256(next(home.iterdir())) for home in homes] == [home.name for home in homes]
    assert list((tmp_path / "dest" / ".parts").iterdir()) == []


@pytest.mark.parametrize(("key", "wrong"), [("size", 5), ("tree", "0" * 40)])
def test_what_a_lock_says_beside_the_hash_is_compared_too(
    tmp_path: Path, key: str, wrong: object
) -> None:
    tree = repository(tmp_path / "tree", {"a.txt": "a"})
    (tmp_path / "pack.json").write_text(json.dumps({"url": str(tree), "ref": "main"}))
    packed = json.loads(run("pack_git.py", tmp_path / "pack.json", tmp_path / "other").out)
    git = {name: packed[name] for name in ("file", "sha256", "size", "commit", "tree", "time")}
    asked = {"name": "tree", "kind": "git", "url": str(tree), "submodules": "none", **git}
    assert fetch(tmp_path, asked).code == 0
    changed = {**asked, key: wrong}
    if key == "tree":
        # What is here is known by its hash; its tree only by the repository.
        shutil.rmtree(tmp_path / "dest" / git["sha256"])
    ended = fetch(tmp_path, changed)
    assert ended.code == 1
    assert f"{git['file']}: its {key} is {git[key]}, the lock says {wrong}" in ended.err
    assert "fix: the lock was changed since it was made" in ended.err


def test_what_is_there_is_left_alone_and_needs_no_network(tmp_path: Path) -> None:
    home = tmp_path / "dest" / ("0" * 64)
    home.mkdir(parents=True)
    (home / "a.tar.gz").write_text("as it was")
    ended = fetch(tmp_path, entry("a", "0" * 64, f"{DEAD}/a.tar.gz"))
    assert ended.code == 0
    assert (home / "a.tar.gz").read_text() == "as it was"


def test_a_link_that_breaks_is_taken_up_where_it_broke(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", os.urandom(500_000))
    store.cuts = [200_000, 0, 100_000]
    ended = fetch(tmp_path, entry("a", digest, f"{store.url}/a.tar.gz"))
    assert ended.code == 0, ended.err
    ranges = [asked for _, asked, _ in store.asked]
    assert ranges == ["", "bytes=200000-", "bytes=200000-", "bytes=300000-"]
    assert ended.out.count("the link broke") == 3


def test_a_link_that_gives_nothing_ends_and_what_came_stays(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", os.urandom(300_000))
    store.cuts = [200_000, 0, 0, 0, 0, 0]
    wanted = entry("a", digest, f"{store.url}/a.tar.gz")
    ended = fetch(tmp_path, wanted)
    assert ended.code == 1
    assert "breaks again and again\nfix: run it again" in ended.err
    store.cuts, store.asked = [], []
    assert fetch(tmp_path, wanted).code == 0
    assert store.asked[0][1] == "bytes=200000-"


def test_a_server_without_ranges_begins_again(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", os.urandom(300_000))
    store.cuts, store.ranges = [200_000], False
    assert fetch(tmp_path, entry("a", digest, f"{store.url}/a.tar.gz")).code == 0


@pytest.mark.parametrize("left", [b"other bytes", b"x" * 400_000])
def test_a_part_of_another_file_does_not_spoil_it(
    tmp_path: Path, store: Store, left: bytes
) -> None:
    digest = store.put("/a.tar.gz", os.urandom(300_000))
    (tmp_path / "dest" / ".parts").mkdir(parents=True)
    (tmp_path / "dest" / ".parts" / f"{digest}.part").write_bytes(left)
    ended = fetch(tmp_path, entry("a", digest, f"{store.url}/a.tar.gz"))
    assert ended.code == 0, ended.err
    assert "once again from the start" in ended.out


def test_killed_in_the_middle_it_goes_on(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", os.urandom(2_000_000))
    store.slow = 0.05
    wanted = entry("a", digest, f"{store.url}/a.tar.gz")
    (tmp_path / "request.json").write_text(json.dumps({"sources": [wanted], "mirrors": {}}))
    program = str(PROGRAMS / "fetch_sources.py")
    words = [sys.executable, program, str(tmp_path / "request.json"), str(tmp_path / "dest")]
    child = subprocess.Popen(words, env=os.environ | surroundings())
    part = tmp_path / "dest" / ".parts" / f"{digest}.part"
    until = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size) and time.monotonic() < until:
        time.sleep(0.05)
    child.kill()
    child.wait()
    assert there(tmp_path) == []
    store.asked, store.slow = [], 0.0
    assert fetch(tmp_path, wanted).code == 0
    assert store.asked[0][1].startswith("bytes=")


def test_two_at_once_bring_it_once(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", os.urandom(2_000_000))
    store.slow = 0.03
    ends: list[Ended] = []
    wanted = entry("a", digest, f"{store.url}/a.tar.gz")
    threads = [
        threading.Thread(target=lambda: ends.append(fetch(tmp_path, wanted))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ended.code for ended in ends] == [0, 0], ends
    assert len(store.asked) == 1
    assert sum("another run is fetching it" in ended.out for ended in ends) == 1


def test_another_content_is_refused_with_both_digests_and_not_kept(
    tmp_path: Path, store: Store
) -> None:
    got = store.put("/a.tar.gz", b"changed")
    ended = fetch(tmp_path, entry("a", "0" * 64, f"{store.url}/a.tar.gz"))
    assert ended.code == 1
    assert f"error: a.tar.gz: sha256 is {got}, wanted {'0' * 64}\n" in ended.err
    assert there(tmp_path) == []


def test_mirrors_serve_archives_from_a_folder_and_from_a_server(
    tmp_path: Path, store: Store
) -> None:
    folder = tmp_path / "mirror" / "a"
    folder.mkdir(parents=True)
    (folder / "v1.tar.gz").write_bytes(b"one")
    two = store.put("/m/b/v2.tar.gz", b"two")
    mirrors = {"https://github.com/a": str(folder), "https://github.com": f"{store.url}/m"}
    ended = fetch(
        tmp_path,
        entry("a", sha256(folder / "v1.tar.gz"), "https://github.com/a/v1.tar.gz"),
        entry("b", two, "https://github.com/b/v2.tar.gz"),
        mirrors=mirrors,
    )
    assert ended.code == 0, ended.err
    ended = fetch(tmp_path, entry("c", "1" * 64, "https://github.com/a/v9.tar.gz"), mirrors=mirrors)
    assert f"error: {folder}/v9.tar.gz is no file\nfix: " in ended.err


def test_no_route_is_75_and_shows_no_password(tmp_path: Path) -> None:
    ended = fetch(tmp_path, entry("a", "0" * 64, "http://me:secret@127.0.0.1:1/a.tar.gz"))
    assert ended.code == 75
    assert "error: no route to http://127.0.0.1:1/a.tar.gz" in ended.err
    assert "secret" not in ended.err + ended.out
    assert fetch(tmp_path, entry("a", "0" * 64, None, file="a-1.tar.gz")).code == 75


@pytest.mark.parametrize(("login", "told"), [("x", "asks for a login (401)"), ("", "answers 404")])
def test_what_a_server_refuses_is_told(tmp_path: Path, store: Store, login: str, told: str) -> None:
    store.login = login
    ended = fetch(tmp_path, entry("a", "0" * 64, f"{store.url}/a.tar.gz"))
    assert ended.code == 1
    assert f"error: {store.url}/a.tar.gz {told}\nfix: " in ended.err


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path, store: Store) -> None:
    digest = store.put("/a.tar.gz", b"data")
    store.refusals = [429, 503]
    ended = fetch(tmp_path, entry("a", digest, f"{store.url}/a.tar.gz"))
    assert ended.code == 0, ended.err
    assert len(store.asked) == 3 and "the server answered 429" in ended.out


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_certificate_of_pip_s_that_cannot_be_read_is_no_broken_link(
    tmp_path: Path, text: str | None
) -> None:
    cert = tmp_path / "ca.pem"
    if text:
        cert.write_text(text)
    wanted = entry("a", "0" * 64, "https://127.0.0.1:1/a.tar.gz")
    ended = fetch(tmp_path, wanted, PIP_CERT=str(cert))
    assert ended.code == 1 and "link" not in ended.out
    assert f"error: pip's certificates cannot be read ({cert})" in ended.err


def test_a_login_comes_from_netrc(tmp_path: Path, store: Store) -> None:
    store.login = "Basic bWU6aHVzaA=="
    digest = store.put("/a.tar.gz", b"a")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hush\n")
    (tmp_path / ".netrc").chmod(0o600)
    ended = fetch(tmp_path, entry("a", digest, f"{store.url}/a.tar.gz"), HOME=str(tmp_path))
    assert ended.code == 0, ended.err


def test_a_full_disk_is_told_before_the_work(tmp_path: Path) -> None:
    ended = fetch(tmp_path, entry("a", "0" * 64, f"{DEAD}/a.tar.gz", size=10**18))
    assert ended.code == 1
    assert ended.err.startswith("error: no space left on the disk of ")


def test_a_tree_that_packs_otherwise_is_refused(tmp_path: Path) -> None:
    tree = repository(tmp_path / "tree", {"a.txt": "a"})
    (tmp_path / "pack.json").write_text(json.dumps({"url": str(tree), "ref": "main"}))
    packed = json.loads(run("pack_git.py", tmp_path / "pack.json", tmp_path / "other").out)
    locked = {"name": "t", "kind": "git", "url": str(tree), "commit": packed["commit"]}
    ended = fetch(tmp_path, {**locked, "file": packed["file"], "sha256": "0" * 64})
    assert ended.code == 1
    assert f"sha256 of the packed tree is {packed['sha256']}, wanted {'0' * 64}" in ended.err


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../a.tar.gz"},
        {"file": ".a.tar.gz"},
        {"sha256": "abc"},
        {"url": "ssh://h/a.tar.gz"},
        {"kind": "wheel"},
        {"kind": "git"},
        {"kind": "git", "commit": "abc"},
    ],
)
def test_a_request_that_makes_no_sense(tmp_path: Path, change: dict[str, Any]) -> None:
    ended = fetch(tmp_path, {**entry("a", "0" * 64, f"{DEAD}/a.tar.gz"), **change})
    assert ended.code == 2
    assert ended.err.startswith(f"error: {tmp_path}/request.json: ")
    assert "Traceback" not in ended.err


JSON = "application/vnd.pypi.simple.v1+json"


def listing(*rows: dict[str, Any]) -> tuple[str, str]:
    return (f"{JSON}", json.dumps({"meta": {"api-version": "1.1"}, "files": rows}))


def test_an_sdist_is_found_in_json_with_its_size_and_time(tmp_path: Path, store: Store) -> None:
    row: dict[str, Any] = {
        "url": "../../f/flash_attn_4-4.0.0b36.tar.gz",
        "hashes": {"sha256": "ab" * 32},
    }
    row |= {"size": 7, "upload-time": "2026-10-21T08:19:47.004683Z", "yanked": "broken"}
    other = {"filename": "flash_attn_4-4.0.0b36-py3-none-any.whl", "url": "x", "hashes": {}}
    store.files["/simple/flash-attn-4/"] = listing(
        other,
        {**row, "filename": "flash_attn_4-4.0.0b3.tar.gz"},
        {**row, "filename": "flash_attn_4-4.0.0b36.tar.gz"},
    )
    ended = find(tmp_path, "Flash.Attn-4", "4.0.0b36", f"{store.url}/simple")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["url"] == f"{store.url}/f/flash_attn_4-4.0.0b36.tar.gz"
    assert (found["size"], found["time"], found["sha256"]) == (7, 1792570787, "ab" * 32)
    assert "was withdrawn by its authors: broken" in ended.err


def test_an_index_that_tells_no_hash_has_its_file_read(tmp_path: Path, store: Store) -> None:
    digest = store.put("/f/a-1.0.zip", b"zip")
    store.files["/simple/a/"] = ("text/html", "<base href='/f/'><a href='a-1.0.zip'>a</a>")
    ended = find(tmp_path, "a", "1.0", f"{store.url}/simple")
    assert json.loads(ended.out)["sha256"] == digest


def test_the_second_index_and_folders_are_asked_too(tmp_path: Path, store: Store) -> None:
    store.put("/simple/x", b"")
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a-1.0.tar.gz").write_bytes(b"sdist")
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {folder}\n")
    request = tmp_path / "find.json"
    request.write_text(json.dumps({"name": "a", "version": "1.0", "sha256": None, "mirrors": {}}))
    env = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_INDEX_URL": f"{store.url}/simple"}
    ended = run("find_sdist.py", request, env=env)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["size"], found["sha256"]) == (5, sha256(folder / "a-1.0.tar.gz"))
    # An index in reach that lacks it, and one out of reach, are told apart.
    request.write_text(json.dumps({"name": "b", "version": "1.0", "sha256": None, "mirrors": {}}))
    lacking = run("find_sdist.py", request, env=env)
    assert (lacking.code, "error: no sdist of b 1.0 at " in lacking.err) == (1, True)
    assert run("find_sdist.py", request, env={**env, "PIP_INDEX_URL": DEAD}).code == 75


def test_a_pin_that_no_index_has(tmp_path: Path, store: Store) -> None:
    row = {"filename": "a-1.0.tar.gz", "url": "a-1.0.tar.gz", "hashes": {"sha256": "ab" * 32}}
    store.files["/simple/a/"] = listing(row)
    ended = find(tmp_path, "a", "1.0", f"{store.url}/simple", sha256="cd" * 32)
    assert ended.code == 1
    assert f"with sha256 {'cd' * 32}; there is a-1.0.tar.gz with sha256 {'ab' * 32}" in ended.err


def test_a_mirror_stands_for_the_index(tmp_path: Path, store: Store) -> None:
    row = {"filename": "a-1.0.tar.gz", "url": "a-1.0.tar.gz", "hashes": {"sha256": "ab" * 32}}
    store.files["/m/a/"] = listing(row)
    mirrors = {"https://pypi.org/simple": f"{store.url}/m"}
    ended = find(tmp_path, "a", "1.0", "https://pypi.org/simple", mirrors=mirrors)
    assert json.loads(ended.out)["url"] == f"{store.url}/m/a/a-1.0.tar.gz"


@given(
    st.from_regex(r"[A-Za-z0-9]+([-_.][A-Za-z0-9]+){0,2}", fullmatch=True),
    st.from_regex(r"[0-9]{1,2}(\.[0-9]){0,2}((a|b|rc|\.post)[0-9])?", fullmatch=True),
)
def test_the_name_of_an_sdist_says_its_release(name: str, version: str) -> None:
    for file in (f"{name}-{version}.tar.gz", f"{name.lower().replace('-', '_')}-{version}.zip"):
        assert find_sdist.is_sdist(file, name, version)
        assert not find_sdist.is_sdist(file, name, f"{version}1")
        assert not find_sdist.is_sdist(file, f"{name}x", version)


@pytest.mark.slow
def test_the_real_index_has_what_recipes_ask_for(tmp_path: Path) -> None:
    """Metadata of a large one, all of a small one, by the pip of the person who runs the tests."""
    env = {key: os.environ[key] for key in os.environ if key.startswith(("PIP_", "SSL_"))}
    env["HOME"] = os.environ.get("HOME", "/root")
    request = tmp_path / "find.json"
    known = {
        ("flashinfer-python", "0.7.2"): (54382644, "31646a6c1a9a5268056ddd31f377fbb57adf0f68"),
        ("idna", "3.7"): (189575, "028ff3aadf0609c1fd278d8ea3089299412a7a8b"),
    }
    found = {}
    for name, version in known:
        asked: dict[str, Any] = {"name": name, "version": version, "sha256": None}
        request.write_text(json.dumps({**asked, "mirrors": {}}))
        ended = run("find_sdist.py", request, env=env)
        if ended.code == 75:
            pytest.skip("no package index in reach")
        found[name, version] = json.loads(ended.out)
    assert {key: (one["size"], one["sha256"][:40]) for key, one in found.items()} == known
    small = found["idna", "3.7"]
    row = entry("idna", small["sha256"], None, file=small["file"], size=small["size"])
    request.write_text(json.dumps({"sources": [row], "mirrors": {}}))
    ended = run("fetch_sources.py", request, tmp_path / "dest", env=env)
    assert ended.code == 0, ended.err
    assert there(tmp_path) == [f"{small['sha256']}/idna-3.7.tar.gz"]
