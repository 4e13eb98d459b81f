"""The build room: does a host have the base that a stack stands on."""

from __future__ import annotations

from collections.abc import Mapping

from firstlight.build.recipe import Python, Stack
from firstlight.core.errors import HostError


def pick_python(stack: Stack, found: Mapping[str, str], host: str) -> tuple[Python, str]:
    """The CPython that the stack wants most of those a host has, and its path.

    `found` maps versions ("3.11") to paths. Raises HostError when none of them will do.
    """
    for python in stack.python:
        if python in found:
            return python, found[python]
    wanted = " or ".join(stack.python)
    there = ", ".join(sorted(found, key=_number)) or "none"
    raise HostError(
        f"stack {stack.name} needs Python {wanted}; Pythons on the host: {there}",
        where=host,
        remedy=f"install one of them, for example: sudo apt install python{stack.python[0]}",
    )


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


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
