"""A plan is a list of steps; a step is a value that a person can read before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from firstlight.core.command import Command, Script, quote


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

    `lock` names what no two jobs of one host may change at once ("" = nothing).
    """

    id: str
    script: Script
    lock: str = ""


@dataclass(frozen=True)
class Watch:
    """Something that the controller looks at until it is so, or says why it is not.

    `script` is what a person would type to see the same; the run looks closer than that.
    """

    name: str
    script: Script


Action = WriteFile | Ship | Run | Job | Watch


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
    done: tuple[str, ...] = field(default=())


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
            return f"install -D -m {mode:o} /dev/stdin {quote(path)} <<'EOF'\n{body}EOF"
        case Ship(files):
            return "\n".join(_shipping(file) for file in files)
        case Run(script):
            return _script(script)
        case Watch(_, script):
            return script.text.rstrip("\n")
        case Job(id_, script):
            return f"# detached job {id_}; a lost link does not stop it\n{_script(script)}"


def _shipping(file: ShipFile) -> str:
    words = ("rsync", "-W", str(file.source), f"$HOST:{file.target}")
    return f"{Command(words).line()}  # sha256 {file.sha256[:12]}"


def _script(script: Script) -> str:
    words = " ".join(quote(arg) for arg in script.args)
    env = "".join(f"export {key}={quote(value)}\n" for key, value in script.env.items())
    text = script.text.rstrip("\n")
    shell = "sudo bash" if script.sudo else "bash"
    return f"{env}{shell} -s {words} <<'EOF'\n{text}\nEOF"
