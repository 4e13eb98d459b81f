"""Part of a remote program: a program runs at a path that is the same everywhere, off the network.

nvcc writes the absolute path of a source into what it makes, so equal sources at other paths give
other bytes. In a mount namespace of its own a build finds its folders below PLACE, wherever they
lie; in a network namespace of its own a download that nobody asked for is an error; and in a
process namespace of its own nothing that it started outlives it, in whatever session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A folder that every system has; what it holds is hidden from the build, and only from it.
MOUNT = "/mnt"
PLACE = Path(MOUNT) / "firstlight"

ENTER = """
set -eu
stage=$1; shift
mount -t tmpfs -o mode=755 firstlight "$stage"
while [ "$1" != -- ]; do
  mkdir -p "$stage/firstlight/$1"
  mount --rbind "$2" "$stage/firstlight/$1"
  shift 2
done
shift
mount --rbind "$stage" /mnt
ip link set lo up 2>/dev/null || true
# Not exec: the first process of its namespace must collect what others leave behind.
"$@"
exit $?
"""

PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True)
class Sandbox:
    """How programs are run: `prefix` goes before their argv, `folders` are as they see them."""

    prefix: tuple[str, ...]
    folders: dict[str, Path]
    fixed_path: bool
    offline: bool


def make(folders: dict[str, Path], stage: Path) -> Sandbox:
    """The closest sandbox that this host allows for these folders; says what it does not allow."""
    stage.mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    for own in (PROCESSES, ()) if not base_is_hidden() else ():
        whole = (*unshare, "--mount", "--net", *own, "--", *enter(stage, folders))
        if works([*whole, "true"]):
            return Sandbox(whole, {n: PLACE / n for n in folders}, fixed_path=True, offline=True)
    print("note: no build at a fixed path here, so its bytes depend on where it lies", flush=True)
    offline = (*unshare, "--net", "--")
    if works([*offline, "true"]):
        return Sandbox(offline, dict(folders), fixed_path=False, offline=True)
    print("note: a build cannot be kept off the network here", flush=True)
    return Sandbox((), dict(folders), fixed_path=False, offline=False)


def enter(stage: Path, folders: dict[str, Path]) -> list[str]:
    pairs = [word for name, path in sorted(folders.items()) for word in (name, str(path))]
    return ["bash", "-c", ENTER, "enter", str(stage), *pairs, "--"]


def base_is_hidden() -> bool:
    """True when the interpreter itself lies where we would mount."""
    return Path(sys.base_prefix).resolve().is_relative_to(MOUNT)


def works(argv: list[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
