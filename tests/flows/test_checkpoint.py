"""Asking a host, this machine, and a hub what a checkpoint declares and holds."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest

from firstlight.accuracy.reading import Reading
from firstlight.core.errors import HostError
from firstlight.effects.http import get_piece
from firstlight.effects.local import LocalShell
from firstlight.effects.shell import Result
from firstlight.effects.ssh import open_shell
from firstlight.flows.checkpoint import Hub, ranges, read_folder, read_hub, read_model
from firstlight.hosts.inventory import Host
from firstlight.serve.profile import HubModel, PathModel
from tests.effects.sshd import fill_home, needs_sshd, running
from tests.flows.test_flows_fake import FakeShell
from tests.remote.checkpoints import checkpoint, kv_scales, layer, shard, zeros

REPO, COMMIT = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"
PARTS = layer(0) | kv_scales(0, 0.5, 0.75), layer(1) | kv_scales(1, 1.0, 1.0)


@pytest.fixture
def local() -> LocalShell:
    return LocalShell(Host(name="local"))


def without_cost(reading: Reading) -> Reading:
    left = {"folder": "", "revision": None, "cost": None}
    return reading.model_copy(update=left)


def test_this_machine_is_asked_once(local: LocalShell, tmp_path: Path) -> None:
    found = read_folder(local, PurePosixPath(checkpoint(tmp_path / "it's a 'model'", *PARTS)))
    assert (found.tensors, len(found.scales), found.findings) == (12, 4, ())
    assert found.bytes == sum(p.stat().st_size for p in tmp_path.rglob("*.safetensors"))
    assert (local.scripts, found.loadable) == (1, True)


def test_nothing_is_left_on_the_host(local: LocalShell, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, *PARTS)
    before = sorted(tmp_path.rglob("*"))
    read_folder(local, PurePosixPath(folder))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_whose_name_begins_with_a_sign(local: LocalShell) -> None:
    (finding,) = read_folder(local, PurePosixPath("-h")).findings
    assert (finding.kind, finding.where) == ("no-folder", "-h")


def test_a_host_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sshd()
    folder = checkpoint(tmp_path / "model", *PARTS)
    with running(tmp_path / "sshd") as server:
        home = tmp_path / "home"
        server.allow(fill_home(home))
        (home / ".ssh" / "known_hosts").write_text(server.known())
        monkeypatch.setenv("HOME", str(home))
        host = Host(name="near", address="127.0.0.1", port=server.port)
        shell = open_shell(host, {"near": host})
        with contextlib.closing(shell):
            found = read_folder(shell, PurePosixPath(folder))
            assert (shell.connections, shell.scripts) == (1, 1)
    here = read_folder(LocalShell(Host(name="local")), PurePosixPath(folder))
    assert without_cost(found) == without_cost(here)


def test_a_python_that_is_named_is_taken_first(local: LocalShell, tmp_path: Path) -> None:
    mine = tmp_path / "my python"
    mine.write_text(f'#!/bin/sh\necho used > "{tmp_path}/used"\nexec python3 "$@"\n')
    mine.chmod(0o755)
    assert read_folder(local, PurePosixPath("/nowhere"), str(mine)).findings
    assert (tmp_path / "used").exists()
    # One that is not there, or too old, is passed over.
    for code in (97, 2, 127):
        mine.write_text(f"#!/bin/sh\nexit {code}\n")
        assert read_folder(local, PurePosixPath("/nowhere"), str(mine)).findings
    assert read_folder(local, PurePosixPath("/nowhere"), "/nowhere/python").findings
    mine.write_text("#!/bin/sh\necho oh no >&2; exit 1\n")
    with pytest.raises(HostError, match="oh no"):
        read_folder(local, PurePosixPath("/nowhere"), str(mine))


def test_a_host_without_a_python(tmp_path: Path) -> None:
    local = LocalShell(Host(name="local", env={"PATH": str(tmp_path)}))
    with pytest.raises(HostError, match=r"local: no Python 3\.10 or newer") as told:
        read_folder(local, PurePosixPath("/x"))
    assert "apt install python3" in str(told.value)


@pytest.mark.parametrize(
    "result, said",
    [
        (Result(1, b"", b"Traceback\nMemoryError\n"), r"/x could not be read \(exit code 1\): Mem"),
        (Result(137), r"exit code 137\): nothing was said"),
        (Result(0, b"{"), "the answer about the checkpoint cannot be read"),
    ],
)
def test_an_answer_that_is_none_is_told(result: Result, said: str) -> None:
    shell = FakeShell(Host(name="gpu01", address="192.0.2.1"), lambda _: result)
    with pytest.raises(HostError, match=said):
        read_folder(shell, PurePosixPath("/x"))


@dataclass
class Served:
    """A hub: files by name, what was asked, and how it misbehaves.

    `blobs` moves shards to another port, as real hubs do; `fails` is how many requests in a row
    come to nothing; `ranges` says whether parts may be asked for.
    """

    files: dict[str, Path]
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    sent: int = 0
    blobs: str = ""
    fails: int = 0
    refuses: int = 0
    ranges: bool = True
    pages: int = 1
    url: str = ""


class Answer(BaseHTTPRequestHandler):
    """One request to a hub that hangs on the server."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing to say."""

    def do_GET(self) -> None:
        hub: Served = self.server.hub  # type: ignore[attr-defined]
        path, _, query = unquote(self.path).partition("?")
        login = self.headers.get("Authorization", "")
        hub.asked.append((path, self.headers.get("Range", ""), login))
        name = path.rsplit("/", 1)[1]
        if hub.fails:
            hub.fails -= 1
            self.send(503, b"")
        elif hub.refuses:
            self.send(hub.refuses, b"no")
        elif path.startswith("/api/models/"):
            self.list(hub, query)
        elif hub.blobs and name.endswith(".safetensors"):
            self.send(302, b"", {"Location": f"{hub.blobs}/{name}"})
        elif name in hub.files:
            self.part(hub, hub.files[name])
        else:
            self.send(404, b"no such file")

    def list(self, hub: Served, query: str) -> None:
        page = int(query.rpartition("page=")[2]) if "page=" in query else 0
        entries = [
            {"type": "file", "path": name, "size": path.stat().st_size}
            for name, path in hub.files.items()
        ][page :: hub.pages]
        head = {}
        if page + 1 < hub.pages:
            url = f"{hub.url}{self.path.partition('?')[0]}?page={page + 1}"
            head["Link"] = f'<{url}>; rel="next"'
        listed = [{"type": "directory", "path": "sub", "size": 0}, *entries]
        self.send(200, json.dumps(listed).encode(), head)

    def part(self, hub: Served, path: Path) -> None:
        wanted = self.headers.get("Range", "")
        if not hub.ranges or not wanted:
            return self.send(200, path.read_bytes())
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        with path.open("rb") as file:
            file.seek(int(first))
            data = file.read(int(last) + 1 - int(first))
        size = path.stat().st_size
        where = f"bytes {first}-{int(first) + len(data) - 1}/{size}"
        return self.send(206, data, {"Content-Range": where})

    def send(self, status: int, data: bytes, head: dict[str, str] | None = None) -> None:
        hub: Served = self.server.hub  # type: ignore[attr-defined]
        hub.sent += len(data)
        self.send_response(status)
        for name, value in {**(head or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    hub = Served({path.name: path for path in folder.iterdir()})
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.hub = hub  # type: ignore[attr-defined]
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with a megabyte of weights behind the scales, and files nobody needs."""
    made = checkpoint(tmp_path / "model", *PARTS, {"model.norm.weight": zeros("U8", 1 << 20)})
    (made / "tokenizer.json").write_bytes(b"x" * 1000)
    (made / "modeling_x.py").write_text("import os")
    (made / "generation_config.json").write_text('{"temperature": 0.6}')
    (made / "empty.json").touch()
    return made


@pytest.fixture
def hub(folder: Path) -> Iterator[Served]:
    with serving(folder) as served:
        yield served


def quiet(_: str) -> None:
    """Nobody listens."""


def at(served: Served, token: str = "") -> Hub:
    return Hub(REPO, COMMIT, served.url, token)


def test_a_hub_says_the_same_as_the_folder(local: LocalShell, folder: Path, hub: Served) -> None:
    found, here = (
        read_hub(local, at(hub), quiet),
        read_folder(local, PurePosixPath(folder)),
    )
    assert without_cost(found) == without_cost(here)
    assert {scale.values for scale in found.scales} == {(0.5,), (0.75,), (1.0,)}
    assert (found.folder, found.revision) == (f"{hub.url}/{REPO}", COMMIT)
    asked = [path.rsplit("/", 1)[1] for path, _, _ in hub.asked]
    assert not {"tokenizer.json", "modeling_x.py", "empty.json"} & set(asked)


def test_weights_are_not_fetched(local: LocalShell, tmp_path: Path) -> None:
    """A shard of 10 MB and a header of half a megabyte: two requests, and one for the scales."""
    many = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": zeros("U8", 1) for n in range(4000)}
    folder = tmp_path / "model"
    folder.mkdir()
    weights = {"model.w": zeros("U8", 10 << 20)}
    path = shard(folder / "model.safetensors", kv_scales(0, 0.5, 0.25) | many | weights)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    with serving(folder) as hub:
        found = read_hub(local, at(hub), quiet)
    assert [scale.values for scale in found.scales] == [(0.5,), (0.25,)]
    assert length > 1 << 18
    parts = [wanted for path_, wanted, _ in hub.asked if path_.endswith(".safetensors")]
    assert parts == [
        f"bytes=0-{(1 << 18) - 1}",
        f"bytes={1 << 18}-{length + 7}",
        f"bytes={length + 8}-{length + 15}",
    ]
    assert hub.sent < length + 1000


def test_a_login_is_not_given_to_the_host_of_the_blobs(
    local: LocalShell, folder: Path, hub: Served
) -> None:
    with serving(folder) as blobs:
        # Another name for the same machine is another host.
        hub.blobs = blobs.url.replace("127.0.0.1", "localhost")
        found = read_hub(local, at(hub, "hf_secret"), quiet)
    assert found.tensors == 13
    assert {login for _, _, login in hub.asked} == {"Bearer hf_secret"}
    assert {login for _, _, login in blobs.asked} == {""}


def test_a_list_of_several_pages(local: LocalShell, hub: Served) -> None:
    hub.pages = 3
    assert read_hub(local, at(hub), quiet).tensors == 13


def test_a_request_that_fails_is_made_again(local: LocalShell, hub: Served) -> None:
    hub.fails = 2
    assert read_hub(local, at(hub), quiet).tensors == 13
    hub.fails = 3
    with pytest.raises(HostError, match="it answers 503"):
        read_hub(local, at(hub), quiet)


@pytest.mark.parametrize(
    "status, remedy", [(401, "set HF_TOKEN"), (403, "set HF_TOKEN"), (404, "check repo")]
)
def test_a_refusal_is_told(local: LocalShell, hub: Served, status: int, remedy: str) -> None:
    hub.refuses = status
    with pytest.raises(HostError, match=f"it answers {status}") as told:
        read_hub(local, at(hub), quiet)
    assert remedy in str(told.value)
    assert len(hub.asked) == 1


def test_no_route_is_told(local: LocalShell) -> None:
    with pytest.raises(HostError, match=r"cannot read http://127\.0\.0\.1:1/api/models"):
        read_hub(local, Hub(REPO, COMMIT, "http://127.0.0.1:1"), quiet)


def test_a_server_without_ranges_is_not_read_whole(
    local: LocalShell, folder: Path, hub: Served
) -> None:
    hub.ranges = False
    with pytest.raises(HostError, match="whole files where a part is asked for"):
        read_hub(local, at(hub), quiet)
    # What comes from the begin is all the same good, and no more of it is taken than was asked.
    file = next(name for name in hub.files if name.startswith("model-00003"))
    piece = get_piece(at(hub).file(file), 0, 100)
    assert (piece.status, piece.data) == (200, (folder / file).read_bytes()[:100])


@pytest.mark.parametrize("listing", [b"no", b"{}", b'[{"type":"file"}]', b"[3]"])
def test_a_list_that_cannot_be_read(
    local: LocalShell, tmp_path: Path, hub: Served, listing: bytes
) -> None:
    (tmp_path / COMMIT).write_bytes(listing)
    hub.files[COMMIT] = tmp_path / COMMIT
    # A repository of which the hub has a file where its list should be.
    odd = Hub(REPO, COMMIT, f"{hub.url}/odd")
    with pytest.raises(HostError, match="its list of files cannot be read"):
        read_hub(local, odd, quiet)


def test_hostile_files_of_a_hub_are_findings(local: LocalShell, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", *PARTS)
    one, two = sorted(folder.glob("*.safetensors"))
    one.write_bytes((99_000_000).to_bytes(8, "little") + b"{}")
    two.write_bytes(b"")
    with serving(folder) as hub:
        found = read_hub(local, at(hub), quiet)
    kinds = [(flaw.kind, flaw.where) for flaw in found.findings]
    assert kinds == [("header-length", one.name), ("truncated", two.name)]


def test_weights_of_another_form_are_told_of_the_hub_and_not_of_a_folder_of_ours(
    local: LocalShell, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"x" * 100)
    with serving(folder) as hub:
        found = read_hub(local, at(hub), quiet)
    assert [(flaw.kind, flaw.where) for flaw in found.findings] == [("other-weights", found.folder)]
    assert "only pytorch_model.bin" in found.findings[0].what


ODD = ["..", ".", "a/b.json", "a\0.json", "a\n.json", "x" * 252 + ".json"]


@pytest.mark.parametrize("name", ODD)
def test_names_that_no_file_of_ours_can_have_are_passed_over(
    local: LocalShell, tmp_path: Path, hub: Served, name: str
) -> None:
    """One of them ended the reading with a traceback."""
    size = hub.files["config.json"].stat().st_size
    listing = [{"type": "file", "path": one, "size": size} for one in (name, "config.json")]
    (tmp_path / COMMIT).write_text(json.dumps(listing))
    hub.files[COMMIT] = tmp_path / COMMIT
    found = read_hub(local, Hub(REPO, COMMIT, f"{hub.url}/odd"), quiet)
    assert list(found.documents) == ["config.json"]


def test_a_model_that_is_not_there_yet_is_read_of_its_hub(
    local: LocalShell, tmp_path: Path, folder: Path, hub: Served
) -> None:
    source = HubModel(kind="hf", repo=REPO, revision=COMMIT)
    env = {"HF_ENDPOINT": f"{hub.url}/", "HF_TOKEN": "hf_x"}
    root = PurePosixPath(tmp_path / "root")
    assert read_model(local, local, source, root, env, quiet).folder.startswith(hub.url)
    assert hub.asked[0][2] == "Bearer hf_x"
    path = PathModel(kind="path", path=str(folder))
    assert read_model(local, local, path, root, env, quiet).folder == str(folder)
    gone = PathModel(kind="path", path="/nowhere")
    assert [f.kind for f in read_model(local, local, gone, root, env, quiet).findings] == [
        "no-folder"
    ]


def test_ranges_that_are_near_are_one() -> None:
    near = 1 << 16
    wanted = [(100, 104), (0, 4), (104 + near, 108 + near), (10**9, 10**9 + 4)]
    assert ranges(wanted) == [(0, 108 + near), (10**9, 10**9 + 4)]
    assert ranges([]) == []
