"""The one loop that executes a plan, step by step, and says how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.core.command import Script
from firstlight.core.errors import Detached, StepError
from firstlight.core.plan import Job, Plan, Run, Ship, Step, Watch, WriteFile
from firstlight.core.words import span
from firstlight.effects import jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell

# The content comes as an argument of a shell function, so no process list ever shows it.
_WRITE = """\
mkdir -p -- "$(dirname -- "$1")" || return
umask 077
printf %s "$2" >"$1.partial" && chmod -- "$3" "$1.partial" &&
  mv -T -- "$1.partial" "$1"
"""
_LOG_LINES = 20


@dataclass(frozen=True)
class Site:
    """Where steps run: an open shell, the root folder there, and the supervisor of jobs there."""

    shell: Shell
    root: PurePosixPath
    supervise: PurePosixPath


@dataclass(frozen=True)
class Outcome:
    """One step that is done, with its wall time in seconds."""

    step: str
    seconds: float


def execute(
    plan: Plan,
    sites: Mapping[str, Site],
    console: Console,
    watches: Mapping[str, Callable[[], None]] | None = None,
    done: list[Outcome] | None = None,
) -> list[Outcome]:
    """Do every step in order; raises StepError for the first that fails, Detached on Ctrl-C.

    `sites` are the host and, for a plan that needs it, the controller; `watches` do what the
    Watch actions of the plan name. `done` grows as steps end, for who must know after an error.
    """
    done = [] if done is None else done
    for number, step in enumerate(plan.steps, 1):
        console.say(f"[{number}/{len(plan.steps)}] {step.title}")
        begin = time.monotonic()
        _do(step, plan, sites[step.where], console, watches or {})
        done.append(Outcome(step.id, time.monotonic() - begin))
        console.debug(f"{step.id}: {span(done[-1].seconds)}")
    return done


def write_script(file: WriteFile) -> Script:
    """The script that writes a file, whole or not at all."""
    return Script(_WRITE, args=(str(file.path), file.content, f"{file.mode:o}"))


def _do(
    step: Step,
    plan: Plan,
    site: Site,
    console: Console,
    watches: Mapping[str, Callable[[], None]],
) -> None:
    match step.action:
        case WriteFile() as file:
            _run(step, site, Run(write_script(file)))
        case Ship(files):
            site.shell.send(files, console.note)
        case Run() as run:
            _run(step, site, run)
        case Job() as job:
            _follow(step, plan, site, job, console)
        case Watch(name):
            watches[name]()


def _run(step: Step, site: Site, run: Run) -> None:
    result = site.shell.run(run.script, run.timeout_s)
    if not result.ok:
        said = result.error_text.strip() or result.text.strip()
        raise StepError(
            f"cannot {step.title} (exit status {result.rc})",
            where=site.shell.host.name,
            log="\n".join(said.splitlines()[-_LOG_LINES:]),
        )


def _follow(step: Step, plan: Plan, site: Site, job: Job, console: Console) -> None:
    tail = _Tail(console)
    try:
        began = jobs.start(site.shell, site.root, site.supervise, job, again=True)
        if began == "attached":
            console.say("  it runs already; watching it")
        view = jobs.follow(site.shell, site.root, job.id, tail.take, console.say)
    except KeyboardInterrupt:
        # It may have come before the job was started, or just when it had been.
        if jobs.poll(site.shell, site.root, job.id, 0, 0).state != "running":
            raise
        raise _interrupted(step, plan, site, job, console) from None
    if view.state == "done" and view.rc == 0:
        return
    raise _failure(step, plan, site, job, view, tail.lines)


def _failure(
    step: Step, plan: Plan, site: Site, job: Job, view: jobs.JobView, lines: list[str]
) -> StepError:
    """What a job's programs said was wrong, and their fix, before anything of ours."""
    file = site.root / "jobs" / job.id / "log"
    whole = f"the whole log: {file}; `invoke {plan.verb}` again goes on from what is finished"
    error, fix = (_said(mark, lines) for mark in ("error: ", "fix: "))
    rest = [line for line in lines if line not in (f"error: {error}", f"fix: {fix}")]
    return StepError(
        f"cannot {step.title}: {error or _ending(view)}",
        where=site.shell.host.name,
        remedy=f"{fix}\n  -> {whole}" if fix else whole,
        log="\n".join(rest[-_LOG_LINES:]),
    )


def _said(mark: str, lines: list[str]) -> str:
    """The rest of the last line that begins with `mark`: how our programs tell their end."""
    return next((line.removeprefix(mark) for line in reversed(lines) if line.startswith(mark)), "")


def _ending(view: jobs.JobView) -> str:
    return {
        "done": f"exit status {view.rc}",
        "cancelled": "it was cancelled",
        "lost": "its supervisor was killed",
        "rebooted": "the host was rebooted meanwhile",
        "missing": "its folder is gone",
    }[view.state]


def _interrupted(step: Step, plan: Plan, site: Site, job: Job, console: Console) -> Detached:
    """What Ctrl-C means: the job goes on, unless the person at the terminal says otherwise."""
    host = site.shell.host.name
    console.say(f"'{step.title}' goes on on {host} as job {job.id}")
    if console.ask("  stop it there? [y/N] ").lower().startswith("y"):
        left = jobs.cancel(site.shell, site.root, job.id)
        return Detached(f"stopped job {job.id}; {left} of its processes are left", where=host)
    again = f"`invoke {plan.verb}` again watches it"
    stop = "; `invoke build --cancel` ends it" if plan.verb in ("build", "up") else ""
    return Detached(f"job {job.id} goes on", where=host, remedy=f"{again}{stop}")


class _Tail:
    """The log of a job as it comes: its last line is shown, its lines are kept."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = b""
        self.lines: list[str] = []

    def take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self.lines += [line.decode("utf-8", "replace") for line in whole if line.strip()]
        del self.lines[:-200]
        if self.lines:
            self._console.note(self.lines[-1])
