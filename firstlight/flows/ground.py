"""The ground of a plan: who downloads, what is there already, and where steps run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.build.fetch import Controller, Depot, Where, request_text
from firstlight.build.release import Layout
from firstlight.build.source import mirrored
from firstlight.build.sourcing import Shelf, Sourcing
from firstlight.build.wheel import Wheel
from firstlight.effects import library
from firstlight.effects.console import Console
from firstlight.effects.execute import Site
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from firstlight.flows import programs
from firstlight.flows.reach import look
from firstlight.flows.route import known_route, try_route
from firstlight.hosts.inventory import Inventory
from firstlight.hosts.survey import Survey


@dataclass(frozen=True)
class Ground:
    """Where wheels and sources come from and where steps run, for one host."""

    depot: Depot
    sourcing: Sourcing
    sites: Mapping[str, Site]


def prepare(
    shell: Shell,
    inventory: Inventory,
    seen: Survey,
    python: tuple[str, str],
    wheels: Sequence[Wheel],
    indexes: Mapping[str, str],
    console: Console,
    dry_run: bool,
) -> Ground:
    """Look at this machine too, and find out who downloads; `python` is (series, path there)."""
    indexes = {name: mirrored(url, inventory.mirrors) for name, url in indexes.items()}
    request = request_text(wheels, python[0], indexes)
    here = shell if shell.host.is_local else open_shell(inventory.hosts["local"], {})
    mine = seen if shell.host.is_local else look(here)
    depot = Depot(
        series=python[0],
        python=python[1],
        program=programs.shipped(seen.root)["fetch_wheels.py"],
        layout=Layout(seen.root),
        wheels=seen.wheels,
        route=_route(shell, seen, request, python[1], console, dry_run),
        controller=Controller(sys.executable, Layout(mine.root), mine.wheels),
        indexes=indexes,
    )
    return Ground(depot, _sourcing(depot, seen, mine, inventory), _sites(shell, seen, here, mine))


def _sourcing(depot: Depot, seen: Survey, mine: Survey, inventory: Inventory) -> Sourcing:
    program = programs.shipped(seen.root)["fetch_sources.py"]
    there = Shelf(seen.sources, Layout(seen.root), depot.python, str(program.target))
    here = Shelf(mine.sources, Layout(mine.root), sys.executable, str(program.source))
    return Sourcing(there, here, depot.route, inventory.mirrors)


def _route(
    shell: Shell, seen: Survey, request: str, python: str, console: Console, dry_run: bool
) -> Where:
    known = known_route(shell.host, seen)
    if known is not None:
        return known
    if dry_run:
        console.say("# who downloads is not known yet; this plan assumes that the host does")
        return "host"
    return try_route(shell, seen, request, python, console)


def _sites(shell: Shell, seen: Survey, here: Shell, mine: Survey) -> dict[str, Site]:
    supervise = PurePosixPath(library.programs()["supervise.sh"])
    return {
        "host": Site(shell, seen.root, programs.supervisor(seen.root)),
        "controller": Site(here, mine.root, supervise),
    }
