"""The build room: what people write about a build.

A stack says which components go together on which base, and the patch registry says what is
changed in them and why. How one component comes to be: component.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import AfterValidator, Field

from firstlight.build.component import CAPABILITY
from firstlight.build.wheel import FileName, Sha256
from firstlight.core.schema import Model
from firstlight.hosts.inventory import NAME

Python = Literal["3.11", "3.12", "3.13"]


def _capability(text: str) -> str:
    if not re.fullmatch(CAPABILITY, text):
        raise ValueError(f"{text!r} is no capability of a card; write it like '12.0'")
    return text


def _cuda(text: str) -> str:
    if not re.fullmatch(r"([1-9][0-9]*\.[0-9]+)?", text):
        raise ValueError(f"{text!r} is no release of CUDA; write it like '13.0'")
    return text


def _tag(text: str) -> str:
    if not re.fullmatch(r"([a-z0-9]+(\.[a-z0-9]+)*)?", text) or len(text) > 64:
        raise ValueError(f"{text!r} is no part of a version; write it like 'cu130.sm120'")
    return text


Capability = Annotated[str, AfterValidator(_capability)]
Cuda = Annotated[str, AfterValidator(_cuda)]
Tag = Annotated[str, AfterValidator(_tag)]


class PinnedFile(Model):
    """One file by its content; `size` in bytes."""

    file: FileName
    sha256: Sha256
    size: int | None = Field(default=None, ge=1)


class Prebuilt(Model):
    """A package taken as it is from an index of its own, a wheel for each CPython.

    `needs` are the requirements of these wheels, which resolving does not look into.
    """

    name: str = Field(pattern=NAME)
    version: str
    index: str
    needs: tuple[str, ...] = ()
    wheels: Mapping[Python, PinnedFile]


class Pick(Model):
    """A component's version in a stack; `source` where the version can come in several ways."""

    version: str
    source: Literal["wheel", "toolkit", "sdist", "archive", "git"] | None = None


class Stack(Model):
    """Which components at which versions on which base; `disk_gib` is what a release needs.

    `python` goes from the most wanted to the least. `env` is what the engine needs to start.
    `requires_of` names components whose published metadata says what else is installed.
    `cuda` and `arch_list` (capabilities, "12.0") are what is built from source for; `tag` goes into
    the local versions. `engine: none` makes kernels only, and nothing to serve with.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=NAME)
    title: str
    engine: Literal["sglang", "none"]
    python: tuple[Python, ...] = Field(min_length=1)
    arch: Literal["x86_64", "aarch64"]
    glibc: str
    cuda: Cuda = ""
    arch_list: tuple[Capability, ...] = ()
    toolkit: Literal["pinned", "host"] = "pinned"
    compiler_cache: Literal["auto", "off"] = "auto"
    tag: Tag = ""
    disk_gib: int = Field(ge=1)
    indexes: Mapping[str, str] = Field(default_factory=dict)
    components: Mapping[str, Pick] = Field(min_length=1)
    prebuilt: tuple[Prebuilt, ...] = ()
    requirements: tuple[str, ...] = ()
    requires_of: tuple[str, ...] = ()
    tools: tuple[str, ...] = Field(min_length=1)
    env: Mapping[str, str] = Field(default_factory=dict)
    notes: str = ""


class PatchEntry(Model):
    """Why one patch is there, what it is for, and when it may go.

    `stacks` names the stacks that take it; none named means every stack with the component.
    A build stops when a `load_bearing` patch does not apply.
    """

    file: str
    component: str
    versions: str
    stacks: tuple[str, ...] = ()
    reason: str = Field(min_length=1)
    upstream: str
    drop_when: str = Field(min_length=1)
    load_bearing: bool


class PatchRegistry(Model):
    """patches/registry.yaml; patches are applied in this order."""

    schema_: Literal[1] = Field(alias="schema")
    patches: tuple[PatchEntry, ...] = ()


def pin(requirement: str) -> tuple[str, str]:
    """Name and version of `name==version`; raises ValueError for anything looser."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        raise ValueError(f"{requirement!r} is no requirement; write name==version") from None
    specifiers = list(parsed.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "=="
    if not exact or parsed.url or parsed.marker or specifiers[0].version.endswith("*"):
        raise ValueError(f"{requirement!r} is not pinned; write {parsed.name}==version")
    return canonicalize_name(parsed.name), specifiers[0].version


def patches_for(
    registry: PatchRegistry, component: str, version: str, stack: str
) -> tuple[PatchEntry, ...]:
    """The patches that a component gets in this stack, in the order of the registry."""
    found = Version(version)
    return tuple(
        entry
        for entry in registry.patches
        if entry.component == component
        and (not entry.stacks or stack in entry.stacks)
        and SpecifierSet(entry.versions).contains(found, prereleases=True)
    )
