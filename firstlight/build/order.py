"""The build room: an order says all that decides what is built; a manifest says what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from firstlight.build.choose import TOOLKIT, Choice
from firstlight.build.keys import built_artifact, toolkit_artifact
from firstlight.build.lock import LockFile, PythonLock
from firstlight.build.recipe import Python, Stack
from firstlight.build.release import Artifact, Layout, Patch, patched_artifact, release_id
from firstlight.build.source import LockedSource
from firstlight.build.wheel import Wheel
from firstlight.core.plan import ShipFile
from firstlight.core.schema import Model

REPACK, DESCRIBE = "repack_wheel.py", "capabilities.py"
# What decides the bytes of a patched wheel, beside what goes into it.
_REPACKING = (REPACK, "unified_diff.py")


@dataclass(frozen=True)
class Order:
    """A stack with its lock, for one CPython, below one root.

    `choices` are in the order of their needs; `patches` are by component, in the order in which
    they are applied; `programs` by file name, with their place on the host. `version` is our own.
    `host_toolkit` is where the host has the CUDA toolkit of a stack that does not bring its own.
    """

    stack: Stack
    choices: Mapping[str, Choice]
    lock: LockFile
    python: Python
    patches: Mapping[str, tuple[Patch, ...]]
    programs: Mapping[str, ShipFile]
    layout: Layout
    version: str
    host_toolkit: str = ""


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
    source: Wheel | None = None
    archives: tuple[LockedSource, ...] = ()
    patches: tuple[Change, ...] = ()


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


def lock_of(order: Order) -> PythonLock:
    """What the lock has for the order's CPython."""
    return order.lock.pythons[order.python]


def sources(order: Order) -> dict[str, Wheel]:
    """The published wheel of each component that is patched."""
    return {wheel.name: wheel for wheel in lock_of(order).sources}


def artifacts(order: Order) -> dict[str, Artifact]:
    """What is made from the components, by name, in the order of their needs."""
    made: dict[str, Artifact] = {}
    for name, choice in order.choices.items():
        if not choice.as_is and not _is_host_toolkit(order, choice):
            made[name] = _artifact(order, choice, made)
    return made


def _is_host_toolkit(order: Order, choice: Choice) -> bool:
    return choice.source.kind == "toolkit" and order.stack.toolkit == "host"


def _artifact(order: Order, choice: Choice, made: Mapping[str, Artifact]) -> Artifact:
    patches = order.patches.get(choice.name, ())
    if choice.source.kind == "toolkit":
        return toolkit_artifact(order.layout, choice, order.lock, order.stack.cuda)
    if choice.from_source:
        stack, lock = order.stack, order.lock
        return built_artifact(order.layout, choice, stack, lock, order.python, patches, made)
    programs = [order.programs[name].sha256 for name in _REPACKING]
    published = sources(order)[choice.name]
    return patched_artifact(order.layout, choice, published, patches, programs)


def toolkit_path(order: Order) -> str:
    """Where the host has the stack's CUDA toolkit; "" for a stack without one."""
    made = artifacts(order).get(TOOLKIT)
    return str(made.path / "cuda") if made else order.host_toolkit


def release_of(order: Order) -> str:
    """The id of the release that an order leads to."""
    programs = [order.programs[DESCRIBE].sha256]
    made = artifacts(order).values()
    return release_id(order.stack, order.lock, order.python, made, programs)


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
        components=tuple(_part(order, artifact) for artifact in artifacts(order).values()),
        wheels=lock_of(order).wheels,
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
        source=sources(order).get(artifact.name),
        archives=order.lock.archives.get(artifact.name, ()),
        patches=changes,
    )


def render_manifest(manifest: Manifest) -> str:
    """manifest.json; the same release always gives the same text."""
    return manifest.model_dump_json(by_alias=True, exclude_defaults=True, indent=2) + "\n"
