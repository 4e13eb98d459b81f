"""`invoke ship`: what is built on one host comes to others, which then assemble their release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from firstlight.build.base import require_base
from firstlight.build.order import release_of
from firstlight.build.recipe import Python
from firstlight.build.shipping import (
    Parcel,
    built_for,
    files,
    incoming_of,
    lacking,
    list_script,
    of_items,
    read_list,
    shared_python,
    ship_steps,
    with_arrived,
)
from firstlight.core.errors import Detached, FirstlightError, HostError, StepError
from firstlight.core.plan import Plan, Step, preview
from firstlight.core.report import Report
from firstlight.core.words import listed
from firstlight.effects import catalog, execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.beside import beside
from firstlight.flows.build import build
from firstlight.flows.carry import Carry, carry_all, relayed, sent
from firstlight.flows.dial import dial
from firstlight.flows.facts import ask_facts
from firstlight.flows.hold import held
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
        if dry_run:
            return Report(_preview(root, console, inventory, origin, goals), _data(goals))
        # What is sent must not be pruned where it comes from, before it has come everywhere.
        with _kept(origin, console):
            ends = _shipped(root, inventory, origin, goals, console)
    return Report(_told(ends), _data(goals))


def _shipped(
    root: Path, inventory: Inventory, origin: Origin, goals: Sequence[Goal], console: Console
) -> dict[str, str | FirstlightError]:
    """Send, then assemble, on all hosts side by side; for each the end of it, or its error."""
    parcels = _parcels(origin, goals)
    with ExitStack() as holds:
        failed = _begin(goals, holds, console)
        ready = [goal for goal in goals if goal.name not in failed]
        failed |= _carry(inventory, origin, ready, parcels, console)
        stories = {
            goal.name: partial(_place, root, inventory, origin, goal, parcels[goal.name])
            for goal in ready
            if goal.name not in failed
        }
        ends = {**failed, **beside(stories, console)}
    return {goal.name: ends[goal.name] for goal in goals}


def _told(ends: Mapping[str, str | FirstlightError]) -> str:
    """The ends of all; raises one error where there is one, and tells the others with it.

    Its kind is the one that says most: somebody left, or a step failed, or a host did.
    """
    errors = [end for end in ends.values() if isinstance(end, FirstlightError)]
    if not errors:
        return "\n".join(map(str, ends.values()))
    if len(ends) == 1:
        raise errors[0]
    kinds = (kind for kind in (Detached, StepError) if any(isinstance(e, kind) for e in errors))
    done = [end for end in ends.values() if isinstance(end, str)]
    raise next(kinds, HostError)("\n".join([*map(str, errors), *done]))


def _kept(origin: Origin, console: Console) -> AbstractContextManager[None]:
    """Hold the host where all comes from; one in which we may not write is read as it is."""
    if not origin.seen.writable:
        return nullcontext()
    what = (f"ship-{origin.stack}", f"ship of stack {origin.stack}")
    return held(origin.shell, origin.seen.root, *what, console)


def _begin(goals: Sequence[Goal], holds: ExitStack, console: Console) -> dict[str, FirstlightError]:
    """Make the root of each host where it must be made, and hold it; the errors of some."""
    failed: dict[str, FirstlightError] = {}
    for goal in goals:
        try:
            _execute(goal, goal.first, console)
            what = (goal.release, f"build of release {goal.release}")
            holds.enter_context(held(goal.shell, goal.seen.root, *what, console))
            _require_unchanged(goal)
        except FirstlightError as error:
            failed[goal.name] = error
    return failed


def _require_unchanged(goal: Goal) -> None:
    """Raise HostError when something was pruned between the look at a host and its hold."""
    now = look(goal.shell)
    if not (goal.seen.wheels <= now.wheels and goal.seen.artifacts <= now.artifacts):
        what = "things that it had were pruned there meanwhile"
        raise HostError(what, where=goal.name, remedy="ship again")


def _data(goals: Sequence[Goal]) -> dict[str, object]:
    """For programs: the release of each host, which differ where their CPythons do."""
    releases = {goal.name: goal.release for goal in goals}
    return {"release": goals[0].release, "releases": releases, "hosts": list(releases)}


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
    pythons_ = built_for(all_orders(root, stack, seen.root), seen, shell.host.name)
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
    parcels: Mapping[str, tuple[Parcel, ...]],
    console: Console,
) -> dict[str, FirstlightError]:
    """Send to every host, side by side; the errors of those for which it failed."""
    jobs: dict[str, Carry] = {}
    every = {one.path: one for found in parcels.values() for one in found}
    relay = relayed(origin.shell, tuple(every.values()), origin.seen.root)
    for goal in goals:
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
    return carry_all(jobs, [goal.shell for goal in goals], console)


def _place(
    root: Path,
    inventory: Inventory,
    origin: Origin,
    goal: Goal,
    parcels: Sequence[Parcel],
    console: Console,
) -> str:
    """Give what has come its names, and build: only the release is left to assemble."""
    _execute(goal, _steps(origin, goal, parcels)[1:], console)
    seen = look(goal.shell)
    return build(root, console, goal.shell, inventory, goal.wish, seen, False).text


def _execute(goal: Goal, steps: tuple[Step, ...], console: Console) -> None:
    site = execute.Site(goal.shell, goal.seen.root, programs.supervisor(goal.seen.root))
    execute.execute(Plan("ship", goal.name, steps), {"host": site}, console)


def _preview(
    root: Path, console: Console, inventory: Inventory, origin: Origin, goals: Sequence[Goal]
) -> str:
    """What is sent to each, and what the build does that follows."""
    parcels, plans = _parcels(origin, goals), []
    for goal in goals:
        mine = parcels[goal.name]
        steps = (*goal.first, *_steps(origin, goal, mine))
        then = replace(with_arrived(goal.seen, mine), writable=True)
        built = build(root, console, goal.shell, inventory, goal.wish, then, True)
        way = dial(goal.shell.host, inventory.hosts)
        plans.append(f"{preview(Plan('ship', goal.name, steps), way)}\n{built.text}")
    return "\n".join(plans)


def _stack(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack
