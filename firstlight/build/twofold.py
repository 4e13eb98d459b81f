"""The build room: the plan that builds one component in two places, and what compares them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import PurePosixPath

from firstlight.build.capacity import share
from firstlight.build.compiling import compile_job, need, tool
from firstlight.build.order import Order, artifacts
from firstlight.build.scripts import COMPARE
from firstlight.build.steps import Site, artifact_steps
from firstlight.core.command import Script
from firstlight.core.plan import Run, Step

COMPARER = "compare_wheels.py"
_CLEAR = 'rm -rf -- "$@"\n'


def uncached(order: Order) -> Order:
    """The order without a compiler cache, which would give the second build the first one's."""
    stack = order.stack.model_copy(update={"compiler_cache": "off"})
    return dataclasses.replace(order, stack=stack)


def places(order: Order, component: str) -> tuple[PurePosixPath, PurePosixPath]:
    """Where the two builds go; nothing is served from there."""
    name = artifacts(order)[component].path.name
    folder = order.layout.root / "twice"
    return folder / f"{name}-first", folder / f"{name}-second"


def twofold_steps(order: Order, component: str, site: Site) -> Iterator[Step]:
    """The steps from what a host has to two builds of a component; one after the other."""
    order = uncached(order)
    choice = order.choices[component]
    own = artifacts(order)[component].path.name
    # As if it were missing: what it is made of and with must be there.
    bare = dataclasses.replace(site, artifacts=site.artifacts - {own})
    for step in artifact_steps(order, bare):
        if step.id not in (f"request-{component}", f"build-{component}"):
            yield step
    for which, home in zip(("first", "second"), places(order, component), strict=True):
        given = share(site.room, [need(choice, order)])[0]
        asked, job = compile_job(order, choice, given, site.builder, home)
        title = f"say how {component} is built, {which} place"
        yield Step(f"request-{which}", title, asked, creates=asked.path)
        title = f"build {component} {choice.version}, {which} place"
        yield Step(f"build-{which}", title, job, creates=home)


def compare(order: Order, component: str, python: str) -> Script:
    """Print what compare_wheels.py says of the two."""
    program = str(order.programs[COMPARER].target)
    first, second = places(order, component)
    return Script(COMPARE, (python, program, tool(order, "pyelftools"), str(first), str(second)))


def clear_step(order: Order, component: str) -> Step:
    """Remove both builds, and none of another component."""
    folders = tuple(str(place) for place in places(order, component))
    return Step("clear", "remove both builds", Run(Script(_CLEAR, folders)))
