"""A plan is a list of steps; a step is a value that a person can read before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from firstlight.core.command import Script, assignments, quote


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


def preview(plan: Plan, dial: Sequence[str] = ()) -> str:
    """The plan as a bash script that a person can read and run here; secrets are not shown.

    `dial` is what comes after `ssh` to reach the host, its address last; without it the host is
    this machine if it is called local, and else known to ssh by its name.
    """
    head = [f"# firstlight {plan.verb}: plan for host {plan.host}"]
    head += [f"# in place: {line}" for line in plan.done]
    if not plan.steps:
        return "\n".join([*head, "# nothing to do"]) + "\n"
    words = tuple(dial) or (() if plan.host == "local" else (plan.host,))
    shown = [_show(step, n, far=bool(words)) for n, step in enumerate(plan.steps, 1)]
    return "\n".join([*head, _opening(words), *shown]) + "\n"


_OPENING = """\
# It stops at the first step that fails; each script is the body of a function, as in a real run,
# so that `return` ends that script with its status
set -e
as_function() {
  printf '__main() {\\n%s\\n}\\n__main %s </dev/null\\nexit "$?"\\n' "$(cat)" "${*@Q}"
}
here() { as_function "$@" | bash -s; }"""
_NEAR = """\
HOST=local
as_root() { as_function "$@" | sudo bash -s; }"""
_FAR = """\
on_host() { as_function "$@" | at_host exec /bin/bash -s; }
as_root() { as_function "$@" | at_host sudo /bin/bash -s; }"""


def _opening(words: tuple[str, ...]) -> str:
    """What the steps below it call."""
    if not words:
        return f"{_OPENING}\n{_NEAR}"
    *options, address = words
    ssh = " ".join(map(quote, ("ssh", *options)))
    lines = [f"HOST={quote(address)}", f"export RSYNC_RSH={quote(ssh)}"]
    return "\n".join([_OPENING, *lines, f'at_host() {{ {ssh} "$HOST" "$@"; }}', _FAR])


def _show(step: Step, number: int, far: bool) -> str:
    place = "" if step.where == "host" else " (on the controller)"
    leaves = f"\n# leaves {step.creates}" if step.creates else ""
    text = _text(step.action, far and step.where == "host")
    return f"\n# {number}. {step.title}{place}{leaves}\n{text}"


def _text(action: Action, far: bool) -> str:
    match action:
        case WriteFile(path, content, mode, secret):
            body = "# (secret values are not shown)\n" if secret else content
            install = f"install -D -m {mode:o} /dev/stdin {quote(path)}"
            return _fed(f"at_host {quote(install)}" if far else install, body)
        case Ship(files):
            return _shipping(files, far)
        case Run(script):
            return _script(script, far)
        case Watch(_, script):
            # A verb of ours looks from here.
            away = far and not script.text.startswith("invoke ")
            return _script(script, far) if away else script.text.rstrip("\n")
        case Job() as job:
            return _job(job, far)
        case Jobs(jobs):
            beside = f"# {len(jobs)} jobs side by side; one that fails lets the others end"
            return "\n".join([beside, *(_job(job, far) for job in jobs)])


def _job(job: Job, far: bool) -> str:
    ceiling = f", at most {job.memory_mib} MiB of memory" if job.memory_mib else ""
    head = f"# detached job {job.id}{ceiling}; a lost link does not stop it"
    return f"{head}\n{_script(job.script, far)}"


def _shipping(files: Iterable[ShipFile], far: bool) -> str:
    """A line for each folder; a file that gets another name there has a line of its own."""
    blocks: dict[PurePosixPath, list[ShipFile]] = {}
    for file in files:
        same = file.source.name == file.target.name
        blocks.setdefault(file.target.parent if same else file.target, []).append(file)
    return "\n".join(_block(place, block, far) for place, block in blocks.items())


def _block(place: PurePosixPath, files: Sequence[ShipFile], far: bool) -> str:
    sums = "\n".join(f"# sha256 {file.sha256[:12]} {file.target.name}" for file in files)
    sources = " ".join(quote(file.source) for file in files)
    folder = place != files[0].target
    if far:
        line = f'rsync -W --mkpath {sources} "$HOST":{quote(f"{place}/" if folder else place)}'
    elif folder:
        line = f"install -D -m 644 -t {quote(place)} {sources}"
    else:
        line = f"install -D -m 644 {sources} {quote(place)}"
    return f"{sums}\n{line}"


def _script(script: Script, far: bool) -> str:
    place = "on_host" if far else "here"
    words = [quote(arg) for arg in script.args]
    env = "".join(f"export {assignments({key: value})}\n" for key, value in script.env.items())
    return _fed(" ".join(["as_root" if script.sudo else place, *words]), env + script.text)


def _fed(command: str, text: str) -> str:
    """A command with a text for its standard input; no line of the text ends it early."""
    text = text.rstrip("\n")
    end = "EOF"
    while end in text.split("\n"):
        end += "_"
    return f"{command} <<'{end}'\n{text}\n{end}"
