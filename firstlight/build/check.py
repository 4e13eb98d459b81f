"""The build room: every fault that can be seen in recipes without resolving or building."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from firstlight.build.recipe import Component, PatchEntry, PatchRegistry, Prebuilt, Stack, pin
from firstlight.build.wheel import fits, says
from firstlight.core.command import assignments
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place, nearest


def check_component(document: Document[Component]) -> tuple[Fault, ...]:
    """Faults of one component: versions that no package can have."""
    component = document.value
    if message := _bad_version(component.version):
        return (document.fault(("version",), message),)
    if _bad_version(f"{component.version}+{component.local_version}"):
        message = f"{component.local_version!r} is no local version; letters, digits and dots only"
        return (document.fault(("local_version",), message),)
    return ()


def check_stack(document: Document[Stack], components: Collection[str]) -> tuple[Fault, ...]:
    """Faults of one stack that need the names of the components or several of its values."""
    stack = document.value
    found = [*_versions(stack), *_references(stack, components), *_requirements(stack)]
    found += _environment(stack)
    return tuple(document.fault(place, message) for place, message in found)


def check_patches(
    document: Document[PatchRegistry],
    components: Iterable[str],
    stacks: Iterable[str],
    files: Iterable[str],
) -> tuple[Fault, ...]:
    """Faults of the patch registry; `files` are the patch files that exist, below patches/."""
    entries = document.value.patches
    known, present = set(components), set(files)
    found: list[tuple[Place, str]] = []
    for index, entry in enumerate(entries):
        found += [
            (("patches", index, key), message)
            for key, message in _entry(entry, known, set(stacks), present)
        ]
        if entry.file in {earlier.file for earlier in entries[:index]}:
            found.append((("patches", index, "file"), f"patch {entry.file!r} is given twice"))
    for file in sorted(present - {entry.file for entry in entries}):
        found.append(
            (("patches",), f"patch {file!r} has no entry; say why it is there, or delete it")
        )
    return tuple(document.fault(place, message) for place, message in found)


def _entry(
    entry: PatchEntry, components: set[str], stacks: set[str], files: set[str]
) -> Iterator[tuple[str, str]]:
    if entry.file not in files:
        yield "file", f"no file patches/{entry.file}{nearest(entry.file, files)}"
    if entry.component not in components:
        yield "component", f"no component {entry.component!r}{nearest(entry.component, components)}"
    for stack in entry.stacks:
        if stack not in stacks:
            yield "stacks", f"no stack {stack!r}{nearest(stack, stacks)}"
    try:
        SpecifierSet(entry.versions)
    except InvalidSpecifier:
        yield "versions", f"{entry.versions!r} is no set of versions; write for example '==0.5.23'"


def _versions(stack: Stack) -> Iterator[tuple[Place, str]]:
    major, _, minor = stack.glibc.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        yield ("glibc",), f"{stack.glibc!r} is no glibc version; write for example '2.34'"
        return
    for index, package in enumerate(stack.prebuilt):
        if message := _bad_version(package.version):
            yield ("prebuilt", index, "version"), message
            continue
        for python, message in _wheels(package, stack):
            yield ("prebuilt", index, "wheels", python, "file"), message


def _wheels(package: Prebuilt, stack: Stack) -> Iterator[tuple[str, str]]:
    for python, wheel in package.wheels.items():
        if not says(wheel.file, package.name, package.version):
            yield python, f"{wheel.file} is not {package.name} {package.version}"
        elif not fits(wheel.file, python, stack.arch, stack.glibc):
            yield python, f"{wheel.file} does not fit Python {python} on {stack.arch}"


def _references(stack: Stack, components: Collection[str]) -> Iterator[tuple[Place, str]]:
    for index, name in enumerate(stack.components):
        if name not in components:
            message = f"no component {name!r}{nearest(name, components)}"
            yield ("components", index), message
    for index, package in enumerate(stack.prebuilt):
        if package.index not in stack.indexes:
            message = f"index {package.index!r} has no address"
            yield ("prebuilt", index, "index"), f"{message}{nearest(package.index, stack.indexes)}"
        for python in stack.python:
            if python not in package.wheels:
                message = f"{package.name} has no wheel for Python {python}, which the stack offers"
                yield ("prebuilt", index, "wheels"), message


def _requirements(stack: Stack) -> Iterator[tuple[Place, str]]:
    prebuilt = {canonicalize_name(package.name) for package in stack.prebuilt}
    for key, requirements in (("requirements", stack.requirements), ("tools", stack.tools)):
        seen: set[str] = set(prebuilt) if key == "requirements" else set()
        for index, requirement in enumerate(requirements):
            try:
                name, _ = pin(requirement)
            except ValueError as error:
                yield (key, index), str(error)
                continue
            if name in seen:
                yield (key, index), f"{name} is given twice"
            seen.add(name)
    if not any(tool.startswith("uv==") for tool in stack.tools):
        yield ("tools",), "needs uv==version, which resolves stacks and assembles releases"
    for index, package in enumerate(stack.prebuilt):
        for number, need in enumerate(package.needs):
            if not _is_requirement(need):
                message = f"{need!r} is no requirement; write for example 'jinja2>=3'"
                yield ("prebuilt", index, "needs", number), message


def _environment(stack: Stack) -> Iterator[tuple[Place, str]]:
    for name, value in stack.env.items():
        try:
            assignments({name: value})
        except ValueError as error:
            yield ("env", name), str(error)


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


def _bad_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        return f"{text!r} is no version; write for example '0.5.23'"
    return ""
