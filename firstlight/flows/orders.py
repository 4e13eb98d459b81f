"""Orders: what building a stack would mean on a host, for the flows that build, ship or ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from firstlight import __version__
from firstlight.build.base import require_arch, require_base, require_cards
from firstlight.build.capacity import Need, explain, findings, lacking, room, share
from firstlight.build.choose import Choice, choose, with_needs
from firstlight.build.order import Order, release_of
from firstlight.build.recipe import Python, Stack, patches_for
from firstlight.build.release import Layout, Patch
from firstlight.build.toolkit import host_toolkit
from firstlight.core.command import Command, Script, typed
from firstlight.core.errors import HostError
from firstlight.core.plan import Run, Step
from firstlight.effects import library
from firstlight.effects.console import Console
from firstlight.flows import programs, recipes
from firstlight.hosts import pythons
from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.inventory import UnknownName
from firstlight.hosts.survey import Survey, require_writable
from firstlight.hosts.tools import SOUGHT
from firstlight.serve.profile import Profile


@dataclass(frozen=True)
class Wish:
    """What is to be built on a host, as a person or another verb asks for it.

    `component` is that one and what it needs, and no release; `arch` says for a host without a GPU
    that it builds for others; `python` is the only CPython that will do.
    """

    stack: str
    component: str = ""
    arch: str = ""
    python: Python | None = None


def wished(root: Path, wish: Wish, host_root: PurePosixPath) -> dict[Python, Order]:
    """What that would mean for each CPython that will do, the most wanted first."""
    orders = all_orders(root, wish.stack, host_root, wish.component)
    for one in orders.values():
        require_arch(one.stack, wish.arch)
    return {python: one for python, one in orders.items() if wish.python in (None, python)}


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
        _require_made(document.value, choices[component])
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


def _require_made(stack: Stack, choice: Choice) -> None:
    """Raise UnknownName for a component of which nothing is made on a host."""
    own_toolkit = choice.source.kind == "toolkit" and stack.toolkit == "host"
    if choice.as_is or own_toolkit:
        how = "the host's own" if own_toolkit else "as it is published"
        raise UnknownName(
            f"stack {stack.name} takes {choice.name} {how}: there is nothing to build",
            remedy="name another component; without --component the whole release is built",
        )


def _patch(root: Path, file: str, load_bearing: bool) -> Patch:
    path = root / "patches" / file
    return Patch(file, path, library.sha256(path), load_bearing)


def built_release(orders: Mapping[Python, Order], seen: Survey) -> str | None:
    """The release that is on the host already, whichever CPython it is for."""
    ids = (release_of(order) for order in orders.values())
    return next((release for release in ids if release in seen.releases), None)


def chosen(orders: Mapping[Python, Order], facts: Facts, host: str) -> tuple[Order, str]:
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


def look_ahead(needs: Sequence[Need], facts: Facts, host: str, console: Console) -> None:
    """Say how compiling will go, before it begins; raises HostError when it cannot go well.

    Temporary files of a build lie beside it, below the root.
    """
    if not needs:
        return
    where = room(facts)
    # A host on which nothing was found was not asked whole.
    absent = SOUGHT - {tool.name for tool in facts.tools} if facts.tools else ()
    found = findings(where, needs, facts.disk_root, facts.disk_root)
    for finding in (*lacking(needs, absent), *found):
        if finding.severity == "error":
            raise HostError(finding.what, where=host, remedy=finding.fix)
        console.say(f"{finding.severity}: {finding.what}" + f"; {finding.fix}" * bool(finding.fix))
    for need, given in zip(needs, share(where, needs), strict=False):
        console.say(explain(where, need, given))


def root_steps(seen: Survey, facts: Facts, host: str) -> tuple[Step, ...]:
    """The step that makes the root folder where only root may; none where we may ourselves."""
    if seen.writable:
        return ()
    require_writable(seen, host)
    make = Command(("install", "-d", "-o", seen.user, str(seen.root)))
    if facts.sudo.kind in ("passwordless", "password"):
        return (Step("root", f"make {seen.root}, as root", Run(Script(make.line(), sudo=True))),)
    raise HostError(
        f"user {seen.user} may not write in {seen.blocked_at}, where {seen.root} would be",
        where=host,
        remedy=f"let root run there: {make.line()}; or set another root for it in inventory/",
    )


def require_release(root: Path, profile: Profile, seen: Survey, host: str) -> str:
    """The release that a profile runs on, as it is built there; raises HostError where none is."""
    built = built_release(all_orders(root, profile.stack, seen.root), seen)
    if built is None:
        raise HostError(
            f"stack {profile.stack}, as it is locked now, is not built there",
            where=host,
            remedy=typed("build", {"host": host, "profile": profile.name}),
        )
    return built
