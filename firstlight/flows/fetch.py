"""The flow of `invoke fetch`: every source and wheel of a lock, onto this machine."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from firstlight.build.fetch import fetch_steps
from firstlight.build.lock import LockFile
from firstlight.build.recipe import Python, Stack
from firstlight.build.sourcing import source_steps
from firstlight.build.wheel import Wheel
from firstlight.core.plan import Plan, Ship, Step, preview
from firstlight.core.report import Report
from firstlight.effects import catalog, execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.ground import Ground, prepare
from firstlight.flows.lock import default_stack
from firstlight.flows.reach import look, opener, reached
from firstlight.flows.task import framed, holding
from firstlight.hosts.inventory import Inventory


def run(root: Path, console: Console, *, stack: str = "", dry_run: bool = False) -> Report:
    """Fetch what this machine lacks; what it has is shipped to hosts that do not download."""
    document, components = recipes.stack(root, stack or default_stack(root))
    lock = recipes.locked(root, document, components)
    inventory = catalog.inventory(root)
    with reached(opener(inventory, inventory.hosts["local"], console), console) as shell:
        lay = partial(_laid, document.value, lock, shell, inventory, console, dry_run)
        ground, plan = lay()
        what = (f"fetch-{document.value.name}", f"fetch of stack {document.value.name}")
        data = {"stack": document.value.name, "steps": len(plan.steps)}
        if dry_run:
            return Report(preview(framed(plan, (), ground, what)), data)
        if plan.steps:
            with holding(ground, plan, what, console):
                # What was seen before may have been pruned since.
                ground, plan = lay()
                execute.execute(plan, ground.sites, console)
    return Report(f"every source and wheel of {document.value.name} is on this machine", data)


def _laid(
    stack: Stack,
    lock: LockFile,
    shell: Shell,
    inventory: Inventory,
    console: Console,
    dry_run: bool,
) -> tuple[Ground, Plan]:
    """The plan for this machine as it is now, and the ground that it stands on."""
    by, seen = (stack.python[0], sys.executable), look(shell)
    ground = prepare(shell, inventory, seen, by, lock.tools, stack.indexes, console, dry_run)
    steps = tuple(_steps(stack, lock, ground))
    # A machine on which nothing was built yet has none of the programs that fetch.
    sent = Ship(tuple(programs.shipped(seen.root).values()))
    first = (Step("programs", "send the programs", sent),) if steps else ()
    return ground, Plan("fetch", "local", (*first, *steps))


def _steps(stack: Stack, lock: LockFile, ground: Ground) -> Iterator[Step]:
    archives = [one for held in lock.archives.values() for one in held]
    sources = {(one.sha256, one.file): one for one in archives}
    for number, step in enumerate(source_steps(sources.values(), ground.sourcing)):
        yield dataclasses.replace(step, id=f"{step.id}-{number}")
    for python in stack.python:
        depot = dataclasses.replace(ground.depot, series=python)
        for step in fetch_steps(_wheels(lock, python), depot):
            yield dataclasses.replace(step, title=f"{step.title}, for Python {python}")


def _wheels(lock: LockFile, python: Python) -> list[Wheel]:
    """Every wheel that a build for that CPython may read."""
    own = lock.pythons[python]
    tables = [*own.build.values(), *own.check.values()]
    found = [*lock.tools, *lock.toolkit, *own.wheels, *own.sources]
    found += [wheel for table in tables for wheel in table]
    return list({wheel.sha256: wheel for wheel in found}.values())
