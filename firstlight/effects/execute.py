"""The one loop that executes a plan, step by step, and says how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firstlight.core.command import Script
from firstlight.core.errors import StepError
from firstlight.core.plan import Job, Jobs, Plan, Run, Ship, Step, Watch, WriteFile
from firstlight.core.words import span
from firstlight.effects import follow
from firstlight.effects.console import Console
from firstlight.effects.follow import LOG_LINES, Site
from firstlight.effects.shell import MAKE_ROOM

__all__ = ["Outcome", "Site", "execute", "write_script"]

# The content comes as an argument of a shell function, so no process list ever shows it.
_WRITE = """\
mkdir -p -- "$(dirname -- "$1")" || return
umask 077
printf %s "$2" >"$1.partial" && chmod -- "$3" "$1.partial" &&
  mv -T -- "$1.partial" "$1" && return
rm -f -- "$1.partial"
return 1
"""

# What the kernel says of a disk that takes nothing more, and what a person does about it.
_DISK: Mapping[str, str] = {
    "No space left on device": MAKE_ROOM,
    "Disk quota exceeded": MAKE_ROOM,
    "Read-only file system": "make that file system writable (`dmesg` says why it is read-only), "
    "or set another `root` for this host in the inventory",
}


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
            _run(step, plan, site, Run(write_script(file)), console)
        case Ship(files):
            site.shell.send(files, console.note)
        case Run() as run:
            _run(step, plan, site, run, console)
        case Job() as job:
            follow.follow(step, plan, site, (job,), console)
        case Jobs(side_by_side):
            follow.follow(step, plan, site, side_by_side, console)
        case Watch(name):
            watches[name]()


def _run(step: Step, plan: Plan, site: Site, run: Run, console: Console) -> None:
    result = site.shell.run(run.script, run.timeout_s)
    if result.ok:
        return
    lines = (result.error_text.strip() or result.text.strip()).splitlines()
    # How our own programs say what to do.
    fixes = [line for line in lines if line.startswith("fix: ")]
    fix = fixes[-1].removeprefix("fix: ") if fixes else _fix(lines)
    again = f"`{follow.typed_again(plan, console)}` again goes on from what is finished"
    raise StepError(
        f"cannot {step.title} (exit status {result.rc})",
        where=site.shell.host.name,
        remedy=f"{fix}\n  -> {again}",
        log="\n".join([line for line in lines if line not in fixes][-LOG_LINES:]),
    )


def _fix(lines: list[str]) -> str:
    found = (fix for line in lines for said, fix in _DISK.items() if said in line)
    return next(found, "put right what stops it")
