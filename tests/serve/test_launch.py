"""Launchers: which one is chosen, and a real server under the one that needs no systemd."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.errors import HostError
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host
from firstlight.serve import launch, running
from firstlight.serve.launch import Choice, Deployment, SudoKind
from firstlight.serve.running import LogChunk, ServerState

REMOTE = Path(__file__).parents[2] / "firstlight" / "remote"

# Stands for a model server: it answers, has a child in a session of its own, and can be told to
# crash, to hang at SIGTERM, or to talk.
SERVER = """
import http.server, mmap, os, signal, subprocess, sys, time
kept, shared = [], []
def hold(mib):
    if os.fork() == 0: kept.append(b"x" * (mib << 20)); time.sleep(1000)
child = subprocess.Popen(["setsid", "sleep", "1000"])
print(f"child {child.pid}", flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash": os._exit(9)
        if self.path == "/deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.path.startswith("/say/"):
            for n in range(int(self.path[5:])): print(f"line {n} " + "x" * 80, flush=True)
        if self.path.startswith("/keep/"): kept.append(b"x" * (int(self.path[6:]) << 20))
        if self.path.startswith("/hold/"): hold(int(self.path[6:]))
        if self.path.startswith("/share/"):
            shared.append(mmap.mmap(-1, int(self.path[7:]) << 20))
            for _ in range(3):
                if os.fork() == 0: sum(shared[0][::4096]); time.sleep(1000)
            shared[0][::4096] = bytes(len(shared[0]) >> 12)
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_): pass
def bye(*_):
    print("bye", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, bye)
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
"""


class Bench:
    """A deployment on this machine, and the few things that a test does with it."""

    def __init__(self, folder: Path, **fields: object) -> None:
        folder.mkdir(parents=True)
        (folder / "server.py").write_text(SERVER)
        (folder / "launch.sh").write_text('cd "${0%/*}"; exec python3 -u server.py\n')
        self.folder = folder
        self.shell = LocalShell(Host(name="local"))
        home, lib = PurePosixPath(folder), PurePosixPath(REMOTE)
        values = {"stop_s": 5, **fields}
        self.deployment = Deployment("fake", home, lib, "process", **values)  # type: ignore[arg-type]

    def start(self) -> str:
        done = self.shell.run(launch.start(self.deployment))
        assert done.ok, done.error_text
        return done.text.strip()

    def stop(self) -> None:
        done = self.shell.run(launch.stop(self.deployment))
        assert done.ok, done.error_text

    def state(self) -> ServerState:
        return running.parse_state(self.shell.run(running.state(self.deployment)).out, "gpu01")

    def read(self, offset: str = "", most: int = 1 << 18) -> LogChunk:
        script = running.read_log(self.deployment, offset, most)
        return running.parse_log(self.shell.run(script).out, "gpu01")

    def says(self, word: str) -> str:
        """The rest of the last line of this start that begins with `word`; waits for one."""
        wait_for(lambda: f"{word} " in self.read().data.decode())
        lines = self.read().data.decode().splitlines()
        return next(line for line in reversed(lines) if line.startswith(word)).split()[1]

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.says('port')}{path}") as answer:
            body: bytes = answer.read()
        return body

    def crash(self) -> None:
        wait_for(lambda: self.state().pid)
        pid = self.state().pid
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            self.get("/crash")
        wait_for(lambda: self.state().pid != pid)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes benches whose servers do not outlive the test."""
    made: list[Bench] = []

    def make(**fields: object) -> Bench:
        made.append(Bench(tmp_path / "a (home)" / str(len(made)), **fields))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def wait_for(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX"


def test_a_server_starts_answers_and_stops(bench: Callable[..., Bench]) -> None:
    one = bench()
    assert one.state().condition == "missing"
    one.stop()
    assert one.start() == "started"
    assert one.get("/") == b"ok"
    assert one.state().condition == "running"
    assert one.start() == "running"
    wait_for(lambda: one.state().pid)
    child, server = int(one.says("child")), one.state().pid
    assert server and is_running(server) and is_running(child)
    one.stop()
    assert (one.state().condition, one.state().rc) == ("stopped", 0)
    assert not is_running(server) and not is_running(child)
    assert "bye\n" in one.read().data.decode()


def test_a_deaf_server_is_killed_and_its_children_too(bench: Callable[..., Bench]) -> None:
    one = bench(stop_s=1)
    one.start()
    one.get("/deaf")
    wait_for(lambda: one.state().pid)
    child, server = int(one.says("child")), one.state().pid
    one.stop()
    assert server and not is_running(server) and not is_running(child)
    assert (one.state().condition, one.state().rc) == ("stopped", 137)
    assert "did not stop within 1 s; killed" in one.read().data.decode()


def test_a_killed_server_is_told_as_that_however_often_the_end_is_asked_for(
    bench: Callable[..., Bench],
) -> None:
    """A SIGTERM broke off the wait for its end: status 143, of a server that ended at once."""
    one = bench(stop_s=1)
    one.start()
    one.get("/deaf")
    supervisor = int((one.folder / "pid").read_text().split()[0])
    ask = f"while kill -TERM {supervisor}; do :; done 2>/dev/null"
    with subprocess.Popen(["bash", "-c", ask]):
        one.stop()
    assert (one.state().condition, one.state().rc) == ("stopped", 137)


def test_a_crash_is_followed_by_a_new_start(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.start()
    child = int(one.says("child"))
    one.crash()
    wait_for(lambda: one.state().pid)
    assert (one.state().condition, one.state().restarts) == ("running", 1)
    assert not is_running(child), "what a crashed server left may hold the GPU"
    assert "ended with status 9; starting it again in 1 s" in one.read().data.decode()
    one.stop()
    assert one.state().condition == "stopped"


def test_a_server_above_its_memory_ceiling_is_killed(bench: Callable[..., Bench]) -> None:
    one = bench(restart="no", memory=256 << 20)
    one.start()
    child = int(one.says("child"))
    one.get("/hold/100")
    one.get("/share/100")
    # Each of four processes shows the shared 100 MiB as its own; they are there once.
    time.sleep(5)
    assert one.state().condition == "running", one.read().data
    one.get("/hold/100")
    wait_for(lambda: one.state().over)
    assert (one.state().condition, one.state().rc) == ("failed", 137)
    assert not is_running(child)
    said = one.read().data.decode()
    assert "the server was above its ceiling of 256 MiB (service.memory); " in said


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup with a ceiling of 256 MiB, as systemd makes them for scopes of ours."""
    made = Path("/sys/fs/cgroup/memory") / f"firstlight-{os.getpid()}.scope"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup v1 of memory may be made here: {error}")
    yield made
    wait_for(lambda: not (made / "tasks").read_text())
    made.rmdir()


def test_what_the_kernel_kills_at_the_ceiling_is_told(
    bench: Callable[..., Bench], group: Path
) -> None:
    one = bench(restart="no", memory=256 << 20)
    source = f"echo $$ >{group}/tasks\n{launch.start(one.deployment).source()}"
    subprocess.run(["bash", "-s"], input=source.encode(), check=True)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        one.get("/keep/300")
    wait_for(lambda: one.state().over)
    assert one.state().rc == 137
    said = one.read().data.decode()
    assert "the server was above its ceiling of 256 MiB (service.memory); its processes" in said
    one.stop()


def test_without_restart_a_crash_is_the_end(bench: Callable[..., Bench]) -> None:
    one = bench(restart="no")
    one.start()
    one.crash()
    wait_for(lambda: one.state().over)
    assert (one.state().condition, one.state().rc, one.state().restarts) == ("failed", 9, 0)
    assert one.start() == "started"
    assert one.state().condition in ("starting", "running")


def test_a_server_that_is_asked_to_stop_while_it_waits_to_start_again(
    bench: Callable[..., Bench],
) -> None:
    one = bench()
    (one.folder / "launch.sh").write_text("exit 5\n")
    one.start()
    wait_for(lambda: one.state().condition == "restarting")
    one.stop()
    assert (one.state().condition, one.state().pid) == ("stopped", None)


@pytest.mark.parametrize(
    "status, lines, condition", [(5, 6, "failed"), (78, 1, "failed"), (0, 1, "stopped")]
)
def test_how_often_a_server_is_started(
    bench: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    lines: int,
    condition: str,
) -> None:
    monkeypatch.setattr(launch, "FIRST_PAUSE_S", 0)
    one = bench()
    (one.folder / "launch.sh").write_text(f"echo try; exit {status}\n")
    one.start()
    wait_for(lambda: one.state().over)
    assert (one.state().condition, one.state().rc) == (condition, status)
    assert one.read().data.decode().count("try\n") == lines
    assert one.state().restarts == lines - 1


def test_a_start_waits_for_a_stop_that_was_left_halfway(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.start()
    one.get("/deaf")
    first = one.state().pid
    (one.folder / "stop").write_text("stop\n")
    os.kill(int((one.folder / "pid").read_text().split()[0]), signal.SIGTERM)
    wait_for(lambda: one.state().condition == "stopping")
    assert one.start() == "started"
    wait_for(lambda: one.state().pid)
    assert one.state().pid != first and first and not is_running(first)


def test_a_killed_supervisor_is_seen_and_cleared_up(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.start()
    wait_for(lambda: one.state().pid)
    child, server = int(one.says("child")), one.state().pid
    os.kill(int((one.folder / "pid").read_text().split()[0]), signal.SIGKILL)
    wait_for(lambda: one.state().condition == "lost")
    found = one.state()
    assert (found.condition, found.detail) == ("lost", "its supervisor was killed")
    assert found.over and found.may_run
    assert server and is_running(server)
    assert one.start() == "started"
    assert not is_running(server) and not is_running(child)
    wait_for(lambda: one.state().pid)
    os.kill(int((one.folder / "pid").read_text().split()[0]), signal.SIGKILL)
    wait_for(lambda: one.state().condition == "lost")
    server = one.state().pid
    one.stop()
    assert server and not is_running(server)
    assert one.state().condition == "stopped"


def test_the_log_is_read_in_pieces_and_through_a_change_of_files(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LOG_BYTES", 30_000)
    one = bench()
    one.start()
    port = one.says("port")
    text, offset = b"", ""
    for turn in range(1, 5):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/say/100") as answer:
            answer.read()
        while text.count(b"line") < 100 * turn or not text.endswith(b"\n"):
            read = one.read(offset, 7_001)
            assert len(read.data) <= 7_001
            text, offset = text + read.data, read.next_offset
    lines = [line for line in text.decode().splitlines() if line.startswith("line")]
    assert lines == [f"line {n} " + "x" * 80 for n in range(100)] * 4
    sizes = {file.name: file.stat().st_size for file in one.folder.glob("log*")}
    assert set(sizes) == {"log", "log.1"} and max(sizes.values()) <= 31_000


def test_the_log_begins_with_the_present_start(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.start()
    one.says("port")
    one.stop()
    one.start()
    one.says("port")
    assert one.read().data.decode().count("child") == 1
    assert (one.folder / "log").read_text().count("child") == 2


Wanted = Literal["auto", "systemd", "process"]


@pytest.mark.parametrize(
    "wanted, is_root, systemd, linger, sudo, launcher, lingering",
    [
        ("auto", True, True, False, "none", "systemd-system", False),
        ("auto", False, True, True, "none", "systemd-user", False),
        ("auto", False, True, False, "passwordless", "systemd-user", True),
        ("systemd", False, True, False, "password", "systemd-user", True),
        ("auto", False, True, False, "password", "process", False),
        ("auto", False, True, False, "none", "process", False),
        ("auto", True, False, False, "none", "process", False),
        ("auto", False, False, True, "passwordless", "process", False),
        ("process", True, True, True, "none", "process", False),
    ],
)
def test_the_launcher_fits_the_host(
    wanted: Wanted,
    is_root: bool,
    systemd: bool,
    linger: bool,
    sudo: SudoKind,
    launcher: str,
    lingering: bool,
) -> None:
    found = launch.choose_launcher(
        wanted, is_root=is_root, systemd=systemd, linger=linger, sudo=sudo
    )
    assert (found.launcher, found.enable_linger) == (launcher, lingering)
    assert isinstance(found, Choice) and found.reason


@pytest.mark.parametrize("systemd, advice", [(True, "loginctl enable-linger"), (False, "process")])
def test_systemd_that_cannot_be_had_is_refused(systemd: bool, advice: str) -> None:
    with pytest.raises(HostError) as caught:
        launch.choose_launcher(
            "systemd", is_root=False, systemd=systemd, linger=False, sudo="none", where="gpu01"
        )
    assert str(caught.value).startswith("gpu01: the profile wants systemd, but ")
    assert advice in caught.value.remedy


def unit(**shown: object) -> bytes:
    usual = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": 7}
    lines = [f"{name}={value}" for name, value in {**usual, **shown}.items()]
    return "\n".join(["@state systemd", *lines, ""]).encode()


@pytest.mark.parametrize(
    "shown, condition, rc",
    [
        ({"ExecMainCode": 0, "ExecMainStatus": 0}, "running", None),
        ({"ActiveState": "activating", "SubState": "auto-restart", "ExecMainCode": 1,
          "ExecMainStatus": 3}, "restarting", 3),
        ({"ActiveState": "failed", "ExecMainCode": 2, "ExecMainStatus": 9}, "failed", 137),
        ({"ActiveState": "inactive", "ExecMainCode": 1, "ExecMainStatus": 0}, "stopped", 0),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "missing", None),
        ({"ActiveState": ""}, "missing", None),
    ],
)  # fmt: skip
def test_what_systemd_shows_is_understood(
    shown: dict[str, object], condition: str, rc: int | None
) -> None:
    found = running.parse_state(unit(**shown), "gpu01")
    assert (found.condition, found.rc) == (condition, rc)


def export(*messages: bytes) -> bytes:
    """These messages in the journal's export format; a text one as a line, any other by length."""
    parts = []
    for n, message in enumerate(messages):
        plain = message.isascii() and message.decode("latin-1").isprintable()
        length = len(message).to_bytes(8, "little")
        field = b"MESSAGE=" + message if plain else b"MESSAGE\n" + length + message
        parts.append(b"__CURSOR=c%d\n__REALTIME_TIMESTAMP=1\n%b\n\n" % (n, field))
    return b"".join(parts)


messages = st.lists(
    st.binary(max_size=30) | st.text("ab =\n@", max_size=9).map(str.encode), min_size=1
)


@given(messages, st.data())
def test_a_journal_is_read_to_its_last_whole_entry(sent: list[bytes], data: st.DataObject) -> None:
    whole = export(*sent)
    cut = data.draw(st.integers(0, len(whole)))
    chunk = running.parse_log(unit() + b"@log journal before\n" + whole[:cut], "gpu01")
    count = sum(len(export(*sent[:n])) <= cut for n in range(1, len(sent) + 1))
    assert chunk.data == b"".join(message + b"\n" for message in sent[:count])
    assert chunk.next_offset == (f"c{count - 1}" if count else "before")


def test_an_answer_that_cannot_be_read_is_said_so() -> None:
    with pytest.raises(HostError) as caught:
        running.parse_log(b"oops", "gpu01")
    assert str(caught.value) == (
        "gpu01: cannot read the server's state; the host said: oops\n"
        "  -> try `invoke status --host gpu01`, or log in to the host"
    )
