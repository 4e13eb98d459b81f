"""`invoke build`: from a stack and its lock to a complete release on a host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from firstlight import __version__
from firstlight.build.base import require_base
from firstlight.build.order import Order, release_of
from firstlight.build.recipe import Python, patches_for
from firstlight.build.release import Layout, Patch
from firstlight.build.steps import Site, build_done, build_steps
from firstlight.core.command import Command, Script
from firstlight.core.errors import HostError
from firstlight.core.plan import Plan, Run, Step, preview
from firstlight.core.report import Report
from firstlight.core.words import span
from firstlight.effects import catalog, execute, jobs, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.facts import ask_facts
from firstlight.flows.ground import prepare
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts import pythons
from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.inventory import Inventory
from firstlight.hosts.survey import Survey

BUILD_JOBS = ("fetch-", "repack-", "release-")


def run(
    root: Path,
    console: Console,
    *,
    host: str = "",
    stack: str = "",
    profile: str = "",
    cancel: bool = False,
    dry_run: bool = False,
) -> Report:
    """Build what is missing; when nothing is, say so after one round trip."""
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    if cancel:
        with reached(opener(inventory, target, console), console) as shell:
            ended = cancel_builds(shell, look(shell), BUILD_JOBS, console)
        if not target.is_local:
            # What downloads for a host may run here.
            with reached(opener(inventory, inventory.hosts["local"], console), console) as here:
                ended += cancel_builds(here, look(here), BUILD_JOBS[:1], console)
        text = f"ended {len(ended)} job(s)" if ended else "no build runs"
        return Report(f"{target.name}: {text}", {"ended": ended})
    name = stack or _stack_of(root, recipes.profile_name(inventory, target, profile))
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        return build(root, console, shell, inventory, name, seen, dry_run)


def build(
    root: Path,
    console: Console,
    shell: Shell,
    inventory: Inventory,
    stack: str,
    seen: Survey,
    dry_run: bool,
) -> Report:
    """Build a stack on a host that was looked at; the report's data names the release."""
    name, orders = shell.host.name, all_orders(root, stack, seen.root)
    built = built_release(orders, seen)
    if built is not None:
        plan = Plan("build", name, done=(f"release {built}",))
        text = preview(plan) if dry_run else f"{name}: release {built} is in place"
        return Report(text, {"release": built, "built": False})
    facts = ask_facts(shell, seen.root)
    order, python = _chosen(orders, facts, name)
    first = root_steps(seen, facts, name)
    if first and not dry_run:
        # Finding out who downloads needs the folder, so it cannot wait for the plan.
        here = execute.Site(shell, seen.root, programs.supervisor(seen.root))
        execute.execute(Plan("build", name, first), {"host": here}, console)
        first = ()
    series, indexes = order.python, order.stack.indexes
    wheels = order.lock.pythons[series].wheels
    ground = prepare(shell, inventory, seen, (series, python), wheels, indexes, console, dry_run)
    site = Site(seen.releases, seen.artifacts, ground.depot)
    steps = (*first, *build_steps(order, site))
    plan = Plan("build", name, steps, build_done(order, site))
    if dry_run:
        return Report(preview(plan), {"release": release_of(order), "built": False})
    console.say(f"{name}: building {order.stack.title}")
    for line in plan.done:
        console.say(f"in place: {line}")
    outcomes = execute.execute(plan, ground.sites, console)
    took = span(sum(outcome.seconds for outcome in outcomes))
    data = {"release": release_of(order), "built": True}
    return Report(f"{name}: release {release_of(order)} is built ({took})", data)


def all_orders(root: Path, stack: str, host_root: PurePosixPath) -> dict[Python, Order]:
    """What building the stack would mean for each CPython, the most wanted first."""
    document, components = recipes.stack(root, stack)
    lock = recipes.locked(root, document, components)
    registry = recipes.checked_registry(root, components)
    patches = {
        name: tuple(_patch(root, e.file, e.load_bearing) for e in found)
        for name in document.value.components
        if (found := patches_for(registry, components[name], stack)) is not None
    }
    shipped, layout = programs.shipped(host_root), Layout(host_root)
    return {
        python: Order(
            document.value, components, lock, python, patches, shipped, layout, __version__
        )
        for python in document.value.python
    }


def built_release(orders: Mapping[Python, Order], seen: Survey) -> str | None:
    """The release that is on the host already, whichever CPython it is for."""
    ids = (release_of(order) for order in orders.values())
    return next((release for release in ids if release in seen.releases), None)


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


def _patch(root: Path, file: str, load_bearing: bool) -> Patch:
    path = root / "patches" / file
    return Patch(file, path, library.sha256(path), load_bearing)


def _chosen(orders: Mapping[Python, Order], facts: Facts, host: str) -> tuple[Order, str]:
    """The order for the CPython that the stack wants most of those the host has, and its path."""
    stack = next(iter(orders.values())).stack
    require_base(stack, facts.system.arch or "", facts.system.glibc or "0", host)
    for series, order in orders.items():
        found = python_for(facts, [series])
        if isinstance(found, pythons.Python):
            return order, str(found.path)
    trouble = python_for(facts, stack.python)
    assert not isinstance(trouble, pythons.Python)
    raise HostError(trouble.what, where=host, remedy=trouble.fix)


def root_steps(seen: Survey, facts: Facts, host: str) -> tuple[Step, ...]:
    """The step that makes the root folder where only root may; none where we may ourselves."""
    if seen.writable:
        return ()
    make = Command(("install", "-d", "-o", seen.user, str(seen.root)))
    if facts.sudo.kind in ("passwordless", "password"):
        return (Step("root", f"make {seen.root}, as root", Run(Script(make.line(), sudo=True))),)
    raise HostError(
        f"user {seen.user} may not write in {seen.blocked_at}, where {seen.root} would be",
        where=host,
        remedy=f"let root run there: {make.line()}; or set another root for it in inventory/",
    )


def _stack_of(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack
