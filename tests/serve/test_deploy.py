"""The scripts of a deploy, run for real: a port by then taken, whose unit is stopped, the links."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import socket
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.plan import Run, Step, Watch
from firstlight.core.schema import load
from firstlight.serve import deploy, launch
from firstlight.serve.manifest import Manifest
from firstlight.serve.profile import Profile
from firstlight.serve.render import Deployment

PROFILE = """\
schema: 1
name: small
stack: s
model: {kind: path, path: /m}
served_model_name: small
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$@" >>"$CALLS"
"""


def target(home: Path, port: int = 30000) -> deploy.Target:
    profile = load(PROFILE, "small.yaml", Profile).value
    path = PurePosixPath(home)
    manifest = Manifest(
        schema=1,
        profile="small",
        id=home.name,
        release="r",
        model="/m",
        served_model_name="small",
        launcher="process",
        sudo=False,
        restart="no",
        stop_s=5,
        bind="127.0.0.1",
        port=port,
        firstlight="0",
    )
    rendered = Deployment(profile, path, PurePosixPath("/r"), PurePosixPath("/m"), "process")
    return deploy.Target(rendered, launch.Deployment("small", path, path, "process"), manifest)


def run(step: Step, **env: str) -> subprocess.CompletedProcess[str]:
    assert isinstance(step.action, Run)
    source, given = step.action.script.source(), {"PATH": os.environ["PATH"], **env}
    return subprocess.run(["bash", "-s"], input=source, text=True, capture_output=True, env=given)


def test_a_port_is_looked_at_once_more_after_the_old_server_and_before_the_new(
    tmp_path: Path,
) -> None:
    old = target(tmp_path / "old").service
    steps = list(deploy.start_steps(target(tmp_path / "new"), old, None))
    assert [step.id for step in steps] == ["coming", "stop", "port", "mark", "start"]
    assert steps[2].title == "see that port 30000 is free"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_that_was_taken_meanwhile(tmp_path: Path, family: socket.AddressFamily) -> None:
    with socket.socket(family) as held:
        held.bind(("127.0.0.1" if family is socket.AF_INET else "::1", 0))
        held.listen()
        port = held.getsockname()[1]
        (_, step, *_) = deploy.start_steps(target(tmp_path / "new", port), None, None)
        done = run(step)
        assert done.returncode == 1
        assert f"something listens on port {port} by now" in done.stderr
    assert run(step).returncode == 0


@pytest.mark.parametrize("ours", [True, False])
def test_only_its_own_unit_is_stopped(tmp_path: Path, ours: bool) -> None:
    """All deployments of a profile share a unit, and another deploy may have put its own there."""
    home, tools = tmp_path / "new", tmp_path / "tools"
    service = launch.Deployment("small", PurePosixPath(home), PurePosixPath("/lib"), "systemd-user")
    units = tmp_path / "config/systemd/user"
    for folder in (home, tools, units):
        folder.mkdir(parents=True)
    (home / "unit").write_text("ExecStart=new")
    (units / service.unit).write_text("ExecStart=new" if ours else "ExecStart=another")
    (tools / "systemctl").write_text(SYSTEMCTL)
    (tools / "systemctl").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = run(deploy.stop_step(service), CALLS=str(tmp_path / "calls"), **env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").exists() == ours
    if ours:
        assert f"--user stop {service.unit}\n" in (tmp_path / "calls").read_text()


def test_which_deploy_began_last(tmp_path: Path) -> None:
    first, second = target(tmp_path / "first"), target(tmp_path / "second")
    asked = Step("x", "x", Run(deploy.latest(first)))
    assert (run(asked).returncode, run(asked).stdout) == (0, "")
    for one in (first, second):
        (coming, *_) = deploy.start_steps(one, None, None)
        assert run(coming).returncode == 0
    assert run(asked).stdout == "second\n"


def test_what_is_switched_to_is_what_is_started(tmp_path: Path) -> None:
    """A deploy that failed meanwhile leaves its mark; a stop must find the one that serves."""
    (tmp_path / "current").symlink_to("first")
    (tmp_path / "started").symlink_to("failed")
    *_, switch = deploy.proof_steps(target(tmp_path / "new"))
    assert run(switch).returncode == 0
    links = {path.name: str(path.readlink()) for path in tmp_path.iterdir() if path.is_symlink()}
    assert links == {"current": "new", "previous": "first", "started": "new"}


def test_a_dry_run_asks_what_a_proof_asks(tmp_path: Path) -> None:
    goal = target(tmp_path / "new")
    text = PROFILE + "smoke: {questions: [{ask: What's \u00fc?, expect: [x]}], echo: So.}\n"
    asking = load(text, "small.yaml", Profile).value
    goal = dataclasses.replace(goal, rendered=dataclasses.replace(goal.rendered, profile=asking))
    _, asked, _ = deploy.proof_steps(goal)
    assert isinstance(asked.action, Watch)
    *lines, figures = asked.action.script.text.splitlines()
    first, echo = (json.loads(shlex.split(line)[-1]) for line in lines)
    assert first["messages"] == [{"role": "user", "content": "What's \u00fc?"}]
    assert (first["model"], first["temperature"]) == ("small", 0)
    assert echo["messages"][0]["content"].endswith("So.")
    assert figures.endswith("/server_info")
