"""What is to be built on one host, and the ground for a plan of it: for `build` and `--twice`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.build.capacity import room
from firstlight.build.order import Order
from firstlight.build.recipe import Python
from firstlight.build.steps import Site
from firstlight.build.toolkit import lacks, probe, read_probe, require_toolkit
from firstlight.core.plan import Plan, Ship, Step
from firstlight.effects import execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs
from firstlight.flows.facts import ask_facts
from firstlight.flows.ground import Ground, prepare
from firstlight.flows.hold import held, hold_steps
from firstlight.flows.orders import Wish, chosen, on_this_host, root_steps
from firstlight.hosts.facts import Facts
from firstlight.hosts.inventory import Inventory
from firstlight.hosts.survey import Survey


@dataclass(frozen=True)
class Task:
    """An order for one of a host's Pythons, whose path there is `python`."""

    shell: Shell
    inventory: Inventory
    order: Order
    python: str
    facts: Facts

    @property
    def host(self) -> str:
        """What messages call the host."""
        return self.shell.host.name


def task(
    orders: Mapping[Python, Order], shell: Shell, inventory: Inventory, seen: Survey, wish: Wish
) -> Task:
    """The order that suits a host best; raises HostError when none does."""
    facts = ask_facts(shell, seen.root)
    order, python = chosen(orders, facts, shell.host.name)
    order = on_this_host(order, facts, shell.host.name, wish.arch)
    return Task(shell, inventory, order, python, facts)


def require_host_toolkit(task: Task, console: Console) -> None:
    """Say what the host's own CUDA toolkit lacks, where a stack takes that.

    Raises HostError when no build can stand on it.
    """
    if not task.order.host_toolkit:
        return
    home, cuda = PurePosixPath(task.order.host_toolkit), task.order.stack.cuda
    told = read_probe(home, task.shell.run(probe(home)).text)
    require_toolkit(told, cuda, task.host)
    if missing := lacks(told, cuda):
        console.say(f"warning: {missing}")


def begin(task: Task, seen: Survey, console: Console, dry_run: bool) -> tuple[Step, ...]:
    """Make the root where only root may, or give the steps that would.

    Finding out who downloads needs that folder, so it cannot wait for the plan.
    """
    steps = root_steps(seen, task.facts, task.host)
    if steps and not dry_run:
        here = execute.Site(task.shell, seen.root, programs.supervisor(seen.root))
        execute.execute(Plan("build", task.host, steps), {"host": here}, console)
    return steps


def ground(task: Task, seen: Survey, console: Console, dry_run: bool) -> tuple[Ground, Site]:
    """Where everything comes from and lies, as the host was seen."""
    order = task.order
    by = (order.python, task.python)
    wheels = order.lock.pythons[order.python].wheels or order.lock.tools
    indexes = order.stack.indexes
    found = prepare(task.shell, task.inventory, seen, by, wheels, indexes, console, dry_run)
    spare = room(task.facts)
    site = Site(seen.releases, seen.artifacts, found.depot, found.sourcing, spare, task.host)
    return found, site


def framed(plan: Plan, first: tuple[Step, ...], ground: Ground, what: tuple[str, str]) -> Plan:
    """A plan that is shown, with what is done before and after it; `what` is as for `holding`."""
    if not plan.steps:
        return plan
    take, let_go = hold_steps(ground.sites["host"].root, *what)
    return Plan(plan.verb, plan.host, (*first, take, *plan.steps, let_go), plan.done)


@contextlib.contextmanager
def holding(ground: Ground, plan: Plan, what: tuple[str, str], console: Console) -> Iterator[None]:
    """Hold the host, and this machine where it downloads for the host or sends it what it has.

    `what` is the name of the hold and how people read it. What was seen before may be gone by
    then; nothing is pruned from then on.
    """
    host, here = ground.sites["host"], ground.sites["controller"]
    with contextlib.ExitStack() as holds:
        holds.enter_context(held(host.shell, host.root, *what, console))
        if not host.shell.host.is_local and _takes_from(plan, here.root):
            holds.enter_context(held(here.shell, here.root, *what, console))
        yield


def _takes_from(plan: Plan, here: PurePosixPath) -> bool:
    """True when a plan counts on what lies below this machine's own root."""
    sent = [
        file for step in plan.steps if isinstance(step.action, Ship) for file in step.action.files
    ]
    fetches = any(step.where == "controller" for step in plan.steps)
    return fetches or any(PurePosixPath(file.source).is_relative_to(here) for file in sent)
