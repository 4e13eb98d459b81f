"""A locale that has no bytes for a name of ours: told at the start, with what to set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.project import make_project
from tests.flows.tiny import refused

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("verb", ["status", "deploy", "prune"])
def test_a_root_that_the_locale_cannot_name_is_told_before_anything(
    tmp_path: Path, verb: str
) -> None:
    root = tmp_path / "wurzel-\u00e4\u4e16"
    project = make_project(tmp_path, [{"name": "local", "root": str(root)}])
    message = refused(project.invoke(verb, "--host", "local", env=ASCII), 3)
    assert "local: the locale of this session (ascii) cannot name the folder '" in message
    assert message.endswith("wurzel-\\xe4\\u4e16'\n  -> set LC_ALL=C.UTF-8 and run it again\n")
    assert not root.exists()
    again = {**ASCII, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
    assert "locale" not in project.invoke("status", "--host", "local", env=again, check=True).stderr
