"""Holding a host for a build: pruning there waits until the build is over, or its planner lost."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from firstlight.build.hold import (
    BUILD_JOBS,
    BUSY,
    LET_ALL_GO,
    LIST,
    let_go_step,
    take_step,
)
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError, HostError, StepError
from firstlight.core.plan import Run, Step
from firstlight.effects import holder, jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Result, Shell
from firstlight.flows.reach import look
from firstlight.hosts.survey import Survey

_PAUSE_S = 2.0


def who() -> str:
    """This process, as others read it on a host that it holds."""
    return f"{platform.node() or 'a controller'}, process {os.getpid()}"


def hold_steps(root: PurePosixPath, name: str, what: str) -> tuple[Step, Step]:
    """What `held` does before and after, for a plan that is shown."""
    mark = holder.mark()
    return take_step(root, name, mark, what, who()), let_go_step(root, name, mark)


@contextlib.contextmanager
def held(
    shell: Shell, root: PurePosixPath, name: str, what: str, console: Console
) -> Iterator[None]:
    """Hold a host under a name while this lasts; look at the host after it has begun.

    It stays held when this is broken off while a job of a build runs there: who comes back goes on
    with that. Raises HostError when the hold cannot be written.
    """
    take, let_go = hold_steps(root, name, what)
    _tell(shell, root, name, _take(shell, take, console), console)
    try:
        yield
    except StepError:
        _quietly(shell, let_go)
        raise
    except BaseException:
        with contextlib.suppress(FirstlightError):
            if not running(shell, look(shell)):
                _quietly(shell, let_go)
        raise
    _quietly(shell, let_go)


def running(shell: Shell, seen: Survey, kinds: tuple[str, ...] = BUILD_JOBS) -> list[str]:
    """The ids of the jobs that run there, those of builds and their downloads unless others are
    asked for."""
    known = sorted(job for job in seen.jobs if job.startswith(kinds))
    return [job for job in known if jobs.poll(shell, seen.root, job, 0, 0).state == "running"]


def holders(shell: Shell, root: PurePosixPath) -> list[str]:
    """Who holds the host, a line for each."""
    return shell.run(Script(LIST, (str(root),))).text.splitlines()


def let_all_go(shell: Shell, root: PurePosixPath) -> list[str]:
    """End every hold of a host; whose they were, a line for each."""
    return shell.run(Script(LET_ALL_GO, (str(root),))).text.splitlines()


def _take(shell: Shell, step: Step, console: Console) -> list[str]:
    """Begin a hold; who holds the same, as `take_step` prints it."""
    result = _run(shell, step)
    while result.rc == BUSY:
        by = result.text.strip() or "somebody"
        console.note(f"waiting for the end of a pruning there: {by}")
        time.sleep(_PAUSE_S)
        result = _run(shell, step)
    if not result.ok:
        said = result.error_text.strip().splitlines()[-1:] or [f"exit status {result.rc}"]
        raise HostError(
            f"a build cannot be begun there: {said[0]}",
            where=shell.host.name,
            remedy="let its user write below its root and make room there, or set another root "
            "for it in inventory/",
        )
    return result.text.splitlines()


def _tell(
    shell: Shell, root: PurePosixPath, name: str, others: list[str], console: Console
) -> None:
    """Say who else holds it, and end the hold of who is known to be gone."""
    for line in others:
        mark, _, whose = line.partition("\t")
        if holder.is_one(mark, holder.mark()):
            continue
        is_gone = holder.is_gone(mark)
        if is_gone:
            _quietly(shell, let_go_step(root, name, mark))
        words = f"took over the hold of {whose}" if is_gone else f"held there too: {whose}"
        console.say(f"{shell.host.name}: {words}")


def _quietly(shell: Shell, step: Step) -> None:
    # What cannot be reached any more stays held until nobody has given a sign for a day.
    with contextlib.suppress(FirstlightError):
        _run(shell, step)


def _run(shell: Shell, step: Step) -> Result:
    assert isinstance(step.action, Run)
    return shell.run(step.action.script, step.action.timeout_s)
