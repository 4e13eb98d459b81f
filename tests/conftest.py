"""What every test may ask for: test hosts, and the data that lies beside the checkout."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast an example runs says how busy the machine is, and nothing about the example.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell starts what runs in the background deaf to Ctrl-C, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.hosts.fixtures"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout: data too large or too foreign to be kept in it."""
    found = Path(__file__).parents[2] / "shared"
    if not found.is_dir():
        pytest.skip(f"there is no {found}: this test reads recorded data from it")
    return found


@pytest.fixture(scope="session")
def person_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The HOME of whoever runs `invoke` for real; gigabytes come to lie here, so it is removed.

    Projects share it, so that what one downloaded the next finds, as on a person's own machine.
    """
    home = tmp_path_factory.mktemp("person")
    yield home
    # Some disks take minutes for so many files: nobody waits for that.
    subprocess.Popen(["rm", "-rf", "--", str(home)], start_new_session=True)
