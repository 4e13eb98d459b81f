"""A small stack, its lock and an order for it: values that the tests of this room share."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

from firstlight.build.choose import choose
from firstlight.build.component import Component
from firstlight.build.fetch import Controller, Depot
from firstlight.build.lock import LockFile, PythonLock, make_lock
from firstlight.build.order import Order
from firstlight.build.recipe import Stack
from firstlight.build.release import Layout, Patch
from firstlight.build.steps import Site
from firstlight.build.wheel import Wheel
from firstlight.core.plan import ShipFile
from firstlight.core.schema import Document, load

STACK = """\
schema: 1
name: tiny-cpu
title: A tiny stack
engine: sglang
python: ["3.11", "3.12"]
arch: x86_64
glibc: "2.34"
disk_gib: 4
components: {sglang: {version: 0.5.23}}
indexes:
  torch-cpu: https://torch.example/cpu
prebuilt:
  - name: torch
    version: 2.13.0+cpu
    index: torch-cpu
    needs: [filelock]
    wheels:
      "3.11":
        file: torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
        sha256: "{t11}"
        size: 3000000
      "3.12":
        file: torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl
        sha256: "{t12}"
requirements:
  - einops==0.8.2
tools:
  - uv==0.13.9
env:
  SGLANG_USE_CPU_ENGINE: "1"
tag: cpu
""".replace("{t11}", "a1" * 32).replace("{t12}", "a2" * 32)

COMPONENT = """\
schema: 1
name: sglang
title: The engine
versions:
  0.5.23: {sources: [{kind: wheel}]}
local_version: firstlight.${tag}
"""

ROOT = PurePosixPath("/srv/first light")


def stack(text: str = STACK) -> Document[Stack]:
    """The small stack, or another text read as one."""
    return load(text, "recipes/stacks/tiny-cpu.yaml", Stack)


def component(text: str = COMPONENT) -> Document[Component]:
    """The small stack's only component."""
    return load(text, "recipes/components/sglang.yaml", Component)


def parts() -> dict[str, Component]:
    """The components by name."""
    return {"sglang": component().value}


def pure(name: str, version: str, sha256: str) -> Wheel:
    """A wheel of pure Python."""
    file = f"{name}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, sha256=sha256, size=1_000_000)


def engine(python: str, sha256: str) -> Wheel:
    """The engine as it is published."""
    tag = f"cp{python.replace('.', '')}"
    file = f"sglang-0.5.23-{tag}-{tag}-manylinux_2_34_x86_64.whl"
    return Wheel(name="sglang", version="0.5.23", file=file, sha256=sha256, size=39_000_000)


UV = Wheel(
    name="uv",
    version="0.13.9",
    file="uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    sha256="f1" * 32,
    size=17_000_000,
)


def lock() -> LockFile:
    """The lock of the small stack."""
    wheels = (pure("einops", "0.8.2", "b1" * 32), pure("filelock", "3.20.0", "b2" * 32))
    pythons = {
        python: PythonLock(wheels=wheels, sources=(engine(python, sha256),))
        for python, sha256 in (("3.11", "c1" * 32), ("3.12", "c2" * 32))
    }
    return make_lock(stack().value, parts(), pythons, (UV,))  # type: ignore[arg-type]


def order() -> Order:
    """An order for the small stack on CPython 3.11."""
    layout = Layout(ROOT)
    names = ("capabilities.py", "fetch_wheels.py", "repack_wheel.py", "unified_diff.py")
    programs = {
        name: ShipFile(Path("/here/remote") / name, layout.shared("d" * 64, name), f"{index:064x}")
        for index, name in enumerate(names, 1)
    }
    patches = (
        Patch("sglang/0001-start.patch", Path("/here/patches/0001-start.patch"), "e1" * 32, True),
        Patch("sglang/0002-extra.patch", Path("/here/patches/0002-extra.patch"), "e2" * 32, False),
    )
    return Order(
        stack=stack().value,
        choices=choose(stack().value, parts()),
        lock=lock(),
        python="3.11",
        patches={"sglang": patches},
        programs=programs,
        layout=layout,
        version="0.1.0",
    )


NOTHING: frozenset[str] = frozenset()


def site(
    *,
    releases: frozenset[str] = NOTHING,
    artifacts: frozenset[str] = NOTHING,
    wheels: frozenset[str] = NOTHING,
    route: Literal["host", "controller"] = "host",
    cached: frozenset[str] = NOTHING,
) -> Site:
    """A host, what is there already, and what the controller has downloaded before."""
    made, here = order(), Layout(PurePosixPath("/home/ann/fl"))
    depot = Depot(
        series="3.11",
        python="/usr/bin/python3.11",
        program=made.programs["fetch_wheels.py"],
        layout=made.layout,
        wheels=wheels,
        route=route,
        controller=Controller("/usr/bin/python3.12", here, cached),
        indexes=made.stack.indexes,
    )
    return Site(releases, artifacts, depot)
