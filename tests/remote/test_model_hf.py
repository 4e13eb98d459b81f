"""model_hf.py against a hub on loopback; huggingface_hub itself is the real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.hub import COMMIT, REPO, Hub, serving
from tests.remote.programs import Ended, run

WEIGHTS = bytes(range(256)) * 4096


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors": WEIGHTS,
        "sub/notes [1].txt": b"notes",
        "README.md": b"# Tiny\n",
    }
    with serving(Hub(files, large=frozenset({"model.safetensors"}))) as running:
        yield running


def bring(hub: Hub, out: Path, *words: str, revision: str = COMMIT, **env: str) -> Ended:
    argv = ("--repo", REPO, "--revision", revision, "--out", out, *words)
    return run("model_hf.py", *argv, env={"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1", **env})


def there(out: Path) -> dict[str, bytes]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_every_file_comes_and_is_proved(hub: Hub, tmp_path: Path) -> None:
    out = tmp_path / "m.partial"
    ended = bring(hub, out)
    assert (ended.code, ended.err) == (0, "")
    found = there(out)
    told = json.loads(found.pop("source.json"))
    assert found == hub.files
    assert (told["repo"], told["revision"]) == (REPO, COMMIT)
    proofs = {file["path"]: file["sha256"] for file in told["files"]}
    assert proofs["model.safetensors"] == hub.etag("model.safetensors")
    assert proofs["config.json"] is None


def test_only_what_is_allowed(hub: Hub, tmp_path: Path) -> None:
    ended = bring(hub, tmp_path / "m", "--allow", "*.json", "--allow", "*1?.txt")
    assert ended.code == 0, ended.err
    assert set(there(tmp_path / "m")) == {"config.json", "sub/notes [1].txt", "source.json"}
    assert bring(hub, tmp_path / "n", "--allow", "*.gguf").code == 2


def spans(hub: Hub, path: str) -> list[str]:
    """The Range of each time that the bytes of a file were asked for."""
    return [span for method, asked, span, _ in hub.asked if method == "GET" and path in asked]


def test_a_broken_link_goes_on_near_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    # It keeps what it has in pieces of 10 MiB.
    large = WEIGHTS * 24
    hub.files = {"model.safetensors": large}
    hub.cuts = [15_000_000, len(large)]
    assert bring(hub, tmp_path / "m").code == 0
    assert spans(hub, "model.safetensors") == ["", f"bytes={10 << 20}-"]
    assert there(tmp_path / "m")["model.safetensors"] == large


def test_after_a_dead_link_the_next_run_keeps_what_is_whole(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [0]
    first = bring(hub, tmp_path / "m")
    assert first.code == 1
    assert "\nerror: the link to the hub broke: " in first.err
    whole = {path for path in hub.files if (tmp_path / "m" / path).exists()}
    assert "model.safetensors" not in whole
    torn = tmp_path / "m" / ".cache" / "huggingface" / "download" / "x.incomplete"
    torn.write_bytes(b"left by a killed run")
    hub.cuts, hub.asked = [], []
    assert bring(hub, tmp_path / "m").code == 0
    assert [path for path in whole if spans(hub, path.split()[0])] == []
    assert set(there(tmp_path / "m")) == {*hub.files, "source.json"}


@pytest.mark.parametrize(
    ("path", "kind"), [("model.safetensors", "sha256"), ("config.json", "git blob")]
)
def test_a_changed_byte_is_found_and_fetched_anew(
    hub: Hub, tmp_path: Path, path: str, kind: str
) -> None:
    right = hub.files[path]
    hub.broken = {path: right[:-1] + b"?"}
    ended = bring(hub, tmp_path / "m")
    assert ended.code == 1
    assert ended.err.startswith(f"error: {path} has {kind} ")
    assert f", the hub lists {hub.etag(path)}\n" in ended.err
    assert not (tmp_path / "m" / "source.json").exists()
    hub.broken = {}
    assert bring(hub, tmp_path / "m").code == 0
    assert there(tmp_path / "m")[path] == right


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((403, "GatedRepo"), f"error: {REPO} is gated, and no token (HF_TOKEN is unset) opens it"),
        ((404, "RepoNotFound"), f"error: the hub shows no {REPO} to no token"),
        ((404, "RevisionNotFound"), f"error: {REPO} has no commit {COMMIT}"),
        ((418, ""), "error: the hub answered 418 to /api/models/"),
    ],
)
def test_a_hub_that_refuses(hub: Hub, tmp_path: Path, refusal: tuple[int, str], words: str) -> None:
    hub.refusal = refusal
    ended = bring(hub, tmp_path / "m")
    assert ended.code == 1
    assert words in ended.err
    assert ended.err.count("\n") == 2


def test_no_route_is_75(hub: Hub, tmp_path: Path) -> None:
    ended = bring(hub, tmp_path / "m", HF_ENDPOINT="http://127.0.0.1:1")
    assert ended.code == 75
    assert ended.err.startswith("error: no route to the hub: ")


def test_the_token_comes_from_the_environment_and_is_not_told(hub: Hub, tmp_path: Path) -> None:
    ended = bring(hub, tmp_path / "m", HF_TOKEN="hf_secret")
    assert ended.code == 0
    assert {seen[3] for seen in hub.asked} == {"Bearer hf_secret"}
    assert "hf_secret" not in ended.out + ended.err
    assert b"hf_secret" not in b"".join(there(tmp_path / "m").values())


@pytest.mark.parametrize("revision", ["main", COMMIT[:12], COMMIT.upper()])
def test_a_revision_that_can_move_is_refused(hub: Hub, tmp_path: Path, revision: str) -> None:
    ended = bring(hub, tmp_path / "m", revision=revision)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {revision!r} is no commit of {REPO}\nfix: pin a commit")
    assert not (tmp_path / "m").exists()


def test_a_listing_that_leads_out_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"../../evil": b"x"}
    ended = bring(hub, tmp_path / "m")
    assert ended.code == 1
    assert "leads out of its folder" in ended.err
    assert not (tmp_path / "evil").exists()
