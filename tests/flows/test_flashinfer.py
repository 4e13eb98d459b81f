"""FlashInfer's Python half from its sdist, by the recipes and the lock of this project.

The first build downloads what the lock names; the second one has no network at all, not even for
the verb, and makes the same wheel.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.flows.project import INVOKE, Project, make_project
from tests.remote.programs import sha256

WORDS = ("build", "--stack", "kernels-cu130-sm120", "--component", "flashinfer-python")
LONG = 1500.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the lock's wheels are for x86_64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="taking the network away takes root"),
]


def built(project: Project) -> tuple[Path, dict[str, Any]]:
    """The one entry of the store, and its receipt."""
    (receipt,) = project.home.glob(".local/share/firstlight/store/flashinfer-python-*/receipt.json")
    found: dict[str, Any] = json.loads(receipt.read_text())
    return receipt.parent, found


def test_it_is_built_from_its_sdist_and_again_without_any_network(
    tmp_path: Path, person_home: Path
) -> None:
    project = make_project(tmp_path, [{"name": "local"}], home=person_home)
    project.invoke(*WORDS, "--arch", "12.0", timeout=LONG, check=True)
    home, receipt = built(project)
    (wheel,) = home.glob("*.whl")
    assert wheel.name == "flashinfer_python-0.7.2+cu130torch2.14sm120-py3-none-any.whl"
    assert sha256(wheel) == receipt["sha256"]
    assert receipt["sandbox"] == {"fixed_path": True, "offline": True}
    shutil.rmtree(home)
    alone = ["unshare", "--net", "--", str(INVOKE), *WORDS, "--arch", "12.0"]
    again = subprocess.run(
        alone, cwd=project.root, env=project.environ(), capture_output=True, text=True, timeout=LONG
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert built(project)[1]["sha256"] == receipt["sha256"]
