"""The build room: how many compile jobs a host can bear at once, and where memory must stop them.

The model is measured (nvcc 13.0, one compiler at a time, peak of all its processes): one job takes
`job_gib` for each target that it compiles at the same time, and a host needs some memory for
itself. GiB is 2^30 bytes. What is chosen and not measured is said so where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from firstlight.hosts.facts import Facts
from firstlight.hosts.finding import Finding
from firstlight.hosts.machine import Disk

_GIB = 1 << 30
_MIB_PER_GIB = 1024
# What a host keeps for itself, part of the measured model.
_HEADROOM_GIB = 4.0
# Chosen: a model server that runs beside a build has pinned buffers and loads files.
_RESIDENT_GIB = 4.0
# Chosen: where the GPU shares the machine's memory, what a server takes next comes out of the
# same memory, its pages cannot be taken back, and the driver itself fails when there is none.
_UNIFIED_GIB = 16.0
# So much memory in use on a GPU is more than a desktop takes: a model is there.
_MODEL_MIB = 2048
# Of one job's memory, for each target, in temporary files. Inferred: more than 25 GB were needed
# for a build of 8 targets whose jobs take 7 GiB.
_TMP_SHARE = 0.5


@dataclass(frozen=True)
class Need:
    """What compiling one component takes.

    `job_gib` is the peak of one compile job with one target; nvcc compiles min(targets, threads)
    of them at the same time. `units` is how many files there are to compile, 0 = unknown.
    `host_tools` are programs that the host must have.
    """

    name: str
    job_gib: float
    targets: int = 1
    threads: int = 1
    units: int = 0
    disk_gib: float = 0.0
    host_tools: tuple[str, ...] = ()

    @property
    def job_mib(self) -> int:
        """The peak of one compile job in MiB."""
        return math.ceil(self.job_gib * max(1, min(self.targets, self.threads)) * _MIB_PER_GIB)

    @property
    def tmp_gib(self) -> float:
        """What its temporary files take."""
        return self.job_gib * _TMP_SHARE * self.targets


@dataclass(frozen=True)
class Room:
    """What a host has to spare. `memory_gib` is None when unknown; `gaps` says what was."""

    cores: int
    memory_gib: float | None
    unified: bool = False
    resident: bool = False
    gaps: tuple[str, ...] = ()

    @property
    def headroom_gib(self) -> float:
        """What compilers must leave to others."""
        resident = _RESIDENT_GIB if self.resident else 0.0
        return (_UNIFIED_GIB if self.unified else _HEADROOM_GIB) + resident

    @property
    def budget_mib(self) -> int:
        """What all compilers may take together, in MiB."""
        spare = (self.memory_gib or 0.0) - self.headroom_gib
        return max(0, math.floor(spare * _MIB_PER_GIB))


@dataclass(frozen=True)
class Share:
    """One component's part of a host: compile jobs, and its ceiling in MiB (0 = none known)."""

    jobs: int
    ceiling_mib: int


def room(facts: Facts) -> Room:
    """What a host has to spare right now; a smaller limit of a container counts.

    What a container already uses of its limit is not among the facts, so it is not subtracted.
    """
    memory, cpu = facts.memory, facts.cpu
    known = [size for size in (memory.available_bytes, memory.limit_bytes) if size is not None]
    gaps = []
    if memory.available_bytes is None:
        gaps.append("free memory is unknown: one compile job, and no ceiling unless there is one")
    if cpu.usable is None:
        gaps.append("the number of cores is unknown: one compile job")
    quota = cpu.quota_cores or math.inf
    return Room(
        cores=max(1, math.floor(min(cpu.usable or 1, quota))),
        memory_gib=min(known) / _GIB if known else None,
        unified=any(gpu.memory_is_system for gpu in facts.gpus),
        resident=any(
            gpu.memory_mib - gpu.memory_free_mib > _MODEL_MIB
            for gpu in facts.gpus
            if gpu.memory_mib is not None and gpu.memory_free_mib is not None
        ),
        gaps=tuple(gaps),
    )


def compile_jobs(where: Room, need: Need) -> int:
    """max(1, min(cores, floor((available - headroom) / (job * min(targets, threads)))))."""
    return max(1, min(where.cores, where.budget_mib // need.job_mib))


def share(where: Room, needs: Sequence[Need]) -> tuple[Share, ...]:
    """Shares for as many of the first components as can be built side by side, at least one.

    Each gets one job; then jobs go where most work is left for each job. Only a component that
    is alone and whose one job is too large for the host may pass what the host has to spare.
    """
    beside = needs[: _side_by_side(where, needs)]
    jobs = [1] * len(beside)
    while (at := _hungriest(where, beside, jobs)) is not None:
        jobs[at] += 1
    taken = [n * need.job_mib for n, need in zip(jobs, beside, strict=True)]
    ceilings = _ceilings(where, taken)
    return tuple(Share(n, ceiling) for n, ceiling in zip(jobs, ceilings, strict=True))


def _side_by_side(where: Room, needs: Sequence[Need]) -> int:
    count, taken = 0, 0
    for need in needs[: where.cores]:
        taken += need.job_mib
        if taken > where.budget_mib:
            break
        count += 1
    return max(1, count)


def _hungriest(where: Room, needs: Sequence[Need], jobs: Sequence[int]) -> int | None:
    """The component that the next job should go to; None when there is no room for one."""
    left = where.budget_mib - sum(n * need.job_mib for n, need in zip(jobs, needs, strict=True))
    if sum(jobs) >= where.cores:
        return None
    weighed = all(need.units for need in needs)
    fitting = [
        ((need.units if weighed else 1) / jobs[at], -at)
        for at, need in enumerate(needs)
        if need.job_mib <= left and not (need.units and jobs[at] >= need.units)
    ]
    return -max(fitting)[1] if fitting else None


def _ceilings(where: Room, taken: Sequence[int]) -> list[int]:
    """What is left over goes to each by what it takes: jobs are not all alike."""
    if where.memory_gib is None:
        return [0] * len(taken)
    budget, total = where.budget_mib, sum(taken)
    if total > budget:
        # One job too large for the host: it gets nearly all there is, and may still be killed.
        most = math.floor(where.memory_gib * _MIB_PER_GIB * 0.9)
        return [max(budget, min(total, most))]
    return [part + (budget - total) * part // total for part in taken]


def explain(where: Room, need: Need, given: Share) -> str:
    """One line: why so many jobs."""
    memory = "memory unknown" if where.memory_gib is None else f"{where.memory_gib:.1f} GiB free"
    why = " (the GPU shares it)" if where.unified else " (a model is loaded)" * where.resident
    size = need.job_mib / _MIB_PER_GIB
    kept = f"{where.headroom_gib:.0f} GiB kept back{why}"
    plural = "s" * (given.jobs != 1)
    return (
        f"{need.name}: {given.jobs} compile job{plural} of {size:.1f} GiB; "
        f"{where.cores} cores, {memory}, {kept}"
    )


def findings(where: Room, needs: Sequence[Need], root: Disk, tmp: Disk) -> tuple[Finding, ...]:
    """What should be known before building these: memory, disk and temporary files.

    `root` is where builds and the store lie, `tmp` where TMPDIR will be.
    """
    gaps = (Finding("note", gap) for gap in where.gaps)
    return (*gaps, *_memory(where, needs), *_disks(needs, root, tmp))


def lacking(needs: Sequence[Need], absent: Collection[str]) -> Iterator[Finding]:
    """What a host lacks to build these, of the programs that are known to be absent there."""
    for need in needs:
        names = [name for name in need.host_tools if name in absent]
        if names:
            yield Finding(
                "error",
                f"the host has no {', '.join(names)}, which {need.name} is built with",
                "install it there (Debian, Ubuntu: apt install build-essential); of a component "
                "that compiles nothing the recipe says `host_tools: []`",
            )


def _memory(where: Room, needs: Sequence[Need]) -> Iterator[Finding]:
    for need in needs:
        if where.memory_gib is not None and need.job_mib > where.memory_gib * _MIB_PER_GIB:
            yield Finding(
                "warning",
                f"one compile job of {need.name} takes about {need.job_mib / _MIB_PER_GIB:.1f} GiB "
                f"of memory, {where.memory_gib:.1f} GiB are free: it may be killed",
                "stop what else runs there, or build on another host and ship from it",
            )


def _disks(needs: Sequence[Need], root: Disk, tmp: Disk) -> Iterator[Finding]:
    disk_gib = sum(need.disk_gib for need in needs)
    tmp_gib = max((need.tmp_gib for need in needs), default=0.0)
    if root.free_bytes is not None and (root.size_bytes, root.free_bytes) == (
        tmp.size_bytes,
        tmp.free_bytes,
    ):
        # One file system, as far as can be seen.
        yield from _disk("building", root, disk_gib + tmp_gib, "set another root in inventory/")
        return
    yield from _disk("building", root, disk_gib, "set another root in inventory/")
    yield from _disk("temporary files (TMPDIR)", tmp, tmp_gib, "set TMPDIR to a larger disk")
    if tmp.type == "tmpfs":
        yield Finding(
            "warning",
            f"{tmp.path or 'TMPDIR'} is in memory: temporary files count against the ceiling",
            "set TMPDIR to a folder on a disk",
        )


def _disk(what: str, disk: Disk, gib: float, fix: str) -> Iterator[Finding]:
    place = disk.path or "an unknown place"
    if gib and disk.free_bytes is None:
        yield Finding("note", f"how much is free in {place} for {what} is unknown")
    elif gib and disk.free_bytes is not None and disk.free_bytes < gib * _GIB:
        free = disk.free_bytes / _GIB
        yield Finding(
            "error",
            f"{what} takes about {gib:.1f} GiB in {place}, {free:.1f} GiB are free",
            f"free some there, or {fix}",
        )
