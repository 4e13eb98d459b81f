"""The build room: where things lie on a host, and what names an artifact and a release.

A key digests what changes the bits and nothing else: never a date, a host, a driver, or a count
of jobs. So every path is known before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from firstlight.build.choose import Choice
from firstlight.build.digest import short
from firstlight.build.lock import LockFile
from firstlight.build.recipe import Python, Stack
from firstlight.build.wheel import Wheel


@dataclass(frozen=True)
class Layout:
    """The folders below a host's root, which is absolute; a path in one of them is complete."""

    root: PurePosixPath

    @property
    def wheels(self) -> PurePosixPath:
        """Downloaded wheels, by content."""
        return self.root / "wheels"

    @property
    def sources(self) -> PurePosixPath:
        """Source archives, by content."""
        return self.root / "sources"

    @property
    def compiler_cache(self) -> PurePosixPath:
        """What compilers made of what, for a build that is done again."""
        return self.root / "cache" / "ccache"

    @property
    def store(self) -> PurePosixPath:
        """What was made on a host, by the digest of what it was made from."""
        return self.root / "store"

    @property
    def releases(self) -> PurePosixPath:
        """Complete environments to serve from."""
        return self.root / "releases"

    @property
    def uv_cache(self) -> PurePosixPath:
        """Unpacked wheels, which releases share by hard links."""
        return self.root / "cache" / "uv"

    def shared(self, digest: str, name: str) -> PurePosixPath:
        """A small file from the controller: a program, a patch, a list; by content."""
        return self.root / "lib" / digest / name

    def release(self, release: str) -> PurePosixPath:
        """The folder of one release."""
        return self.releases / release


@dataclass(frozen=True)
class Patch:
    """One patch: its file below patches/, where the controller has it, its digest, its weight."""

    file: str
    source: Path
    sha256: str
    load_bearing: bool


@dataclass(frozen=True)
class Artifact:
    """Something made on a host; `path` is complete when it exists."""

    name: str
    version: str
    key: str
    path: PurePosixPath

    @property
    def receipt(self) -> PurePosixPath:
        """What it was made from and what came out."""
        return self.path / "receipt.json"


def wheel_path(layout: Layout, wheel: Wheel) -> PurePosixPath:
    """Where a host keeps a wheel."""
    return layout.wheels / wheel.sha256 / wheel.file


def patched_artifact(
    layout: Layout,
    choice: Choice,
    source: Wheel,
    patches: Iterable[Patch],
    programs: Iterable[str],
) -> Artifact:
    """A component's wheel with patches in it; `programs` are the digests of what repacks it.

    The order of the patches counts, their file names do not.
    """
    key = short(
        {
            "name": choice.name,
            "version": choice.version,
            "local_version": choice.local_version,
            "kind": choice.source.kind,
            "source": source.sha256,
            "patches": [[patch.sha256, patch.load_bearing] for patch in patches],
            "programs": sorted(programs),
        }
    )
    return artifact(layout, choice, key)


def artifact(layout: Layout, choice: Choice, key: str) -> Artifact:
    """Where the store has what a choice with that key leads to."""
    version = f"{choice.version}+{choice.local_version}" if choice.local_version else choice.version
    home = layout.store / f"{choice.name}-{choice.version}-{key}"
    return Artifact(choice.name, version, key, home)


def release_id(
    stack: Stack,
    lock: LockFile,
    python: Python,
    artifacts: Iterable[Artifact],
    programs: Iterable[str],
) -> str:
    """`<stack>-py311-<key>`; `programs` are the digests of what describes a release.

    The stack's environment is in it, so that what a release says of itself stays true.
    """
    key = short(
        {
            "engine": stack.engine,
            "arch": stack.arch,
            "python": python,
            "env": dict(stack.env),
            "wheels": sorted(wheel.sha256 for wheel in lock.pythons[python].wheels),
            "tools": sorted(wheel.sha256 for wheel in lock.tools),
            "artifacts": sorted([artifact.name, artifact.key] for artifact in artifacts),
            "programs": sorted(programs),
        }
    )
    return f"{stack.name}-py{python.replace('.', '')}-{key}"
