"""Part of a remote program: what a receipt says of a wheel that was made here."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from compile_wheel import Effort
from sandbox import Sandbox
from unified_diff import Fault


def judged(wheel: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The verifier's findings; raises Fault when it has an objection."""
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Fault(f"{wheel.name} could not be checked: {done.stdout.strip()[:300]}", "") from None
    if done.returncode == 0:
        return found
    faults = tuple(f"  {told(fault)}" for fault in found.get("faults", []))
    raise Fault(
        f"{wheel.name} is not what was asked for; the store does not take it",
        "correct the component's build or its check",
        faults,
    )


def told(fault: Any) -> str:
    """One objection of the verifier in a line."""
    where = f"{fault['where']}: " if fault["where"] else ""
    return f"{where}{fault['what']}"


def receipt(
    request: dict[str, Any],
    patches: list[dict[str, Any]],
    box: Sandbox,
    effort: Effort,
    found: dict[str, Any],
    wheel: Path,
) -> dict[str, Any]:
    """What went in, how it was made, what it took, and what came out."""
    return {
        "name": request["name"],
        "version": wheel.name.split("-")[1],
        "file": wheel.name,
        "sha256": sha256(wheel),
        "size": wheel.stat().st_size,
        "key": request["key"],
        "inputs": request["inputs"],
        "patches": [{k: v for k, v in one.items() if k != "file"} for one in patches],
        "command": list(effort.command),
        "environment": dict(effort.env),
        "sandbox": {"fixed_path": box.fixed_path, "offline": box.offline},
        "compiler_cache": bool(request["ccache"]),
        "reproducible": box.fixed_path and box.offline and not request["ccache"],
        "compilers": compilers(request),
        "host": {"python": platform.python_version(), "machine": platform.machine()},
        "jobs": effort.jobs,
        "attempts": effort.attempts,
        "wall_s": round(effort.wall_s, 1),
        "cpu_s": round(effort.cpu_s, 1),
        "peak_mib": effort.peak_mib,
        "libraries": found.get("libraries", []),
        "notes": found.get("notes", []),
    }


def compilers(request: dict[str, Any]) -> dict[str, Any]:
    """The compilers by what they say and by the digest of what really compiles."""
    told: dict[str, Any] = {}
    gxx = shutil.which("g++")
    if gxx:
        told["g++"] = {"version": first_line([gxx, "--version"]), "sha256": sha256(Path(gxx))}
    if request["toolkit"]:
        home = Path(request["toolkit"])
        said = said_by([str(home / "bin" / "nvcc"), "--version"]).strip().splitlines()
        told["nvcc"] = {"version": said[-1] if said else ""}
        for name in ("bin/nvcc", "nvvm/bin/cicc", "bin/ptxas"):
            if (home / name).exists():
                told["nvcc"][f"sha256 of {name}"] = sha256(home / name)
    return told


def said_by(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def first_line(argv: list[str]) -> str:
    return (said_by(argv).splitlines() or [""])[0]


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
