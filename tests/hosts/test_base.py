"""Where the base tree comes from, in both formats that apt has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.base import AptSource, apt_source, clear_tree, read_source
from tests.hosts.call import FleetError, call

PARAGRAPHS = """\
Types: deb-src
URIs: http://mirror.test/source
Suites: stable
Components: main

# a comment
Types: deb
URIs: file:/media http://mirror.test/debian
Suites: stable stable-updates
Components: main contrib
Signed-By: /usr/share/keyrings/some.gpg
"""
LINES = """\
# deb http://mirror.test/off stable main
deb http://mirror.test/security stable-security main
deb [arch=amd64 signed-by=/etc/key.gpg] http://mirror.test/debian stable main universe
"""


def test_both_formats_are_read() -> None:
    mirror, keyring = "http://mirror.test/debian", "/usr/share/keyrings/some.gpg"
    assert read_source(PARAGRAPHS) == AptSource(mirror, "stable", ("main", "contrib"), keyring)
    assert read_source(LINES) == AptSource(mirror, "stable", ("main", "universe"), "/etc/key.gpg")


@pytest.mark.parametrize("text", ["", "# nothing\n", "deb file:/media stable main\n"])
def test_a_file_without_a_mirror_gives_none(text: str) -> None:
    assert read_source(text) is None


def test_the_distribution_goes_before_other_vendors(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "aaa.list").write_text("deb http://vendor.test/apt stable main\n")
    (tmp_path / "sources.list").write_text("deb http://old.test/debian stable main\n")
    (parts / "debian.sources").write_text(PARAGRAPHS)
    assert apt_source(tmp_path).mirror == "http://mirror.test/debian"


def test_no_mirror_at_all_says_where_one_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"debian\.sources.*sources\.list"):
        apt_source(tmp_path)


@pytest.mark.hosts
def test_clearing_a_tree_spares_what_was_mounted_in_it(tmp_path: Path) -> None:
    tree, outside = tmp_path / "a tree", tmp_path / "outside"
    (tree / "mount").mkdir(parents=True)
    outside.mkdir()
    (outside / "precious").touch()
    call("mount", "--bind", str(outside), str(tree / "mount"))
    clear_tree(tree)
    assert not tree.exists()
    assert (outside / "precious").exists()
