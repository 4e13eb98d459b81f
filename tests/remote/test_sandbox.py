"""sandbox.py: what a build sees of its host, what it cannot reach, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sandbox

from tests.remote.programs import PROGRAMS


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "a 'quoted' folder"
    folder.mkdir()
    return folder


@pytest.fixture
def box(work: Path, tmp_path: Path) -> sandbox.Sandbox:
    other = tmp_path / "cuda"
    other.mkdir()
    (other / "nvcc").write_text("x")
    made = sandbox.make({"work": work, "cuda": other}, work / "stage")
    if not made.fixed_path:
        pytest.skip("this machine lets nobody have a mount namespace")
    return made


def run(box: sandbox.Sandbox, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*box.prefix, "bash", "-c", script, "test", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_folders_are_at_a_fixed_path(box: sandbox.Sandbox, work: Path) -> None:
    assert box.folders == {
        "work": Path("/mnt/firstlight/work"),
        "cuda": Path("/mnt/firstlight/cuda"),
    }
    done = run(box, "cd /mnt/firstlight && ls -a . cuda && echo made >work/made && ls /mnt")
    assert done.stdout.split() == [".:", ".", "..", "cuda", "work", "cuda:", ".", "..", "nvcc",
                                   "firstlight"]  # fmt: skip
    assert (work / "made").read_text() == "made\n"
    assert (work / "made").stat().st_uid == os.getuid()


def test_the_host_sees_nothing_of_it(box: sandbox.Sandbox, work: Path) -> None:
    before = Path("/proc/mounts").read_text(), sorted(Path("/mnt").iterdir())
    with subprocess.Popen([*box.prefix, "sh", "-c", "echo in; exec sleep 30"],
                          stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == b"in\n"
        during = Path("/proc/mounts").read_text(), sorted(Path("/mnt").iterdir())
        child.kill()
    assert during == before
    assert list((work / "stage").iterdir()) == []


def test_words_and_exit_status_come_through(box: sandbox.Sandbox) -> None:
    done = run(box, 'printf "<%s>" "$@"; exit 7', "a b", "--", "$x", "")
    assert (done.returncode, done.stdout, done.stderr) == (7, "<a b><--><$x><>", "")
    assert run(box, "kill -KILL $$").returncode == 128 + 9


def test_there_is_no_network(box: sandbox.Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        socket.create_connection(address).close()
        code = f"import socket; socket.create_connection({address!r}, 5)"
        done = run(box, 'exec "$1" -c "$2"', sys.executable, code)
    assert box.offline and "ConnectionRefusedError" in done.stderr
    assert Path("/proc/net/route").read_text().count("\n") >= 1
    assert run(box, "tail -n +2 /proc/net/route").stdout == ""


def test_its_own_loopback_works(box: sandbox.Sandbox) -> None:
    """Build tools talk to workers of their own over it."""
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname(), 5); print('ok')"
    )
    if shutil.which("ip") is None:
        pytest.skip("no ip(8): the loopback stays down")
    assert run(box, 'exec "$1" -c "$2"', sys.executable, code).stdout == "ok\n"


# A session of its own, an empty environment, deaf, and holding the output.
LOST = "env -i setsid bash -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' {mark} &"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    word = f"mark-{tmp_path}"
    yield word
    for pid in running(word):
        os.kill(pid, signal.SIGKILL)


def running(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [int(path.parent.name)] if mark.encode() in words else []
    return found


def until(so: Callable[[], bool]) -> bool:
    """Whether that is so within ten seconds."""
    end = time.monotonic() + 10
    while not so() and time.monotonic() < end:
        time.sleep(0.05)
    return so()


def gone(mark: str) -> bool:
    return until(lambda: not running(mark))


def has_own_processes(box: sandbox.Sandbox) -> None:
    if "--pid" not in box.prefix:
        pytest.skip("this machine lets nobody have a process namespace")


def test_what_is_left_running_ends_with_it(box: sandbox.Sandbox, mark: str) -> None:
    has_own_processes(box)
    done = run(box, LOST.format(mark=mark) + " sleep 0.5; exit 3")
    assert done.returncode == 3
    assert gone(mark)


def test_all_of_it_is_killed_with_its_first_process(box: sandbox.Sandbox, mark: str) -> None:
    has_own_processes(box)
    script = LOST.format(mark=mark) + " echo on; wait"
    argv = [*box.prefix, "bash", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"on\n"
            # The word is among its arguments a moment after it was started.
            assert until(lambda: bool(running(mark)))
        finally:
            child.kill()
    assert gone(mark)


ASK = """\
import json, sys
from pathlib import Path
import sandbox
work = Path(sys.argv[1])
box = sandbox.make({"work": work}, work / "stage")
print(json.dumps([list(box.prefix), str(box.folders["work"]), box.fixed_path, box.offline]))
"""


def ask(work: Path, *before: str, **env: str) -> tuple[list[str], str, bool, bool, str]:
    """What make() says, in a process of its own."""
    argv = [*before, sys.executable, "-B", "-c", ASK, str(work)]
    surroundings = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROGRAMS), **env}
    done = subprocess.run(argv, capture_output=True, text=True, env=surroundings, cwd="/")
    assert done.returncode == 0, done.stderr
    *notes, told = done.stdout.splitlines()
    prefix, seen, fixed, offline = json.loads(told)
    return prefix, seen, fixed, offline, "\n".join(notes)


def test_a_host_without_namespaces_builds_all_the_same_and_it_is_said(work: Path) -> None:
    prefix, seen, fixed, offline, notes = ask(work, PATH="/nowhere")
    assert (prefix, seen, fixed, offline) == ([], str(work), False, False)
    assert "no build at a fixed path here" in notes and "cannot be kept off the network" in notes


def test_an_ordinary_user_gets_one_too_where_the_host_allows_it() -> None:
    """The work folder is that user's, so it lies where that user may go."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    probe = subprocess.run([*become, "unshare", "--user", "--map-root-user", "true"])
    if probe.returncode:
        pytest.skip("this host gives ordinary users no namespaces")
    if subprocess.run([*become, sys.executable, "-c", ""], capture_output=True).returncode:
        pytest.skip("this Python is for root alone")
    work = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        shutil.copytree(PROGRAMS, work / "lib")
        for path in (work, *work.rglob("*")):
            os.chown(path, 65534, 65534)
        prefix, seen, fixed, offline, _ = ask(work, *become, PYTHONPATH=str(work / "lib"))
        assert (seen, fixed, offline) == ("/mnt/firstlight/work", True, True)
        argv = [*become, *prefix, "sh", "-c", "echo made >/mnt/firstlight/work/made"]
        subprocess.run(argv, check=True)
        assert (work / "made").stat().st_uid == 65534
    finally:
        shutil.rmtree(work)
