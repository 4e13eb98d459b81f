"""Paths as people write them: `~` is whoever runs this, and `~name` another."""

from __future__ import annotations

import os
from pathlib import Path

from firstlight.core.command import quote


def expanded(text: str) -> Path:
    """A path with its `~` resolved, where there is such a home; as it is where there is none."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser() raises RuntimeError


def home_relative(path: Path) -> str:
    """A path as a person would type it in a shell."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails where there is none
    if path.is_relative_to(home):
        return f"~/{quote(path.relative_to(home))}"
    return quote(path)
