"""holdings.sh on a tree with hard links, half-done things and papers that name others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from firstlight.build.hold import BUILD_JOBS, SAYS, Hold
from firstlight.build.holdings import Holdings, Use, freed, parse, weight
from firstlight.core.command import Script
from firstlight.effects import library
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host

RELEASE = "releases/tiny-py311-0000000000aa"
ENTRY = "cache/uv/archive-v0/en try"
TOOLKIT, KERNEL = "store/cuda-toolkit-13.0-0000000000cc", "store/kernel-1-0000000000bb"
SOURCE = f"sources/{'5e' * 32}"
BIG = b"x" * 100_000


def look(root: Path) -> Holdings:
    script = Script(SAYS + library.program("holdings.sh"), (str(root), *BUILD_JOBS))
    return parse(LocalShell(Host(name="local")).run(script).text, "local")


def put(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One release, which shares a file with uv's cache and one with a folder outside."""
    root = tmp_path / "a root's"
    manifest = {"components": [{"name": "cuda-toolkit", "key": "0000000000cc"}], "sha": "9a" * 32}
    put(root / RELEASE / "manifest.json", json.dumps(manifest, indent=1).encode())
    os.utime(root / RELEASE / "manifest.json", (1000, 1000))
    put(root / RELEASE / "receipts/kernel-1-0000000000bb.json", b"{}")
    put(root / TOOLKIT / "cuda/bin/nvcc")
    put(root / KERNEL / "receipt.json", json.dumps({"source": "5e" * 32}).encode())
    put(root / SOURCE / "s.tar.gz")
    put(root / "store/other-1-0000000000dd/receipt.json", b"{}")
    put(root / ENTRY / "lib/big.so", BIG)
    put(root / "cache/uv/wheels-v8/pointer")
    (root / RELEASE / "big.so").hardlink_to(root / ENTRY / "lib/big.so")
    (root / RELEASE / "out.so").hardlink_to(put(tmp_path / "outside", BIG))
    put(root / "wheels/w1.partial.old/w.whl")
    return root


def test_items_have_the_time_at_which_they_were_made(root: Path) -> None:
    found = look(root)
    assert str(found.root) == str(root)
    assert found.items[RELEASE] == 1000
    assert {TOOLKIT, KERNEL, SOURCE, ENTRY, "wheels/w1.partial.old"} < set(found.items)


def test_caches_are_items_with_their_bytes(root: Path) -> None:
    put(root / "cache/ccache/3/4/object", BIG)
    put(root / "sources/git/kern-1.git/HEAD", BIG)
    found = look(root)
    for item in ("cache/ccache", "sources/git"):
        assert item in found.items and freed(found, [item]) >= len(BIG)


def test_what_papers_name_is_known_by_folder_key_or_digest(root: Path) -> None:
    names = look(root).names
    assert names[RELEASE] == {TOOLKIT, KERNEL, "9a" * 32}
    assert names[KERNEL] == {"5e" * 32}


def test_a_file_is_free_when_its_last_link_goes(root: Path) -> None:
    found = look(root)
    big = (root / ENTRY / "lib/big.so").stat().st_blocks * 512
    both = freed(found, [RELEASE, ENTRY])
    assert both - freed(found, [RELEASE]) == big
    assert freed(found, [ENTRY]) == 0
    # What has a link outside weighs, and is never freed.
    assert weight(found, RELEASE) - freed(found, [RELEASE]) == 2 * big


def test_deployments_tell_the_release_of_each_link(root: Path) -> None:
    home = root / "deployments/p"
    put(home / "1/manifest.json", b'{\n  "release": "tiny-py311-0000000000aa",\n  "port": 1\n}\n')
    (home / "current").symlink_to("1")
    (home / "started").symlink_to("1")
    assert look(root).uses == (
        Use("p", "current", RELEASE.removeprefix("releases/")),
        Use("p", "started", RELEASE.removeprefix("releases/")),
    )


def test_a_hold_gave_a_sign_when_it_was_taken_or_a_build_s_job_ended_after_that(root: Path) -> None:
    for path, when in {
        "holds/r-1": 2000,
        "holds/r-2": 9000,
        "jobs/build-x.old/exit": 1000,
        "jobs/release-y/exit": 5000,
        "jobs/prune-z/exit": 8000,
        # Of a clock that was ahead.
        "jobs/fetch-w/exit": 10**10,
    }.items():
        put(root / path, b"build of a\tb, from desk, since now\ndesk\n")
        os.utime(root / path, (when, when))
    put(root / "holds/r-3.partial")
    told = "the build of ab, from desk, since now"
    assert look(root).holds == (Hold("holds/r-1", 5000, told), Hold("holds/r-2", 9000, told))


def test_names_that_no_line_can_carry_are_told_and_passed_over(root: Path) -> None:
    """One tab ended every pruning with a fault of ours."""
    usual = look(root)
    for name in ("releases/a\tb", "releases/a\nb", "store/\u00fc", "holds/x\ty", "holds/x\ny"):
        (put if name.startswith("holds") else lambda path: path.mkdir())(root / name)
    put(root / "deployments/p\tq/1/manifest.json", b'{\n "release": "r1"\n}\n')
    (root / "deployments/p\tq/coming").symlink_to("1")
    found = look(root)
    assert sorted(found.odd) == sorted(
        f"$'{name}'"
        for name in (
            "holds/x\\ny",
            "holds/x\\ty",
            "releases/a\\nb",
            "releases/a\\tb",
            "store/\\303\\274",
        )
    )
    assert found.items == usual.items and found.names == usual.names and found.holds == ()
    assert found.uses == (Use("$'p\\tq'", "coming", "r1"),)


def test_a_release_that_is_nothing_but_caches_is_a_husk(root: Path) -> None:
    put(root / "releases/gone-py311-1/cache/triton/k.so")
    put(root / "releases/bare-py311-1/venv/bin/python")
    assert look(root).husks == {"releases/gone-py311-1"}


def test_nothing_is_held_where_there_is_no_root(tmp_path: Path) -> None:
    found = look(tmp_path / "none")
    assert (found.items, found.extents, found.uses) == ({}, (), ())
