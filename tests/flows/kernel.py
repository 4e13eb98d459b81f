"""A stack of small CUDA packages, each with one fault or none, built from source by `invoke build`.

All are one sdist under several names; what is wrong with one is said by its recipe. The toolkit is
the real one, of the wheels that the lock of a shipped stack names.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from firstlight.build.component import Component
from firstlight.build.lock import LockFile, PythonLock, make_lock, render
from firstlight.build.recipe import Stack
from firstlight.build.source import LockedSource
from firstlight.build.wheel import Wheel
from firstlight.core.schema import load
from tests.flows.project import REPO, Project, make_project
from tests.flows.tiny import refused

PACKAGE = Path(__file__).parent / "kernel_package"
FETCH = REPO / "firstlight/remote/fetch_wheels.py"
# With which an artifact's name ends: neither `.old`, nor `-second` of a build in two places.
KEY = "[0-9a-f]" * 12
SHIPPED = "recipes/locks/kernels-cu130-sm120.lock.yaml"
# Midsummer of 2026: the time of the source, and so of all that is made of it.
TIME = 1782000000

STACK: dict[str, Any] = {
    "schema": 1,
    "name": "kernels",
    "title": "Small kernels",
    "engine": "none",
    "python": ["3.11", "3.12", "3.13"],
    "arch": "x86_64",
    "glibc": "2.34",
    "cuda": "13.0",
    "arch_list": ["12.0"],
    "tag": "cu130",
    "disk_gib": 1,
}
BUILD: dict[str, Any] = {
    "backend": "pep517",
    "requires": ["ninja==1.13.2"],
    "needs": ["cuda-toolkit"],
    "job_gib": 0.5,
    "units": 3,
    "disk_gib": 1,
    "arch": {"gencodes": {"12.0": "120a"}},
    "couples": ["cuda"],
}
CHECK: dict[str, Any] = {
    "targets": {"12.0": ["sm_120a", "sm_120f"]},
    "only": True,
    "run": ["nvidia-cuda-runtime"],
}
PATCH = """\
--- a/csrc/twice.cu
+++ b/csrc/twice.cu
@@ -3,1 +3,1 @@
-__global__ void {old}(float *x) {{ x[threadIdx.x] *= 2; }}
+__global__ void {old}(float *x) {{ x[threadIdx.x] *= 2.0f; }}
"""


@dataclass(frozen=True)
class Variant:
    """One component: what its build is told, and what else it needs."""

    env: Mapping[str, str]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernels:
    """A project whose only stack is `kernels`; `root` is where the host `local` has everything.

    A component that is told of `gate` waits while that file exists.
    """

    project: Project
    root: Path
    gate: Path

    def build(self, name: str, *more: str, **kinds: Any) -> subprocess.CompletedProcess[str]:
        """Build one component for a card that this machine need not have."""
        return self.project.invoke(*self.words(name, *more), timeout=600, **kinds)

    def words(self, name: str, *more: str) -> tuple[str, ...]:
        """What a person types to build one component."""
        return ("build", "--stack", "kernels", "--component", name, "--arch", "12.0", *more)

    def made(self, name: str) -> list[Path]:
        """The component's artifacts in the store."""
        return sorted((self.root / "store").glob(f"{name}-1.0-{KEY}"))

    def receipt(self, name: str) -> dict[str, Any]:
        """The receipt of its only artifact."""
        (home,) = self.made(name)
        found: dict[str, Any] = json.loads((home / "receipt.json").read_text())
        return found

    def wheel(self, name: str) -> Path:
        """The wheel of its only artifact."""
        (home,) = self.made(name)
        (found,) = home.glob("*.whl")
        return found

    def log(self, name: str) -> str:
        """What its last build said, "" before there is one."""
        logs = list((self.root / "jobs").glob(f"build-{name}-1.0-{KEY}/log"))
        return logs[0].read_text(errors="replace") if logs else ""

    def fails(self, name: str, code: int = 4) -> str:
        """The message of a build that fails: nothing is in the store, nothing is left over."""
        done = self.build(name)
        # The log may show a traceback: of the package's own build, not of ours.
        ours = [line for line in done.stderr.splitlines() if not line.startswith("  | ")]
        told = subprocess.CompletedProcess(done.args, done.returncode, "", "\n".join(ours))
        refused(told, code)
        assert self.made(name) == [] and self.leftovers() == []
        return done.stderr

    def leftovers(self) -> list[str]:
        """What a build had begun and left: nothing, but for wheels that were refused."""
        partial = [str(path) for path in (self.root / "store").glob("*.partial*")]
        built = (self.root / "build").glob("*")
        return partial + [str(path) for path in built if not path.name.startswith("refused-")]

    def processes(self) -> list[int]:
        """What runs for a job of this root, in whatever session."""
        mark = f"FIRSTLIGHT_JOB={self.root}/jobs/".encode()
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/environ")
            if has(path, mark)
        ]

    def end(self) -> None:
        """Open the gate, and end every job of this root."""
        self.gate.unlink(missing_ok=True)
        for program in self.root.glob("jobs/*/supervise.sh"):
            # What ran before, and what never began.
            if program.parent.suffix in (".old", ".partial"):
                continue
            subprocess.run(["bash", str(program), "cancel", str(program.parent), "1"])


def has(environ: Path, mark: bytes) -> bool:
    """True when a process has that in its environment."""
    try:
        return mark in environ.read_bytes()
    except OSError:
        return False


@dataclass(frozen=True)
class Pantry:
    """What pip is pointed at: sdists of our own, and the tools' wheels, fetched once."""

    folder: Path
    toolkit: Path

    @cached_property
    def shipped(self) -> LockFile:
        """The lock that says which toolkit and which tools."""
        return load((REPO / SHIPPED).read_text(), SHIPPED, LockFile).value

    @property
    def ninja(self) -> tuple[Wheel, ...]:
        """What the package is built with, of any CPython: its wheel is for all."""
        built = next(iter(self.shipped.pythons.values())).build["flash-attn"]
        return tuple(wheel for wheel in built if wheel.name == "ninja")

    @property
    def runtime(self) -> tuple[Wheel, ...]:
        """What the package runs with."""
        return tuple(one for one in self.shipped.toolkit if one.name == "nvidia-cuda-runtime")

    def sdist(self, name: str) -> LockedSource:
        """The package's source under a name, the same bytes each time."""
        path = self.folder / f"{name.replace('-', '_')}-1.0.tar.gz"
        if not path.exists():
            make_sdist(path, name)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return LockedSource(
            name=name,
            kind="sdist",
            file=path.name,
            sha256=digest,
            size=path.stat().st_size,
            time=TIME,
        )


def make_sdist(path: Path, name: str) -> None:
    """Pack the package's files under that name."""
    project = f'[project]\nname = "{name}"\nversion = "1.0"\n'
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {
        str(file.relative_to(PACKAGE)): file.read_bytes()
        for file in sorted(PACKAGE.rglob("*"))
        if file.suffix in (".py", ".cu")
    }
    files["pyproject.toml"] = f"{system}\n{project}".encode()
    with tarfile.open(path, "w:gz") as tar:
        for file, data in files.items():
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{file}")
            member.size, member.mtime = len(data), TIME
            tar.addfile(member, io.BytesIO(data))


def make_pantry(folder: Path, toolkit: list[Path]) -> Pantry:
    """Fetch the tools; `toolkit` are NVIDIA's wheels, which lie elsewhere already."""
    pantry = Pantry(folder, toolkit[0].parent)
    wanted = [*pantry.shipped.tools, *pantry.ninja]
    keys = {"name", "version", "file", "sha256", "size", "index"}
    rows = [wheel.model_dump(include=keys) for wheel in wanted]
    request = folder / "request.json"
    request.write_text(json.dumps({"python": "3.11", "wheels": rows}))
    subprocess.run([sys.executable, str(FETCH), str(request), str(folder / "wheels")], check=True)
    for wheel in wanted:
        (folder / wheel.file).hardlink_to(folder / "wheels" / wheel.sha256 / wheel.file)
    for path in toolkit:
        (folder / path.name).symlink_to(path)
    return pantry


def share_toolkit(pantry: Pantry, root: Path) -> None:
    """Put NVIDIA's wheels where a host has them, so that no test copies a gigabyte."""
    for wheel in pantry.shipped.toolkit:
        place = root / "wheels" / wheel.sha256 / wheel.file
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            continue
        try:
            place.hardlink_to(pantry.toolkit / wheel.file)
        except OSError:
            place.symlink_to(pantry.toolkit / wheel.file)


def make_kernels(
    folder: Path, pantry: Pantry, variants: Mapping[str, Variant], cache: str, root: Path
) -> Kernels:
    """A project in `folder` with these components, whose host has its things in `root`."""
    env = {"PIP_FIND_LINKS": str(pantry.folder), "PIP_NO_INDEX": "1"}
    host = {"name": "local", "root": str(root), "env": env}
    project = make_project(folder, [host], defaults={"host": "local"})
    for name in ("recipes/components", "recipes/stacks", "recipes/locks", "recipes/profiles"):
        for path in (project.root / name).glob("*.yaml"):
            if path.name != "cuda-toolkit.yaml":
                path.unlink()
    for path in (project.root / "patches").rglob("*.*"):
        path.unlink()
    _write_recipes(project, pantry, variants, cache)
    return Kernels(project, root, folder / "gate")


def _write_recipes(
    project: Project, pantry: Pantry, variants: Mapping[str, Variant], cache: str
) -> None:
    parts = {name: _component(name, variant) for name, variant in variants.items()}
    tools = [f"{tool.name}=={tool.version}" for tool in pantry.shipped.tools]
    picks = {"cuda-toolkit": {"version": "13.0"}, **{name: {"version": "1.0"} for name in parts}}
    stack = {**STACK, "compiler_cache": cache, "components": picks, "tools": tools}
    for name, part in parts.items():
        project.write(f"recipes/components/{name}.yaml", yaml.safe_dump(part, sort_keys=False))
    project.write("recipes/stacks/kernels.yaml", yaml.safe_dump(stack, sort_keys=False))
    project.write("recipes/locks/kernels.lock.yaml", render(_lock(project, pantry, list(parts))))
    entries = [_patch(project, name, old) for name, old in PATCHED.items() if name in parts]
    registry = {"schema": 1, "patches": entries}
    project.write("patches/registry.yaml", yaml.safe_dump(registry, sort_keys=False))


# The name that each component's patch expects: in the source it is `twice`.
PATCHED = {"good": "twice", "misfit": "thrice"}


def _patch(project: Project, name: str, old: str) -> dict[str, Any]:
    file = f"{name}/0001-float.patch"
    project.write(f"patches/{file}", PATCH.format(old=old))
    return {
        "file": file,
        "component": name,
        "versions": "==1.0",
        "reason": "a test has to see that a source is patched",
        "upstream": "never",
        "drop_when": "the tests are",
        "load_bearing": True,
    }


def _component(name: str, variant: Variant) -> dict[str, Any]:
    module = name.replace("-", "_")
    env = {"KERNEL_NVCC": "${launcher} ${cuda_home}/bin/nvcc", **variant.env}
    check = {**CHECK, "libraries": [f"{module}/libkernels.so"], "imports": [module]}
    build = {**BUILD, "needs": [*BUILD["needs"], *variant.needs], "env": env, "check": check}
    return {
        "schema": 1,
        "name": name,
        "title": f"Small kernels: {name}",
        "versions": {"1.0": {"sources": [{"kind": "sdist"}]}},
        "local_version": "${tag}",
        "build": build,
    }


def _lock(project: Project, pantry: Pantry, names: list[str]) -> LockFile:
    def recipe(path: str, model: Any) -> Any:
        return load(project.read(path), path, model).value

    stack = recipe("recipes/stacks/kernels.yaml", Stack)
    parts = {
        name: recipe(f"recipes/components/{name}.yaml", Component)
        for name in ("cuda-toolkit", *names)
    }
    one = PythonLock(
        wheels=(),
        build=dict.fromkeys(names, pantry.ninja),
        check=dict.fromkeys(names, pantry.runtime),
    )
    archives = {name: (pantry.sdist(name),) for name in names}
    found = dict.fromkeys(stack.python, one)
    return make_lock(stack, parts, found, pantry.shipped.tools, pantry.shipped.toolkit, archives)
