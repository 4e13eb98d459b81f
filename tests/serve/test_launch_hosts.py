"""Launchers on a real host: a system unit, a user's unit, and a process, all with one server."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.plan import ShipFile
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host
from firstlight.serve import launch, running
from firstlight.serve.launch import Deployment, Launcher
from firstlight.serve.running import ServerState
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

REMOTE = Path(__file__).parents[2] / "firstlight" / "remote"

SERVER = """
import signal, subprocess, sys, time
child, kept = subprocess.Popen(["setsid", "sleep", "1000"]), []
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("bye", flush=True)))
signal.signal(signal.SIGUSR2, lambda *_: kept.append(b"x" * (300 << 20)))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print("crash\\x01\\xff", flush=True) or 9))
print("child", child.pid, flush=True)
for n in range(2000):
    print("line", n, flush=True)
print("ready", flush=True)
while True:
    time.sleep(1)
"""

UNIT = """
[Service]
Type=exec
ExecStart=/bin/bash "{home}/launch.sh"
Restart=on-failure
RestartSec=1
KillMode=mixed
TimeoutStopSec=5
{log}
[Install]
WantedBy={target}
"""


@pytest.fixture
def open_as(
    gpu01: TestHost, ssh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Shell]]:
    """Opens shells on gpu01 as one of its users."""
    monkeypatch.setenv("HOME", str(ssh_home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with ExitStack() as opened:

        def open_one(user: str) -> Shell:
            shell = open_shell(Host(name="gpu01", address=gpu01.address, user=user), {})
            opened.callback(shell.close)
            return shell

        yield open_one


class Bench:
    """A deployment on a host, with what a test does with it."""

    def __init__(
        self, shell: Shell, home: PurePosixPath, launcher: Launcher, sudo: bool = False
    ) -> None:
        self.shell = shell
        lib = home.parent / "lib"
        self.deployment = Deployment("fake", home, lib, launcher, stop_s=5, sudo=sudo)
        names = ("serve.sh", "processes.sh")
        digests = {name: hashlib.sha256((REMOTE / name).read_bytes()).hexdigest() for name in names}
        files = [ShipFile(REMOTE / name, lib / name, digests[name]) for name in names]
        shell.send(files, lambda _: None)
        user = launcher == "systemd-user"
        log = f"StandardOutput=append:{home}/log\nStandardError=inherit" if user else ""
        target = "default.target" if user else "multi-user.target"
        self.write("unit", UNIT.format(home=home, log=log, target=target))
        self.write("launch.sh", 'exec python3 -u "${0%/*}/server.py"\n')
        self.write("server.py", SERVER)

    def write(self, name: str, text: str) -> None:
        home = str(self.deployment.home)
        self.run(Script('mkdir -p "$1" && printf %s "$3" >"$1/$2"', (home, name, text)))

    def run(self, script: Script) -> str:
        done = self.shell.run(script)
        assert done.ok, done.error_text + done.text
        return done.text.strip()

    def state(self) -> ServerState:
        return running.parse_state(self.shell.run(running.state(self.deployment)).out, "gpu01")

    def wait(self, condition: str) -> ServerState:
        deadline = time.monotonic() + 60
        while (state := self.state()).condition != condition:
            assert time.monotonic() < deadline, f"waited for {condition}, it is {state}"
            time.sleep(0.2)
        return state

    def read_until(self, word: str, offset: str = "") -> tuple[str, str]:
        """The log up to `word`, in small pieces, and the offset behind it."""
        data = b""
        deadline = time.monotonic() + 60
        while word.encode() not in data:
            out = self.shell.run(running.read_log(self.deployment, offset, 20_000)).out
            chunk = running.parse_log(out, "gpu01")
            data, offset = data + chunk.data, chunk.next_offset
            assert time.monotonic() < deadline, data[-2000:]
        return data.decode("utf-8", "replace"), offset


CASES = [
    ("root", "systemd-system", False),
    ("zoe", "systemd-system", True),
    ("bob", "systemd-user", False),
    ("nolin", "process", False),
    ("bob", "process", False),
]


@pytest.mark.parametrize("user, launcher, sudo", CASES)
def test_the_same_server_under_each_launcher(
    gpu01: TestHost,
    open_as: Callable[[str], Shell],
    gpu01_root: PurePosixPath,
    user: str,
    launcher: Launcher,
    sudo: bool,
) -> None:
    one = Bench(open_as(user), gpu01_root / "fake" / "1", launcher, sudo=sudo)
    assert one.state().condition == "missing"
    assert one.run(launch.start(one.deployment)).endswith("started")
    try:
        crash_and_read(gpu01, one)
    finally:
        one.run(launch.stop(one.deployment))
    assert one.state().condition == "stopped"
    assert "bye" in one.read_until("bye")[0]
    assert fleet.run(gpu01, f"pgrep -f {gpu01_root}", check=False).stdout == ""
    assert fleet.run(gpu01, "pgrep -x sleep", check=False).stdout == ""


def crash_and_read(host: TestHost, one: Bench) -> None:
    """Read the log to `ready`, crash the server, and read on: the crash, and the next start."""
    text, offset = one.read_until("ready")
    assert [line for line in text.splitlines() if line[:4] == "line"] == [
        f"line {n}" for n in range(2000)
    ]
    assert one.run(launch.start(one.deployment)) == "running"
    state = one.wait("running")
    # Another connection, as somebody who looks later has it.
    fleet.run(host, f"kill -USR1 {state.pid}")
    text, offset = one.read_until("ready", offset)
    assert "crash\x01\xff" in text and text.count("child ") == 1
    again = one.wait("running")
    assert (again.restarts, again.pid != state.pid) == (1, True)


@pytest.mark.usefixtures("holds_memory")
@pytest.mark.parametrize(
    ("user", "how"), [("root", "its processes killed: "), ("nolin", "it held ")]
)
def test_the_kernel_holds_the_ceiling_of_memory_and_where_it_cannot_the_supervisor_does(
    gpu01: TestHost,
    open_as: Callable[[str], Shell],
    gpu01_root: PurePosixPath,
    user: str,
    how: str,
) -> None:
    one = Bench(open_as(user), gpu01_root / "fake" / "1", "process")
    one.deployment = replace(one.deployment, memory=256 << 20, restart="no")
    assert one.run(launch.start(one.deployment)).endswith("started")
    _, offset = one.read_until("ready")
    fleet.run(gpu01, f"kill -USR2 {one.wait('running').pid}")
    assert one.wait("failed").rc == 137
    said, _ = one.read_until("(service.memory); ", offset)
    assert f"the server was above its ceiling of 256 MiB (service.memory); {how}" in said
    one.run(launch.stop(one.deployment))


def test_a_system_unit_comes_back_after_a_reboot_and_a_new_one_takes_its_place(
    gpu01: TestHost, open_as: Callable[[str], Shell], gpu01_root: PurePosixPath
) -> None:
    shell = open_as("root")
    first, second = (Bench(shell, gpu01_root / "fake" / n, "systemd-system") for n in "12")
    first.run(launch.start(first.deployment))
    fleet.reboot(gpu01)
    shell.reopen()
    first.read_until("ready")
    assert second.run(launch.start(second.deployment)).endswith("started")
    second.read_until("ready")
    assert fleet.run(gpu01, f"pgrep -fc {gpu01_root}/fake/").stdout.strip() == "1"
    second.run(launch.stop(second.deployment))
    shown = fleet.run(gpu01, "systemctl is-enabled firstlight-fake", check=False).stdout
    assert shown.strip() == "disabled"


def test_linger_is_given_once_by_root(
    open_as: Callable[[str], Shell], gpu01_user: str, gpu01_root: PurePosixPath
) -> None:
    open_as("root").run(launch.enable_linger(gpu01_user))
    one = Bench(open_as(gpu01_user), gpu01_root / "fake" / "1", "systemd-user")
    assert one.run(launch.start(one.deployment)).endswith("started")
    one.read_until("ready")
    one.run(launch.stop(one.deployment))


def test_a_user_s_unit_has_a_tmp_of_its_own_unless_it_lives_in_tmp(
    gpu01: TestHost, open_as: Callable[[str], Shell], gpu01_root: PurePosixPath
) -> None:
    shell = open_as("bob")
    home = PurePosixPath(fleet.run(gpu01, "mktemp -d /tmp/test.XXXXXX").stdout.strip())
    fleet.run(gpu01, f"chmod 1777 {home}")
    try:
        for root, is_own in ((gpu01_root, True), (home, False), (gpu01_root, True)):
            one = Bench(shell, root / "fake" / "1", "systemd-user")
            assert one.run(launch.start(one.deployment)).endswith("started")
            one.read_until("ready")
            seen = fleet.run(gpu01, f"stat -Lc %i /tmp /proc/{one.state().pid}/root/tmp").stdout
            assert (len(set(seen.split())) == 2) is is_own
            one.run(launch.stop(one.deployment))
    finally:
        fleet.run(gpu01, f"rm -rf {home}")


def test_a_unit_that_systemd_refuses_is_said_so(
    open_as: Callable[[str], Shell], gpu01_root: PurePosixPath
) -> None:
    one = Bench(open_as("root"), gpu01_root / "fake" / "1", "systemd-system")
    one.write("unit", "[Service]\nType=nonsense\n[Install]\nWantedBy=multi-user.target\n")
    done = one.shell.run(launch.start(one.deployment))
    assert not done.ok and "firstlight-fake.service" in done.error_text
    one.run(launch.stop(one.deployment))
