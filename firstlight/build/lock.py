"""The build room: a lock says, for each CPython, the exact file of every wheel of a release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import yaml
from packaging.utils import canonicalize_name
from pydantic import Field

from firstlight.build.check import check_stack
from firstlight.build.digest import digest
from firstlight.build.recipe import Component, Python, Stack, pin
from firstlight.build.wheel import Sha256, Wheel, fits, says
from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import Document, Model, Place, nearest


class PythonLock(Model):
    """The wheels of a release for one CPython.

    `wheels` are installed as they are. `sources` are the components as published; what is
    installed is made from them.
    """

    wheels: tuple[Wheel, ...]
    sources: tuple[Wheel, ...]


class LockFile(Model):
    """A stack resolved; `inputs` is the digest of what was resolved."""

    schema_: Literal[1] = Field(alias="schema")
    stack: str
    inputs: Sha256
    tools: tuple[Wheel, ...]
    pythons: Mapping[Python, PythonLock]


def lock_inputs(stack: Stack, components: Mapping[str, Component]) -> str:
    """Digest of everything in the recipes that resolving depends on.

    Patches are not in it: they change what is built, not which files it is built from.
    """
    asked = {"python", "arch", "glibc", "prebuilt", "requirements", "tools"}
    data = stack.model_dump(mode="json", include=asked)
    used = [components[name] for name in stack.components]
    parts = [c.model_dump(mode="json", include={"name", "version", "source"}) for c in used]
    for key in ("python", "requirements", "tools"):
        data[key] = sorted(data[key])
    return digest({**data, "components": sorted(parts, key=lambda part: str(part["name"]))})


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
) -> LockFile:
    """The lock of a stack: what resolving found, and the prebuilt packages beside it."""
    pythons = {
        python: PythonLock(
            wheels=_by_name([*found.wheels, *prebuilt_wheels(stack, python)]),
            sources=_by_name(found.sources),
        )
        for python, found in sorted(resolved.items())
    }
    inputs = lock_inputs(stack, components)
    return LockFile(
        schema=1, stack=stack.name, inputs=inputs, tools=_by_name(tools), pythons=pythons
    )


def render(lock: LockFile) -> str:
    """The lock as YAML, one wheel a line, always in the same order."""
    head = (
        f"# Every wheel of stack {lock.stack}, for each CPython, by file and sha256.\n"
        f"# Made by: invoke lock --stack {lock.stack}\n"
    )
    data = lock.model_dump(mode="json", by_alias=True, exclude_none=True)
    return head + yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=10_000)


def remedy(stack: str) -> str:
    """What to do about a lock that does not go with its stack."""
    return f"run: invoke lock --stack {stack}"


def require_lock(
    stack: Document[Stack], lock: Document[LockFile], components: Mapping[str, Component]
) -> LockFile:
    """The lock, when it goes with its stack; raises ConfigError that says what moved."""
    faults = check_lock(stack, lock, components)
    if faults:
        raise ConfigError(faults, remedy=remedy(stack.value.name))
    return lock.value


def check_lock(
    stack: Document[Stack], lock: Document[LockFile], components: Mapping[str, Component]
) -> tuple[Fault, ...]:
    """What in the stack is not what the lock was made from, and what in the lock is no good.

    A stack that has faults of its own is not compared: they come first.
    """
    if check_stack(stack, components):
        return ()
    faults = [stack.fault(place, text) for place, text in _moved(stack.value, lock, components)]
    faults += [lock.fault(place, text) for place, text in _unsound(stack.value, lock.value)]
    if not faults and lock.value.inputs != lock_inputs(stack.value, components):
        faults.append(stack.fault((), f"changed since {lock.file} was made from it"))
    return tuple(faults)


def _moved(
    stack: Stack, lock: Document[LockFile], components: Mapping[str, Component]
) -> Iterator[tuple[Place, str]]:
    tools = [pin(tool) for tool in stack.tools]
    requirements = [pin(requirement) for requirement in stack.requirements]
    parts = [(name, components[name].version) for name in stack.components]
    yield from _pins("tools", tools, lock.value.tools, f"{lock.file} has")
    for number, python in enumerate(stack.python):
        locked = lock.value.pythons.get(python)
        if locked is None:
            yield ("python", number), f"{lock.file} has nothing for Python {python}"
            continue
        held = f"{lock.file} for Python {python} has"
        yield from _pins("requirements", requirements, locked.wheels, held)
        yield from _pins("components", parts, locked.sources, held)
        for index, wheel in enumerate(prebuilt_wheels(stack, python)):
            if wheel not in locked.wheels:
                yield ("prebuilt", index, "wheels", python), f"{wheel.file} is not what {held}"


def _pins(
    key: str, pins: Iterable[tuple[str, str]], wheels: Iterable[Wheel], held: str
) -> Iterator[tuple[Place, str]]:
    versions: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in wheels}
    for index, (name, version) in enumerate(pins):
        if name not in versions:
            yield (key, index), f"asks for {name} {version}; {held} none"
        elif versions[name] != version:
            yield (key, index), f"asks for {name} {version}; {held} {versions[name]}"


def _unsound(stack: Stack, lock: LockFile) -> Iterator[tuple[Place, str]]:
    if lock.stack != stack.name:
        yield ("stack",), f"this is the lock of {lock.stack!r}, not of {stack.name!r}"
    for python, locked in lock.pythons.items():
        yield from _bad_wheels(stack, python, lock.tools, ("tools",))
        for key, wheels in (("wheels", locked.wheels), ("sources", locked.sources)):
            yield from _bad_wheels(stack, python, wheels, ("pythons", python, key))


def _bad_wheels(
    stack: Stack, python: str, wheels: tuple[Wheel, ...], place: Place
) -> Iterator[tuple[Place, str]]:
    for index, wheel in enumerate(wheels):
        if not says(wheel.file, wheel.name, wheel.version):
            yield (*place, index, "file"), f"{wheel.file} is not {wheel.name} {wheel.version}"
        elif not fits(wheel.file, python, stack.arch, stack.glibc):
            message = f"{wheel.file} does not fit Python {python} on {stack.arch}"
            yield (*place, index, "file"), message
        if wheel.index is not None and wheel.index not in stack.indexes:
            message = f"index {wheel.index!r} has no address in stack {stack.name}"
            yield (*place, index, "index"), f"{message}{nearest(wheel.index, stack.indexes)}"


def _by_name(wheels: Iterable[Wheel]) -> tuple[Wheel, ...]:
    return tuple(sorted(wheels, key=lambda wheel: canonicalize_name(wheel.name)))
