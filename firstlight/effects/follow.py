"""Follows detached jobs, one or several side by side, and says how far they are and how they end.

What a log says about itself (`@@firstlight ...`) is read and never shown. Where it has lines of a
compilation, these become one line with a rate; else the last line is shown as it is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.core import ninja
from firstlight.core.command import typed
from firstlight.core.errors import Detached, StepError
from firstlight.core.plan import Job, Plan, Step
from firstlight.core.words import span
from firstlight.effects import jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell

LOG_LINES = 20

# How supervise.sh says that the kernel killed a job's processes for lack of memory.
_OUT_OF_MEMORY = re.compile(
    r"^firstlight: (?P<said>the job ran out of memory \(.*\)"
    r"|processes of this host killed for lack of memory while the job ran: \d+)$"
)
_MEMORY_FIX = "give it fewer compile jobs or more memory; stop what else runs on that host"


@dataclass(frozen=True)
class Site:
    """Where steps run: an open shell, the root folder there, and the supervisor of jobs there."""

    shell: Shell
    root: PurePosixPath
    supervise: PurePosixPath


def follow(step: Step, plan: Plan, site: Site, asked: Sequence[Job], console: Console) -> None:
    """Start the jobs of a step, or find them running, and watch them to their ends.

    Raises StepError for the first that failed, once all are over; Detached on Ctrl-C.
    """
    tails = [_Tail(job) for job in asked]
    watch = _Watch(tails, console)
    try:
        for tail in tails:
            _start(site, tail, console)
        jobs.follow_all(site.shell, site.root, [t.reader for t in tails], watch.show, console.say)
    except KeyboardInterrupt:
        # It may have come before a job was started, or just when it had been.
        running = [job for job in asked if _state(site, job) == "running"]
        if not running:
            raise
        raise _interrupted(step, plan, site, running, console) from None
    failed = [tail for tail in watch.ended if not tail.succeeded]
    if failed:
        raise _failure(step, typed_again(plan, console), site, failed[0])


def _start(site: Site, tail: _Tail, console: Console) -> None:
    started = jobs.start(site.shell, site.root, site.supervise, tail.job, again=True)
    if started == "attached":
        tail.unwatched = jobs.poll(site.shell, site.root, tail.job.id, 0, 0).size
        which = f"{tail.name}: " if tail.job.label else ""
        console.say(f"  {which}it runs already; watching it")


def _state(site: Site, job: Job) -> jobs.State:
    return jobs.poll(site.shell, site.root, job.id, 0, 0).state


class _Tail:
    """The log of a job as it comes: its last lines, and how far a compilation in it is.

    The first `unwatched` bytes were written before we looked, nobody knows when.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.name = job, job.label or job.id
        self.reader = jobs.Reader(job.id, self._take)
        self.unwatched = 0
        self.lines: list[str] = []
        self._rest = b""
        self._seen = ninja.Progress()

    @property
    def note(self) -> str:
        """What goes on right now: how far a compilation is, or the last line."""
        if self._seen.total and self._seen.done < self._seen.total:
            return ninja.text(self._seen)
        return self.lines[-1] if self.lines else ""

    @property
    def succeeded(self) -> bool:
        """True when it came to its end with exit status 0."""
        return (self.reader.last.state, self.reader.last.rc) == ("done", 0)

    @property
    def cause(self) -> str:
        """What its program said was wrong, else what its supervisor or its end says."""
        return self.said("error: ") or self.out_of_memory or _ending(self.reader.last)

    @property
    def out_of_memory(self) -> str:
        """What its supervisor said about processes killed for lack of memory, or ""."""
        found = (_OUT_OF_MEMORY.match(line) for line in reversed(self.lines))
        return next((match["said"] for match in found if match), "")

    def said(self, mark: str) -> str:
        """The rest of the last line that begins with `mark`: how our programs tell their end."""
        found = (line for line in reversed(self.lines) if line.startswith(mark))
        return next((line.removeprefix(mark) for line in found), "")

    def _take(self, data: bytes) -> None:
        now_s = time.monotonic() if self.reader.offset >= self.unwatched else None
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for raw in whole:
            line = raw.decode("utf-8", "replace")
            if line.strip():
                self._seen = ninja.fold(self._seen, line, now_s)
                if not line.startswith(ninja.MARK):
                    self.lines.append(line)
        del self.lines[:-200]


class _Watch:
    """Jobs that are watched together: what each does right now, and which ended, in that order."""

    def __init__(self, tails: Sequence[_Tail], console: Console) -> None:
        self._tails, self._console = tails, console
        self._began = time.monotonic()
        self.ended: list[_Tail] = []

    def show(self) -> None:
        """A line for each job that runs; its name and its end only where there are several."""
        for tail in self._tails:
            if tail.reader.over and tail not in self.ended:
                self.ended.append(tail)
                if len(self._tails) > 1:
                    self._console.say(f"  {tail.name}: {self._ending(tail)}")
        running = [tail for tail in self._tails if tail not in self.ended]
        if running:
            lines = [self._line(tail) for tail in running if tail.note]
            self._console.note(*lines, watched_s=time.monotonic() - self._began)

    def _line(self, tail: _Tail) -> str:
        return f"{tail.name}: {tail.note}" if len(self._tails) > 1 else tail.note

    def _ending(self, tail: _Tail) -> str:
        if tail.succeeded:
            return f"done after {span(time.monotonic() - self._began)}"
        others = len(self.ended) < len(self._tails)
        return f"failed: {tail.cause}{'; the others go on' if others else ''}"


def typed_again(plan: Plan, console: Console) -> str:
    """What the person types to come back to this, with the flags that they gave."""
    return console.typed or typed(plan.verb, {"host": plan.host})


def _failure(step: Step, again: str, site: Site, tail: _Tail) -> StepError:
    """What a job's programs said was wrong, and their fix, before anything of ours."""
    file = site.root / "jobs" / tail.job.id / "log"
    whole = f"the whole log: {file}; `{again}` again goes on from what is finished"
    error, fix = tail.said("error: "), tail.said("fix: ")
    if tail.out_of_memory and not error:
        fix = fix or _MEMORY_FIX
    rest = [line for line in tail.lines if line not in (f"error: {error}", f"fix: {fix}")]
    which = f" ({tail.name})" if tail.job.label else ""
    return StepError(
        f"cannot {step.title}{which}: {tail.cause}",
        where=site.shell.host.name,
        remedy=f"{fix}\n  -> {whole}" if fix else whole,
        log="\n".join(rest[-LOG_LINES:]),
        file="" if fix else str(file),
    )


def _ending(view: jobs.JobView) -> str:
    killed = " (killed: no memory, or by hand)" if view.rc == 128 + 9 else ""
    return {
        "done": f"exit status {view.rc}{killed}",
        "cancelled": "it was cancelled",
        "lost": "its supervisor was killed",
        "rebooted": "the host was rebooted meanwhile",
        "missing": "its folder is gone",
    }[view.state]


def _interrupted(
    step: Step, plan: Plan, site: Site, running: Sequence[Job], console: Console
) -> Detached:
    """What Ctrl-C means: the jobs go on, unless the person at the terminal says otherwise."""
    host, ids = site.shell.host.name, ", ".join(job.id for job in running)
    what, go, them = ("job", "goes", "it") if len(running) == 1 else ("jobs", "go", "them")
    console.say(f"'{step.title}' goes on on {host} as {what} {ids}")
    if console.ask(f"  stop {them} there? [y/N] ").lower().startswith("y"):
        left = sum(jobs.cancel(site.shell, site.root, job.id) for job in running)
        end = f"{left} of its processes are left" if len(running) == 1 else f"{left} processes left"
        return Detached(f"stopped {what} {ids}; {end}", where=host)
    again = f"`{typed_again(plan, console)}` again watches {them}"
    end = typed("build", {"cancel": True, "host": plan.host})
    stop = f"; `{end}` ends {them}" if plan.verb == "build" else ""
    return Detached(f"{what} {ids} {go} on", where=host, remedy=f"{again}{stop}")
