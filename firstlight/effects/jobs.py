"""The jobs room: a long step runs detached on its host; we start it, watch it, and end it."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal, cast, get_args

from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError, Untrusted
from firstlight.core.plan import Job
from firstlight.effects.shell import Shell

Started = Literal["started", "attached", "finished"]
State = Literal["running", "done", "lost", "rebooted", "cancelled", "missing"]

FASTEST_S, SLOWEST_S = 0.2, 1.5
RETRY_S, SLOWEST_RETRY_S = 0.5, 30.0
GIVE_UP_S = 1800.0

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}\Z")
_HEAD = re.compile(rb"^@job ([a-z]+) (-|\d+) (\d+) (\d+) (.*)\n", re.MULTILINE)
_LEFT = re.compile(rb"^@left (\d+)$", re.MULTILINE)

# The job's script goes through a pipe: a value in argv could be read by every user of the host.
_START = 'printf %s "$8" | bash "$1" start "$2" "$3" "$4" "$5" "$6" "$7"'

_POLL = """\
folder=$1/jobs/$2
[ -e "$folder/supervise.sh" ] || { echo "@job missing - 0 0 "; return; }
bash "$folder/supervise.sh" poll "$folder" "$3" "$4"
"""

_CANCEL = """\
folder=$1/jobs/$2
[ -e "$folder/supervise.sh" ] || { echo "@left 0"; return; }
bash "$folder/supervise.sh" cancel "$folder" "$3"
"""


@dataclass(frozen=True)
class JobView:
    """What one look at a job showed: `data` is its log from the offset asked for.

    `size` is the whole log's, in bytes. `rc` is the job's exit status once it is over; 143 when
    it was ended by SIGTERM. `lock_holder` says who holds the lock that it waits for, or "".
    """

    state: State
    rc: int | None = None
    size: int = 0
    data: bytes = b""
    lock_holder: str = ""

    @property
    def over(self) -> bool:
        """True when nothing more will happen to this job."""
        return self.state != "running"


def start(
    shell: Shell,
    root: PurePosixPath,
    supervise: PurePosixPath,
    job: Job,
    *,
    again: bool = False,
    controller: str = "",
) -> Started:
    """Start the job detached, or find it running or finished; one round trip.

    A job that failed, was cancelled or was lost runs afresh, its folder kept as `<id>.old`; one
    that finished with 0 does so only if `again`. `supervise` is supervise.sh on the host, with
    processes.sh beside it. Raises HostError when the host does not let it start.
    """
    args = (
        *(str(supervise), str(root), _checked(job.id), _checked(job.lock) if job.lock else ""),
        *(controller or platform.node() or "a controller", "again" if again else "once"),
        *(str(job.memory_mib), job.script.source()),
    )
    done = shell.run(Script(_START, args), timeout_s=120.0)
    word = done.text.strip()
    if done.ok and word in get_args(Started):
        return cast(Started, word)
    raise HostError(
        f"job {job.id} did not start: {done.error_text.strip() or done.text.strip()}",
        where=shell.host.name,
        remedy=f"look at {root}/jobs on that host: is there space, may you write there?",
    )


def poll(
    shell: Shell, root: PurePosixPath, job_id: str, offset: int, max_bytes: int = 1 << 18
) -> JobView:
    """Look once: the state, and at most `max_bytes` of the log from byte `offset`."""
    args = (str(root), _checked(job_id), str(offset), str(max_bytes))
    done = shell.run(Script(_POLL, args))
    head = _HEAD.search(done.out)
    if head is None:
        said = done.error_text.strip() or done.text.strip()[:200] or "nothing was said"
        raise HostError(
            f"cannot read the state of job {job_id}: {said} (exit status {done.rc})",
            where=shell.host.name,
            remedy=f"look at {root}/jobs/{job_id} on that host",
        )
    return JobView(
        state=cast(State, head[1].decode()),
        rc=None if head[2] == b"-" else int(head[2]),
        size=int(head[3]),
        data=done.out[head.end() : head.end() + int(head[4])],
        lock_holder=head[5].decode("utf-8", "replace"),
    )


def cancel(shell: Shell, root: PurePosixPath, job_id: str, grace_s: int = 10) -> int:
    """End the job and all that it started; returns how many of its processes are left.

    SIGTERM, and after `grace_s` seconds SIGKILL. A job that is over keeps its state.
    """
    script = Script(_CANCEL, (str(root), _checked(job_id), str(grace_s)))
    done = shell.run(script, timeout_s=3 * grace_s + 90.0)
    left = _LEFT.search(done.out)
    if left is None:
        said = done.error_text.strip() or f"exit status {done.rc}"
        raise HostError(
            f"cannot end job {job_id}: {said}",
            where=shell.host.name,
            remedy=f"on that host `grep -lz FIRSTLIGHT_JOB= /proc/[0-9]*/environ` names what runs; "
            f"its log is {root}/jobs/{job_id}/log",
        )
    return int(left[1])


def follow(
    shell: Shell,
    root: PurePosixPath,
    job_id: str,
    on_bytes: Callable[[bytes], None],
    on_event: Callable[[str], None],
    *,
    offset: int = 0,
    max_bytes: int = 1 << 18,
    give_up_s: float = GIVE_UP_S,
) -> JobView:
    """Hand on the job's log from `offset` until it is over; returns the last view, without data.

    Each byte is handed on once, however often the link breaks. A link that stays broken for
    `give_up_s` seconds raises HostError; the job goes on.
    """
    reader = Reader(job_id, on_bytes, offset)
    follow_all(
        shell, root, [reader], lambda: None, on_event, max_bytes=max_bytes, give_up_s=give_up_s
    )
    return reader.last


@dataclass
class Reader:
    """Who reads one job's log: from which byte on, and what the last look at the job showed."""

    job_id: str
    on_bytes: Callable[[bytes], None]
    offset: int = 0
    last: JobView = JobView("running")

    @property
    def over(self) -> bool:
        """True when the job is over and its log was read to the end."""
        return self.last.over and self.offset >= self.last.size

    def look(self, shell: Shell, root: PurePosixPath, max_bytes: int) -> bool:
        """Look once; True when there was something new."""
        view = poll(shell, root, self.job_id, self.offset, max_bytes)
        if view.data:
            self.on_bytes(view.data)
            self.offset += len(view.data)
        self.last = replace(view, data=b"", lock_holder="")
        return bool(view.data)


def follow_all(
    shell: Shell,
    root: PurePosixPath,
    readers: Sequence[Reader],
    on_look: Callable[[], None],
    on_event: Callable[[str], None],
    *,
    max_bytes: int = 1 << 18,
    give_up_s: float = GIVE_UP_S,
) -> None:
    """Read the logs of jobs in turn until all are over; `on_look` is called after each turn.

    As with `follow`, no byte is lost or doubled when the link breaks.
    """
    pause = FASTEST_S
    while running := [reader for reader in readers if not reader.over]:
        try:
            news = [reader.look(shell, root, max_bytes) for reader in running]
        except ConnectionLost as lost:
            on_event(f"{lost.what}; {_they(running)} there")
            reconnect(shell, on_event, give_up_s)
            continue
        on_look()
        if any(reader.over or reader.offset < reader.last.size for reader in running):
            continue
        pause = FASTEST_S if any(news) else min(pause * 1.5, SLOWEST_S)
        time.sleep(pause)


def _they(running: Sequence[Reader]) -> str:
    return "the job goes on" if len(running) == 1 else "the jobs go on"


def reconnect(shell: Shell, on_event: Callable[[str], None], give_up_s: float = GIVE_UP_S) -> None:
    """After ConnectionLost: try until the link is back, and say each time why it is not.

    Raises HostError when it is still down after `give_up_s` seconds, and at once when the host
    that answers is not the one that we knew.
    """
    deadline, pause = time.monotonic() + give_up_s, RETRY_S
    while True:
        time.sleep(pause)
        try:
            shell.reopen()
        except Untrusted:
            raise
        except HostError as error:
            pause = min(pause * 2, SLOWEST_RETRY_S)
            if time.monotonic() + pause > deadline:
                raise
            on_event(f"{error.what}; next attempt in {pause:.0f} s")
        else:
            on_event(f"reached {shell.host.name} again")
            return


def _checked(name: str) -> str:
    """A job's id or a lock's name, for it becomes a file name on the host."""
    if not _ID.match(name) or name.endswith((".old", ".partial")):
        raise ValueError(f"not a name for a job or a lock: {name!r}")
    return name
