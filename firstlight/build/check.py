"""The build room: every fault that can be seen in recipes without resolving or building."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from firstlight.build.choose import TOOLKIT, cycle, planned_values
from firstlight.build.component import Component
from firstlight.build.componentcheck import LOCAL, bad_version
from firstlight.build.placeholders import fill, unknown
from firstlight.build.recipe import PatchEntry, PatchRegistry, Prebuilt, Stack, pin
from firstlight.build.wheel import fits, says
from firstlight.core.command import assignments
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place, nearest

_GLIBC = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_CHANGES = re.compile(rb"^--- [^\n]*\n\+\+\+ ", re.MULTILINE)
_TAG = "; give the stack a `tag`, like 'cu130.sm120'"


def check_stack(
    document: Document[Stack], names: Collection[str], components: Mapping[str, Component]
) -> tuple[Fault, ...]:
    """Faults of one stack that need the components or several of its values.

    `names` are those of all components, `components` those of them that can be read.
    """
    stack = document.value
    found = [*_versions(stack), *_references(stack, names), *_requirements(stack)]
    found += [*_environment(stack), *_picks(stack, components), *_cuda(stack)]
    if loop := cycle(stack, components):
        found.append((("components", loop[0]), f"needs go in a circle: {' -> '.join(loop)}"))
    return tuple(document.fault(place, message) for place, message in found)


def check_patches(
    document: Document[PatchRegistry],
    components: Iterable[str],
    stacks: Iterable[str],
    files: Mapping[str, bytes],
) -> tuple[Fault, ...]:
    """Faults of the patch registry; `files` are the patch files that exist, below patches/."""
    entries = document.value.patches
    known, present = set(components), set(files)
    found: list[tuple[Place, str]] = []
    for index, entry in enumerate(entries):
        found += [
            (("patches", index, key), message)
            for key, message in _entry(entry, known, set(stacks), files)
        ]
        if entry.file in {earlier.file for earlier in entries[:index]}:
            found.append((("patches", index, "file"), f"patch {entry.file!r} is given twice"))
    for file in sorted(present - {entry.file for entry in entries}):
        found.append(
            (("patches",), f"patch {file!r} has no entry; say why it is there, or delete it")
        )
    return tuple(document.fault(place, message) for place, message in found)


def _entry(
    entry: PatchEntry, components: set[str], stacks: set[str], files: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    if entry.file not in files:
        yield "file", f"no file patches/{entry.file}{nearest(entry.file, files)}"
    elif not _CHANGES.search(files[entry.file]):
        yield "file", f"patches/{entry.file} changes no file; make it with `diff -ru` or `git diff`"
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
    if not _GLIBC.fullmatch(stack.glibc):
        yield ("glibc",), f"{stack.glibc!r} is no glibc version; write for example '2.34'"
        return
    for index, package in enumerate(stack.prebuilt):
        if message := bad_version(package.version):
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
    for name in stack.components:
        if name not in components:
            yield ("components", name), f"no component {name!r}{nearest(name, components)}"
    for index, name in enumerate(stack.requires_of):
        if name not in stack.components:
            message = f"{name!r} is none of the stack's components"
            yield ("requires_of", index), f"{message}{nearest(name, stack.components)}"
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


def _picks(stack: Stack, components: Mapping[str, Component]) -> Iterator[tuple[Place, str]]:
    """Versions and sources that a component does not have, and what it lacks for being built."""
    for name, pick in stack.components.items():
        component = components.get(name)
        if component is None:
            continue
        version = component.versions.get(pick.version)
        if version is None:
            message = f"{name} has no version {pick.version!r}"
            yield (
                ("components", name, "version"),
                f"{message}{nearest(pick.version, component.versions)}",
            )
            continue
        if local := _bad_local(stack, pick.version, component):
            place = ("tag",) if "tag" in stack.model_fields_set else ("components", name)
            yield place, f"{name} {pick.version} would be {pick.version}+{local}, no version{_TAG}"
        kinds = [source.kind for source in version.sources]
        if pick.source and pick.source not in kinds:
            message = f"{name} {pick.version} has no source {pick.source!r}"
            yield ("components", name, "source"), f"{message}{nearest(pick.source, kinds)}"
        elif (pick.source or kinds[0]) in ("sdist", "archive", "git"):
            yield from _buildable(stack, component)


def _bad_local(stack: Stack, version: str, component: Component) -> str:
    """The local version that a component gets in a stack, where that is none; else ""."""
    local = fill(component.local_version, planned_values(stack, version, component.build))
    known = not unknown(component.local_version, ())
    return local if known and local and not LOCAL.fullmatch(local) else ""


def _cuda(stack: Stack) -> Iterator[tuple[Place, str]]:
    """A stack for GPUs says for which CUDA, and its toolkit is of that release."""
    toolkit = stack.components.get(TOOLKIT)
    if not stack.cuda and (stack.arch_list or toolkit):
        what = "arch_list" if stack.arch_list else "components"
        yield (what,), "needs `cuda` beside it, the release of CUDA, like '13.0'"
    elif toolkit and toolkit.version != stack.cuda:
        message = f"the toolkit is of CUDA {toolkit.version}; the stack says {stack.cuda}"
        yield ("components", TOOLKIT, "version"), message
    for index, capability in enumerate(stack.arch_list):
        if capability in stack.arch_list[:index]:
            yield ("arch_list", index), f"{capability} is given twice"


def _buildable(stack: Stack, component: Component) -> Iterator[tuple[Place, str]]:
    build, place = component.build, ("components", component.name)
    if not any(tool.startswith("pyelftools==") for tool in stack.tools):
        yield ("tools",), f"needs pyelftools==version, by which {component.name} is verified"
    gencodes = build.arch.gencodes if build and build.arch else {}
    for capability in stack.arch_list if gencodes else ():
        if capability not in gencodes:
            message = f"{component.name} has `gencodes`, and none for {capability}"
            yield place, f"{message}{nearest(capability, gencodes)}"
    there = {*stack.components, *(package.name for package in stack.prebuilt)}
    for need in build.needs if build else ():
        if need not in there:
            yield place, f"{component.name} needs {need}, which is none of the stack's components"
    for capability in stack.arch_list if build and build.check.targets else ():
        if build and capability not in build.check.targets:
            message = f"{component.name} does not say what its wheel must hold for {capability}"
            yield place, f"{message}{nearest(capability, build.check.targets)}"


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
