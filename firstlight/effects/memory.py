"""What a verb found in place, remembered on this machine so that asking again costs little.

A memory is only a shortcut: it holds for the very files it was made from, and whoever uses it
looks at the host again before believing it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FOLDERS = ("inventory", "recipes", "templates", "patches")
_PACKAGE = Path(__file__).parent.parent


def fingerprint(root: Path) -> str:
    """A digest of every file that decides what a verb does: the project's data and our code."""
    total = hashlib.sha256()
    for path in _files(root):
        total.update(f"{path}\0".encode())
        # What cannot be read is told by whoever reads it for its content.
        with contextlib.suppress(OSError):
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def recall(root: Path, key: tuple[str, ...], seen: str) -> dict[str, Any] | None:
    """What was remembered under a key, if the files are still those of then; else None.

    What somebody edited is not what was remembered.
    """
    try:
        data = json.loads(_path(root, key).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("fingerprint") != seen:
        return None
    memory: dict[str, Any] | None = data.get("memory")
    return memory if data.get("digest") == _digest(memory) else None


def remember(root: Path, key: tuple[str, ...], seen: str, memory: dict[str, Any]) -> None:
    """Keep a memory; a disk that does not take it only costs time later."""
    path = _path(root, key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".partial.{os.getpid()}")
        kept = {"fingerprint": seen, "memory": memory, "digest": _digest(memory)}
        partial.write_text(json.dumps(kept), encoding="utf-8")
        partial.replace(path)


def _digest(memory: Any) -> str:
    return hashlib.sha256(json.dumps(memory, sort_keys=True).encode()).hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder in (root / name for name in _FOLDERS):
        yield from sorted(path for path in folder.rglob("*") if path.is_file())
    yield from sorted(path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".sh"))


def _path(root: Path, key: tuple[str, ...]) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(json.dumps([str(root), *key]).encode()).hexdigest()[:24]
    return state / "firstlight" / f"{name}.json"
