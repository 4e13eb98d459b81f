"""pack_git.py on real repositories: the tree of a commit as an archive that is always the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.remote.programs import PROGRAMS, Ended, run, sha256
from tests.remote.repos import Smart, commit, git, hand_made, repository, served, write

# Commits of these repositories have fixed dates, so this is a property of what packs alone: a
# Python or a git that makes other bytes would part the lock of one machine from that of another.
KNOWN = "17d0269ebb8e44b37782267c9a568bb8752c71cec5413c96df694b162dad05e3"


def pack(tmp: Path, url: object, dest: str = "dest", env: Any = None, **asked: Any) -> Ended:
    request = {"ref": "v1.0", "commit": None, "submodules": "none", "mirrors": {}, **asked}
    (tmp / "request.json").write_text(json.dumps({"url": str(url), **request}))
    return run("pack_git.py", tmp / "request.json", tmp / dest, env=env)


def packed(tmp: Path, url: object, dest: str = "dest", **asked: Any) -> tuple[Path, dict[str, Any]]:
    """The archive and what was printed of it."""
    ended = pack(tmp, url, dest, **asked)
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    path = tmp / dest / told["sha256"] / told["file"]
    assert (sha256(path), path.stat().st_size) == (told["sha256"], told["size"])
    return path, told


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    """What an archive holds, below its one folder."""
    with tarfile.open(path) as tar:
        return {info.name.partition("/")[2]: info for info in tar.getmembers()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with every kind of thing: `v1.0` is its first commit."""
    files = {"b/run.sh": "echo\n", "a.txt": "one\n", "b.txt": "", "ä/é.txt": "x", "x" * 120: "long"}
    path = repository(tmp_path / "up" / "tree.git", files)
    (path / "link").symlink_to("b/run.sh")
    (path / ".gitattributes").write_text("a.txt export-ignore\n*.txt eol=crlf filter=none\n")
    commit(path)
    git(path, "tag", "-a", "-m", "first", "v1.0")
    return path


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """main -> deps/mid (relative url) -> in/leaf (relative url), and main -> deps/other."""
    up = tmp_path / "up"
    repository(up / "leaf.git", {"leaf.txt": "leaf\n"})
    repository(up / "other.git", {"other.txt": "other\n"})
    mid = repository(up / "mid.git", {"mid.txt": "mid\n"})
    main = repository(up / "main.git", {"main.txt": "main\n"})
    for outer, place, name in ((mid, "in/leaf", "leaf"), (main, "deps/mid", "mid")):
        git(outer, "submodule", "--quiet", "add", up / f"{name}.git", place)
        git(outer, "config", "-f", ".gitmodules", f"submodule.{place}.url", f"../{name}.git")
        commit(outer)
    git(main, "submodule", "--quiet", "add", up / "other.git", "deps/other")
    commit(main)
    git(main, "tag", "v1.0")
    return main


def test_a_tree_is_packed_as_it_is_in_git(tmp_path: Path, tree: Path) -> None:
    path, told = packed(tmp_path, tree)
    found = members(path)
    names = [name for name in found if name]
    assert names == sorted(names, key=str.encode)
    assert {name for name, info in found.items() if info.isfile()} == {
        *(".gitattributes", "a.txt", "b/run.sh", "b.txt", "ä/é.txt", "x" * 120)
    }
    assert {name: oct(info.mode) for name, info in found.items() if info.isfile()} == {
        name: "0o755" if name == "b/run.sh" else "0o644" for name in found if found[name].isfile()
    }
    assert (found["link"].issym(), found["link"].linkname) == (True, "b/run.sh")
    assert found["b"].isdir()
    owners = {(info.uid, info.gid, info.uname, info.gname) for info in found.values()}
    assert owners == {(0, 0, "", "")}
    assert {info.mtime for info in found.values()} == {told["time"]} == {1700000000}
    assert told["commit"] == git(tree, "rev-parse", "v1.0^{commit}")
    assert told["tree"] == git(tree, "rev-parse", "v1.0^{tree}")
    assert told["file"] == f"tree-{told['commit'][:12]}.tar"
    # No line end was changed and no attribute obeyed.
    with tarfile.open(path) as tar:
        assert tar.extractfile(found["a.txt"]).read() == b"one\n"  # type: ignore[union-attr]


def test_the_bytes_are_always_the_same(tmp_path: Path) -> None:
    """With other repositories of the same commit, other clocks, and another Python some day."""
    digests = set()
    for home in ("one", "two"):
        at = repository(tmp_path / home / "same.git", {"a/b.txt": "b\n", "run.sh": "r\n"})
        digests.add(packed(tmp_path, at, f"dest-{home}", ref="main")[1]["sha256"])
        time.sleep(1.1)
    assert digests == {KNOWN}


def test_a_tree_unpacks_into_what_git_would_check_out(tmp_path: Path, nested: Path) -> None:
    path, _ = packed(tmp_path, nested, submodules="all")
    with tarfile.open(path) as tar:
        # The filter came to 3.11 late; the tree is our own.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(tmp_path / "out", **safe)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--recurse-submodules", nested, clone)
    unpacked = next((tmp_path / "out").iterdir())

    def files(folder: Path) -> dict[str, str]:
        return {
            str(file.relative_to(folder)): file.read_text()
            for file in folder.rglob("*")
            if file.is_file() and ".git" not in file.relative_to(folder).parts
        }

    assert files(unpacked) == files(clone)
    assert "deps/mid/in/leaf/leaf.txt" in files(unpacked)


@pytest.mark.parametrize(
    ("wanted", "there", "empty"),
    [
        ("none", [], ["deps/mid", "deps/other"]),
        (["deps/mid"], ["deps/mid"], ["deps/mid/in/leaf", "deps/other"]),
        (["deps/mid", "deps/mid/in/leaf"], ["deps/mid", "deps/mid/in/leaf"], ["deps/other"]),
        ("all", ["deps/mid", "deps/mid/in/leaf", "deps/other"], []),
    ],
)
def test_only_the_submodules_that_are_wanted(
    tmp_path: Path, nested: Path, wanted: Any, there: list[str], empty: list[str]
) -> None:
    path, told = packed(tmp_path, nested, submodules=wanted)
    assert [module["path"] for module in told["submodules"]] == there
    found = members(path)
    assert all(found[name].isdir() for name in empty)
    assert not [name for name in found for top in empty if name.startswith(f"{top}/")]


def test_a_submodule_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, nested: Path
) -> None:
    ended = pack(tmp_path, nested, submodules=["deps/mdi"])
    assert ended.code == 1
    assert "has no submodule deps/mdi; it has: deps/mid, deps/other\nfix: " in ended.err


def test_a_ref_that_is_not_there_is_told_with_the_nearest(tmp_path: Path, tree: Path) -> None:
    git(tree, "tag", "v1.1")
    ended = pack(tmp_path, tree, ref="v1.00")
    assert ended.code == 1
    assert f"error: {tree} has no tag or branch 'v1.00'; near it: v1.0" in ended.err


def test_a_tag_that_moved_is_told_with_both_commits(tmp_path: Path, tree: Path) -> None:
    before = packed(tmp_path, tree)[1]["commit"]
    write(tree, {"a.txt": "two\n"})
    after = commit(tree)
    git(tree, "tag", "--force", "v1.0")
    ended = pack(tmp_path, tree, commit=before)
    assert ended.code == 1
    assert f"v1.0 of {tree} is at {after}, the recipe pins {before}\nfix: it was moved" in ended.err
    # By its commit alone it is still to be had.
    assert packed(tmp_path, tree, "other", ref=None, commit=before)[1]["commit"] == before


def test_a_name_of_a_tag_and_a_branch_must_be_told_apart(tmp_path: Path, tree: Path) -> None:
    git(tree, "branch", "v1.0")
    assert pack(tmp_path, tree).code == 0
    write(tree, {"a.txt": "two\n"})
    git(tree, "branch", "--force", "v1.0", commit(tree))
    ended = pack(tmp_path, tree)
    assert "v1.0 is a tag and a branch" in ended.err
    assert "fix: write refs/tags/v1.0 or refs/heads/v1.0\n" in ended.err
    assert packed(tmp_path, tree, ref="refs/heads/v1.0")[1]["commit"] == git(
        tree, "rev-parse", "HEAD"
    )


def test_a_commit_that_nothing_has(tmp_path: Path, tree: Path) -> None:
    ended = pack(tmp_path, tree, ref=None, commit="0" * 39 + "1")
    assert ended.code == 1
    assert f"error: {tree} has no commit {'0' * 39}1\nfix: a tag or branch may" in ended.err


def test_over_http_only_that_commit_is_fetched(tmp_path: Path, tree: Path) -> None:
    write(tree, {"later.txt": "later\n"})
    commit(tree)
    with served(tmp_path / "up", Smart) as url:
        _, told = packed(tmp_path, f"{url}/tree.git")
        home = next((tmp_path / "dest" / "git").glob("*.git"))
        assert git(home, "rev-list", "--count", told["commit"]) == "1"
        by_path = packed(tmp_path, tree, "other")[1]
    assert told["sha256"] == by_path["sha256"]


def test_a_server_of_plain_files_gives_all_that_it_has(tmp_path: Path, tree: Path) -> None:
    bare = tmp_path / "plain" / "tree.git"
    git(tmp_path, "clone", "--quiet", "--bare", tree, bare)
    git(bare, "update-server-info")
    with served(tmp_path / "plain") as url:
        _, told = packed(tmp_path, f"{url}/tree.git")
        assert packed(tmp_path, tree, "other")[1]["sha256"] == told["sha256"]
        ended = pack(tmp_path, f"{url}/none.git", "third")
    assert (ended.code, "is no git repository" in ended.err) == (1, True)


def test_what_was_fetched_once_is_packed_again_without_its_server(
    tmp_path: Path, tree: Path
) -> None:
    path, told = packed(tmp_path, tree)
    tree.rename(tmp_path / "gone")
    path.unlink()
    again, _ = packed(tmp_path, tree, ref=None, commit=told["commit"])
    assert again == path


def test_mirrors_hold_for_submodules_and_a_bundle_is_one(tmp_path: Path, nested: Path) -> None:
    up = "https://git.nowhere.invalid/org"
    mirror = {up: str(tmp_path / "up")}
    _, told = packed(tmp_path, f"{up}/main.git", submodules=["deps/mid"], mirrors=mirror)
    assert [module["url"] for module in told["submodules"]] == [f"{up}/mid.git"]
    bundle = tmp_path / "main.bundle"
    git(nested, "bundle", "create", "--quiet", bundle, "--all")
    mirror[f"{up}/main"] = str(bundle)
    again = packed(tmp_path, f"{up}/main.git", "two", submodules=["deps/mid"], mirrors=mirror)[1]
    assert again["sha256"] == told["sha256"]


def test_no_route_is_75_and_says_which_mirror_it_tried(tmp_path: Path) -> None:
    mirrors = {"https://github.com": "http://me:secret@127.0.0.1:1/m"}
    ended = pack(tmp_path, "https://github.com/a/b", mirrors=mirrors)
    assert ended.code == 75
    told = "no route to https://github.com/a/b (by the mirror http://127.0.0.1:1/m/a/b)"
    assert f"error: {told}\nfix: " in ended.err
    assert "secret" not in ended.err + ended.out


def test_a_machine_without_git_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ended = pack(tmp_path, "https://github.com/a/b", env={"PATH": str(tmp_path / "bin")})
    assert ended.code == 1
    assert ended.err.startswith("error: git is not on the PATH of this machine\nfix: install the")


@pytest.mark.parametrize(
    "rows",
    [
        {".git": ("100644", "x")},
        {"..": ("100644", "x")},
        {"a/../../b": ("100644", "x")},
        {".GIT": ("100644", "x")},
        {"link": ("120000", "../outside")},
        {"link": ("120000", "/etc/passwd")},
        {"a": ("120000", "b"), "a/b": ("100644", "x")},
    ],
)
def test_a_hostile_tree_is_refused(tmp_path: Path, rows: dict[str, tuple[str, str]]) -> None:
    repo = repository(tmp_path / "hostile", {"a.txt": ""})
    hand_made(repo, rows)
    ended = pack(tmp_path, repo, ref="hostile")
    assert ended.code == 1
    assert "fix: do not build that source" in ended.err
    assert not list((tmp_path / "dest").glob("*/*.tar"))


@pytest.mark.parametrize("url", ["ext::sh -c 'touch {}'", "--upload-pack=touch {}", "{}"])
def test_a_submodule_runs_no_command_and_reads_no_disk(tmp_path: Path, url: str) -> None:
    """A repository from outside names a command, a flag, or a repository of this very machine."""
    secret = repository(tmp_path / "secret", {"key": "secret"})
    mark = tmp_path / "mark"
    main = repository(tmp_path / "up" / "main.git", {"a.txt": ""})
    git(main, "submodule", "--quiet", "add", secret, "sub")
    git(main, "config", "-f", ".gitmodules", "submodule.sub.url", url.format(mark))
    if url == "{}":
        git(main, "config", "-f", ".gitmodules", "submodule.sub.url", secret)
    commit(main)
    with served(tmp_path / "up", Smart) as at:
        ended = pack(tmp_path, f"{at}/main.git", ref="main", submodules="all")
    assert ended.code == 1
    assert "leave that submodule out" in ended.err
    assert not mark.exists()


def test_hooks_and_templates_of_this_machine_are_not_run(tmp_path: Path, tree: Path) -> None:
    hook = tmp_path / "template" / "hooks" / "reference-transaction"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f"[init]\ntemplateDir={hook.parent.parent}\n[core]\nhooksPath={hook.parent}\n"
    )
    env = {"GIT_CONFIG_GLOBAL": str(settings), "GIT_DIR": "/nonexistent"}
    assert pack(tmp_path, tree, env=env).code == 0
    assert not (tmp_path / "mark").exists()


def test_pointers_of_git_lfs_are_told(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n"
    repo = repository(tmp_path / "lfs", {"model.bin": pointer, "a.txt": "a"})
    ended = pack(tmp_path, repo, ref="main")
    assert "note: 1 files are pointers of Git LFS" in ended.err


def start(tmp: Path, dest: str) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        *map(str, (PROGRAMS / "pack_git.py", tmp / "request.json", tmp / dest)),
    ]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def big(tmp: Path) -> Path:
    """A repository that takes a moment to send."""
    files = {f"d{n % 7}/f{n}.txt": os.urandom(20_000).hex() for n in range(300)}
    repo = repository(tmp / "big", files)
    git(repo, "tag", "v1.0")
    return repo


def test_a_run_killed_at_any_moment_leaves_nothing_half_done(tmp_path: Path) -> None:
    repo = big(tmp_path)
    whole = packed(tmp_path, repo, "whole")[1]
    for moment in (0.15, 0.25, 0.35, 0.45, 0.6, 0.8):
        child = start(tmp_path, "dest")
        time.sleep(moment)
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        files = list((tmp_path / "dest").glob("[0-9a-f]*/*.tar"))
        assert [sha256(file) for file in files] in ([], [whole["sha256"]])
    # What git itself leaves when it is killed.
    home = next((tmp_path / "dest" / "git").glob("big-*.git"), None)
    if home:
        (home / "shallow.lock").touch()
        (home / "objects" / "pack" / "tmp_pack_x").touch()
    assert packed(tmp_path, repo)[1]["sha256"] == whole["sha256"]


def test_a_run_waits_for_the_git_of_one_that_was_killed(tmp_path: Path) -> None:
    repo = big(tmp_path)
    whole = packed(tmp_path, repo, "whole")[1]
    child = start(tmp_path, "dest")
    time.sleep(0.3)
    # Only the program: its git lives on and goes on writing.
    child.kill()
    assert packed(tmp_path, repo)[1]["sha256"] == whole["sha256"]
    child.communicate()


def test_two_at_once_make_the_same(tmp_path: Path) -> None:
    repo = big(tmp_path)
    whole = packed(tmp_path, repo, "whole")[1]
    children = [start(tmp_path, "dest") for _ in range(3)]
    ends = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], ends
    assert {json.loads(out)["sha256"] for out, _ in ends} == {whole["sha256"]}
    assert sum(b"another run is fetching" in err for _, err in ends) >= 1
    assert list((tmp_path / "dest").glob(".*partial")) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"ref": "--upload-pack=x"},
        {"ref": None},
        {"commit": "abc"},
        {"submodules": "some"},
        {"extra": 1},
        {"ref": "a b"},
    ],
)
def test_a_request_that_makes_no_sense(tmp_path: Path, asked: dict[str, Any]) -> None:
    ended = pack(tmp_path, "https://github.com/a/b", **asked)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {tmp_path}/request.json: ")
    assert "Traceback" not in ended.err
