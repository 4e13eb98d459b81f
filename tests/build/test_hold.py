"""The hold of a build on a host: taken beside no pruning, taken over, let go by its owner alone."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

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


def take(root: Path, who: str = ME, name: str = "r-1") -> Result:
    return do(take_step(PurePosixPath(root), name, "build of release r-1", who))


def let_go(root: Path, who: str = ME) -> bool:
    assert do(let_go_step(PurePosixPath(root), "r-1", who)).ok
    return not (root / "holds/r-1").exists()


def test_a_hold_says_whose_it_is_and_its_owner_ends_it(tmp_path: Path) -> None:
    root = tmp_path / "a root's"
    assert take(root).out == b""
    first, second = (root / "holds/r-1").read_text().splitlines()
    assert first.startswith(f"build of release r-1, from {ME}, since 20") and second == ME
    assert take(root).out == b""
    assert let_go(root) and let_go(root)


def test_a_hold_that_another_left_is_taken_over_and_that_is_said(tmp_path: Path) -> None:
    take(tmp_path, OTHER)
    said = take(tmp_path).text
    assert said.startswith(f"took over the hold of the build of release r-1, from {OTHER}, since")
    assert not let_go(tmp_path, OTHER)
    assert let_go(tmp_path)


def test_a_hold_is_not_taken_while_somebody_removes(tmp_path: Path) -> None:
    go, root = tmp_path / "go", PurePosixPath(tmp_path)
    script = Script('until [ -e "$1" ]; do sleep 0.1; done', (str(go),))
    jobs.start(SHELL, root, SUPERVISE, Job("prune-x", script, "all"))
    wait_for(lambda: "prune-x" in (tmp_path / "lock/all").read_text(), "the lock", 60)
    refused = take(tmp_path)
    assert refused.rc == BUSY and "job prune-x, started from" in refused.text
    assert not (tmp_path / "holds/r-1").exists()
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
        take(tmp_path, who, name)
    shown = SHELL.run(Script(LIST, root)).text
    assert shown.count("build of release") == 2 and ME in shown and OTHER in shown
    assert SHELL.run(Script(LET_ALL_GO, root)).text == shown
    assert not list((tmp_path / "holds").iterdir())


def test_a_hold_without_a_sign_for_a_day_is_stale() -> None:
    hold = Hold("holds/r-1", 1000, "build")
    assert not hold.is_stale(1000 + STALE_S) and hold.is_stale(1001 + STALE_S)
