"""A plan is a list of steps; a step is a value that a person can read before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from firstlight.core.command import Script, quote


@dataclass(frozen=True)
class WriteFile:
    """Write `content` to `path` on the host, whole or not at all; `secret` hides it in previews."""

    path: PurePosixPath
    content: str
    mode: int = 0o644
    secret: bool = False


@dataclass(frozen=True)
class ShipFile:
    """One file of the controller with its place on the host; `sha256` is checked on arrival."""

    source: Path
    target: PurePosixPath
    sha256: str


@dataclass(frozen=True)
class Ship:
    """Send to the host the files that it lacks."""

    files: tuple[ShipFile, ...]


@dataclass(frozen=True)
class Run:
    """A short script, watched to its end over the open connection."""

    script: Script
    timeout_s: float = 120.0


@dataclass(frozen=True)
class Job:
    """A long script, detached on the host under `id`; the same id re-attaches.

    `lock` names what no two jobs of one host may change at once ("" = nothing). `memory_mib` is
    what all its processes together may take (MiB = 2^20 bytes, 0 = no ceiling); the kernel holds
    it where the host has a way. `label` names it beside others.
    """

    id: str
    script: Script
    lock: str = ""
    memory_mib: int = 0
    label: str = ""


@dataclass(frozen=True)
class Jobs:
    """Jobs that run side by side and are watched together; one that fails lets the others end."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Watch:
    """Something that the controller looks at until it is so, or says why it is not.

    `script` is what a person would type to see the same; the run looks closer than that.
    """

    name: str
    script: Script


Action = WriteFile | Ship | Run | Job | Jobs | Watch


@dataclass(frozen=True)
class Step:
    """One thing to do, on the host or on the controller, that leaves `creates` behind."""

    id: str
    title: str
    action: Action
    where: Literal["host", "controller"] = "host"
    creates: PurePosixPath | None = None


@dataclass(frozen=True)
class Plan:
    """What a verb will do to one host, in order; `done` says what is in place already."""

    verb: str
    host: str
    steps: tuple[Step, ...] = ()
    done: tuple[str, ...] = ()


def preview(plan: Plan) -> str:
    """The plan as a shell script that a person can read; secrets are not shown."""
    head = [f"# firstlight {plan.verb}: plan for host {plan.host}"]
    head += [f"# in place: {line}" for line in plan.done]
    if not plan.steps:
        head.append("# nothing to do")
    return "\n".join(head + [_show(step, n) for n, step in enumerate(plan.steps, 1)]) + "\n"


def _show(step: Step, number: int) -> str:
    place = "" if step.where == "host" else " (on the controller)"
    leaves = f"\n# leaves {step.creates}" if step.creates else ""
    return f"\n# {number}. {step.title}{place}{leaves}\n{_text(step.action)}"


def _text(action: Action) -> str:
    match action:
        case WriteFile(path, content, mode, secret):
            body = "# (secret values are not shown)\n" if secret else content
            return _fed(f"install -D -m {mode:o} /dev/stdin {quote(path)}", body)
        case Ship(files):
            return "\n".join(_shipping(file) for file in files)
        case Run(script):
            return _script(script)
        case Watch(_, script):
            return script.text.rstrip("\n")
        case Job() as job:
            return _job(job)
        case Jobs(jobs):
            beside = f"# {len(jobs)} jobs side by side; one that fails lets the others end"
            return "\n".join([beside, *map(_job, jobs)])


def _job(job: Job) -> str:
    ceiling = f", at most {job.memory_mib} MiB of memory" if job.memory_mib else ""
    head = f"# detached job {job.id}{ceiling}; a lost link does not stop it"
    return f"{head}\n{_script(job.script)}"


def _shipping(file: ShipFile) -> str:
    there = f'"$HOST":{quote(file.target)}'
    return f"rsync -W {quote(file.source)} {there}  # sha256 {file.sha256[:12]}"


def _script(script: Script) -> str:
    words = " ".join(quote(arg) for arg in script.args)
    env = "".join(f"export {key}={quote(value)}\n" for key, value in script.env.items())
    shell = "sudo bash" if script.sudo else "bash"
    return env + _fed(f"{shell} -s {words}", script.text)


def _fed(command: str, text: str) -> str:
    """A command with a text for its standard input; no line of the text ends it early."""
    text = text.rstrip("\n")
    end = "EOF"
    while end in text.split("\n"):
        end += "_"
    return f"{command} <<'{end}'\n{text}\n{end}"
