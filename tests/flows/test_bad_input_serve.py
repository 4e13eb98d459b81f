"""Servers that do not come up, or come up wrong: the cause is told, what ran before is back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flows.project import INVOKE
from tests.flows.tiny import Tiny, refused

NO_RESTART = ("launcher: process", "launcher: process\n  restart: no")


def fault(tiny: Tiny, kind: str, *edits: tuple[str, str]) -> str:
    """Deploy a profile whose engine goes wrong in that way; gives back all that was said."""
    tiny.profile(("fault: none", f"fault: {kind}"), *edits)
    done = tiny.project.invoke("deploy")
    code = 5 if kind in ("wrong", "fp8") else 4
    return refused(done, code)


def nothing_runs(tiny: Tiny) -> bool:
    """No server is left, and no deployment is the current one."""
    return not tiny.servers() and not (tiny.root / "deployments/tiny/current").exists()


def test_a_server_that_dies_while_it_loads(built: Tiny) -> None:
    message = fault(built, "crash", NO_RESTART)
    assert "local: the server of tiny did not start: the server died after " in message
    assert "(while loading weights): an exception that no rule knows" in message
    assert "RuntimeError: the third shard cannot be read" in message
    (log,) = built.root.glob("deployments/tiny/????????????/log")
    assert f"-> its whole log, on local: {log}" in message
    assert nothing_runs(built)


def test_a_server_that_dies_again_and_again_is_not_waited_for(built: Tiny) -> None:
    assert "RuntimeError: the third shard cannot be read" in fault(built, "crash")
    assert nothing_runs(built)


def test_an_engine_that_refuses_its_command_line(built: Tiny) -> None:
    message = fault(built, "argument", NO_RESTART)
    assert "(while starting): the engine refuses its command line" in message
    assert "-> correct `args` in the profile" in message
    assert "launch_server.py: error: argument --device: no such device" in message
    assert nothing_runs(built)


def test_a_server_that_falls_silent(built: Tiny) -> None:
    message = fault(built, "silent", ("launcher: process", "launcher: process\n  stall_s: 2"))
    assert "stalled in phase 'loading weights': nothing new for " in message
    assert "or raise service.stall_s" in message
    assert "Load weight begin" in message
    assert nothing_runs(built)


def test_a_server_that_takes_too_long(built: Tiny) -> None:
    message = fault(built, "deaf", ("start_timeout_s: 120", "start_timeout_s: 2"))
    assert "not ready within 2.0 s; it is in phase 'warm-up'" in message
    assert "raise service.start_timeout_s" in message
    assert nothing_runs(built)


def test_a_server_whose_answers_are_wrong_is_not_served(built: Tiny) -> None:
    message = fault(built, "wrong")
    assert "failed its proof: expected 'Paris': The moon is made of cheese" in message
    (log,) = built.root.glob("deployments/tiny/????????????/log")
    assert f"-> read its log, on local: {log}" in message
    assert nothing_runs(built)
    found = entry(built)
    assert (found["state"], found["proof"], found["current"]) == ("stopped", {}, False)
    assert found["failed"]["deployment"] == found["deployment"]
    assert found["failed"]["outcome"] == "fail"
    shown = built.project.invoke("status", check=True).stdout
    assert f"fail at {found['failed']['at']}, deployment {found['deployment']} of " in shown
    assert "What is the capital of France? expected 'Paris' (and 1 more)" in shown
    built.profile(("fault: wrong", "fault: none"))
    built.project.invoke("deploy", check=True)
    found = entry(built)
    assert (found["proof"]["outcome"], found["failed"]) == ("pass", {})


def entry(tiny: Tiny) -> dict[str, Any]:
    """What status says of the only profile."""
    (found,) = json.loads(tiny.project.invoke("status", "--json", check=True).stdout)["deployments"]
    assert isinstance(found, dict)
    return found


def test_a_server_whose_cache_is_fp8_is_not_served(built: Tiny) -> None:
    message = fault(built, "fp8")
    assert "KV dtype: asked bf16, found torch.float8_e4m3fn" in message
    assert nothing_runs(built)


def test_a_server_that_answers_before_its_log_is_written_is_proved_all_the_same(
    built: Tiny,
) -> None:
    built.profile(("fault: none", "fault: late"))
    done = built.project.invoke("deploy", check=True)
    assert "KV cache  torch.bfloat16, 16384 tokens" in done.stdout


@pytest.fixture
def served(built: Tiny) -> Tiny:
    """A tiny project whose profile is served."""
    built.project.invoke("deploy", check=True)
    return built


def test_a_new_server_that_fails_gives_way_to_the_old_one(served: Tiny) -> None:
    before = (served.root / "deployments/tiny/current").readlink()
    fault(served, "crash", NO_RESTART)
    found = entry(served)
    assert found["deployment"] == str(before) and found["current"] and found["healthy"]
    assert len(served.servers()) == 1


def test_a_proof_that_a_new_question_makes_fail_is_remembered(served: Tiny) -> None:
    served.profile(("expect: [Paris]", "expect: [Rome]"))
    refused(served.project.invoke("deploy"), 5)
    found = entry(served)
    assert (found["state"], found["proof"]["outcome"]) == ("running", "pass")
    assert (found["failed"]["outcome"], found["failed"]["deployment"]) == (
        "fail",
        found["deployment"],
    )
    assert found["asked"]["same"]


def test_status_says_what_the_recipes_ask_for_now(served: Tiny) -> None:
    found = entry(served)
    now = {"release": found["release"], "built": True, "same": True, "words": ""}
    assert found["asked"] == now
    served.profile(("max_total_tokens: 16384", "max_total_tokens: 8192"))
    deploy = "invoke deploy --profile tiny --host local"
    other = {"same": False, "words": f"the profile or a template is another now; {deploy}"}
    assert entry(served)["asked"] == now | other
    patch = "patches/sglang/0001-say-so.patch"
    served.project.change(patch, ("with our patch", "with another patch"))
    asked = entry(served)["asked"]
    assert asked["release"] != found["release"] and not asked["built"]
    build = "invoke build --profile tiny --host local"
    assert asked["words"] == f"release {asked['release']}; {build}"
    assert f"  asked for  {asked['words']}\n" in served.project.invoke("status").stdout
    served.project.write("recipes/stacks/tiny.yaml", "stack: [\n")
    told = entry(served)["asked"]["words"]
    assert told.startswith("not known: recipes/stacks/tiny.yaml:2:1: not YAML: ")


def test_a_log_that_nobody_reads_any_more_ends(served: Tiny) -> None:
    """The server says nothing more, so no next line tells that the reader is gone."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            '"$1" logs --follow | head -n 1; echo "${PIPESTATUS[0]}"',
            "bash",
            str(INVOKE),
        ],
        cwd=served.project.root,
        env=served.project.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1:] == ["0"] and done.stderr == ""


def test_the_port_of_another_server_of_ours(served: Tiny) -> None:
    project, path = served.project, "recipes/profiles/other.yaml"
    project.change("recipes/profiles/tiny.yaml", ("name: tiny", "name: other"), to=path)
    message = refused(project.invoke("deploy", "--profile", "other"), 3)
    assert f"local: port {served.port} is taken by the server of profile tiny" in message
    assert "-> stop it (`invoke stop --profile tiny --host local`), or give service.port" in message
    assert served.made("deployments") == ["tiny"]
    assert len(served.servers()) == 1


def test_a_server_that_dies_when_it_is_asked(built: Tiny) -> None:
    message = fault(built, "asked", NO_RESTART)
    assert "local: the server of tiny could not be proved: the server died (while serving): " in (
        message
    )
    assert ": RuntimeError: CUDA error: an illegal instruction was encountered" in message
    assert nothing_runs(built)


def test_a_new_port_is_looked_at_although_a_server_runs(served: Tiny) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        served.profile((f"port: {served.port}", f"port: {port}"))
        message = refused(served.project.invoke("deploy"), 3)
    assert f"port {port} is taken by a process that this user may not see" in message
    assert entry(served)["healthy"]


def test_a_port_is_not_said_to_be_that_of_a_server_that_is_stopped(served: Tiny) -> None:
    served.project.invoke("stop", check=True)
    project, path = served.project, "recipes/profiles/other.yaml"
    project.change("recipes/profiles/tiny.yaml", ("name: tiny", "name: other"), to=path)
    with socket.create_server(("127.0.0.1", served.port)):
        message = refused(project.invoke("deploy", "--profile", "other"), 3)
    assert "is taken by a process that this user may not see\n  -> stop it, or give" in message


def test_two_deploys_at_once_leave_the_later_server(built: Tiny) -> None:
    """The first one's server is stopped for the second one's; it must not take revenge."""
    built.loading.touch()
    with built.project.start("deploy") as first:
        assert first.stdout and any("loading weights" in line for line in first.stdout)
        built.profile(("env:\n", "env:\n  TINY_OTHER: x\n"))
        with built.project.start("deploy") as second:
            assert second.stdout and any("loading weights" in line for line in second.stdout)
            said, wrong = first.communicate(timeout=120)
            built.loading.unlink()
            done, _ = second.communicate(timeout=120)
    assert first.returncode == 4, said + wrong
    assert "another deploy has begun meanwhile: what it starts stays" in said
    assert "error: local: another deploy of profile tiny has begun meanwhile: what it" in wrong
    assert "\n  -> `invoke status --host local` shows that one; ask whose it is" in wrong
    assert second.returncode == 0, done
    found = entry(built)
    assert (found["current"], found["healthy"], len(built.servers())) == (True, True, 1)


def test_a_server_without_its_supervisor_is_stopped_all_the_same(served: Tiny) -> None:
    pid = served.root / "deployments/tiny/current/pid"
    os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)
    assert entry(served)["state"] == "lost"
    assert len(served.servers()) == 1
    served.project.invoke("stop", check=True)
    assert served.servers() == [] and entry(served)["state"] == "stopped"


def test_a_deployment_that_is_damaged_hides_nothing_and_is_replaced(served: Tiny) -> None:
    manifest = served.root / "deployments/tiny/current/manifest.json"
    manifest.write_text('{"schema": 1')
    found = entry(served)
    assert found["state"] == "damaged" and "manifest.json cannot be read" in found["detail"]
    message = refused(served.project.invoke("smoke"), 3)
    assert "local: a deployment's manifest.json cannot be read: " in message
    served.project.invoke("deploy", check=True)
    assert entry(served)["healthy"]


@pytest.fixture
def squatter(built: Tiny) -> Iterator[Tiny]:
    """A project whose port somebody else listens on."""
    with socket.create_server(("127.0.0.1", built.port)):
        yield built


def test_a_port_that_is_taken(squatter: Tiny) -> None:
    for verb in ("deploy", "up"):
        message = refused(squatter.project.invoke(verb), 3)
        assert f"local: port {squatter.port} is taken by " in message
    assert squatter.made("deployments") == []


@pytest.mark.parametrize("verb", ["smoke", "ask"])
def test_a_server_that_is_stopped_is_asked_nothing(served: Tiny, verb: str) -> None:
    served.project.invoke("stop", check=True)
    more = ("--question", "x") if verb == "ask" else ()
    done = served.project.invoke(verb, *more, "--json")
    message = refused(done, 3)
    assert done.stdout == ""
    assert "local: the server of tiny does not run: it is stopped" in message
    assert "-> invoke deploy --profile tiny --host local" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("smoke:", "match: {gpus: 8}\nsmoke:"), "it needs 8 GPUs; found 0"),
        (("smoke:", "match: {hw: no-such-card}\nsmoke:"), "it is made for no-such-card; found: "),
        (("smoke:", "match: {nodes: 2}\nsmoke:"), "it is for 2 nodes, and a deploy starts a"),
        (("launcher: process", "launcher: systemd"), "the profile wants systemd, but "),
    ],
    ids=["gpus", "hw", "nodes", "systemd"],
)
def test_a_profile_that_is_not_for_this_host(
    built: Tiny, edit: tuple[str, str], message: str
) -> None:
    built.profile(edit)
    done = built.project.invoke("deploy")
    if done.returncode == 0:
        pytest.skip("systemd looks after servers here")
    assert message in refused(done, 3)
    assert built.made("deployments") == []


def test_a_profile_whose_stack_is_not_built(tiny: Tiny) -> None:
    for words in (("deploy",), ("render",)):
        message = refused(tiny.project.invoke(*words), 3)
        assert "is not built" in message
        assert "-> invoke build --host local --profile tiny" in message
    assert not tiny.root.exists()
