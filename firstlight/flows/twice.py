"""The flow of `invoke build --component C --twice`: is a build the same bytes in two places?"""

from __future__ import annotations

from pathlib import Path

from firstlight.build.capacity import room
from firstlight.build.compiling import need
from firstlight.build.order import Order
from firstlight.build.steps import Site
from firstlight.build.twice import read_comparison, render_comparison
from firstlight.build.twofold import clear_step, compare, twofold_steps
from firstlight.core.errors import ProofError, StepError
from firstlight.core.plan import Plan, preview
from firstlight.core.report import Report
from firstlight.effects import execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows.facts import ask_facts
from firstlight.flows.failures import explained, known
from firstlight.flows.ground import prepare
from firstlight.flows.orders import Wish, chosen, look_ahead, on_this_host, wished
from firstlight.hosts.inventory import Inventory, UnknownName
from firstlight.hosts.survey import Survey


def _require_source(order: Order, component: str) -> None:
    if not order.choices[component].from_source:
        raise UnknownName(
            f"{component} is not built from source", remedy="--twice compares builds from source"
        )


def both(
    root: Path,
    console: Console,
    shell: Shell,
    inventory: Inventory,
    wish: Wish,
    seen: Survey,
    dry_run: bool,
) -> Report:
    """Build a component in two places, compare the wheels, and remove both."""
    host, facts = shell.host.name, ask_facts(shell, seen.root)
    component, orders = wish.component, wished(root, wish, seen.root)
    order, python = chosen(orders, facts, host)
    _require_source(order, component)
    order = on_this_host(order, facts, host, wish.arch)
    by, indexes = (order.python, python), order.stack.indexes
    ground = prepare(shell, inventory, seen, by, order.lock.tools, indexes, console, dry_run)
    site = Site(seen.releases, seen.artifacts, ground.depot, ground.sourcing, room(facts))
    plan = Plan("build", host, tuple(twofold_steps(order, component, site)))
    if dry_run:
        return Report(preview(plan), {"component": component})
    need_of = need(order.choices[component], order)
    look_ahead((need_of,), facts, host, console)
    rules = known(root, "build")
    try:
        execute.execute(plan, ground.sites, console)
    except StepError as error:
        raise explained(error, ground.sites, rules) from None
    result = shell.run(compare(order, component, python), timeout_s=900)
    if not result.ok:
        raise StepError("cannot compare the two wheels", where=host, log=result.error_text)
    told = read_comparison(result.text, host)
    execute.execute(Plan("build", host, (clear_step(order, component),)), ground.sites, console)
    text = render_comparison(told, ("the first build", "the second build"))
    if not told.equal:
        raise ProofError(f"{component} is not the same twice: {text}", where=host)
    return Report(f"{host}: {component}: {text}", {"equal": True, "sha256": told.sha256[0]})
