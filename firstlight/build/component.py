"""The build room: how one component comes to be, as people write it in recipes/components/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field

from firstlight.build.source import ArchiveSource, GitSource, SdistSource, SourceName
from firstlight.core.schema import Model
from firstlight.hosts.inventory import NAME

Coupling = Literal["torch", "cpython", "cuda"]
COUPLINGS: tuple[Coupling, ...] = get_args(Coupling)
CAPABILITY = r"[1-9][0-9]*\.[0-9]"


class WheelSource(Model):
    """Published as a wheel; the lock holds its files and hashes."""

    kind: Literal["wheel"]


class ToolkitSource(Model):
    """A CUDA toolkit put together from NVIDIA's wheels; the component's version is its release."""

    kind: Literal["toolkit"]


Source = Annotated[
    WheelSource | ToolkitSource | SdistSource | ArchiveSource | GitSource,
    Field(discriminator="kind"),
]


class Fetched(Model):
    """A source that the build would download by itself (CMake's FetchContent), pinned."""

    name: SourceName
    source: Annotated[ArchiveSource | GitSource, Field(discriminator="kind")]


class Version(Model):
    """One version: where it can come from, the wanted way first, and what it would fetch."""

    sources: tuple[Source, ...] = Field(min_length=1)
    fetched: tuple[Fetched, ...] = ()


class ArchSpelling(Model):
    """How a component writes the capabilities it is built for: `${arch_list}`.

    `gencodes` are kept by the launcher where a build file hard-codes its targets; empty keeps all.
    """

    separator: str = ";"
    spelling: Mapping[str, str] = Field(default_factory=dict)
    gencodes: Mapping[str, str] = Field(default_factory=dict)


class Check(Model):
    """What a wheel must show before the store takes it.

    `targets` are, for each capability, the SASS targets of which every CUDA library must hold one;
    `unless` are libraries excused from that. `imports` must work, without a GPU, in an environment
    that has only `run` (names of packages, with what they need; the component's own name stands for
    what its published metadata requires) beside the wheel.
    """

    targets: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    only: bool = False
    ptx: bool = False
    libraries: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class Build(Model):
    """How a source becomes a wheel.

    `project` is the project.name of the pyproject.toml to build, found by content wherever it lies;
    none means the top of the source. `requires` are pinned packages of the build environment,
    `needs` other components of the stack that must be made before, `host_tools` programs of the
    host. `job_gib` is the memory of one compile job (GiB, one target), `units` how many files there
    are to compile (0 = unknown), `threads` the threads of one nvcc. `env`, `config` (PEP 517
    settings) and `cmake` (defines) may use placeholders. `couples` is what makes it stale:
    a wheel that is bound to anything else is refused.
    """

    backend: Literal["setuptools", "scikit-build-core", "pep517"]
    project: str = ""
    subdir: str = ""
    requires: tuple[str, ...] = Field(min_length=1)
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    config: Mapping[str, str] = Field(default_factory=dict)
    cmake: Mapping[str, str] = Field(default_factory=dict)
    host_tools: tuple[str, ...] = ("g++",)
    job_gib: float = Field(default=2.0, gt=0, le=4096)
    units: int = Field(default=0, ge=0)
    threads: int = Field(default=1, ge=1)
    disk_gib: int = Field(default=2, ge=1, le=100_000)
    arch: ArchSpelling | None = None
    couples: tuple[Coupling, ...] = ()
    check: Check = Check()


class Component(Model):
    """One package that a stack builds or changes, at the versions that we know how to make.

    `local_version` is what its version carries after `+` once it is ours; it may use placeholders.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=NAME)
    title: str
    versions: Mapping[str, Version] = Field(min_length=1)
    local_version: str = ""
    build: Build | None = None
    notes: str = ""
