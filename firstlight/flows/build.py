"""`invoke build`: from a stack and its lock to a complete release on a host."""

from __future__ import annotations

from pathlib import Path

from firstlight.build.capacity import room
from firstlight.build.order import Order, artifacts, release_of
from firstlight.build.steps import Site, artifact_steps, build_done, build_steps, compiled
from firstlight.core.errors import StepError
from firstlight.core.plan import Plan, preview
from firstlight.core.report import Report
from firstlight.core.words import span
from firstlight.effects import catalog, execute, jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.facts import ask_facts
from firstlight.flows.failures import explained, known
from firstlight.flows.ground import Ground, prepare
from firstlight.flows.orders import (
    Wish,
    built_release,
    chosen,
    look_ahead,
    on_this_host,
    root_steps,
    wished,
)
from firstlight.flows.reach import look, opener, reached
from firstlight.flows.twice import both
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.hosts.survey import Survey

BUILD_JOBS = ("fetch-", "toolkit-", "build-", "repack-", "release-")


def run(
    root: Path,
    console: Console,
    *,
    host: str = "",
    stack: str = "",
    profile: str = "",
    component: str = "",
    arch: str = "",
    twice: bool = False,
    cancel: bool = False,
    dry_run: bool = False,
) -> Report:
    """Build what is missing; when nothing is, say so after one round trip.

    `component` builds that one and what it needs, and no release; `twice` builds it in two places
    and compares. `arch` says for a host without a GPU that it builds for others.
    """
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    if cancel:
        _require_alone(stack or profile or component or arch or twice)
        return _cancel(inventory, target, console, dry_run)
    if twice and not component:
        raise UnknownName("--twice builds one component in two places", remedy="say --component C")
    name = stack or _stack_of(root, recipes.profile_name(inventory, target, profile))
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        story = both if twice else build
        wish = Wish(name, component, arch)
        return story(root, console, shell, inventory, wish, seen, dry_run)


def _require_alone(others: str | bool) -> None:
    """A person who names one component must not see the builds of all others end."""
    if others:
        raise UnknownName(
            "--cancel ends every build of a host, whatever it builds",
            remedy="say it with --host alone",
        )


def _cancel(inventory: Inventory, target: Host, console: Console, dry_run: bool) -> Report:
    """End what builds on a host, and what this machine downloads for it."""
    end = _running if dry_run else cancel_builds
    with reached(opener(inventory, target, console), console) as shell:
        ended = end(shell, look(shell), BUILD_JOBS, console)
    if not target.is_local:
        with reached(opener(inventory, inventory.hosts["local"], console), console) as here:
            ended += end(here, look(here), BUILD_JOBS[:1], console)
    done = "would end" if dry_run else "ended"
    text = f"{done} {len(ended)} job(s)" if ended else "no build runs"
    return Report(f"{target.name}: {text}", {"ended": [] if dry_run else ended})


def build(
    root: Path,
    console: Console,
    shell: Shell,
    inventory: Inventory,
    wish: Wish,
    seen: Survey,
    dry_run: bool,
) -> Report:
    """Build a stack on a host that was looked at; the report's data names the release."""
    name, component = shell.host.name, wish.component
    orders = wished(root, wish, seen.root)
    built = None if component else built_release(orders, seen)
    if built is not None:
        plan = Plan("build", name, done=(f"release {built}",))
        text = preview(plan) if dry_run else f"{name}: release {built} is in place"
        return Report(text, {"release": built, "built": False})
    facts = ask_facts(shell, seen.root)
    order, python = chosen(orders, facts, name)
    order = on_this_host(order, facts, name, wish.arch)
    first = root_steps(seen, facts, name)
    if first and not dry_run:
        # Finding out who downloads needs the folder, so it cannot wait for the plan.
        here = execute.Site(shell, seen.root, programs.supervisor(seen.root))
        execute.execute(Plan("build", name, first), {"host": here}, console)
        first = ()
    wheels = order.lock.pythons[order.python].wheels or order.lock.tools
    by, indexes = (order.python, python), order.stack.indexes
    ground = prepare(shell, inventory, seen, by, wheels, indexes, console, dry_run)
    site = Site(seen.releases, seen.artifacts, ground.depot, ground.sourcing, room(facts))
    wanted = artifact_steps(order, site) if component else build_steps(order, site)
    plan = Plan("build", name, (*first, *wanted), build_done(order, site))
    told, data = _told(order, component, name), {"release": release_of(order), "built": False}
    if dry_run or not plan.steps:
        return Report(preview(plan) if dry_run else f"{told} is in place", data)
    look_ahead(compiled(order, site), facts, name, console)
    took = _carry_out(root, plan, ground, order, console)
    return Report(f"{told} is built ({took})", {**data, "built": True})


def _carry_out(root: Path, plan: Plan, ground: Ground, order: Order, console: Console) -> str:
    """Do the plan; how long it took. A failure is told with what is known of its kind."""
    rules = known(root, "build")
    console.say(f"{plan.host}: building {order.stack.title}")
    for line in plan.done:
        console.say(f"in place: {line}")
    try:
        outcomes = execute.execute(plan, ground.sites, console)
    except StepError as error:
        raise explained(error, ground.sites, rules) from None
    return span(sum(outcome.seconds for outcome in outcomes))


def _told(order: Order, component: str, host: str) -> str:
    if component:
        return f"{host}: {artifacts(order)[component].path}"
    return f"{host}: release {release_of(order)}"


def cancel_builds(
    shell: Shell, seen: Survey, kinds: tuple[str, ...], console: Console
) -> list[str]:
    """End every job of these kinds that runs there, with all that it started; their ids."""
    running = sorted(job for job in seen.jobs if job.startswith(kinds))
    for job in running:
        console.say(f"ending {job} on {shell.host.name}")
        left = jobs.cancel(shell, seen.root, job)
        console.say(f"  ended; {left} of its processes are left")
    return running


def _running(shell: Shell, seen: Survey, kinds: tuple[str, ...], console: Console) -> list[str]:
    """What cancel_builds would end; nothing is done."""
    running = sorted(job for job in seen.jobs if job.startswith(kinds))
    for job in running:
        console.say(f"# would end {job} on {shell.host.name}")
    return running


def _stack_of(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack
