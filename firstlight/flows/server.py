"""A server on its host: its state, its log, and its answers, over whatever link there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

from firstlight.core.command import Script, typed
from firstlight.core.errors import ConnectionLost, HostError
from firstlight.core.schema import nearest
from firstlight.effects import catalog, http, jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.quick import HEALTH
from firstlight.hosts.inventory import UnknownName
from firstlight.hosts.survey import Survey
from firstlight.serve import launch, manifest, running
from firstlight.serve.manifest import Manifest
from firstlight.serve.running import LogChunk, ServerState
from firstlight.serve.serverlog import Phase, ServerLog, feed, finish

T = TypeVar("T")
_CHUNK = 1 << 20
# A start says some hundred KiB; what comes after 64 MiB is of a server that serves long since.
_MOST = 64 << 20
_COMES_BACK_S = 15.0


def require_current(seen: Survey, profile: str, host: str) -> Manifest:
    """The current deployment of a profile; raises HostError when it was never deployed."""
    found = manifest.current(seen, profile, host)
    if found is None:
        left = profile in seen.deployments
        near = nearest(profile, seen.deployments) or "; nothing is"
        what = (
            f"no deployment of profile {profile} was ever proved"
            if left
            else (f"profile {profile} is not deployed{near}")
        )
        again = typed("deploy", {"profile": profile, "host": host})
        raise HostError(what, where=host, remedy=again)
    return found


def require_named(root: Path, seen: Survey, profile: str) -> None:
    """Raises UnknownName for a profile that neither the project nor the host has."""
    known = {*catalog.names(root, recipes.PROFILES), *seen.deployments}
    if profile not in known:
        raise UnknownName(f"no profile {profile!r}{nearest(profile, known)}")


def require_running(shell: Shell, seen: Survey, profile: str) -> Manifest:
    """The current deployment of a profile, whose server runs; raises HostError where none does.

    Whoever answers on the port of a server that is stopped, it is not that server.
    """
    found = require_current(seen, profile, shell.host.name)
    condition = state(shell, service(found, seen.root)).condition
    if condition != "running":
        raise HostError(
            f"the server of {profile} does not run: it is {condition}",
            where=shell.host.name,
            remedy=typed("deploy", {"profile": profile, "host": shell.host.name}),
        )
    return found


def last_started(shell: Shell, seen: Survey, profile: str) -> Manifest:
    """The deployment that was started last: the current one, unless a deploy was left early.

    Raises Damaged where its manifest cannot be read.
    """
    found = seen.deployments.get(profile)
    if found is None or found.started in ("", found.current):
        return require_current(seen, profile, shell.host.name)
    path = manifest.home_of(seen.root, profile, found.started) / "manifest.json"
    result = shell.run(Script('cat -- "$1"', args=(str(path),)))
    try:
        data = json.loads(result.text) if result.ok else {}
    except ValueError:
        data = {}
    return manifest.read_manifest(data, shell.host.name)


def service(found: Manifest, root: PurePosixPath) -> launch.Deployment:
    """The deployment as its launcher knows it."""
    return manifest.service_of(found, root, root / "lib" / programs.folder_name())


def state(shell: Shell, deployment: launch.Deployment) -> ServerState:
    """How the server is: one round trip."""
    return running.parse_state(shell.run(running.state(deployment)).out, shell.host.name)


def settled(shell: Shell, deployment: launch.Deployment) -> ServerState:
    """How the server is; one that crashed a moment ago has the time to come back by itself."""
    give_up = time.monotonic() + _COMES_BACK_S
    while (found := state(shell, deployment)).condition == "restarting":
        if time.monotonic() > give_up:
            break
        time.sleep(0.5)
    return found


def chunk(shell: Shell, deployment: launch.Deployment, offset: str) -> LogChunk:
    """The next piece of the server's log, and its state: one round trip."""
    script = running.read_log(deployment, offset, _CHUNK)
    return running.parse_log(shell.run(script).out, shell.host.name)


def start_log(shell: Shell, deployment: launch.Deployment) -> ServerLog:
    """What the server's log says of its present start, up to the line that says ready."""
    log, offset, size = ServerLog(), "", 0
    while log.phase is not Phase.READY and size < _MOST:
        piece = chunk(shell, deployment, offset)
        if not piece.data:
            return finish(log)
        log, offset = feed(log, piece.data.decode("utf-8", "replace")), piece.next_offset
        size += len(piece.data)
    return log


def healthy(shell: Shell, port: int, timeout_s: float = 20.0) -> http.Reply:
    """Ask the server to generate one token; status 200 means that it can."""
    with shell.forward(port) as url:
        return http.get(url + HEALTH, timeout_s)


def across(shell: Shell, console: Console, look: Callable[[], T]) -> T:
    """What `look` gives, however often the link breaks meanwhile; the server does not mind."""
    while True:
        try:
            return look()
        except ConnectionLost as lost:
            console.say(f"{lost.what}; the server goes on")
            jobs.reconnect(shell, console.say)
