"""The bash of jobs and launchers, in files and in Python, is sound to bash and to shellcheck."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import get_args

import pytest

from firstlight.core.command import Script
from firstlight.effects import jobs
from firstlight.serve import launch, running
from firstlight.serve.launch import Deployment, Launcher

ROOT = Path(__file__).parents[2]
REMOTE = ROOT / "firstlight" / "remote"
PROGRAMS = [REMOTE / name for name in ("processes.sh", "supervise.sh", "serve.sh")]


def scripts() -> dict[str, Script]:
    """The scripts that live in Python, by a name."""
    here = PurePosixPath("/x")
    found = {
        word: Script(getattr(jobs, word), ("x",) * 7) for word in ("_START", "_POLL", "_CANCEL")
    }
    found["linger"] = launch.enable_linger("bob")
    for launcher in get_args(Launcher):
        one = Deployment("x", here, here, launcher)
        for verb in (launch.start, launch.stop, running.read_log):
            found[f"{verb.__name__} {launcher}"] = verb(one)
    return found


SCRIPTS = scripts()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_programs(program: Path) -> None:
    subprocess.run(["bash", "-n", str(program)], check=True)
    check("-x", "-P", "SCRIPTDIR", str(program))


@pytest.mark.parametrize("name", SCRIPTS)
def test_inline_scripts(name: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(SCRIPTS[name].source())
    subprocess.run(["bash", "-n", str(file)], check=True)
    # SC2034: the head names every field, whether this script needs it or not.
    check("-s", "bash", "-e", "SC2034", str(file))


def check(*arguments: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
