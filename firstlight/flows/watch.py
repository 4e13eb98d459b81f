"""Watching a server start: its phases as they come, until it is ready or the log says why not."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

from firstlight.build.failures import SHOWN, Rules
from firstlight.build.loglines import clean
from firstlight.core.errors import StepError
from firstlight.core.words import span
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import server
from firstlight.serve import launch
from firstlight.serve.manifest import Manifest
from firstlight.serve.readiness import Limits, Moment, Process, Readiness, judge, phase_text
from firstlight.serve.running import ServerState
from firstlight.serve.serverlog import Phase, ServerLog, begin, feed, finish, newly_passed

_PAUSE_S = 0.5
_TAIL_LINES = 15
_BEHIND_TRIES = 10


@dataclass(frozen=True)
class _View:
    """What is known after a look; times are of the monotonic clock, in seconds."""

    log: ServerLog
    offset: str = ""
    health: tuple[int, ...] = ()
    since: float = 0.0
    changed: float = 0.0
    tail: tuple[str, ...] = ()


def until_ready(
    shell: Shell,
    deployment: launch.Deployment,
    found: Manifest,
    limits: Limits,
    rules: Rules,
    console: Console,
) -> ServerLog:
    """The log of the start once the server is ready; raises StepError with the log's cause."""
    now = time.monotonic()
    view = _View(begin(rules), since=now, changed=now)
    while True:
        before = view.log
        look = partial(_look, shell, deployment, found, view)
        view, state = server.across(shell, console, look)
        moment = _moment(view, state)
        verdict = judge(moment, limits)
        for phase in newly_passed(before, view.log):
            console.say(f"  {span(moment.elapsed_s):>11}  {phase}")
        if verdict.state == "ready":
            console.say(f"  {span(moment.elapsed_s):>11}  ready")
            return server.across(shell, console, partial(_start_log, shell, deployment))
        if verdict.state == "failed":
            raise _failure("did not start", verdict, view.tail, shell, deployment)
        console.note(phase_text(moment))
        time.sleep(_PAUSE_S)


def require_alive(shell: Shell, deployment: launch.Deployment, rules: Rules) -> None:
    """Raise StepError with the log's cause where a server that was ready does not run any more."""
    state = server.state(shell, deployment)
    if state.condition in ("starting", "running", "stopping"):
        return
    log, offset = begin(rules), ""
    while data := (piece := server.chunk(shell, deployment, offset)).data:
        log, offset = feed(log, data.decode("utf-8", "replace")), piece.next_offset
    verdict = judge(Moment(finish(log), _process(state)), Limits())
    raise _failure("could not be proved", verdict, (), shell, deployment)


def whole_log(deployment: launch.Deployment) -> str:
    """Where a server's log is on its host, for a person who logs in there."""
    if deployment.launcher == "systemd-system":
        return f"journalctl --unit {deployment.unit}"
    return f"{deployment.home}/log"


def _start_log(shell: Shell, deployment: launch.Deployment) -> ServerLog:
    """The whole start of a server that answers; what writes its log may be a moment behind it."""
    for _ in range(_BEHIND_TRIES):
        log = server.start_log(shell, deployment)
        if log.phase is Phase.READY:
            break
        time.sleep(_PAUSE_S)
    return log


def _look(
    shell: Shell, deployment: launch.Deployment, found: Manifest, view: _View
) -> tuple[_View, ServerState]:
    piece = server.chunk(shell, deployment, view.offset)
    text = piece.data.decode("utf-8", "replace")
    health = view.health
    if view.log.phase in (Phase.WARMUP, Phase.READY) or not text:
        health = (*view.health[-20:], server.healthy(shell, found.port).status)
    new = replace(
        view,
        log=feed(view.log, text),
        offset=piece.next_offset,
        health=health,
        changed=time.monotonic() if text else view.changed,
        tail=(*view.tail, *_spoken(text))[-_TAIL_LINES:],
    )
    return new, piece.state


def _spoken(text: str) -> list[str]:
    """Lines that say something, safe to print and no longer than a person reads."""
    lines = (clean(line).strip()[:SHOWN] for line in text.replace("\r", "\n").split("\n"))
    return [line for line in lines if line]


def _moment(view: _View, state: ServerState) -> Moment:
    now = time.monotonic()
    return Moment(view.log, _process(state), view.health, now - view.since, now - view.changed)


def _process(state: ServerState) -> Process:
    match state.condition:
        case "starting" | "running" | "stopping":
            return Process("running")
        case "restarting":
            return Process("restarting", state.rc)
        case "failed":
            return Process("failed", state.rc)
        case "missing":
            return Process("replaced")
    return Process("exited", state.rc, state.detail)


def _failure(
    what: str,
    verdict: Readiness,
    tail: tuple[str, ...],
    shell: Shell,
    deployment: launch.Deployment,
) -> StepError:
    host = shell.host.name
    evidence = f"log line {verdict.line}: {verdict.evidence}" if verdict.evidence else ""
    more = f"\n  -> more: {verdict.link}" if verdict.link else ""
    return StepError(
        f"the server of {deployment.profile} {what}: {verdict.text}",
        where=host,
        # `invoke logs` will show the server that comes back, so this one's log is named.
        remedy=f"{verdict.remedy}{more}\n  -> its whole log, on {host}: {whole_log(deployment)}",
        log=evidence or "\n".join(tail),
    )
