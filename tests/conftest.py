"""What every test may ask for: test hosts, and the data that lies beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.hosts.fixtures"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout: data too large or too foreign to be kept in it."""
    found = Path(__file__).parents[2] / "shared"
    if not found.is_dir():
        pytest.skip(f"there is no {found}: this test reads recorded data from it")
    return found
