"""The whole chain over SSH, with the real engine, on a host without a way out.

The user's login shell is zsh and speaks before every command; the root folder has a space and a
quote in it, and only root may make it. One build and one server serve all of these tests.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.project import Project, make_project
from tests.flows.watching import Output, wait_for
from tests.hosts import fleet
from tests.hosts.fleet import TestHost
from tests.hosts.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT, SECOND = "/srv/fire light's", "/srv/second"
LONG = 2000.0
ON = ("--host", "gpu01")
UNIT = "firstlight-smollm2-cpu.service"


class Remote:
    """A project with gpu01 in its inventory, once more as `second` with another root."""

    def __init__(self, project: Project, host: TestHost) -> None:
        self.project, self.host = project, host

    def invoke(self, *words: str, code: int = 0) -> str:
        """What a verb prints; fails unless it ends with that exit code."""
        done = self.project.invoke(*words, timeout=LONG)
        assert done.returncode == code, f"invoke {' '.join(words)}: {done}"
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.invoke(*words, *ON, "--json"))

    def served(self) -> dict[str, Any]:
        """What `status` says of the one deployment."""
        (entry,) = self.data("status")["deployments"]
        assert isinstance(entry, dict)
        return entry

    def on_host(self, command: str, user: str = "zoe") -> str:
        """Run on the host, past SSH; an exit status of any kind is fine."""
        return fleet.run(self.host, command, user=user, check=False).stdout.strip()

    def manager(self, words: str) -> str:
        """What zoe's own systemd says."""
        return self.on_host(f"XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user {words}")


@pytest.fixture(scope="module")
def fresh(
    tmp_path_factory: pytest.TempPathFactory, person_home: Path, site: Site, gpu01: TestHost
) -> Iterator[Remote]:
    """gpu01 with nothing of ours on it; what these tests leave there is removed."""
    fleet.fill_home(site, person_home, ["gpu01"])
    zoe = {"address": gpu01.address, "user": "zoe"}
    hosts = [{"name": "gpu01", **zoe, "root": ROOT}, {"name": "second", **zoe, "root": SECOND}]
    project = make_project(tmp_path_factory.mktemp("remote"), hosts, home=person_home)
    remote = Remote(project, gpu01)
    yield remote
    for name in ("gpu01", "second"):
        project.invoke("stop", "--host", name, timeout=LONG)
        project.invoke("build", "--cancel", "--host", name, timeout=LONG)
    fleet.run(gpu01, 'loginctl disable-linger zoe; rm -rf -- "/srv/fire light\'s" /srv/second')


@pytest.fixture(scope="module")
def built(fresh: Remote) -> str:
    """What the first build printed."""
    return fresh.invoke("build", "--host", "gpu01")


@pytest.fixture(scope="module")
def deployed(fresh: Remote, built: str) -> str:
    """What the first deploy printed."""
    assert built
    return fresh.invoke("deploy", "--profile", "smollm2-cpu", "--host", "gpu01")


@pytest.fixture
def remote(fresh: Remote, deployed: str) -> Remote:
    """gpu01 with its server in place and proved."""
    assert deployed
    fresh.invoke("deploy", "--profile", "smollm2-cpu", "--host", "gpu01")
    return fresh


def test_before_anything_is_built_deploy_says_what_to_run(fresh: Remote) -> None:
    done = fresh.project.invoke("deploy", "--profile", "smollm2-cpu", "--host", "gpu01")
    assert done.returncode == 3
    assert "gpu01: stack sglang-cpu, as it is locked now, is not built there" in done.stderr
    assert "-> invoke build --host gpu01 --profile smollm2-cpu" in done.stderr


def test_the_plan_of_a_build_is_a_script_and_changes_nothing(fresh: Remote) -> None:
    plan = fresh.invoke("build", "--dry-run", *ON)
    subprocess.run(["bash", "-n"], input=plan, encoding="utf-8", check=True)
    assert "# 1. make /srv/fire light's, as root" in plan
    assert fresh.on_host(f'ls -d "{ROOT}"') == ""


def test_build_brings_all_to_a_host_without_a_way_out(fresh: Remote, built: str) -> None:
    assert "make /srv/fire light's, as root" in built
    assert "it has not; this machine downloads and sends" in built
    assert "gpu01: release sglang-cpu-py3" in built and "is built" in built
    assert fresh.on_host(f'stat -c %U "{ROOT}"/releases/*') == "zoe"
    assert fresh.on_host(f'find "{ROOT}" -name "*.partial"') == ""
    cached = person_wheels(fresh)
    assert cached and cached == fresh.on_host(f'cd "{ROOT}/wheels" && ls -d */*.whl')


def person_wheels(remote: Remote) -> str:
    """What the controller has downloaded, as `<sha256>/<file>` lines of those on the host."""
    folder = remote.project.home / ".local" / "share" / "firstlight" / "wheels"
    there = set(remote.on_host(f'cd "{ROOT}/wheels" && ls -d */*.whl').splitlines())
    here = {str(path.relative_to(folder)) for path in folder.glob("*/*.whl")}
    return "\n".join(sorted(there & here))


@pytest.mark.usefixtures("built")
def test_a_second_build_is_one_connection_and_one_script(fresh: Remote) -> None:
    again = fresh.invoke("build", "--host", "gpu01", "--debug")
    assert "is in place" in again
    assert "debug: gpu01: 1 connection(s), 1 script(s)\n" in again


@pytest.mark.usefixtures("built")
def test_the_plan_of_a_deploy_is_a_script_and_changes_nothing(fresh: Remote) -> None:
    plan = fresh.invoke("deploy", "--dry-run", *ON)
    subprocess.run(["bash", "-n"], input=plan, encoding="utf-8", check=True)
    assert "# in place: release sglang-cpu-py3" in plan
    for told in ("let services of zoe outlive a login", "--kv-cache-dtype", "/health_generate"):
        assert told in plan
    assert fresh.on_host(f'ls "{ROOT}/deployments"') == ""


def test_deploy_serves_and_says_how_to_ask(fresh: Remote, deployed: str) -> None:
    assert "start the server (systemd-user)" in deployed
    tail = deployed.partition("gpu01: smollm2-cpu is served\n")[2]
    lines = dict(line.strip().split(maxsplit=1) for line in tail.splitlines() if line.strip())
    assert "Paris" in lines["answered"]
    assert lines["server"] == "http://127.0.0.1:30000 on gpu01"
    assert "torch.bfloat16, 16384 tokens" in lines["KV"]
    assert "invoke ask --host gpu01 --profile smollm2-cpu --question" in lines["ask"]
    assert lines["ssh"] == f"-L 30000:127.0.0.1:30000 zoe@{fresh.host.address}"


def test_deploy_again_leaves_the_server_alone(remote: Remote) -> None:
    pid = remote.manager(f"show --value -p MainPID {UNIT}")
    again = remote.invoke("deploy", "--profile", "smollm2-cpu", "--host", "gpu01")
    assert "runs and is proved" in again and "Paris" in again
    assert remote.manager(f"show --value -p MainPID {UNIT}") == pid


def test_what_only_reads_works_over_ssh(remote: Remote) -> None:
    entry, proof, facts = remote.served(), remote.data("smoke"), remote.data("facts")
    assert (entry["state"], entry["healthy"], entry["current"]) == ("running", True, True)
    assert entry["launcher"] == "systemd-user"
    assert (proof["outcome"], proof["kv_dtype"]) == ("pass", "torch.bfloat16")
    assert facts["user"]["name"] == "zoe"
    assert "Paris" in remote.invoke("ask", *ON, "--question", "What is the capital of France?")
    assert len(remote.invoke("logs", *ON, "--lines", "5").splitlines()) == 5
    assert "no fault" in remote.invoke("check")
    assert "# 1. stop the server of smollm2-cpu" in remote.invoke("stop", "--dry-run", *ON)
    rendered = remote.data("render")
    assert {"launch.sh", "unit"} == set(rendered["files"])
    home = rendered["home"]
    for name, text in rendered["files"].items():
        assert remote.on_host(f'cat "{home}/{name}"') == text.strip()


def test_logs_follow_goes_on_when_the_cable_was_pulled(remote: Remote) -> None:
    follower = Output(remote.project.start("logs", *ON, "--follow", "--lines", "1"))
    try:
        follower.until("\n")
        fleet.link_down(remote.host)
        follower.until("the server goes on")
        fleet.link_up(remote.host)
        follower.until("reached gpu01 again")
        remote.invoke("ask", *ON, "--question", "Say yes.")
        follower.until("POST /v1/chat/completions")
        follower.process.send_signal(signal.SIGINT)
        code, said = follower.end()
        assert (code, "Traceback" in said) == (130, False)
    finally:
        fleet.link_up(remote.host)
        follower.stop()


def test_the_server_comes_back_after_a_reboot(remote: Remote) -> None:
    assert remote.manager(f"is-active {UNIT}") == "active"
    fleet.reboot(remote.host)
    wait_for(lambda: bool(remote.served()["healthy"]), "the server after the reboot")
    assert remote.on_host("loginctl show-user zoe --value -p State") == "lingering"
    assert remote.manager(f"is-active {UNIT}") == "active"
    assert "Paris" in remote.invoke("ask", *ON, "--question", "What is the capital of France?")


def test_stop_leaves_nothing_that_runs(remote: Remote) -> None:
    assert "is stopped" in remote.invoke("stop", *ON)
    entry = remote.served()
    assert (entry["state"], entry["healthy"]) == ("stopped", False)
    assert remote.manager(f"is-active {UNIT}") == "inactive"
    assert remote.manager(f"is-enabled {UNIT}") == "disabled"
    assert remote.on_host("pgrep -u zoe -fa sglang") == ""


@pytest.fixture
def second(fresh: Remote, built: str) -> Remote:
    """The same host with another root, in which only the wheels are."""
    assert built
    fleet.run(fresh.host, f"rm -rf {SECOND}; install -d -o zoe {SECOND}")
    fresh.on_host(f'cp -al "{ROOT}/wheels" {SECOND}/wheels')
    return fresh


def start_build(remote: Remote) -> Output:
    """A build that has come so far as to install the release's wheels."""
    build = Output(remote.project.start("build", "--host", "second"))
    build.until("assemble release")
    log = f"cat {SECOND}/jobs/release-*/log"
    wait_for(lambda: "installing" in remote.on_host(log), "the wheels to be installed")
    return build


def test_cancel_ends_a_build_and_all_that_it_started(second: Remote) -> None:
    build = start_build(second)
    try:
        said = second.invoke("build", "--cancel", "--host", "second")
        assert "ending release-sglang-cpu-py3" in said and "0 of its processes are left" in said
        code, errors = build.end()
        assert (code, "it was cancelled" in errors) == (4, True)
    finally:
        build.stop()
    assert second.on_host(f"pgrep -u zoe -fa {SECOND}") == ""
    assert second.on_host(f"ls {SECOND}/releases | grep -v partial") == ""
    assert "no build runs" in second.invoke("build", "--cancel", "--host", "second")


def test_ctrl_c_leaves_the_build_running_and_another_takes_it_up(second: Remote) -> None:
    first = start_build(second)
    # Held where it is, so that it cannot end before the second build has found it.
    second.on_host("pkill -STOP -x uv")
    other = Output(second.project.start("build", "--host", "second"))
    try:
        other.until("it runs already; watching it")
        first.process.send_signal(signal.SIGINT)
        code, said = first.end()
        assert code == 130
        assert "second: job release-sglang-cpu-py3" in said and "goes on" in said
        assert "`invoke build --host second` again watches it" in said
        assert "; `invoke build --cancel --host second` ends it" in said
        assert "release-sglang-cpu" in second.invoke("status", "--host", "second")
        second.on_host("pkill -CONT -x uv")
        code, said = other.end()
        assert (code, said) == (0, "")
    finally:
        second.on_host("pkill -CONT -x uv")
        first.stop()
        other.stop()
    assert "is built" in str(other)
    assert "is in place" in second.invoke("build", "--host", "second")
