"""Detached jobs: real processes on this machine, and then on real hosts over SSH."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError, Untrusted
from firstlight.core.plan import Job
from firstlight.effects import jobs
from firstlight.effects.jobs import JobView
from firstlight.effects.local import LocalShell
from firstlight.effects.shell import Result, Shell
from firstlight.hosts.inventory import Host

REMOTE = Path(__file__).parents[2] / "firstlight" / "remote"
SUPERVISE = PurePosixPath(REMOTE / "supervise.sh")


@pytest.fixture
def local() -> Shell:
    return LocalShell(Host(name="local"))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[PurePosixPath]:
    """A root whose name wants quoting; no job of it outlives the test."""
    made = PurePosixPath(tmp_path / "it's a (root)")
    yield made
    shell = LocalShell(Host(name="local"))
    for folder in Path(made / "jobs").glob("*/supervise.sh"):
        if folder.parent.suffix != ".old":
            assert jobs.cancel(shell, made, folder.parent.name, grace_s=0) == 0


def job(text: str, *args: str, id_: str = "one", lock: str = "") -> Job:
    return Job(id_, Script(text, args), lock)


def begin(shell: Shell, root: PurePosixPath, what: Job, again: bool = False) -> str:
    return jobs.start(shell, root, SUPERVISE, what, again=again, controller="laptop")


def to_the_end(shell: Shell, root: PurePosixPath, id_: str = "one") -> tuple[JobView, str]:
    pieces: list[bytes] = []
    view = jobs.follow(shell, root, id_, pieces.append, lambda _: None)
    return view, b"".join(pieces).decode()


def wait_for(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def log_of(root: PurePosixPath, id_: str = "one") -> str:
    return Path(root / "jobs" / id_ / "log").read_text()


def supervisor(root: PurePosixPath, id_: str = "one") -> int:
    return int(Path(root / "jobs" / id_ / "pid").read_text().split()[0])


def test_a_job_runs_detached_and_its_end_is_known(local: Shell, root: PurePosixPath) -> None:
    text = 'umask; pwd; printf "%s\\n" "$@" >&2; sleep 0.5; exit 3'
    assert begin(local, root, job(text, "a  b", "$(x)")) == "started"
    view, log = to_the_end(local, root)
    assert (view.state, view.rc) == ("done", 3)
    assert log == f"{os.umask(os.umask(0o22)):04o}\n{Path.home()}\na  b\n$(x)\n"


def test_one_call_to_the_host_and_secrets_only_in_a_private_file(
    local: Shell, root: PurePosixPath
) -> None:
    seen = 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " " | grep -c "sesa[m]e-$((40 + 2))"'
    secret = Job("one", Script(f"{seen}; echo $TOKEN", env={"TOKEN": "sesame-42"}))
    before = local.scripts
    begin(local, root, secret)
    assert local.scripts == before + 1
    assert to_the_end(local, root)[1] == "0\nsesame-42\n"
    folder = Path(root / "jobs" / "one")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "script").stat().st_mode & 0o777 == 0o700


def test_the_same_id_attaches_and_finished_work_is_not_done_again(
    local: Shell, root: PurePosixPath
) -> None:
    wait = job('until [ -e "$1" ]; do sleep 0.1; done; echo ran', str(root / "go"))
    assert begin(local, root, wait) == "started"
    assert begin(local, root, wait) == "attached"
    Path(root / "go").touch()
    assert to_the_end(local, root) == (JobView("done", 0, 4), "ran\n")
    assert begin(local, root, wait) == "finished"
    assert begin(local, root, wait, again=True) == "started"


def test_a_failed_job_is_tried_again_and_the_last_failure_is_kept(
    local: Shell, root: PurePosixPath
) -> None:
    for attempt in ("first", "second", "third"):
        assert begin(local, root, job("echo $1; exit 1", attempt)) == "started"
        assert to_the_end(local, root)[1] == f"{attempt}\n"
    assert log_of(root, "one.old") == "second\n"


def test_a_job_that_never_was_is_missing(local: Shell, root: PurePosixPath) -> None:
    assert jobs.poll(local, root, "one", 0) == JobView("missing")
    assert jobs.cancel(local, root, "one") == 0


@pytest.mark.parametrize("name", ["", "../x", "a b", "-rf", "x.old", "x.partial", "a\nb"])
def test_a_job_s_name_is_a_file_name(local: Shell, root: PurePosixPath, name: str) -> None:
    with pytest.raises(ValueError, match="not a name for a job"):
        begin(local, root, job("true", id_=name))


def test_where_it_cannot_start_the_host_s_words_are_told(local: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match=r"cannot make .*/file/jobs"):
        begin(local, PurePosixPath(tmp_path / "file"), job("true"))


STUBBORN = """
loop='trap : TERM; echo $$ >>"$1"; while :; do sleep 0.2; done'
setsid bash -c "$loop" _ "$1" &
env -i bash -c "$loop" _ "$1" &
(setsid bash -c 'echo $$ >>"$1"; exec sleep 1000' _ "$1" &)
echo $$ >>"$1"
sleep 1000
"""


def pids_in(marks: Path) -> list[int]:
    return [int(line) for line in marks.read_text().split()] if marks.exists() else []


def test_cancel_leaves_nothing(local: Shell, root: PurePosixPath, tmp_path: Path) -> None:
    begin(local, root, job(STUBBORN, str(tmp_path / "marks")))
    wait_for(lambda: len(pids_in(tmp_path / "marks")) == 4)
    assert all(map(is_running, pids_in(tmp_path / "marks")))
    assert jobs.cancel(local, root, "one", grace_s=1) == 0
    assert not any(map(is_running, pids_in(tmp_path / "marks")))
    view, _ = to_the_end(local, root)
    assert (view.state, view.rc) == ("cancelled", 143)
    assert jobs.cancel(local, root, "one") == 0
    assert begin(local, root, job("true")) == "started"


def test_sigterm_to_the_supervisor_ends_the_tree(
    local: Shell, root: PurePosixPath, tmp_path: Path
) -> None:
    text = 'trap "echo bye; exit 0" TERM; echo up >"$1"; while :; do sleep 0.1; done'
    begin(local, root, job(text, str(tmp_path / "marks")))
    wait_for((tmp_path / "marks").exists)
    os.kill(supervisor(root), signal.SIGTERM)
    view, log = to_the_end(local, root)
    assert (view.state, view.rc) == ("done", 143)
    assert "bye" in log and "asked to end" in log


def test_what_a_job_leaves_running_is_ended_with_it(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("setsid sleep 1000 & echo $!"))
    view, log = to_the_end(local, root)
    assert (view.rc, "ending what it left running" in log) == (0, True)
    assert not is_running(int(log.split()[0]))


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX"


def test_what_a_killed_supervisor_leaves_ends_by_itself(
    local: Shell, root: PurePosixPath, tmp_path: Path
) -> None:
    """Also what has left its session; nobody has to come and look."""
    text = 'echo $$ >>"$1"; setsid sleep 1000 & echo $! >>"$1"; wait'
    begin(local, root, job(text, str(tmp_path / "pids")))
    wait_for(lambda: len(pids_in(tmp_path / "pids")) == 2)
    os.kill(supervisor(root), signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, pids_in(tmp_path / "pids"))))
    assert jobs.poll(local, root, "one", 0).state == "lost"
    assert log_of(root) == "firstlight: the supervisor was killed; ending the job\n"
    assert begin(local, root, job("echo afresh")) == "started"
    assert to_the_end(local, root)[1] == "afresh\n"


def test_a_start_right_after_a_killed_supervisor_is_left_alone(
    local: Shell, root: PurePosixPath, tmp_path: Path
) -> None:
    """The guard of the run before ends nothing of the run that follows."""
    begin(local, root, job('trap "" TERM; echo $$ >"$1"; sleep 1000', str(tmp_path / "pid")))
    wait_for(lambda: pids_in(tmp_path / "pid"))
    os.kill(supervisor(root), signal.SIGKILL)
    assert begin(local, root, job("sleep 3; echo afresh")) == "started"
    assert not is_running(*pids_in(tmp_path / "pid"))
    assert to_the_end(local, root)[1] == "afresh\n"


def edit_record(path: Path, **fields: str) -> None:
    names = ("pid", "ticks", "boot")
    first, *rest = path.read_text().splitlines()
    values = [fields.get(name, old) for name, old in zip(names, first.split(), strict=False)]
    path.write_text("\n".join([" ".join(values), *rest]) + "\n")


def test_a_reused_pid_is_not_taken_for_the_supervisor(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("sleep 1000"))
    old, record = supervisor(root), Path(root / "jobs" / "one" / "pid")
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        edit_record(record, pid=str(stranger.pid))
        assert jobs.poll(local, root, "one", 0).state == "lost"
        assert jobs.cancel(local, root, "one", grace_s=0) == 0
        assert stranger.poll() is None
        stranger.kill()
    wait_for(lambda: not is_running(old))


def test_a_job_of_another_boot_was_ended_by_the_reboot(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("sleep 1000"))
    old, record = supervisor(root), Path(root / "jobs" / "one" / "pid")
    boot = record.read_text().split()[2]
    edit_record(record, boot="00000000-0000-0000-0000-000000000000")
    assert jobs.poll(local, root, "one", 0).state == "rebooted"
    edit_record(record, boot=boot, pid=str(old))


def test_the_second_of_two_waits_and_says_for_whom(local: Shell, root: PurePosixPath) -> None:
    go = root / "go"
    wait = 'until [ -e "$1" ]; do sleep 0.1; done'
    begin(local, root, job(wait, str(go), id_="first", lock="store"))
    lock = Path(root / "lock" / "store")
    wait_for(lambda: lock.exists() and lock.read_text())
    begin(local, root, job("echo mine", id_="second", lock="store"))
    wait_for(lambda: jobs.poll(local, root, "second", 0).lock_holder)
    view = jobs.poll(local, root, "second", 0)
    assert view.state == "running"
    assert "job first, started from laptop, since 20" in view.lock_holder
    assert "waiting for the lock 'store', held by" in view.data.decode()
    for name in ("store", "all"):
        assert Path(root / "lock" / name).stat().st_mode & 0o444 == 0o444
    go_on(go)
    view, log = to_the_end(local, root, "second")
    assert (view.rc, view.lock_holder) == (0, "")
    assert log.endswith("Z\nmine\n")
    assert Path(root / "lock" / "store").read_text() == "released\n"


def go_on(path: PurePosixPath) -> None:
    Path(path).touch()


def test_a_job_that_waits_can_be_cancelled(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("sleep 1000", id_="first", lock="store"))
    begin(local, root, job("echo mine", id_="second", lock="store"))
    wait_for(lambda: jobs.poll(local, root, "second", 0).lock_holder)
    assert jobs.cancel(local, root, "second", grace_s=0) == 0
    view, log = to_the_end(local, root, "second")
    assert view.state == "cancelled"
    assert "mine" not in log
    assert jobs.poll(local, root, "first", 0).state == "running"


def test_a_lock_whose_holder_was_killed_is_taken_over(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("sleep 1000 & echo $!; wait", id_="first", lock="store"))
    wait_for(lambda: log_of(root, "first"))
    os.kill(supervisor(root, "first"), signal.SIGKILL)
    begin(local, root, job("echo mine", id_="second", lock="store"))
    _, log = to_the_end(local, root, "second")
    assert "took over a stale lock of" in log and ": its holder is gone\n" in log
    assert "job first, started from laptop, since" in log
    assert log.endswith("mine\n")
    assert not is_running(int(log_of(root, "first").split()[0]))


def test_who_waits_in_vain_leaves_the_holder_s_name(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, job("sleep 1000", id_="first", lock="store"))
    begin(local, root, job("echo mine", id_="second", lock="store"))
    wait_for(lambda: jobs.poll(local, root, "second", 0).lock_holder)
    jobs.cancel(local, root, "second", grace_s=0)
    assert "job first, started from laptop" in Path(root / "lock" / "store").read_text()


def test_who_locks_all_runs_beside_nobody(local: Shell, root: PurePosixPath) -> None:
    """Two with locks of their own go side by side; one of `all` waits for both, and they for it."""
    wait = 'until [ -e "$1" ]; do sleep 0.1; done'
    for name in ("one", "two"):
        begin(local, root, job(f"echo ran; {wait}", str(root / name), id_=name, lock=name))
        wait_for(partial(log_of, root, name))
    begin(local, root, job(f"echo alone; {wait}", str(root / "all"), id_="all", lock="all"))
    wait_for(lambda: jobs.poll(local, root, "all", 0).lock_holder == "other jobs")
    go_on(root / "one")
    to_the_end(local, root, "one")
    assert jobs.poll(local, root, "all", 0).lock_holder
    go_on(root / "two")
    wait_for(lambda: log_of(root, "all").endswith("alone\n"))
    begin(local, root, job("echo ran", id_="three", lock="three"))
    wait_for(lambda: "job all, started" in jobs.poll(local, root, "three", 0).lock_holder)
    go_on(root / "all")
    assert to_the_end(local, root, "three")[1].endswith("ran\n")


def test_a_lock_from_before_a_reboot_is_taken_over(local: Shell, root: PurePosixPath) -> None:
    lock = Path(root / "lock" / "store")
    lock.parent.mkdir(parents=True)
    lock.write_text("1 5 some-other-boot\nbob, job x, started from y, since then\n/nowhere\n")
    begin(local, root, job("echo mine", lock="store"))
    _, log = to_the_end(local, root)
    holder = "bob, job x, started from y, since then"
    assert log == f"firstlight: took over a stale lock of {holder}: the host was rebooted\nmine\n"


def test_what_the_kernel_holds_a_job_to_is_recorded(local: Shell, root: PurePosixPath) -> None:
    begin(local, root, Job("one", Script('cat "$FIRSTLIGHT_JOB/memory"'), memory_mib=4096))
    log = to_the_end(local, root)[1]
    if log.endswith("none\n"):
        assert log.startswith("firstlight: no ceiling of 4096 MiB: nothing on this host holds")
    else:
        assert log == f"{4096 << 20}\n"


def test_a_job_is_killed_before_its_supervisor(local: Shell, root: PurePosixPath) -> None:
    text = "cat /proc/self/oom_score_adj; cat /proc/$PPID/oom_score_adj"
    begin(local, root, Job("one", Script(text), memory_mib=64))
    own = Path("/proc/self/oom_score_adj").read_text().strip()
    assert to_the_end(local, root)[1].split()[-2:] == ["500", own]
    begin(local, root, job(text, id_="two"))
    assert to_the_end(local, root, "two")[1].split() == [own, own]


BINARY = (
    'head -c 2000000 /dev/urandom >"$1"; for i in 1 2 3 4; do tail -c +$(((i-1)*500000+1)) "$1"'
)
BINARY += " | head -c 500000; sleep 0.3; done"


def test_no_byte_of_a_log_is_lost_or_doubled(
    local: Shell, root: PurePosixPath, tmp_path: Path
) -> None:
    begin(local, root, job(BINARY, str(tmp_path / "sent")))
    pieces: list[bytes] = []
    jobs.follow(local, root, "one", pieces.append, lambda _: None, max_bytes=77_777)
    assert b"".join(pieces) == (tmp_path / "sent").read_bytes()
    assert max(map(len, pieces)) == 77_777


class Breaking(LocalShell):
    """This machine over a link that breaks at every third script and stays down a while."""

    def __init__(self) -> None:
        super().__init__(Host(name="local"))
        self.broken, self.reopened, self.turns = False, 0, itertools.count(1)

    def run(self, script: Script, timeout_s: float = 60.0) -> Result:
        self.broken = self.broken or next(self.turns) % 3 == 0
        result = super().run(script, timeout_s)
        if self.broken:
            raise ConnectionLost("the connection broke", where="local")
        return result

    def reopen(self) -> None:
        self.reopened += 1
        if self.reopened % 2:
            raise HostError("no answer", where="local")
        self.broken = False


def test_a_follower_comes_back_to_the_byte_where_it_was(
    root: PurePosixPath, tmp_path: Path
) -> None:
    shell = Breaking()
    begin(shell, root, job(BINARY, str(tmp_path / "sent")))
    pieces: list[bytes] = []
    events: list[str] = []
    view = jobs.follow(shell, root, "one", pieces.append, events.append, max_bytes=250_000)
    assert b"".join(pieces) == (tmp_path / "sent").read_bytes()
    assert (view.state, view.rc) == ("done", 0)
    assert events[:3] == [
        "the connection broke; the job goes on there",
        "no answer; next attempt in 1 s",
        "reached local again",
    ]


def test_an_end_that_cannot_be_made_says_where_to_look(root: PurePosixPath) -> None:
    folder = Path(root / "jobs/one")
    folder.mkdir(parents=True)
    (folder / "supervise.sh").write_text("exit 9\n")
    with pytest.raises(HostError, match=r"cannot end job one: exit status 9\n  -> .*jobs/one/log"):
        jobs.cancel(LocalShell(Host(name="local")), root, "one")
    (folder / "supervise.sh").unlink()


def test_another_machine_at_that_address_is_not_asked_again() -> None:
    class Changed(LocalShell):
        """A host that shows another key than before."""

        def reopen(self) -> None:
            raise Untrusted("its host key has CHANGED", where="local")

    events: list[str] = []
    with pytest.raises(Untrusted):
        jobs.reconnect(Changed(Host(name="local")), events.append)
    assert events == []


def test_a_link_that_stays_down_is_given_up(root: PurePosixPath) -> None:
    shell = Breaking()
    begin(shell, root, job("sleep 1000"))
    shell.broken = True
    with pytest.raises(HostError, match="no answer"):
        jobs.follow(shell, root, "one", lambda _: None, lambda _: None, give_up_s=0)
    shell.broken = False
