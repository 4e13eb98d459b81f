"""The build room: an order says all that decides what is built; a manifest says what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from firstlight.build.lock import LockFile
from firstlight.build.recipe import Component, Python, Stack
from firstlight.build.release import Artifact, Layout, Patch, patched_artifact, release_id
from firstlight.build.wheel import Wheel
from firstlight.core.plan import ShipFile
from firstlight.core.schema import Model

REPACK, DESCRIBE = "repack_wheel.py", "capabilities.py"
# What decides the bytes of a patched wheel, beside what goes into it.
_REPACKING = (REPACK, "unified_diff.py")


@dataclass(frozen=True)
class Order:
    """A stack with its lock, for one CPython, below one root.

    `patches` are by component, in the order in which they are applied; `programs` by file name,
    with their place on the host. `version` is our own.
    """

    stack: Stack
    components: Mapping[str, Component]
    lock: LockFile
    python: Python
    patches: Mapping[str, tuple[Patch, ...]]
    programs: Mapping[str, ShipFile]
    layout: Layout
    version: str


class Change(Model):
    """A patch as the manifest tells it."""

    file: str
    sha256: str
    load_bearing: bool


class Part(Model):
    """A component as the manifest tells it."""

    name: str
    version: str
    key: str
    source: Wheel
    patches: tuple[Change, ...]


class Manifest(Model):
    """What a release is made of; manifest.json in its folder."""

    schema_: Literal[1] = Field(alias="schema")
    release: str
    stack: str
    engine: str
    python: Python
    arch: str
    glibc: str
    components: tuple[Part, ...]
    wheels: tuple[Wheel, ...]
    env: Mapping[str, str]
    firstlight: str


def sources(order: Order) -> dict[str, Wheel]:
    """The published wheel of each component."""
    return {wheel.name: wheel for wheel in order.lock.pythons[order.python].sources}


def artifacts(order: Order) -> tuple[Artifact, ...]:
    """What is made from the components, in the order of the stack."""
    published = sources(order)
    programs = [order.programs[name].sha256 for name in _REPACKING]
    return tuple(
        patched_artifact(
            order.layout,
            order.components[name],
            published[name],
            order.patches.get(name, ()),
            programs,
        )
        for name in order.stack.components
    )


def release_of(order: Order) -> str:
    """The id of the release that an order leads to."""
    programs = [order.programs[DESCRIBE].sha256]
    return release_id(order.stack, order.lock, order.python, artifacts(order), programs)


def manifest_of(order: Order) -> Manifest:
    """What the release of an order is made of; known before it is built."""
    stack = order.stack
    return Manifest(
        schema=1,
        release=release_of(order),
        stack=stack.name,
        engine=stack.engine,
        python=order.python,
        arch=stack.arch,
        glibc=stack.glibc,
        components=tuple(_part(order, artifact) for artifact in artifacts(order)),
        wheels=order.lock.pythons[order.python].wheels,
        env=stack.env,
        firstlight=order.version,
    )


def _part(order: Order, artifact: Artifact) -> Part:
    changes = tuple(
        Change(file=patch.file, sha256=patch.sha256, load_bearing=patch.load_bearing)
        for patch in order.patches.get(artifact.name, ())
    )
    return Part(
        name=artifact.name,
        version=artifact.version,
        key=artifact.key,
        source=sources(order)[artifact.name],
        patches=changes,
    )


def render_manifest(manifest: Manifest) -> str:
    """manifest.json; the same release always gives the same text."""
    return manifest.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n"
