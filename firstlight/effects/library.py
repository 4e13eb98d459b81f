"""The programs that run on hosts and the fixed texts, as files of this package."""

from __future__ import annotations

import hashlib
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / "remote"
_TEXTS = Path(__file__).parent.parent / "accuracy" / "texts"


def program(name: str) -> str:
    """The text of a program that runs on a host."""
    return (PROGRAMS / name).read_text(encoding="utf-8")


def programs() -> dict[str, Path]:
    """Every program that runs on a host, by file name."""
    kinds = {".py", ".sh"}
    return {path.name: path for path in sorted(PROGRAMS.iterdir()) if path.suffix in kinds}


def texts() -> dict[str, str]:
    """The fixed texts that a comparison scores, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_TEXTS.glob("*.txt"))}


def sha256(path: Path) -> str:
    """The digest of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
