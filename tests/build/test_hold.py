"""The hold of a build on a host: taken beside no pruning, taken over, let go by its owner alone."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from firstlight.build.hold import BUSY, LET_ALL_GO, LIST, STALE_S, Hold, let_go_step, take_step
from firstlight.core.command import Script
from firstlight.core.plan import Job, Run, Step
from firstlight.effects import jobs
from firstlight.effects.local import LocalShell
from firstlight.effects.shell import Result
from firstlight.hosts.inventory import Host
from tests.flows.project import REPO
from tests.flows.watching import wait_for

SUPERVISE = PurePosixPath(REPO / "firstlight/remote/supervise.sh")
SHELL = LocalShell(Host(name="local"))
ME, OTHER = "desk, process 1", "it's another, process 22"


def do(step: Step) -> Result:
    assert isinstance(step.action, Run)
    return SHELL.run(step.action.script)


def take(root: Path, mark: str = "m1", who: str = ME, name: str = "r-1") -> Result:
    return do(take_step(PurePosixPath(root), name, mark, "build of release r-1", who))


def let_go(root: Path, mark: str = "m1") -> list[str]:
    """The marks of those who hold it still."""
    assert do(let_go_step(PurePosixPath(root), "r-1", mark)).ok
    return sorted(path.name.partition("@")[2] for path in (root / "holds").iterdir())


def test_a_hold_says_whose_it_is_and_its_owner_ends_it(tmp_path: Path) -> None:
    root = tmp_path / "a root's"
    assert take(root).out == b""
    (told,) = (root / "holds/r-1@m1").read_text().splitlines()
    assert told.startswith(f"build of release r-1, from {ME}, since 20")
    assert take(root).out == b""
    assert let_go(root) == let_go(root) == []


def test_two_hold_the_same_and_each_lets_go_its_own(tmp_path: Path) -> None:
    """With one file for both, who came second took the hold away from who went on."""
    take(tmp_path, "m2", OTHER)
    said = take(tmp_path).text
    assert said.startswith(f"m2\tthe build of release r-1, from {OTHER}, since 20")
    assert let_go(tmp_path) == ["m2"]
    assert let_go(tmp_path, "m2") == []


def test_a_hold_of_another_name_is_not_the_same(tmp_path: Path) -> None:
    take(tmp_path, "m2", OTHER, "r-1-x")
    take(tmp_path, "m3", OTHER, "r-")
    assert take(tmp_path).out == b""


def test_a_hold_is_not_taken_while_somebody_removes(tmp_path: Path) -> None:
    go, root = tmp_path / "go", PurePosixPath(tmp_path)
    script = Script('until [ -e "$1" ]; do sleep 0.1; done', (str(go),))
    jobs.start(SHELL, root, SUPERVISE, Job("prune-x", script, "all"))
    lock = tmp_path / "lock/all"
    wait_for(lambda: lock.exists() and "prune-x" in lock.read_text(), "the lock", 60)
    refused = take(tmp_path)
    assert refused.rc == BUSY and "job prune-x, started from" in refused.text
    assert not list((tmp_path / "holds").iterdir())
    go.touch()
    jobs.follow(SHELL, root, "prune-x", lambda _: None, lambda _: None)
    assert take(tmp_path).ok


def test_what_cannot_be_written_is_no_hold(tmp_path: Path) -> None:
    (tmp_path / "holds").touch()
    assert take(tmp_path).rc not in (0, BUSY)


def test_all_holds_of_a_host_are_shown_and_let_go(tmp_path: Path) -> None:
    root = (str(tmp_path),)
    assert SHELL.run(Script(LIST, root)).out == SHELL.run(Script(LET_ALL_GO, root)).out == b""
    for name, who in (("r-1", ME), ("r 2", OTHER)):
        take(tmp_path, "m1", who, name)
    shown = SHELL.run(Script(LIST, root)).text
    assert shown.count("build of release") == 2 and ME in shown and OTHER in shown
    assert SHELL.run(Script(LET_ALL_GO, root)).text == shown
    assert not list((tmp_path / "holds").iterdir())


@pytest.mark.parametrize("text", [b"", b"\xff\x00\x1b[2J\r\x0b\x85" * 90, b"one\x0c\ntwo\nthree\n"])
def test_a_hold_that_cannot_be_read_is_told_by_its_name_in_one_line(
    tmp_path: Path, text: bytes
) -> None:
    take(tmp_path)
    (tmp_path / "holds/r-1@m1").write_bytes(text)
    (tmp_path / "holds/r\n2").touch()
    root = (str(tmp_path),)
    shown = SHELL.run(Script(LIST, root))
    assert shown.out == b"an unreadable hold $'r\\n2'\nan unreadable hold r-1@m1\n"
    assert SHELL.run(Script(LET_ALL_GO, root)).out == shown.out
    assert not list((tmp_path / "holds").iterdir())


def test_a_hold_without_a_sign_for_a_day_is_stale() -> None:
    hold = Hold("holds/r-1@m1", 100_000, "build")
    assert not hold.is_stale(100_000 + STALE_S) and hold.is_stale(100_001 + STALE_S)
    # A clock that was set back since says as little of it as a day without a sign.
    assert not hold.is_stale(100_000 - STALE_S) and hold.is_stale(99_999 - STALE_S)
    assert hold.name == "r-1"
