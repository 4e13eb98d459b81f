"""`invoke build`: from a stack and its lock to a complete release on a host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from firstlight import __version__
from firstlight.build.base import require_base, require_cards
from firstlight.build.capacity import room
from firstlight.build.choose import choose, with_needs
from firstlight.build.order import Order, artifacts, release_of
from firstlight.build.recipe import Python, patches_for
from firstlight.build.release import Layout, Patch
from firstlight.build.steps import Site, artifact_steps, build_done, build_steps
from firstlight.build.toolkit import host_toolkit
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
from firstlight.flows.ground import Ground, prepare
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts import pythons
from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.inventory import Inventory
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
    cancel: bool = False,
    dry_run: bool = False,
) -> Report:
    """Build what is missing; when nothing is, say so after one round trip.

    `component` builds that one and what it needs, and no release. `arch` says for a host without
    a GPU that it builds for others.
    """
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
        return build(root, console, shell, inventory, name, seen, dry_run, component, arch)


def build(
    root: Path,
    console: Console,
    shell: Shell,
    inventory: Inventory,
    stack: str,
    seen: Survey,
    dry_run: bool,
    component: str = "",
    arch: str = "",
) -> Report:
    """Build a stack on a host that was looked at; the report's data names the release."""
    name, orders = shell.host.name, all_orders(root, stack, seen.root, component)
    built = None if component else built_release(orders, seen)
    if built is not None:
        plan = Plan("build", name, done=(f"release {built}",))
        text = preview(plan) if dry_run else f"{name}: release {built} is in place"
        return Report(text, {"release": built, "built": False})
    facts = ask_facts(shell, seen.root)
    order, python = _chosen(orders, facts, name)
    order = on_this_host(order, facts, name, arch)
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
    took = _carry_out(plan, ground, order, console)
    return Report(f"{told} is built ({took})", {**data, "built": True})


def _carry_out(plan: Plan, ground: Ground, order: Order, console: Console) -> str:
    """Do the plan; how long it took."""
    console.say(f"{plan.host}: building {order.stack.title}")
    for line in plan.done:
        console.say(f"in place: {line}")
    outcomes = execute.execute(plan, ground.sites, console)
    return span(sum(outcome.seconds for outcome in outcomes))


def _told(order: Order, component: str, host: str) -> str:
    if component:
        return f"{host}: {artifacts(order)[component].path}"
    return f"{host}: release {release_of(order)}"


def on_this_host(order: Order, facts: Facts, host: str, arch: str) -> Order:
    """The order, where its stack's GPU targets are what that host is, or what was asked for."""
    stack = order.stack
    cards = {
        ".".join(map(str, gpu.compute_capability)) for gpu in facts.gpus if gpu.compute_capability
    }
    require_cards(stack, cards, arch, host)
    if stack.toolkit == "host":
        path = host_toolkit(facts.cudas, stack.cuda, host)
        return dataclasses.replace(order, host_toolkit=str(path))
    return order


def all_orders(
    root: Path, stack: str, host_root: PurePosixPath, component: str = ""
) -> dict[Python, Order]:
    """What building the stack would mean for each CPython, the most wanted first."""
    document, components = recipes.stack(root, stack)
    lock = recipes.locked(root, document, components)
    registry = recipes.checked_registry(root, components)
    choices = choose(document.value, components)
    if component:
        choices = with_needs(choices, recipes.part(choices, component, stack))
    patches = {
        name: tuple(_patch(root, entry.file, entry.load_bearing) for entry in found)
        for name, choice in choices.items()
        if (found := patches_for(registry, name, choice.version, stack)) is not None
    }
    shipped, layout = programs.shipped(host_root), Layout(host_root)
    return {
        python: Order(document.value, choices, lock, python, patches, shipped, layout, __version__)
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
