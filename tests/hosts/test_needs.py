"""Where no host can boot, the tests that want one say what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_skipped_test_names_the_missing_piece(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs"]
    test = "tests/hosts/test_fleet.py::test_zoe_is_noisy_before_every_command"
    nothing = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([*command, test], cwd=ROOT, env=nothing, capture_output=True, text=True)
    lacking = "debootstrap, systemd-nspawn, ip" if os.geteuid() == 0 else "root"
    assert f"test hosts need {lacking}" in done.stdout
    assert "1 skipped" in done.stdout


def test_asking_for_a_host_is_enough_to_be_marked() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    wanted = [*command, "-m", "not hosts", "tests/hosts/test_fleet.py"]
    done = subprocess.run(wanted, cwd=ROOT, capture_output=True, text=True)
    assert "no tests collected" in done.stdout
