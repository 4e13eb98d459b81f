"""The programs that run on hosts, as files with a place there; all of them share one folder."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import PurePosixPath

from firstlight.core.plan import ShipFile
from firstlight.effects import library


@cache
def digests() -> dict[str, str]:
    """The sha256 of every program, by file name."""
    return {name: library.sha256(path) for name, path in library.programs().items()}


def folder_name() -> str:
    """The name of the folder that holds them on a host: a digest of them all."""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(digests().items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shipped(root: PurePosixPath) -> dict[str, ShipFile]:
    """Every program with its place below a host's root."""
    folder = root / "lib" / folder_name()
    return {
        name: ShipFile(path, folder / name, digests()[name])
        for name, path in library.programs().items()
    }


def supervisor(root: PurePosixPath) -> PurePosixPath:
    """Where a host has the program that runs detached jobs."""
    return root / "lib" / folder_name() / "supervise.sh"
