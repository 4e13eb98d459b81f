"""The readiness room: is a server that was just launched ready, on its way, stuck, or dead?

Only a 200 of `/health_generate`, which has the model generate a token, makes a server ready.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from firstlight.core.words import span
from firstlight.serve.causes import GPU_FULL, KILLED, PORT, Cause
from firstlight.serve.serverlog import Phase, ServerLog, cause, last_line, progress

State = Literal["waiting", "ready", "failed"]
Kind = Literal["", "died", "stalled", "timeout", "port taken", "gpu full"]


@dataclass(frozen=True)
class Limits:
    """How long a start may take, and how long it may say nothing new; in seconds."""

    start_s: float = 1800.0
    stall_s: float = 600.0


@dataclass(frozen=True)
class Process:
    """What the launcher says of the server; `rc` is known once it has ended.

    A negative `rc`, or one above 128, names the signal that ended it. `replaced`: its launcher
    knows another deployment of the profile, or none. `detail` says more of a launcher's own, or "".
    """

    state: Literal["running", "exited", "failed", "restarting", "replaced"]
    rc: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Moment:
    """All that is known at one look. `health` holds the status codes of `/health_generate` so
    far, oldest first, 0 = no answer; `quiet_s` is the time since the log's last new text."""

    log: ServerLog
    process: Process
    health: tuple[int, ...] = ()
    elapsed_s: float = 0.0
    quiet_s: float = 0.0


@dataclass(frozen=True)
class Readiness:
    """The verdict of one look. `text` is for people; `line` and `evidence` are of the log,
    `link` tells more of a known failure."""

    state: State
    text: str
    kind: Kind = ""
    remedy: str = ""
    line: int = 0
    evidence: str = ""
    link: str = ""


@dataclass(frozen=True)
class GpuUse:
    """One GPU before a launch: memory in GiB, and who holds it."""

    index: int
    total_gib: float
    free_gib: float
    holders: tuple[str, ...] = ()


def judge(moment: Moment, limits: Limits) -> Readiness:
    """What one look at a starting server says, or at one that did not answer a question."""
    if moment.process.state == "replaced":
        return Readiness("failed", *_REPLACED)
    if moment.process.state != "running":
        return _died(moment)
    found = cause(moment.log)
    if found is not None and found.kind == PORT:
        # Whoever answers on the port, it is not this server; it may even call itself ready.
        return _died(moment)
    if moment.health[-1:] == (200,) and _may_answer(moment.log):
        return Readiness("ready", f"ready after {span(moment.elapsed_s)}")
    if moment.log.phase is Phase.DIED and moment.quiet_s >= _LAST_WORDS_S:
        return _died(moment)
    if moment.quiet_s > limits.stall_s:
        return _stalled(moment)
    if moment.elapsed_s > limits.start_s:
        return _late(moment, limits)
    return Readiness("waiting", phase_text(moment))


def phase_text(moment: Moment, width: int = 100) -> str:
    """One line of progress: phase, steps, elapsed time, and the log's last words, trimmed."""
    done, total = progress(moment.log)
    steps = f" {done}/{total}" if total else ""
    head = f"{_phase(moment)}{steps}, {span(moment.elapsed_s)}"
    last = " ".join(last_line(moment.log).split())
    room = width - len(head) - 3
    if not last or room < 12:
        return head[:width]
    return f"{head} | {last if len(last) <= room else last[: room - 1] + '…'}"


def port_taken(port: int, holder: str, stop: str) -> Readiness:
    """Refuse to launch on a port that is listened on; `holder` "" = not known, `stop` is the
    command that ends it, "" = none of ours."""
    whom = holder or "a process that this user may not see"
    return Readiness(
        "failed",
        f"port {port} is taken by {whom}",
        "port taken",
        f"stop it{f' (`{stop}`)' if stop else ''}, or give service.port another number",
    )


def gpu_full(gpus: Sequence[GpuUse], needed_share: float) -> Readiness | None:
    """Refuse to launch where a GPU has less free than `needed_share` (0 to 1) of its memory."""
    full = [gpu for gpu in gpus if gpu.free_gib < needed_share * gpu.total_gib]
    if not full:
        return None
    lines = [
        f"GPU {gpu.index} has {gpu.free_gib:.1f} of {gpu.total_gib:.1f} GiB free"
        + (f", held by {', '.join(gpu.holders)}" if gpu.holders else "")
        for gpu in full
    ]
    remedy = f"free it, or choose other GPUs; {needed_share:.0%} of each must be free"
    return Readiness("failed", "; ".join(lines), "gpu full", remedy)


def _may_answer(log: ServerLog) -> bool:
    """False while the log shows that whoever answers on the port cannot be this server yet."""
    return log.phase in (Phase.WARMUP, Phase.READY) or not log.boots


_REPLACED: tuple[str, Kind, str] = (
    "the host knows it no more",
    "died",
    "another deploy of this profile may have taken its place: ask whose it is, then deploy again",
)
# A dying server writes its traceback in pieces: the cause is read once it has fallen silent.
_LAST_WORDS_S = 2.0

_KINDS: Mapping[str, Kind] = {PORT: "port taken", **dict.fromkeys(GPU_FULL, "gpu full")}

_STALLS: Mapping[Phase, str] = {
    Phase.STARTING: "a GPU or another rank does not answer: check `nvidia-smi`, the driver, "
    "and for several nodes the address between them",
    Phase.WEIGHTS: "the model's disk is slow or hangs: look at its speed (`iostat`), copy the "
    "model to a local disk, or raise service.stall_s",
    Phase.POOL: "allocating memory hangs: check `nvidia-smi` and the kernel log (`dmesg`)",
    Phase.GRAPHS: "kernels are still compiled (see CPU load), or the ranks wait for each other: "
    "raise service.stall_s, or try with CUDA graphs off",
    Phase.WARMUP: "the first batch does not come back: try disable_custom_all_reduce or another "
    "attention backend",
    Phase.READY: "the log says ready and the health check does not: the first batch hangs, or "
    "the port is not the server's",
    Phase.DIED: "the server failed and did not end: stop it",
}


def _phase(moment: Moment) -> str:
    """The log's phase; once the log says ready, only the health check is missing."""
    waits = moment.log.phase is Phase.READY
    return "waiting for the health check" if waits else str(moment.log.phase)


def _died(moment: Moment) -> Readiness:
    found = cause(moment.log)
    again = " and was started again" if moment.process.state == "restarting" else ""
    after = f" after {span(moment.elapsed_s)}" if moment.elapsed_s else ""
    when = f"the server died{again}{after} ({_last_phase(moment)})"
    if found is None or found.kind == KILLED:
        return _died_silent(moment, when, found)
    kind = _KINDS.get(found.kind, "died")
    text = f"{when}: {found.cause}"
    return Readiness("failed", text, kind, found.fix, found.line, found.text, found.link)


def _died_silent(moment: Moment, when: str, found: Cause | None) -> Readiness:
    """Nothing in the log says why: the exit status has the last word."""
    why, remedy = _ASKED if moment.log.stopping else _by_status(moment.process)
    if found is not None:
        return Readiness("failed", f"{when}: {why}", "died", found.fix, found.line, found.text)
    return Readiness("failed", f"{when}: {why}", "died", remedy, evidence=moment.log.last)


def _last_phase(moment: Moment) -> str:
    return f"while {_DOING[moment.log.died_in or moment.log.phase]}"


_DOING: Mapping[Phase, str] = {
    Phase.STARTING: "starting",
    Phase.WEIGHTS: "loading weights",
    Phase.POOL: "making the KV pool",
    Phase.GRAPHS: "capturing graphs",
    Phase.WARMUP: "warming up",
    Phase.READY: "serving",
    Phase.DIED: "ending",
}


_ASKED = (
    "it was asked to end",
    "somebody, or something on that host, stopped it while it started: deploy it again",
)


def _by_status(process: Process) -> tuple[str, str]:
    read, rc = "read its log", process.rc
    if rc is None:
        return process.detail or "no reason given", read
    number = -rc if rc < 0 else rc - 128 if rc > 128 else 0
    if number == signal.SIGKILL:
        return (
            "killed without a word",
            "`dmesg -T | grep -i oom` shows if the host's memory ran out; compare service.memory",
        )
    if number in set(signal.Signals):
        return f"ended by {signal.Signals(number).name}", read
    return f"it ended with exit status {rc} and no reason", read


def _stalled(moment: Moment) -> Readiness:
    phase = moment.log.phase
    text = f"stalled in phase {_phase(moment)!r}: nothing new for {span(moment.quiet_s)}"
    return Readiness("failed", text, "stalled", _STALLS[phase], moment.log.lines, moment.log.last)


def _late(moment: Moment, limits: Limits) -> Readiness:
    text = f"not ready within {span(limits.start_s)}; it is in phase {_phase(moment)!r}"
    remedy = "the log still moves: raise service.start_timeout_s, or look for a slow disk"
    return Readiness("failed", text, "timeout", remedy, moment.log.lines, moment.log.last)
