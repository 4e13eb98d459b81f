"""`invoke ship`: what is built on one host comes to others, which then assemble their release."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from firstlight.build.base import require_base
from firstlight.build.order import release_of
from firstlight.build.recipe import Python
from firstlight.build.shipping import (
    Parcel,
    files,
    held,
    incoming_of,
    lacking,
    list_script,
    of_items,
    read_list,
    shared_python,
    ship_steps,
    with_arrived,
)
from firstlight.core.errors import FirstlightError, HostError
from firstlight.core.plan import Plan, Step, preview
from firstlight.core.report import Report
from firstlight.core.words import listed
from firstlight.effects import catalog, execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.build import build
from firstlight.flows.carry import Carry, carry_all, relayed, sent
from firstlight.flows.facts import ask_facts
from firstlight.flows.orders import Wish, all_orders, on_this_host, root_steps
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts import pythons
from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.hosts.survey import Survey

_LIST_S = 900.0


@dataclass(frozen=True)
class Origin:
    """The host that has the stack, and for which CPythons: those of whole releases first."""

    shell: Shell
    seen: Survey
    stack: str
    pythons: tuple[Python, ...]


@dataclass(frozen=True)
class Goal:
    """A host that fits; `lacks` are paths below its root, `first` makes that root.

    `wish` is what is assembled there, for a CPython that both have, and `release` its name.
    """

    shell: Shell
    seen: Survey
    lacks: tuple[str, ...]
    first: tuple[Step, ...]
    wish: Wish
    release: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.shell.host.name


def run(
    root: Path,
    console: Console,
    *,
    stack: str = "",
    source: str = "",
    to: str = "",
    dry_run: bool = False,
) -> Report:
    """Send what the hosts lack of a stack, side by side, and assemble its release on each."""
    inventory = catalog.inventory(root)
    origin_host = inventory.host(source or "local")
    hosts = _targets(inventory, to, origin_host)
    name = stack or _stack(root, recipes.profile_name(inventory, hosts[0], ""))
    with ExitStack() as ways:
        shell, *shells = (
            ways.enter_context(reached(opener(inventory, host, console), console))
            for host in (origin_host, *hosts)
        )
        origin = _origin(root, shell, name)
        goals = _goals(root, origin, shells)
        parcels = _parcels(origin, goals)
        if dry_run:
            told = [
                _preview(root, console, inventory, origin, goal, parcels[goal.name])
                for goal in goals
            ]
            return Report("\n".join(told), _data(goals))
        failed = _carry(inventory, origin, goals, parcels, console)
        text = []
        for goal in goals:
            if not failed[goal.name]:
                _place(origin, goal, parcels[goal.name], console)
                text.append(assemble_on(root, console, inventory, goal).text)
    troubles = [trouble for trouble in failed.values() if trouble]
    if troubles:
        raise HostError("\n".join([*troubles, *text]))
    return Report("\n".join(text), _data(goals))


def _data(goals: Sequence[Goal]) -> dict[str, object]:
    """For programs: the release of each host, which differ where their CPythons do."""
    releases = {goal.name: goal.release for goal in goals}
    return {"release": goals[0].release, "releases": releases, "hosts": list(releases)}


def assemble_on(root: Path, console: Console, inventory: Inventory, goal: Goal) -> Report:
    """Build on a host where everything has arrived: only the release is left to assemble."""
    return build(root, console, goal.shell, inventory, goal.wish, look(goal.shell), False)


def _targets(inventory: Inventory, to: str, origin: Host) -> list[Host]:
    names = listed(to)
    if not names:
        raise UnknownName("to which hosts?", remedy="say --to HOST, or --to HOST,HOST")
    hosts = [inventory.host(name) for name in names]
    if origin in hosts:
        raise UnknownName(f"{origin.name} is where it comes from; it cannot go there too")
    return hosts


def _origin(root: Path, shell: Shell, stack: str) -> Origin:
    seen = look(shell)
    pythons_ = held(all_orders(root, stack, seen.root), seen, shell.host.name)
    return Origin(shell, seen, stack, pythons_)


def _goals(root: Path, origin: Origin, shells: Sequence[Shell]) -> list[Goal]:
    """Every host, looked at; raises HostError with all that do not fit, before a byte is sent."""
    goals, unfit = [], []
    for shell in shells:
        try:
            goals.append(_goal(root, origin, shell))
        except FirstlightError as error:
            unfit.append(error)
    if len(unfit) == 1:
        raise unfit[0]
    if unfit:
        raise HostError("\n".join(map(str, unfit)))
    return goals


def _goal(root: Path, origin: Origin, shell: Shell) -> Goal:
    seen, name = look(shell), shell.host.name
    orders = all_orders(root, origin.stack, seen.root)
    stack, facts = next(iter(orders.values())).stack, ask_facts(shell, seen.root)
    require_base(stack, facts.system.arch or "", facts.system.glibc or "0", name)
    there = {series: path for series in orders if (path := _python(facts, series))}
    source = origin.shell.host.name
    python = shared_python(origin.pythons, there, source, name, origin.stack)
    # A host without a GPU has nothing to compare what is built with.
    arch = "" if facts.gpus else next(iter(stack.arch_list), "")
    order = on_this_host(orders[python], facts, name, arch)
    lacks = lacking(order, origin.seen, seen, there[python])
    wish = Wish(origin.stack, arch=arch, python=python)
    return Goal(shell, seen, lacks, root_steps(seen, facts, name), wish, release_of(order))


def _python(facts: Facts, series: str) -> str:
    found = python_for(facts, [series])
    return str(found.path) if isinstance(found, pythons.Python) else ""


def _parcels(origin: Origin, goals: Sequence[Goal]) -> dict[str, tuple[Parcel, ...]]:
    """What is sent to each host, by its name: the origin is asked once for all of them."""
    wanted = {item for goal in goals for item in goal.lacks}
    if not wanted:
        return {goal.name: () for goal in goals}
    result = origin.shell.run(list_script(origin.seen.root, wanted), _LIST_S)
    found = read_list(result.text, origin.shell.host.name)
    return {goal.name: of_items(found, goal.lacks) for goal in goals}


def _steps(origin: Origin, goal: Goal, parcels: Sequence[Parcel]) -> tuple[Step, ...]:
    name = origin.shell.host.name
    through = "" if origin.shell.host.is_local else ", through this machine"
    return ship_steps(parcels, origin.seen, goal.seen, f"{name}{through}")


def _carry(
    inventory: Inventory,
    origin: Origin,
    goals: Sequence[Goal],
    parcels: dict[str, tuple[Parcel, ...]],
    console: Console,
) -> dict[str, str]:
    """Send to every host, side by side; for each the message of what failed, or ""."""
    jobs: dict[str, Carry] = {}
    every = {one.path: one for found in parcels.values() for one in found}
    relay = relayed(origin.shell, tuple(every.values()), origin.seen.root)
    for goal in goals:
        _execute(goal, goal.first, console)
        mine = parcels[goal.name]
        for step in _steps(origin, goal, mine)[:1]:
            console.say(f"{goal.name}: {step.title}")
        placed = files(mine, origin.seen, goal.seen)
        if not mine:
            console.say(f"{goal.name}: it has all that it needs")
        elif origin.shell.host.is_local:
            incoming = incoming_of(goal.seen, goal.release)
            roots = (origin.seen.root, incoming)
            jobs[goal.name] = partial(sent, goal.shell, inventory.hosts, roots, mine, placed)
        else:
            jobs[goal.name] = partial(relay, goal.shell, placed)
    failed = carry_all(jobs, [goal.shell for goal in goals], console)
    return {goal.name: failed.get(goal.name, "") for goal in goals}


def _place(origin: Origin, goal: Goal, parcels: Sequence[Parcel], console: Console) -> None:
    _execute(goal, _steps(origin, goal, parcels)[1:], console)


def _execute(goal: Goal, steps: tuple[Step, ...], console: Console) -> None:
    site = execute.Site(goal.shell, goal.seen.root, programs.supervisor(goal.seen.root))
    execute.execute(Plan("ship", goal.name, steps), {"host": site}, console)


def _preview(
    root: Path,
    console: Console,
    inventory: Inventory,
    origin: Origin,
    goal: Goal,
    parcels: Sequence[Parcel],
) -> str:
    """What is sent, and what the build does that follows."""
    steps = (*goal.first, *_steps(origin, goal, parcels))
    then = replace(with_arrived(goal.seen, parcels), writable=True)
    built = build(root, console, goal.shell, inventory, goal.wish, then, True)
    return f"{preview(Plan('ship', goal.name, steps))}\n{built.text}"


def _stack(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack
