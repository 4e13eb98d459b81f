"""What tests of whole verbs share: one person's HOME, with what was downloaded into it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def person_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The HOME of whoever runs `invoke` for real; gigabytes come to lie here, so it is removed.

    Projects share it, so that what one downloaded the next finds, as on a person's own machine.
    """
    home = tmp_path_factory.mktemp("person")
    yield home
    # Some disks take minutes for so many files: nobody waits for that.
    subprocess.Popen(["rm", "-rf", "--", str(home)], start_new_session=True)
