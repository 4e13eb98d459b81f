"""The short way to say that all is in place: what was remembered, and one look at the server.

Nothing here reads a recipe: that all files are those of then is told by their fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from firstlight.core.errors import FirstlightError
from firstlight.core.report import Report
from firstlight.effects import http, memory
from firstlight.effects.local import run_here
from firstlight.serve import running
from firstlight.serve.launch import Deployment

HEALTH = "/health_generate"


def in_place(root: Path, host: str, profile: str) -> Report | None:
    """What the last `up` on this machine said, if its server still runs and answers."""
    known = memory.recall(root, ("up", host, profile), memory.fingerprint(root))
    if known is None or not _is_current(known) or not _runs(known):
        return None
    if not http.get(f"http://127.0.0.1:{known['port']}{HEALTH}", 20.0).ok:
        return None
    return Report(f"all is in place\n{known['text']}", {**known["data"], "changed": False})


def memory_of(report: Report, root: PurePosixPath, env: Mapping[str, str]) -> dict[str, Any]:
    """What to keep of a finished `up`: enough to look at its server again."""
    kept = report.data["deployment"]
    home = root / "deployments" / kept["profile"] / kept["id"]
    return {
        "home": str(home),
        "profile": kept["profile"],
        "launcher": kept["launcher"],
        "sudo": kept["sudo"],
        "port": kept["port"],
        "env": dict(env),
        "text": report.text,
        "data": report.data,
    }


def _is_current(known: Mapping[str, Any]) -> bool:
    home = Path(known["home"])
    link = home.parent / "current"
    return link.is_symlink() and str(link.readlink()) == home.name


def _runs(known: Mapping[str, Any]) -> bool:
    home = PurePosixPath(known["home"])
    deployment = Deployment(known["profile"], home, home, known["launcher"], sudo=known["sudo"])
    try:
        result = run_here(running.state(deployment), known["env"])
        return running.parse_state(result.out, "local").condition == "running"
    except FirstlightError:
        return False
