"""What it takes to plan the build of a stack on a bare host: milliseconds of CPU, in a new process.

    python -m benchmarks.planning [STACK]

Prints JSON: `read` from the recipes and the lock to orders, with every check of them; `plan` from
an order to the steps of a host that has nothing yet. Modules are loaded before that.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path, PurePosixPath

from firstlight.build.capacity import Room
from firstlight.build.fetch import Controller, Depot
from firstlight.build.order import Order
from firstlight.build.release import Layout
from firstlight.build.sourcing import Shelf, Sourcing
from firstlight.build.steps import Site, build_steps
from firstlight.flows import programs
from firstlight.flows.orders import all_orders

PROJECT = Path(__file__).parent.parent
ROOT = PurePosixPath("/opt/firstlight")
STACK = "kernels-cu130-sm120"
NOTHING: frozenset[str] = frozenset()


def main() -> None:
    begin = time.process_time()
    orders = all_orders(PROJECT, (sys.argv[1:] or [STACK])[0], ROOT)
    read = time.process_time()
    order = next(iter(orders.values()))
    steps = build_steps(order, site(order))
    planned = time.process_time()
    told = {"read": 1e3 * (read - begin), "plan": 1e3 * (planned - read), "steps": len(steps)}
    print(json.dumps(told))


def site(order: Order) -> Site:
    """A host that has nothing and downloads by itself."""
    layout, python = Layout(ROOT), "/usr/bin/python3"
    mine = Controller(python, layout, NOTHING)
    program = programs.shipped(ROOT)["fetch_wheels.py"]
    depot = Depot(order.python, python, program, layout, NOTHING, "host", mine, {})
    shelf = Shelf(NOTHING, layout, python, "fetch_sources.py")
    sourcing = Sourcing(shelf, shelf, "host", {})
    return Site(NOTHING, NOTHING, depot, sourcing, Room(16, 128.0))


if __name__ == "__main__":
    main()
