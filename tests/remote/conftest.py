"""What tests of programs need that run inside a release: the python of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.flows.project import make_project


@pytest.fixture(scope="session")
def release_python(person_home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The python of FIRSTLIGHT_RELEASE_PYTHON, or of a release that is built here for the tests.

    Tests of whole verbs leave one in the person's HOME; without them it takes minutes.
    """
    named = os.environ.get("FIRSTLIGHT_RELEASE_PYTHON")
    if named:
        return named
    folder = tmp_path_factory.mktemp("release")
    project = make_project(folder, [{"name": "local"}], home=person_home)
    project.invoke("build", timeout=900, check=True)
    releases = person_home / ".local/share/firstlight/releases"
    return str(next(releases.glob("*/venv/bin/python")))
