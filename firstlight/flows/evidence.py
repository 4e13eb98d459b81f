"""Evidence beside the profiles of a project: `evidence/<profile>/`, on this machine, to be kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from firstlight.core.errors import FirstlightError

_LAUNCH = ("deployment", "release", "policy", "capacity")


def folder(root: Path, profile: str) -> Path:
    """Where the evidence of a profile lies."""
    return root / "evidence" / profile


def write(path: Path, text: str) -> Path:
    """Write a file, whole or not at all; raises FirstlightError where that cannot be done."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    return path


def opened(path: Path) -> TextIO:
    """A file open for writing; raises FirstlightError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> FirstlightError:
    fix = f"free some space there, or make {path.parent} writable for you"
    return FirstlightError(f"cannot write {path}: {error.strerror}", remedy=fix)


def keep_launch(root: Path, profile: str, host: str, proof: Mapping[str, Any]) -> Path:
    """What the last proved launch on a host showed of its KV cache: verdict, and predicted
    against found. A launch that shows the same leaves the file as it is."""
    path = folder(root, profile) / f"launch-{host}.json"
    told = {"profile": profile, "host": host, **{key: proof[key] for key in _LAUNCH}}
    if _without_time(path) != told:
        text = json.dumps({"at": proof["at"], **told}, indent=2, ensure_ascii=False)
        write(path, f"{text}\n")
    return path


def _without_time(path: Path) -> Any:
    """The launch that is kept already, None where none can be read."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {key: kept[key] for key in kept if key != "at"} if isinstance(kept, dict) else None
