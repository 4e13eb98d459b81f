"""The build room: does a host have the base that a stack stands on."""

from __future__ import annotations

import re
from collections.abc import Collection

from firstlight.build.component import CAPABILITY
from firstlight.build.recipe import Stack
from firstlight.core.errors import HostError
from firstlight.hosts.inventory import UnknownName


def require_base(stack: Stack, arch: str, glibc: str, host: str) -> None:
    """Raise HostError when the stack's wheels cannot run on that machine."""
    if arch != stack.arch:
        raise HostError(
            f"stack {stack.name} is for {stack.arch}; the host is {arch}",
            where=host,
            remedy="name another host, or a stack for this one",
        )
    if _number(glibc) < _number(stack.glibc):
        raise HostError(
            f"stack {stack.name} needs glibc {stack.glibc} or newer; the host has {glibc}",
            where=host,
            remedy="a newer system has it: Debian 12, Ubuntu 22.04, RHEL 9, or later",
        )


def require_cards(stack: Stack, cards: Collection[str], arch: str, host: str) -> None:
    """Raise HostError when a stack is built for other GPUs than the host has or than was said.

    `cards` are the host's capabilities ("12.0"); a host without any builds for others only when
    `arch` says so.
    """
    require_arch(stack, arch)
    wanted = {arch} if arch else set(cards)
    if not stack.arch_list or (wanted and wanted <= set(stack.arch_list)):
        return
    if not wanted:
        raise HostError(
            f"the host has no GPU to build stack {stack.name} for",
            where=host,
            remedy=f"to build for other hosts say --arch {stack.arch_list[0]}",
        )
    raise HostError(
        f"stack {stack.name} is built for {', '.join(stack.arch_list)}, "
        f"not for {', '.join(sorted(wanted))}",
        where=host,
        remedy="name a stack for that card with --stack; they are in recipes/stacks/",
    )


def require_arch(stack: Stack, arch: str) -> None:
    """Raise UnknownName for an `arch` that is none, or that the stack has no use for."""
    if arch and not re.fullmatch(CAPABILITY, arch):
        raise UnknownName(
            f"--arch {arch!r} is no capability of a card",
            remedy="write it like 12.0; how a component spells that is said in its recipe",
        )
    if arch and not stack.arch_list:
        raise UnknownName(f"stack {stack.name} is built for no GPU", remedy="leave out --arch")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
