"""What of a profile ran before its deploy: which server makes room, and which one comes back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import server
from firstlight.hosts.survey import Survey
from firstlight.serve import launch
from firstlight.serve.manifest import Damaged, Manifest, current
from firstlight.serve.running import ServerState


@dataclass(frozen=True)
class Before:
    """`old` runs now and would be replaced; `back` is to be started again where the deploy fails.

    They differ where a deploy was left before its end: what it had started was never proved.
    """

    old: Manifest | None = None
    back: Manifest | None = None

    def services(
        self, root: PurePosixPath
    ) -> tuple[launch.Deployment | None, launch.Deployment | None]:
        """Both as their launchers know them."""
        old, back = (server.service(one, root) if one else None for one in (self.old, self.back))
        return old, back


def look_before(shell: Shell, seen: Survey, new: Manifest, console: Console) -> Before:
    """Which servers of the profile its deployment `new` has to do with."""
    last, proved = _last(shell, seen, new, console), _proved(seen, new, shell.host.name)
    if last is None:
        return Before()
    state, back = server.state(shell, server.service(last, seen.root)), proved or last
    return Before(
        old=last if last.id != new.id and state.may_run else None,
        back=back if back.id != new.id and _gave_way(back, last, state) else None,
    )


def _gave_way(back: Manifest, last: Manifest, state: ServerState) -> bool:
    """True where a server runs, or died that was started in the place of the proved one: what
    somebody stopped stays stopped."""
    return state.may_run or (back.id != last.id and state.condition != "stopped")


def _last(shell: Shell, seen: Survey, new: Manifest, console: Console) -> Manifest | None:
    """The deployment that was started last: the current one, unless a deploy was left early."""
    found = seen.deployments.get(new.profile)
    if found is None or not found.started:
        return None
    try:
        return server.last_started(shell, seen, new.profile)
    except Damaged as error:
        if found.started != new.id:
            console.say(f"# {error.what}; if its server runs, it is not stopped")
        return None


def _proved(seen: Survey, new: Manifest, host: str) -> Manifest | None:
    try:
        return current(seen, new.profile, host)
    except Damaged:
        return None
