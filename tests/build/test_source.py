"""Sources as people write them, as a lock keeps them, and by which mirror they come."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import mirrors as on_hosts
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from firstlight.build.source import (
    ArchiveSource,
    GitSource,
    LockedSource,
    Mirrors,
    SdistSource,
    Source,
    archive_name,
    check_sdist,
    fetch_request,
    locked_archive,
    locked_git,
    locked_sdist,
    mirrored,
    moved,
    pack_request,
    sdist_request,
    source_path,
    told,
)
from firstlight.core.errors import ConfigError, FirstlightError
from firstlight.core.schema import Model, load

COMMIT, DIGEST = "d84335d8c54e0c8f9f7e22faa15c7e34a58abf94", "ab" * 32
GITHUB = {
    "https://github.com": "https://git.example/mirror",
    "https://github.com/NVIDIA": "/srv/git/nvidia",
    "https://github.com/NVIDIA/cccl": "ssh://git@inside/cccl.git",
    "git@github.com:": "https://git.example/mirror/",
}


class Recipe(Model):
    """The part of a recipe that says where sources come from."""

    source: Source
    mirrors: Mirrors = Field(default_factory=dict)


def recipe(text: str) -> Recipe:
    return load(text, "r.yaml", Recipe).value


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://github.com/fmtlib/fmt", "https://git.example/mirror/fmtlib/fmt"),
        ("https://github.com/NVIDIA/cutlass.git", "/srv/git/nvidia/cutlass.git"),
        ("https://github.com/NVIDIA/cccl", "ssh://git@inside/cccl.git"),
        ("https://github.com/NVIDIA/cccl.git", "ssh://git@inside/cccl.git"),
        ("https://github.com/NVIDIA/cccl-old", "/srv/git/nvidia/cccl-old"),
        ("https://github.com/NVIDIAN/x", "https://git.example/mirror/NVIDIAN/x"),
        ("https://github.company/x", "https://github.company/x"),
        ("git@github.com:a/b.git", "https://git.example/mirror/a/b.git"),
        # It would climb out of the folder that a prefix stands for.
        ("https://github.com/NVIDIA/../../etc", "https://github.com/NVIDIA/../../etc"),
    ],
)
def test_the_longest_prefix_that_ends_at_a_names_end_counts(url: str, wanted: str) -> None:
    assert mirrored(url, GITHUB) == wanted


NAMES = st.sampled_from(["a", "ab", "b", "b.git", "..", ""])
URLS = st.builds(
    lambda head, rest: head + "/".join(rest),
    st.sampled_from(["https://h/", "https://h", "git@h:", "/"]),
    st.lists(NAMES, max_size=4),
)


@given(URLS, st.dictionaries(URLS, URLS, max_size=4))
def test_hosts_read_mirrors_as_we_do(url: str, mapping: dict[str, str]) -> None:
    assert on_hosts.mirrored(url, mapping) == mirrored(url, mapping)


@given(URLS, st.lists(NAMES.filter(bool), min_size=1, max_size=3))
def test_a_mirror_of_the_whole_host_keeps_the_path(url: str, names: list[str]) -> None:
    asked = "https://h.example/" + "/".join(names)
    found = mirrored(asked, {"https://h.example": "https://m.example/x", url: "/never"})
    climbs = ".." in names
    assert found == (asked if climbs else "https://m.example/x/" + "/".join(names))


@pytest.mark.parametrize(
    ("base", "url", "wanted"),
    [
        ("https://h/a/b.git", "../c.git", "https://h/a/c.git"),
        ("https://h/a/b/", "../../c", "https://h/c"),
        ("git@h:a/b.git", "../c.git", "git@h:a/c.git"),
        ("git@h:b.git", "../c.git", "git@h:c.git"),
        ("/srv/a", "./sub", "/srv/a/sub"),
        ("https://h/a", "https://other/c", "https://other/c"),
    ],
)
def test_a_relative_submodule_counts_from_the_repository_that_names_it(
    base: str, url: str, wanted: str
) -> None:
    assert on_hosts.joined(base, url) == wanted


@pytest.mark.parametrize("url", ["ext::sh -c id", "-u/tmp/x", "https://h/a b", "a/b", "fd::17"])
def test_what_git_would_run_is_no_url(url: str) -> None:
    assert not on_hosts.is_url(url)


def test_a_recipe_says_each_kind() -> None:
    git = recipe(
        f"source: {{kind: git, url: 'https://github.com/a/b', ref: v1.0, commit: {COMMIT},"
        " submodules: [3rdparty/cutlass]}\nmirrors: {'https://github.com': /srv/git}"
    )
    assert git.source == GitSource(
        kind="git",
        url="https://github.com/a/b",
        ref="v1.0",
        commit=COMMIT,
        submodules=("3rdparty/cutlass",),
    )
    assert git.mirrors == {"https://github.com": "/srv/git"}
    assert recipe("source: {kind: sdist}").source == SdistSource(kind="sdist")
    archive = recipe(f"source: {{kind: archive, url: 'https://h/x.tar.gz', sha256: {DIGEST}}}")
    assert isinstance(archive.source, ArchiveSource)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{kind: git, url: 'ext::sh', ref: v1}", "'ext::sh' is no url"),
        ("{kind: git, url: 'https://h/a', ref: '-v'}", "'-v' is no git ref"),
        ("{kind: git, url: 'https://h/a', ref: 'a..b'}", "'a..b' is no git ref"),
        ("{kind: git, url: 'https://h/a', ref: v1, commit: abc1234}", "write all 40 digits"),
        ("{kind: git, url: 'https://h/a', ref: v1, submodules: [../x]}", "no path inside"),
        ("{kind: archive, url: 'https://h/a.tgz', sha256: abc}", "'abc' is no sha256"),
        ("{kind: archive, url: 'https://h/a.tgz'}", "sha256"),
    ],
)
def test_what_a_recipe_may_not_say(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"r\.yaml:1:") as caught:
        recipe(f"source: {source}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "url", "file"),
    [
        ("repo-triton", "https://h/t/archive/v3.7.1.tar.gz", "repo-triton-v3.7.1.tar.gz"),
        ("fmt", "https://h/fmt-11.0.zip?x=1", "fmt-11.0.zip"),
        ("x", "https://h/a%20b.tgz#frag", "x-a-b.tgz"),
    ],
)
def test_an_archive_is_called_so_that_a_cache_says_what_it_is(
    name: str, url: str, file: str
) -> None:
    assert archive_name(name, url) == file
    assert locked_archive(name, ArchiveSource(kind="archive", url=url, sha256=DIGEST)).file == file


def test_a_url_that_names_no_archive_wants_a_file() -> None:
    with pytest.raises(FirstlightError, match="give that source a `file`"):
        archive_name("x", "https://h/download?id=3")
    given_ = ArchiveSource(
        kind="archive", url="https://h/download?id=3", sha256=DIGEST, file="x-1.tar.gz"
    )
    assert locked_archive("x", given_).file == "x-1.tar.gz"


def test_what_programs_print_becomes_a_lock() -> None:
    source = GitSource(kind="git", url="https://h/a.git", ref="v1", submodules="all")
    packed = {"file": "a-d84335d8c54e.tar", "sha256": DIGEST, "size": 10240, "commit": COMMIT}
    answer = json.dumps({**packed, "tree": COMMIT, "time": 1700000000, "submodules": []})
    locked = locked_git("a", source, answer)
    assert (locked.commit, locked.time, locked.submodules) == (COMMIT, 1700000000, "all")
    assert told(locked) == "git https://h/a.git at d84335d8c54e, 10.0 KiB"
    assert source_path(PurePosixPath("/r/sources"), locked) == PurePosixPath(
        f"/r/sources/{DIGEST}/a-d84335d8c54e.tar"
    )
    found = {"file": "idna-3.7.tar.gz", "sha256": DIGEST, "size": None, "time": None}
    sdist = locked_sdist("idna", json.dumps({**found, "url": "https://x/idna-3.7.tar.gz"}))
    assert sdist.url is None
    assert load(f"{sdist.model_dump_json()}", "l", LockedSource).value == sdist


@pytest.mark.parametrize("file", ["../x.tar", "x.exe", ".hidden.tar", "a b.tar", "x/y.tar.gz"])
def test_a_lock_names_no_file_elsewhere(file: str) -> None:
    with pytest.raises(ValueError, match="is no file name of an archive"):
        LockedSource(name="x", kind="archive", file=file, sha256=DIGEST, url="https://h/x.tar")


def test_a_locked_sdist_is_that_release() -> None:
    def locked(file: str) -> LockedSource:
        return LockedSource(name="x", kind="sdist", file=file, sha256=DIGEST)

    assert check_sdist(locked("flash_attn_4-4.0.0b36.tar.gz"), "flash-attn-4", "4.0.0.b36") is None
    moved = check_sdist(locked("flash_attn_4-4.0.0b36.tar.gz"), "flash-attn-4", "4.0.0b37")
    assert moved == "flash_attn_4-4.0.0b36.tar.gz is not version 4.0.0b37"
    other = check_sdist(locked("idna-3.7.tar.gz"), "flash-attn-4", "3.7")
    assert other == "idna-3.7.tar.gz is no sdist of flash-attn-4"


def test_requests_hold_what_programs_ask_for() -> None:
    source = GitSource(kind="git", url="https://h/a", ref="v1", submodules=("x/y",))
    asked: dict[str, Any] = json.loads(pack_request(source, {"https://h": "/srv"}))
    assert asked["mirrors"] == {"https://h": "/srv"}
    assert (asked["ref"], asked["commit"], asked["submodules"]) == ("v1", None, ["x/y"])
    sdist = json.loads(sdist_request("x", "1.0", SdistSource(kind="sdist", name="y"), {}))
    assert sdist == {"name": "y", "version": "1.0", "sha256": None, "mirrors": {}}
    locked = locked_archive(
        "x", ArchiveSource(kind="archive", url="https://h/x.tgz", sha256=DIGEST)
    )
    text = fetch_request([locked, locked], {})
    assert [row["file"] for row in json.loads(text)["sources"]] == ["x.tgz", "x.tgz"]
    assert text.count("\n") == 4


def git_source(**more: str) -> GitSource:
    return GitSource.model_validate({"kind": "git", "url": "https://a/b", "ref": "v1", **more})


LOCKED = LockedSource(
    name="b", kind="git", file="b.tar", sha256=DIGEST, url="https://a/b", ref="v1", commit=COMMIT
)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (git_source(), []),
        (git_source(commit=COMMIT), []),
        (git_source(ref="v2"), [("ref v1", "ref v2")]),
        (git_source(commit="c" * 40), [(f"commit {COMMIT}", f"commit {'c' * 40}")]),
        (git_source(url="https://a/c"), [("url https://a/b", "url https://a/c")]),
        (git_source(submodules="all"), [("submodules none", "submodules all")]),
        (SdistSource(kind="sdist", name="other"), [("kind git", "kind sdist")]),
    ],
)
def test_a_locked_source_is_told_from_another(source: Any, said: list[tuple[str, str]]) -> None:
    assert list(moved(LOCKED, source)) == said


def test_a_lock_from_before_refs_were_kept_is_no_other() -> None:
    before = LOCKED.model_copy(update={"ref": None})
    assert list(moved(before, git_source(ref="v2"))) == []
