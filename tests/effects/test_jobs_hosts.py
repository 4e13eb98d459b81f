"""Detached jobs on a real host, over SSH: systemd holds them, a broken link does not hurt them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.plan import Job, ShipFile
from firstlight.effects import jobs
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

REMOTE = Path(__file__).parents[2] / "firstlight" / "remote"

Open = Callable[[str], Shell]


@pytest.fixture
def open_as(gpu01: TestHost, ssh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens shells on gpu01 as one of its users."""
    monkeypatch.setenv("HOME", str(ssh_home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with ExitStack() as opened:

        def open_one(user: str) -> Shell:
            shell = open_shell(Host(name="gpu01", address=gpu01.address, user=user), {})
            opened.callback(shell.close)
            return shell

        yield open_one


def programs(shell: Shell, root: PurePosixPath) -> PurePosixPath:
    """Send what a host needs to look after a job; returns the path of supervise.sh."""
    sources = [REMOTE / name for name in ("supervise.sh", "processes.sh", "serve.sh", "memory.py")]
    files = [
        ShipFile(one, root / "lib" / one.name, hashlib.sha256(one.read_bytes()).hexdigest())
        for one in sources
    ]
    shell.send(files, lambda _: None)
    return root / "lib" / "supervise.sh"


def read(shell: Shell, path: PurePosixPath) -> str:
    return shell.run(Script('cat -- "$1"', (str(path),))).text


TREE = """
setsid env -i sleep 1000 &
setsid bash -c 'trap "" TERM; while :; do sleep 0.2; done' &
echo up; wait
"""


@pytest.mark.parametrize(
    "user, backend", [("root", "systemd"), ("bob", "systemd"), ("nolin", "setsid")]
)
def test_a_job_is_held_together_by_what_the_host_has(
    gpu01: TestHost, open_as: Open, gpu01_root: PurePosixPath, user: str, backend: str
) -> None:
    shell = open_as(user)
    root = gpu01_root / user
    supervise = programs(shell, root)
    assert jobs.start(shell, root, supervise, Job("tree", Script(TREE), "store")) == "started"
    while b"up" not in jobs.poll(shell, root, "tree", 0).data:
        time.sleep(0.1)
    assert read(shell, root / "jobs" / "tree" / "backend").split()[0] == backend
    # The connection's own scope ends; a job outside of it goes on.
    shell.close()
    shell = open_as(user)
    assert jobs.poll(shell, root, "tree", 0).state == "running"
    assert jobs.start(shell, root, supervise, Job("tree", Script(TREE), "store")) == "attached"
    assert jobs.cancel(shell, root, "tree", grace_s=1) == 0
    view = jobs.poll(shell, root, "tree", 0)
    assert (view.state, view.rc) == ("cancelled", 143)
    if backend == "systemd":
        # Only a cgroup knows of a process without our mark in a session of its own.
        assert fleet.run(gpu01, "pgrep -x sleep -u " + user, check=False).stdout == ""
        assert "firstlight-job" not in fleet.run(gpu01, "systemctl list-units").stdout


HUNGRY = """
grow='x = bytearray(400 << 20); x[::4096] = b"y" * len(x[::4096])'
python3 -c "$grow"; echo "a compiler ended with $?"
printf '%s\n' "$(<"$FIRSTLIGHT_JOB/memory")"
python3 "$1" | cut -d' ' -f4
exit 1
"""


@pytest.mark.usefixtures("holds_memory")
def test_systemd_and_the_kernel_hold_a_job_to_its_ceiling(
    open_as: Open, gpu01_root: PurePosixPath
) -> None:
    shell = open_as("root")
    supervise = programs(shell, gpu01_root)
    script = Script(HUNGRY, (str(gpu01_root / "lib" / "memory.py"),))
    jobs.start(shell, gpu01_root, supervise, Job("hungry", script, memory_mib=200))
    log: list[bytes] = []
    view = jobs.follow(shell, gpu01_root, "hungry", log.append, lambda _: None)
    lines = b"".join(log).decode().splitlines()
    assert (view.state, view.rc) == ("done", 1)
    assert "a compiler ended with 137" in lines
    assert lines[-3:] == [
        f"{200 << 20}",
        "200",
        "firstlight: the job ran out of memory (ceiling 200 MiB; processes killed: 1)",
    ]
    # The next one counts from the beginning, and one without a ceiling has none.
    jobs.start(shell, gpu01_root, supervise, Job("next", Script("exit 1"), memory_mib=200))
    log.clear()
    jobs.follow(shell, gpu01_root, "next", log.append, lambda _: None)
    assert log == []
    jobs.start(shell, gpu01_root, supervise, Job("free", Script(HUNGRY.replace("400", "40"))))
    jobs.follow(shell, gpu01_root, "free", log.append, lambda _: None)
    assert b"a compiler ended with 0\nnone\n" in b"".join(log)


@pytest.mark.parametrize("user", ["bob", "nolin"])
def test_a_ceiling_that_nobody_holds_is_told(
    open_as: Open, gpu01_root: PurePosixPath, user: str
) -> None:
    """A user's systemd on cgroup v1 has no memory controller; without systemd there is no scope."""
    shell = open_as(user)
    supervise = programs(shell, gpu01_root)
    jobs.start(shell, gpu01_root, supervise, Job("x", Script("sleep 1"), memory_mib=200))
    log: list[bytes] = []
    jobs.follow(shell, gpu01_root, "x", log.append, lambda _: None)
    recorded = read(shell, gpu01_root / "jobs" / "x" / "memory")
    if recorded == "none\n":
        assert b"".join(log).startswith(b"firstlight: no ceiling of 200 MiB: nothing on this host")
    else:
        assert (recorded, log) == (f"{200 << 20}\n", [])


def test_a_lock_names_its_holder_to_another_user(open_as: Open, gpu01_root: PurePosixPath) -> None:
    bob, zoe = open_as("bob"), open_as("zoe")
    supervise = programs(bob, gpu01_root)
    shared = 'cd "$1"; mkdir -m 777 jobs lock; touch lock/store; chmod 666 lock/store'
    bob.run(Script(shared, (str(gpu01_root),)))
    jobs.start(bob, gpu01_root, supervise, Job("his", Script("sleep 1000"), "store"))
    while not read(bob, gpu01_root / "lock" / "store"):
        time.sleep(0.1)
    bob.run(Script('chmod 666 "$1/jobs/.start"', (str(gpu01_root),)))
    jobs.start(zoe, gpu01_root, supervise, Job("hers", Script("echo mine"), "store"))
    while not (view := jobs.poll(zoe, gpu01_root, "hers", 0)).lock_holder:
        time.sleep(0.1)
    assert view.lock_holder.startswith("bob, job his, started from ")
    assert jobs.cancel(bob, gpu01_root, "his", grace_s=1) == 0
    assert jobs.follow(zoe, gpu01_root, "hers", lambda _: None, lambda _: None).rc == 0


TALK = """
head -c 600000 /dev/urandom >"$1"
for i in $(seq 0 59); do tail -c +$((i * 10000 + 1)) "$1" | head -c 10000; sleep 0.25; done
exit 3
"""


@pytest.mark.parametrize("cut", ["cable", "sessions"])
def test_a_follower_loses_no_byte_when_the_link_breaks(
    gpu01: TestHost, open_as: Open, gpu01_root: PurePosixPath, cut: str
) -> None:
    shell = open_as("nolin")
    supervise = programs(shell, gpu01_root)
    job = Job("talk", Script(TALK, (str(gpu01_root / "sent"),)))
    jobs.start(shell, gpu01_root, supervise, job)
    pieces: list[bytes] = []
    events: list[str] = []

    def take(piece: bytes) -> None:
        if len(pieces) == 3:
            break_link(gpu01, cut)
        pieces.append(piece)

    view = jobs.follow(shell, gpu01_root, "talk", take, events.append)
    sent = fleet.run(gpu01, f"sha256sum {gpu01_root}/sent").stdout.split()[0]
    assert hashlib.sha256(b"".join(pieces)).hexdigest() == sent
    assert (view.state, view.rc) == ("done", 3)
    assert "the job goes on there" in events[0] and events[-1] == "reached gpu01 again"
    assert shell.connections == 2


def break_link(host: TestHost, how: str) -> None:
    if how == "sessions":
        fleet.kill_sshd_sessions(host)
        return
    fleet.link_down(host)
    # TCP gives up after 20 s: a cable that is back by then may mend the link before it is lost.
    threading.Timer(27, fleet.link_up, [host]).start()


def test_a_reboot_is_told_and_the_job_starts_afresh(
    gpu01: TestHost, open_as: Open, gpu01_root: PurePosixPath
) -> None:
    shell = open_as("root")
    supervise = programs(shell, gpu01_root)
    job = Job("long", Script("sleep 1000"), "store")
    jobs.start(shell, gpu01_root, supervise, job)
    fleet.run(gpu01, f"cp -r {gpu01_root}/jobs/long {gpu01_root}/jobs/hard")
    fleet.reboot(gpu01)
    shell.reopen()
    # An orderly shutdown asks the job to end; a power cut leaves it as the copy is.
    assert jobs.poll(shell, gpu01_root, "hard", 0).state == "rebooted"
    view = jobs.poll(shell, gpu01_root, "long", 0)
    assert view.state == "rebooted" or (view.state, view.rc) == ("done", 143)
    assert jobs.start(shell, gpu01_root, supervise, job) == "started"
    assert jobs.cancel(shell, gpu01_root, "long", grace_s=1) == 0
