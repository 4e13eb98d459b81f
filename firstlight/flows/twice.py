"""The flow of `invoke build --component C --twice`: is a build the same bytes in two places?"""

from __future__ import annotations

from pathlib import Path

from firstlight.build.compiling import need
from firstlight.build.order import Order
from firstlight.build.steps import Site
from firstlight.build.twice import Comparison, read_comparison, render_comparison
from firstlight.build.twofold import clear_step, compare, twofold_steps
from firstlight.core.errors import ProofError, StepError
from firstlight.core.plan import Plan, Run, Step, preview
from firstlight.core.report import Report
from firstlight.effects import execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows.dial import dial
from firstlight.flows.failures import explained, known
from firstlight.flows.ground import Ground
from firstlight.flows.orders import Wish, look_ahead, wished
from firstlight.flows.reach import look
from firstlight.flows.task import Task, begin, framed, ground, holding, require_host_toolkit
from firstlight.flows.task import task as task_of
from firstlight.hosts.inventory import Inventory, UnknownName
from firstlight.hosts.survey import Survey

COMPARING_S = 900.0


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
    component = wish.component
    task = task_of(wished(root, wish, seen.root), shell, inventory, seen, wish)
    _require_source(task.order, component)
    first = begin(task, seen, console, dry_run)
    found, site = ground(task, seen, console, dry_run)
    what = (f"twice-{component}", f"build of {component} in two places")
    steps = (*_steps(task, component, site), *_after(task, component))
    plan = Plan("build", task.host, steps)
    if dry_run:
        shown = framed(plan, first, found, what)
        text = preview(shown, dial(shell.host, inventory.hosts))
        return Report(text, {"component": component})
    require_host_toolkit(task, console)
    look_ahead((need(task.order.choices[component], task.order),), task.facts, task.host, console)
    with holding(found, plan, what, console):
        found, site = ground(task, look(shell), console, dry_run)
        told = _compared(root, task, component, found, site, console)
    text = render_comparison(told, ("the first build", "the second build"))
    if not told.equal:
        raise ProofError(f"{component} is not the same twice: {text}", where=task.host)
    return Report(f"{task.host}: {component}: {text}", {"equal": True, "sha256": told.sha256[0]})


def _compared(
    root: Path, task: Task, component: str, found: Ground, site: Site, console: Console
) -> Comparison:
    """Build both, look at them, remove them."""
    rules = known(root, "build")
    plan = Plan("build", task.host, _steps(task, component, site))
    try:
        execute.execute(plan, found.sites, console)
    except StepError as error:
        raise explained(error, found.sites, rules) from None
    result = task.shell.run(compare(task.order, component, task.python), COMPARING_S)
    if not result.ok:
        raise StepError("cannot compare the two wheels", where=task.host, log=result.error_text)
    told = read_comparison(result.text, task.host)
    clear = Plan("build", task.host, (clear_step(task.order, component),))
    execute.execute(clear, found.sites, console)
    return told


def _steps(task: Task, component: str, site: Site) -> tuple[Step, ...]:
    return tuple(twofold_steps(task.order, component, site))


def _after(task: Task, component: str) -> tuple[Step, Step]:
    """What follows the two builds, for a plan that is shown."""
    script = compare(task.order, component, task.python)
    look = Step("compare", "compare the two wheels", Run(script, COMPARING_S))
    return look, clear_step(task.order, component)
