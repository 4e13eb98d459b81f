"""What tests of programs need that run inside a release: the python of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

RELEASES = Path.home() / ".local/share/firstlight/releases"


@pytest.fixture(scope="session")
def release_python() -> str:
    """The python of FIRSTLIGHT_RELEASE_PYTHON, or of the newest release that is built here."""
    named = os.environ.get("FIRSTLIGHT_RELEASE_PYTHON")
    if named:
        return named
    built = sorted(RELEASES.glob("*/venv/bin/python"), key=lambda path: path.lstat().st_mtime)
    if not built:
        pytest.skip(
            "no release here: `invoke build` makes one, or name a FIRSTLIGHT_RELEASE_PYTHON"
        )
    return str(built[-1])
