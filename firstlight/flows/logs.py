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
from firstlight.flows.given import whole
from firstlight.flows.reach import look, opener, reached
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
    count = whole("--lines", lines)
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    name = recipes.profile_name(inventory, target, profile)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        server.require_named(root, seen, name)
        service = server.service(server.last_started(shell, seen, name), seen.root)
        shown, rest, offset = last_lines(shell, service, count)
        if follow:
            console.plain("".join(f"{line}\n" for line in map(_text, shown)))
            _follow(shell, service, offset, rest, console)
            return Report("")
    told = [_text(line) for line in [*shown, *([rest] if rest else [])]]
    told = told[-count:] if count else []
    return Report("\n".join(told), {"profile": name, "lines": told})


def last_lines(
    shell: Shell, service: launch.Deployment, count: int
) -> tuple[list[bytes], bytes, str]:
    """The last finished lines of a log, what was begun after them, and where to go on.

    A server that has served for months has said much: no more of it is held than is shown.
    """
    kept, offset = [b""], ""
    while data := (piece := server.chunk(shell, service, offset)).data:
        kept = (b"\n".join(kept) + data).split(b"\n")[-count - 1 :]
        offset = piece.next_offset
    *whole, rest = kept
    return whole, rest, offset


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _follow(
    shell: Shell, service: launch.Deployment, offset: str, rest: bytes, console: Console
) -> None:
    at = offset
    while True:
        piece = server.across(shell, console, partial(server.chunk, shell, service, at))
        at = piece.next_offset
        *whole, rest = (rest + piece.data).split(b"\n")
        console.plain("".join(f"{_text(line)}\n" for line in whole))
        if piece.state.over and not piece.data:
            console.plain(f"{_text(rest)}\n" if rest else "")
            console.say(f"the server is {piece.state.condition}: {piece.state.detail or 'stopped'}")
            return
        if not piece.data:
            console.plain("")
            time.sleep(_PAUSE_S)
