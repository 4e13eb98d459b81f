"""The build room: a lock says the exact file of everything that a release is made of or with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import yaml
from packaging.utils import canonicalize_name
from pydantic import Field

from firstlight.build.choose import Choice, choose
from firstlight.build.component import Component
from firstlight.build.digest import digest
from firstlight.build.recipe import Python, Stack
from firstlight.build.source import LockedSource
from firstlight.build.wheel import Sha256, Wheel
from firstlight.core.schema import Model


class PythonLock(Model):
    """The wheels of a release for one CPython.

    `wheels` are installed as they are. `sources` are the components as published; what is
    installed is made from them. By component: `build` is what it is built with, `check` what its
    wheel is tried out with.
    """

    wheels: tuple[Wheel, ...]
    sources: tuple[Wheel, ...] = ()
    build: Mapping[str, tuple[Wheel, ...]] = Field(default_factory=dict)
    check: Mapping[str, tuple[Wheel, ...]] = Field(default_factory=dict)


class LockFile(Model):
    """A stack resolved; `inputs` is the digest of what was resolved, `contents` of what was found.

    A lock from before `contents` was kept has none. `archives` are the sources of a component: its
    own first, then what it would fetch. `toolkit` are the wheels of the CUDA toolkit.
    """

    schema_: Literal[1] = Field(alias="schema")
    stack: str
    inputs: Sha256
    contents: Sha256 | None = None
    tools: tuple[Wheel, ...]
    toolkit: tuple[Wheel, ...] = ()
    archives: Mapping[str, tuple[LockedSource, ...]] = Field(default_factory=dict)
    pythons: Mapping[Python, PythonLock]


def lock_inputs(stack: Stack, components: Mapping[str, Component]) -> str:
    """Digest of everything in the recipes that resolving depends on.

    Patches are not in it: they change what is built, not which files it is built from.
    """
    asked = {"python", "arch", "glibc", "prebuilt", "requirements", "requires_of", "tools"}
    data = stack.model_dump(mode="json", include=asked)
    for key in ("python", "requirements", "requires_of", "tools"):
        data[key] = sorted(data[key])
    used = [_asked_of(choice) for choice in choose(stack, components).values()]
    return digest({**data, "components": sorted(used, key=lambda part: str(part["name"]))})


def lock_contents(lock: LockFile) -> str:
    """Digest of everything that a lock says, but for this digest itself."""
    return digest(lock.model_dump(mode="json", exclude={"contents"}, exclude_defaults=True))


def _asked_of(choice: Choice) -> dict[str, Any]:
    build = choice.build if choice.from_source else None
    return {
        "name": choice.name,
        "version": choice.version,
        "source": choice.source.model_dump(mode="json"),
        "fetched": [one.model_dump(mode="json") for one in choice.fetched],
        "requires": sorted(build.requires) if build else [],
        "run": sorted(build.check.run) if build else [],
    }


def prebuilt_wheels(stack: Stack, python: Python) -> tuple[Wheel, ...]:
    """The stack's prebuilt packages as wheels of a lock."""
    return tuple(
        Wheel(
            name=package.name,
            version=package.version,
            file=package.wheels[python].file,
            sha256=package.wheels[python].sha256,
            size=package.wheels[python].size,
            index=package.index,
        )
        for package in stack.prebuilt
    )


def make_lock(
    stack: Stack,
    components: Mapping[str, Component],
    resolved: Mapping[Python, PythonLock],
    tools: Iterable[Wheel],
    toolkit: Iterable[Wheel] = (),
    archives: Mapping[str, tuple[LockedSource, ...]] | None = None,
) -> LockFile:
    """The lock of a stack: what resolving found, and the prebuilt packages beside it."""
    pythons = {
        python: PythonLock(
            wheels=by_name([*found.wheels, *prebuilt_wheels(stack, python)]),
            sources=by_name(found.sources),
            build={name: by_name(wheels) for name, wheels in sorted(found.build.items())},
            check={name: by_name(wheels) for name, wheels in sorted(found.check.items())},
        )
        for python, found in sorted(resolved.items())
    }
    made = LockFile(
        schema=1,
        stack=stack.name,
        inputs=lock_inputs(stack, components),
        tools=by_name(tools),
        toolkit=by_name(toolkit),
        archives=dict(sorted((archives or {}).items())),
        pythons=pythons,
    )
    return made.model_copy(update={"contents": lock_contents(made)})


def render(lock: LockFile) -> str:
    """The lock as YAML, one wheel a line, always in the same order."""
    head = (
        f"# Every file that stack {lock.stack} is made of or with, by name and sha256.\n"
        f"# Made by: invoke lock --stack {lock.stack}\n"
    )
    data = lock.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return head + yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=10_000)


def by_name(wheels: Iterable[Wheel]) -> tuple[Wheel, ...]:
    """Wheels in the order in which a lock has them."""
    return tuple(sorted(wheels, key=lambda wheel: canonicalize_name(wheel.name)))
