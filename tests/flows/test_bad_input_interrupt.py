"""Ctrl-C and kill -9 in any step: what runs goes on or is stopped, and the next call goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pexpect
import pytest

from tests.flows.project import INVOKE
from tests.flows.tiny import Tiny, make_tiny

pytestmark = pytest.mark.slow

BUILD_STEPS = 7
DEPLOY_STEPS = 11


def typing(tiny: Tiny, *words: str) -> pexpect.spawn[str]:
    """`invoke WORDS` at a terminal."""
    env = {**tiny.project.environ(), "TERM": "xterm", "COLUMNS": "200"}
    return pexpect.spawn(
        str(INVOKE),
        list(words),
        cwd=str(tiny.project.root),
        env=env,
        encoding="utf-8",
        timeout=60,
    )


def ended(child: pexpect.spawn[str]) -> str:
    """What was said up to the end, which is exit code 130."""
    child.expect(pexpect.EOF)
    child.close()
    said = child.before or ""
    assert child.exitstatus == 130, said
    assert "Traceback" not in said
    return said


def broken_off(
    tiny: Tiny, verb: str, line: str, number: signal.Signals, job: str = ""
) -> tuple[int, str]:
    """Begin a verb, send it a signal once it has printed that line; its exit status, its words.

    `job` is the beginning of the name of a job that must run by then.
    """
    with tiny.project.start(verb) as process:
        assert process.stdout is not None and process.stderr is not None
        for said in process.stdout:
            if line in said:
                break
        else:
            raise AssertionError(f"{line!r} never came: {process.stderr.read()}")
        while job and not any(tiny.root.glob(f"jobs/{job}*[!l]/pid")):
            time.sleep(0.05)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in out + err
    return process.returncode, out + err


def watched_again(tiny: Tiny, let_go: Callable[[], object]) -> None:
    """Build again: the job that runs is found and watched, and once let go comes to its end."""
    with tiny.project.start("build") as process:
        assert process.stdout is not None
        assert any("it runs already; watching it" in said for said in process.stdout)
        let_go()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def release(tiny: Tiny) -> str:
    """The one release, complete, with nothing unfinished beside it."""
    (found,) = tiny.made("releases")
    assert tiny.unfinished() == []
    assert (tiny.root / "releases" / found / "capabilities.json").stat().st_size > 0
    return found


def running_jobs(tiny: Tiny) -> list[str]:
    """The jobs that have no end yet."""
    status = tiny.project.invoke("status", "--json", check=True).stdout
    jobs: list[str] = json.loads(status)["jobs"]
    return jobs


@contextlib.contextmanager
def slow_index(pantry: Path, gate: threading.Event) -> Iterator[str]:
    """A web server with the wheels of the pantry, which sends none before the gate opens."""

    class Handler(SimpleHTTPRequestHandler):
        """Files of the pantry."""

        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(pantry))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.path.endswith(".whl"):
                gate.wait(60)
            # Who asked may have gone meanwhile.
            with contextlib.suppress(OSError):
                super().do_GET()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            gate.set()
            server.shutdown()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_download_goes_on_and_is_watched_again(
    tmp_path: Path, pantry: Path, number: signal.Signals
) -> None:
    gate = threading.Event()
    with slow_index(pantry, gate) as url:
        env = {"PIP_FIND_LINKS": url, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
        tiny = make_tiny(tmp_path, pantry, env=env)
        try:
            code, said = broken_off(tiny, "build", "[3/7] download 2 wheels", number, "fetch-")
            (job,) = running_jobs(tiny)
            if number == signal.SIGINT:
                assert code == 130
                assert f"error: local: job {job} goes on" in said
                assert "`invoke build` again watches it" in said
                assert "; `invoke build --cancel --host local` ends it" in said
            watched_again(tiny, gate.set)
            release(tiny)
        finally:
            tiny.end()


def hold(tiny: Tiny) -> None:
    """Keep the build at the moment when it asks the engine for its flags."""
    tiny.gate.touch()


def test_ctrl_c_while_a_release_is_assembled_leaves_it_when_asked_to(tiny: Tiny) -> None:
    hold(tiny)
    child = typing(tiny, "build")
    child.expect("asking sglang which flags it takes")
    child.sendintr()
    child.expect(r"'assemble release \S+' goes on on local as job (release-\S+)")
    child.expect(r"stop it there\? \[y/N\] ")
    child.sendline("")
    assert "goes on" in ended(child)
    assert len(running_jobs(tiny)) == 1
    watched_again(tiny, tiny.gate.unlink)
    release(tiny)


def test_ctrl_c_while_a_release_is_assembled_stops_it_when_asked_to(tiny: Tiny) -> None:
    hold(tiny)
    child = typing(tiny, "build")
    child.expect("asking sglang which flags it takes")
    child.sendintr()
    child.expect(r"stop it there\? \[y/N\] ")
    child.sendline("y")
    assert "; 0 of its processes are left" in ended(child)
    assert running_jobs(tiny) == [] and tiny.made("releases") == []
    assert tiny.unfinished() == []
    tiny.gate.unlink()
    tiny.project.invoke("build", check=True)
    release(tiny)


def test_a_second_ctrl_c_is_an_answer_too(tiny: Tiny) -> None:
    hold(tiny)
    child = typing(tiny, "build")
    child.expect("asking sglang which flags it takes")
    child.sendintr()
    child.expect(r"stop it there\? \[y/N\] ")
    child.sendintr()
    ended(child)
    assert len(running_jobs(tiny)) == 1


def test_cancel_ends_a_build_that_goes_on(tiny: Tiny) -> None:
    hold(tiny)
    code, _ = broken_off(tiny, "build", "[7/7] assemble", signal.SIGINT, "release-")
    assert code == 130
    said = tiny.project.invoke("build", "--cancel", check=True).stdout
    assert "local: ended 1 job(s)" in said
    assert running_jobs(tiny) == [] and tiny.unfinished() == []
    assert "no build runs" in tiny.project.invoke("build", "--cancel", check=True).stdout


@pytest.mark.parametrize("step", range(1, BUILD_STEPS + 1))
def test_a_build_whose_controller_is_killed_goes_on_next_time(tiny: Tiny, step: int) -> None:
    line = f"[{step}/{BUILD_STEPS}] "
    assert broken_off(tiny, "build", line, signal.SIGKILL)[0] == -signal.SIGKILL
    tiny.project.invoke("build", check=True)
    release(tiny)
    assert "is in place" in tiny.project.invoke("build", check=True).stdout


def served_once(tiny: Tiny) -> None:
    """The profile is served, proved and current, by one server."""
    status = json.loads(tiny.project.invoke("status", "--json", check=True).stdout)
    (found,) = status["deployments"]
    assert found["current"] and found["healthy"] and found["proof"]["outcome"] == "pass"
    assert len(tiny.servers()) == 1


@pytest.mark.parametrize("step", range(1, DEPLOY_STEPS + 1))
def test_a_deploy_whose_controller_is_killed_goes_on_next_time(built: Tiny, step: int) -> None:
    line = f"[{step}/{DEPLOY_STEPS}] "
    assert broken_off(built, "deploy", line, signal.SIGKILL)[0] == -signal.SIGKILL
    built.project.invoke("deploy", check=True)
    served_once(built)


def test_ctrl_c_while_a_server_loads_leaves_it_when_asked_to(built: Tiny) -> None:
    built.loading.touch()
    child = typing(built, "deploy")
    child.expect("loading weights")
    child.sendintr()
    child.expect("the server of tiny goes on starting on local")
    child.expect(r"stop it there\? \[y/N\] ")
    child.sendline("n")
    said = ended(child)
    assert "local: left the new server as it is" in said
    assert "`invoke deploy --profile tiny --host local` watches it again" in said
    assert len(built.servers()) == 1
    built.loading.unlink()
    assert "in place: the server, started earlier" in built.project.invoke(
        "deploy", check=True
    ).stdout.replace("\r", "")
    served_once(built)


def test_ctrl_c_while_a_server_loads_brings_the_old_one_back_when_asked_to(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    before = (built.root / "deployments/tiny/current").readlink()
    built.loading.touch()
    built.profile(("max_total_tokens: 16384", "max_total_tokens: 8192"))
    child = typing(built, "deploy")
    child.expect("loading weights")
    child.sendintr()
    child.expect(r"stop it there\? \[y/N\] ")
    built.loading.unlink()
    child.sendline("y")
    assert "local: stopped the new server" in ended(child)
    assert (built.root / "deployments/tiny/current").readlink() == before
    (pid,) = built.servers()
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert "16384" in words


def test_ctrl_c_without_a_terminal_leaves_the_server(built: Tiny) -> None:
    built.loading.touch()
    code, said = broken_off(built, "deploy", "loading weights", signal.SIGINT)
    assert code == 130 and "left the new server as it is" in said
    assert len(built.servers()) == 1
    built.loading.unlink()
    built.project.invoke("up", check=True)
    served_once(built)


def test_ctrl_c_ends_the_following_of_a_log(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    with built.project.start("logs", "--follow") as process:
        assert process.stdout is not None
        assert "server_args=" in process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    served_once(built)


def test_a_server_that_is_killed_comes_back(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    (pid,) = built.servers()
    os.kill(pid, signal.SIGKILL)
    built.project.invoke("deploy", check=True)
    served_once(built)
    assert built.servers() != [pid]


def test_a_supervisor_that_is_killed_is_seen(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    (file,) = built.root.glob("deployments/tiny/????????????/pid")
    os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
    for pid in built.servers():
        os.kill(pid, signal.SIGKILL)
    status = json.loads(built.project.invoke("status", "--json", check=True).stdout)
    assert status["deployments"][0]["state"] != "running"
    built.project.invoke("deploy", check=True)
    served_once(built)
