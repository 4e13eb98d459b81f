"""Interpreters, and the choice among them; the message when there is none to choose."""

import pytest

from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.finding import Finding
from firstlight.hosts.pythons import Python
from tests.hosts_facts.wire import plain

SUPPORTED = ("3.11", "3.12", "3.13")


def row(version: str, path: str, **changed: str) -> str:
    parts = {"level": "final", "name": "cpython", "flags": "", "bits": "64", "venv": "yes"}
    parts = {**parts, "headers": "yes", "lacks": "", **changed}
    return "\t".join([version, *parts.values(), path])


def host(*rows: str, **changed: str) -> Facts:
    return plain(pythons="\n".join(rows), **changed)


def chosen(*rows: str) -> str:
    found = python_for(host(*rows), SUPPORTED)
    assert isinstance(found, Python)
    return str(found.path)


def test_the_newest_supported_one_wins() -> None:
    rows = [row(f"3.{n}.1", f"/opt/p/3.{n}") for n in (9, 12, 11, 14)]
    assert chosen(*rows) == "/opt/p/3.12"


def test_versions_compare_as_numbers() -> None:
    assert chosen(row("3.11.9", "/a"), row("3.11.10", "/b")) == "/b"


def test_of_equal_ones_the_systems_own_wins() -> None:
    assert chosen(row("3.12.3", "/home/a/p"), row("3.12.3", "/usr/bin/p")) == "/usr/bin/p"


def test_a_python_without_ensurepip_will_do() -> None:
    found = python_for(host(row("3.11.2", "/usr/bin/python3.11", venv="no")), SUPPORTED)
    assert isinstance(found, Python) and not found.venv_ok


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "pypy"}, "is pypy"),
        ({"flags": "t"}, "is free-threaded"),
        ({"flags": "d"}, "is a debug build"),
        ({"bits": "32"}, "has 32 bits"),
        ({"level": "candidate"}, "is a pre-release"),
        ({"lacks": "_ctypes,_ssl"}, "lacks _ctypes, _ssl"),
    ],
)
def test_what_no_release_can_be_made_with(changed: dict[str, str], why: str) -> None:
    bad = row("3.13.1", "/opt/bad", **changed)
    assert chosen(bad, row("3.11.2", "/good")) == "/good"
    found = python_for(host(bad), SUPPORTED)
    assert isinstance(found, Finding)
    assert f"3.13.1 at /opt/bad, but it {why}" in found.what


@pytest.mark.parametrize(
    ("release", "fix"),
    [
        ("ID=debian\nVERSION_ID=12", "sudo apt-get install -y python3.11 python3.11-venv"),
        ('ID=ubuntu\nVERSION_ID="24.04"', "sudo apt-get install -y python3.12 python3.12-venv"),
        ('ID=ubuntu\nVERSION_ID="26.04"', "run `uv python install 3.13` on the host (as"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"', "dnf install -y python3.12"),
        ("ID=fedora\nVERSION_ID=43", "sudo dnf install -y python3.13"),
        ("ID=arch", "run `uv python install 3.13` on the host (as"),
        ("", "run `uv python install 3.13` on the host (as"),
    ],
)
def test_no_python_says_what_is_needed_and_how_to_get_it(release: str, fix: str) -> None:
    found = python_for(host(row("3.9.2", "/usr/bin/python3.9"), os__release=release), SUPPORTED)
    assert isinstance(found, Finding) and found.severity == "error"
    assert "needed is CPython 3.11, 3.12 or 3.13" in found.what
    assert "found: 3.9.2 at /usr/bin/python3.9" in found.what
    assert fix in found.fix


def test_a_host_without_any_python() -> None:
    found = python_for(host(""), ["3.12"])
    assert isinstance(found, Finding)
    assert found.what.endswith("needed is CPython 3.12; found: none from 3.9 on")


def test_older_broken_and_garbled_rows_are_no_interpreters() -> None:
    rows = [row("3.8.18", "/a"), "broken\t/b", row("3.x", "/c"), row("3.12.1", "/d")[3:], "\t" * 8]
    assert host(*rows).pythons == ()


def test_headers_are_read() -> None:
    assert [p.headers for p in host(row("3.12.1", "/a", headers="no")).pythons] == [False]
