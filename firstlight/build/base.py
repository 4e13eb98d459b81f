"""The build room: does a host have the base that a stack stands on."""

from __future__ import annotations

from firstlight.build.recipe import Stack
from firstlight.core.errors import HostError


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
