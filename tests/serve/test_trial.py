"""A server that is only measured: another name, another precision, and nothing of it that stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.plan import Run
from firstlight.core.schema import Document, load
from firstlight.serve import trial
from firstlight.serve.launch import Deployment, Launcher
from firstlight.serve.policy import check_profile
from firstlight.serve.profile import Profile

PROFILE = """\
schema: 1
name: small
stack: s
model: {kind: path, path: /m}
served_model_name: small
args: {device: cpu, kv_cache_dtype: bf16, max_total_tokens: 16384}
smoke: {echo: one}
service: {port: 30005}
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$@" >>"$CALLS"
"""


def document() -> Document[Profile]:
    return load(PROFILE, "small.yaml", Profile)


def test_a_variant_differs_in_its_cache_and_its_name_alone() -> None:
    before, after = document().value, trial.variant(document(), "fp8_e5m2").value
    assert after.name == "small.compare"
    assert list(after.args.items()) == [
        ("device", "cpu"),
        ("kv_cache_dtype", "fp8_e5m2"),
        ("max_total_tokens", 16384),
    ]
    assert (after.policy.kv, after.service.restart) == ("allow_any", "no")
    same = {"model", "stack", "served_model_name", "env", "extra_args", "match"}
    assert after.model_dump(include=same) == before.model_dump(include=same)
    assert after.service.port == before.service.port


def test_no_profile_is_called_as_a_comparison_calls_its_servers() -> None:
    """A comparison of `small` would have removed the deployment of `small.compare`."""
    file = "recipes/profiles/small.compare.yaml"
    taken = load(PROFILE.replace("name: small", "name: small.compare", 1), file, Profile)
    (fault,) = check_profile(taken)
    assert str(fault) == f"{file}:2:7: names that end with .compare are those of `invoke compare`"


def test_a_key_goes_by_what_is_launched_where_and_asked_what() -> None:
    keys = {
        trial.measure_key(*words)
        for words in (("a", "h", "s"), ("b", "h", "s"), ("a", "i", "s"), ("a", "h", "t"))
    }
    assert len(keys) == 4
    assert trial.measure_key("a", "h", "s") in keys


def cleared(tmp_path: Path, folder: str, launcher: Launcher) -> subprocess.CompletedProcess[str]:
    """Run the step that clears, with a systemctl that only takes down what it was told."""
    home = tmp_path / "deployments" / folder / "0123456789ab"
    home.mkdir(parents=True)
    (home / "log").write_text("said")
    service = Deployment("small.compare", PurePosixPath(home), PurePosixPath("/lib"), launcher)
    unit = tmp_path / "config/systemd/user" / service.unit
    unit.with_name(f"{unit.name}.d").mkdir(parents=True)
    unit.write_text("[Service]")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(SYSTEMCTL)
    (tools / "systemctl").chmod(0o755)
    step = trial.clear_step(service)
    assert isinstance(step.action, Run)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "CALLS": str(tmp_path / "calls"),
    }
    source = step.action.script.source()
    return subprocess.run(["bash", "-s"], input=source, text=True, capture_output=True, env=env)


@pytest.mark.parametrize("launcher", ["process", "systemd-user"])
def test_clearing_takes_the_folder_and_the_unit(tmp_path: Path, launcher: Launcher) -> None:
    done = cleared(tmp_path, "small.compare", launcher)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "deployments").iterdir()) == []
    units = sorted(path.name for path in (tmp_path / "config/systemd/user").iterdir())
    if launcher == "process":
        assert units == ["firstlight-small.compare.service", "firstlight-small.compare.service.d"]
    else:
        assert units == []
        assert (tmp_path / "calls").read_text() == "--user daemon-reload\n"


def test_clearing_touches_no_folder_of_a_profile(tmp_path: Path) -> None:
    done = cleared(tmp_path, "small", "process")
    assert done.returncode == 1
    assert "is of no comparison" in done.stderr
    assert (tmp_path / "deployments/small/0123456789ab/log").exists()
