"""Several hosts at once: really side by side, each line with its host, one Ctrl-C for all."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import Detached, FirstlightError, HostError, StepError
from firstlight.core.plan import Job, Plan, Step
from firstlight.effects import execute, jobs
from firstlight.effects.console import Console
from firstlight.effects.local import LocalShell
from firstlight.flows.beside import beside
from firstlight.flows.ship import _told
from firstlight.hosts.inventory import Host
from tests.flows.project import REPO
from tests.flows.watching import wait_for

SUPERVISE = PurePosixPath(REPO / "firstlight/remote/supervise.sh")


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


def test_all_are_told_at_once_and_each_line_has_its_host(said: io.StringIO) -> None:
    # Passed only when both are there: one after the other would wait for ever.
    meet = threading.Barrier(2, timeout=60)

    def story(console: Console) -> str:
        meet.wait()
        console.say("first\nsecond")
        console.say("gpu02: named already")
        console.note("moving")
        console.debug("unseen")
        return "done"

    ends = beside({"gpu02": story, "gpu03": story}, Console(said))
    assert ends == {"gpu02": "done", "gpu03": "done"}
    lines = said.getvalue().splitlines()
    assert {"gpu02: first", "gpu02: second", "gpu03: first", "gpu03: second"} <= set(lines)
    assert lines.count("gpu02: named already") == 1
    assert all(line.lstrip(" .").startswith(("gpu02: ", "gpu03: ")) for line in lines)


def test_one_that_fails_does_not_end_the_other(said: io.StringIO) -> None:
    failed = threading.Event()

    def bad(_: Console) -> str:
        failed.set()
        raise HostError("no", where="gpu02")

    def good(_: Console) -> str:
        assert failed.wait(60)
        return "done"

    ends = beside({"gpu02": bad, "gpu03": good}, Console(said))
    assert isinstance(ends["gpu02"], HostError) and ends["gpu03"] == "done"


def job_story(root: Path, name: str) -> tuple[Plan, execute.Site]:
    """A job on a host of its own that says when it has begun, and then waits for `go`."""
    shell = LocalShell(Host(name=name, address="192.0.2.9"))
    script = Script('until [ -e "$1" ]; do sleep 0.1; done', (str(root / "go"),))
    plan = Plan("build", name, (Step("release", "assemble", Job("release-x", script)),))
    return plan, execute.Site(shell, PurePosixPath(root / name), SUPERVISE)


def test_an_interrupt_reaches_all_and_what_runs_on_hosts_goes_on(
    tmp_path: Path, said: io.StringIO
) -> None:
    told = {name: job_story(tmp_path, name) for name in ("gpu02", "gpu03")}

    def story(name: str, console: Console) -> None:
        plan, site = told[name]
        jobs.start(site.shell, site.root, site.supervise, plan.steps[0].action)  # type: ignore[arg-type]
        execute.execute(plan, {"host": site}, console)

    def interrupt() -> None:
        # Who is not at its job yet has nothing that goes on.
        wait_for(lambda: said.getvalue().count("watching it") == len(told), "both at their jobs")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    stories = {name: (lambda console, name=name: story(name, console)) for name in told}
    try:
        ends = beside(stories, Console(said))
        for name, (_, site) in told.items():
            error = ends[name]
            assert isinstance(error, Detached) and error.where == name
            assert error.what == "job release-x goes on"
            assert jobs.poll(site.shell, site.root, "release-x", 0).state == "running"
    finally:
        (tmp_path / "go").touch()
        for _, site in told.values():
            jobs.follow(site.shell, site.root, "release-x", lambda _: None, lambda _: None)


def test_the_errors_of_several_are_told_as_one_with_what_was_done() -> None:
    step, host = StepError("broke", where="gpu02"), HostError("gone", where="gpu03")
    assert _told({"gpu02": "gpu02: done", "gpu03": "gpu03: done"}) == "gpu02: done\ngpu03: done"
    cases: list[tuple[dict[str, str | FirstlightError], type[FirstlightError]]] = [
        ({"gpu02": step, "gpu03": "gpu03: done"}, StepError),
        ({"gpu02": "gpu02: done", "gpu03": host}, HostError),
        ({"gpu02": step, "gpu03": Detached("on", where="gpu03")}, Detached),
    ]
    for ends, kind in cases:
        with pytest.raises(FirstlightError) as caught:
            _told(ends)
        assert type(caught.value) is kind
        assert sorted(str(caught.value).splitlines()) == sorted(map(str, ends.values()))
    with pytest.raises(StepError) as caught:
        _told({"gpu02": step})
    assert caught.value is step
