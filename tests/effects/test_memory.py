"""What a verb remembers is believed only as it was written, and for the files of then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.effects import memory

KEY = ("up", "local", "tiny")
KEPT = {"home": "/x", "port": 30000, "data": {"changed": False, "of": [1, 2.5, None]}}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the one memory of this test lies."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    memory.remember(tmp_path, KEY, "seen", KEPT)
    (found,) = (tmp_path / "state" / "firstlight").iterdir()
    return found


def test_it_is_recalled_for_the_files_and_words_of_then_alone(tmp_path: Path, file: Path) -> None:
    assert file.exists()
    assert memory.recall(tmp_path, KEY, "seen") == KEPT
    assert memory.recall(tmp_path, KEY, "other files") is None
    assert memory.recall(tmp_path, (*KEY[:2], "other"), "seen") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"memory": {**KEPT, "port": None}},
        {"memory": None},
        {"memory": {**KEPT, "data": {}}},
        {"digest": None},
        {"digest": ""},
    ],
)
def test_what_was_edited_is_not_believed(
    tmp_path: Path, file: Path, changed: dict[str, object]
) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    assert memory.recall(tmp_path, KEY, "seen") is None


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "{}", '{"fingerprint": "seen"}', "\x00"])
def test_what_is_no_memory_is_none(tmp_path: Path, file: Path, text: str) -> None:
    file.write_text(text)
    assert memory.recall(tmp_path, KEY, "seen") is None
