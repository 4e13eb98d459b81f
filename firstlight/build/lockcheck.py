"""The build room: does a lock go with its stack, and if not, what moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from packaging.utils import canonicalize_name

from firstlight.build.check import check_stack
from firstlight.build.choose import TOOLKIT, Choice, choose
from firstlight.build.component import Component, Source, ToolkitSource, WheelSource
from firstlight.build.lock import (
    LockFile,
    PythonLock,
    lock_contents,
    lock_inputs,
    prebuilt_wheels,
)
from firstlight.build.recipe import Stack, pin
from firstlight.build.source import LockedSource, check_sdist, moved
from firstlight.build.toolkit import pin_faults
from firstlight.build.wheel import Wheel, fits, says
from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import Document, Place, nearest


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
    if check_stack(stack, components, components):
        return ()
    faults = [stack.fault(place, text) for place, text in _moved(stack.value, lock, components)]
    faults += [lock.fault(place, text) for place, text in _unsound(stack.value, lock.value)]
    if not faults and lock.value.inputs != lock_inputs(stack.value, components):
        faults.append(stack.fault((), f"changed since {lock.file} was made from it"))
    if not faults and lock.value.contents not in (None, lock_contents(lock.value)):
        what = "something in this lock was changed after it was made: a hash, a size, a tree, a url"
        faults.append(lock.fault(("contents",), what))
    return tuple(faults)


def _moved(
    stack: Stack, lock: Document[LockFile], components: Mapping[str, Component]
) -> Iterator[tuple[Place, str]]:
    choices = choose(stack, components)
    tools = _placed("tools", stack.tools)
    requirements = _placed("requirements", stack.requirements)
    parts = [(_version_of(one), one.name, one.version) for one in choices.values() if one.repacked]
    plain = [(_version_of(one), one.name, one.version) for one in choices.values() if one.as_is]
    yield from _pins(tools, lock.value.tools, f"{lock.file} has")
    yield from _archives(choices, lock)
    for number, python in enumerate(stack.python):
        locked = lock.value.pythons.get(python)
        if locked is None:
            yield ("python", number), f"{lock.file} has nothing for Python {python}"
            continue
        held = f"{lock.file} for Python {python} has"
        yield from _build_pins(choices, locked, held)
        yield from _pins([*requirements, *plain], locked.wheels, held)
        yield from _pins(parts, locked.sources, held)
        for index, wheel in enumerate(prebuilt_wheels(stack, python)):
            if wheel not in locked.wheels:
                yield ("prebuilt", index, "wheels", python), f"{wheel.file} is not what {held}"


def _build_pins(
    choices: Mapping[str, Choice], locked: PythonLock, held: str
) -> Iterator[tuple[Place, str]]:
    """What each component is built with, as its recipe pins it."""
    for choice in choices.values():
        if choice.from_source and choice.build:
            pins = [(_version_of(choice), *pin(text)) for text in choice.build.requires]
            yield from _pins(pins, locked.build.get(choice.name, ()), f"to build it {held}")


def _version_of(choice: Choice) -> Place:
    return ("components", choice.name, "version")


def _placed(key: str, requirements: Iterable[str]) -> list[tuple[Place, str, str]]:
    return [((key, index), *pin(text)) for index, text in enumerate(requirements)]


def _pins(
    pins: Iterable[tuple[Place, str, str]], wheels: Iterable[Wheel], held: str
) -> Iterator[tuple[Place, str]]:
    versions: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in wheels}
    for place, name, version in pins:
        found = versions.get(canonicalize_name(name))
        if found is None:
            yield place, f"asks for {name} {version}; {held} none"
        elif found != version:
            yield place, f"asks for {name} {version}; {held} {found}"


def _archives(
    choices: Mapping[str, Choice], lock: Document[LockFile]
) -> Iterator[tuple[Place, str]]:
    """What is built from source must be locked as the recipe says it."""
    for choice in choices.values():
        place = _version_of(choice)
        archives = lock.value.archives.get(choice.name, ())
        held = {one.name: one for one in archives}
        if choice.from_source:
            fetched = [(one.name, one.source) for one in choice.fetched]
            if choice.name in held and archives[0].name != choice.name:
                yield place, f"{lock.file} has {archives[0].name} before {choice.name} itself"
            for name, source in ((choice.name, choice.source), *fetched):
                for text in _archive(choice, name, source, held):
                    yield place, f"{lock.file} {text}"


def _archive(
    choice: Choice, name: str, source: Source, held: Mapping[str, LockedSource]
) -> Iterator[str]:
    """What a lock has to say of one source of a component, where it is another than asked."""
    owner = "" if name == choice.name else f" for {choice.name}"
    assert not isinstance(source, (WheelSource, ToolkitSource))
    if name not in held:
        yield f"has no source of {name}{owner}"
        return
    differences = list(moved(held[name], source))
    for has, asked in differences:
        yield f"has {name}{owner} with {has}; {choice.name} {choice.version} asks for {asked}"
    if source.kind == "sdist" and not differences:
        why = check_sdist(held[name], source.name or name, choice.version)
        yield from [f"has {name}, but {why}"] if why else []


def _unsound(stack: Stack, lock: LockFile) -> Iterator[tuple[Place, str]]:
    if lock.stack != stack.name:
        yield ("stack",), f"this is the lock of {lock.stack!r}, not of {stack.name!r}"
    if TOOLKIT in stack.components and stack.toolkit == "pinned":
        pins = {wheel.name: wheel.version for wheel in lock.toolkit}
        yield from ((("toolkit",), text) for text in pin_faults(pins, stack.cuda))
    for python, locked in lock.pythons.items():
        yield from _bad_wheels(stack, python, lock.tools, ("tools",))
        yield from _bad_wheels(stack, python, lock.toolkit, ("toolkit",))
        for key, wheels in (("wheels", locked.wheels), ("sources", locked.sources)):
            yield from _bad_wheels(stack, python, wheels, ("pythons", python, key))
        for key, table in (("build", locked.build), ("check", locked.check)):
            for name, wheels in table.items():
                yield from _bad_wheels(stack, python, wheels, ("pythons", python, key, name))


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
