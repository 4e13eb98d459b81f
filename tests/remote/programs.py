"""Run a program of firstlight/remote as a host would, and make small wheels for it to work on."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parents[2] / "firstlight" / "remote"


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


def run(
    program: str, *words: object, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> Ended:
    """Run it with this python and only the environment that it is given, and a PATH."""
    surroundings = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})}
    argv = [python, str(PROGRAMS / program), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=surroundings)
    return Ended(done.returncode, done.stdout, done.stderr)


def record_hash(data: bytes) -> str:
    """A digest as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def small_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A valid pure wheel with these members, its own metadata and RECORD."""
    info = f"{name}-{version}.dist-info"
    members = {
        **{path: text.encode() for path, text in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={record_hash(data)},{len(data)}\n" for path, data in members.items()
    )
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
