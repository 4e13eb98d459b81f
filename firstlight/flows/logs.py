"""`invoke logs`: a server's log by offset, so that no line is lost or doubled by a broken link."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import recipes, server
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.inventory import UnknownName
from firstlight.serve import launch

_PAUSE_S = 0.5


def run(
    root: Path,
    console: Console,
    *,
    profile: str = "",
    host: str = "",
    follow: bool = False,
    lines: str = "100",
) -> Report:
    """The last lines of a server's present start; with `follow`, go on until Ctrl-C."""
    if not lines.isdecimal():
        raise UnknownName(f"--lines takes a whole number; got {lines!r}")
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    name = recipes.profile_name(inventory, target, profile)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        service = server.service(server.last_started(shell, seen, name), seen.root)
        text, offset = _whole(shell, service)
        shown = text.splitlines()[-int(lines) :] if int(lines) else []
        if follow:
            console.plain("".join(f"{line}\n" for line in shown))
            _follow(shell, service, offset, console)
            return Report("")
    return Report("\n".join(shown), {"profile": name, "lines": shown})


def _whole(shell: Shell, service: launch.Deployment) -> tuple[str, str]:
    data, offset = b"", ""
    while piece := server.chunk(shell, service, offset):
        offset = piece.next_offset
        if not piece.data:
            break
        data += piece.data
    return data.decode("utf-8", "replace"), offset


def _follow(shell: Shell, service: launch.Deployment, offset: str, console: Console) -> None:
    at, rest = offset, b""
    while True:
        piece = server.across(shell, console, partial(server.chunk, shell, service, at))
        at = piece.next_offset
        *whole, rest = (rest + piece.data).split(b"\n")
        console.plain("".join(f"{line.decode('utf-8', 'replace')}\n" for line in whole))
        if piece.state.over and not piece.data:
            console.say(f"the server is {piece.state.condition}: {piece.state.detail or 'stopped'}")
            return
        if not piece.data:
            console.plain("")
            time.sleep(_PAUSE_S)
