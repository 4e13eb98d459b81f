"""What tests of whole verbs share: one person's HOME, with what was downloaded into it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.tiny import Tiny, make_pantry, make_tiny


@pytest.fixture(scope="session")
def pantry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of the tiny stack."""
    return make_pantry(tmp_path_factory.mktemp("pantry"))


@pytest.fixture
def tiny(tmp_path: Path, pantry: Path) -> Iterator[Tiny]:
    """A tiny project of which nothing is built; what it started is ended."""
    made = make_tiny(tmp_path, pantry)
    yield made
    made.end()


@pytest.fixture(scope="session")
def built_place(tmp_path_factory: pytest.TempPathFactory, pantry: Path) -> Path:
    """Where the release of the tiny stack is built; ask for `built`."""
    place = tmp_path_factory.mktemp("built")
    make_tiny(place, pantry).project.invoke("build", check=True)
    return place


@pytest.fixture
def built(tmp_path: Path, pantry: Path, built_place: Path) -> Iterator[Tiny]:
    """A tiny project whose stack is built and whose profile was never deployed."""
    made = make_tiny(tmp_path, pantry, built_place)
    yield made
    made.end()
    shutil.rmtree(made.root / "deployments", ignore_errors=True)
