"""Compile jobs from memory and cores: the measured model, its shares, and what is told."""

from __future__ import annotations

import dataclasses
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.capacity import (
    Need,
    Room,
    Share,
    compile_jobs,
    explain,
    findings,
    lacking,
    room,
    share,
)
from firstlight.hosts.facts import Facts, parse
from firstlight.hosts.gpus import Gpu
from firstlight.hosts.machine import Cpu, Disk, Memory

GIB = 1 << 30

sizes = st.floats(0.1, 40, allow_nan=False)
needs = st.builds(
    Need, st.just("x"), sizes, st.integers(1, 8), st.integers(1, 8), st.integers(0, 90)
)
rooms = st.builds(
    Room,
    st.integers(1, 256),
    st.none() | st.floats(0, 2000, allow_nan=False),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.parametrize(
    "cores, gib, need, jobs",
    [
        (64, 256, Need("flash-attn", 7), 36),
        (64, 256, Need("flash-attn", 7, targets=4, threads=4), 9),
        # A single target: nvcc ignores its threads.
        (64, 256, Need("flash-attn", 7, targets=1, threads=8), 36),
        (2, 24, Need("flash-attn", 7), 2),
        (64, 61, Need("sglang-kernel", 4), 14),
        (64, 8, Need("flash-attn", 7), 1),
    ],
)
def test_the_measured_model(cores: int, gib: float, need: Need, jobs: int) -> None:
    assert compile_jobs(Room(cores, gib), need) == jobs


@given(rooms, needs)
def test_never_above_the_cores_nor_the_memory_nor_below_one(where: Room, need: Need) -> None:
    (given_,) = share(where, [dataclasses.replace(need, units=0)])
    assert given_.jobs == compile_jobs(where, need)
    assert 1 <= given_.jobs <= where.cores
    assert given_.jobs == 1 or given_.jobs * need.job_mib <= given_.ceiling_mib
    if where.memory_gib is not None:
        assert given_.ceiling_mib <= where.memory_gib * 1024


@given(rooms, needs, st.integers(0, 64), st.floats(0, 500, allow_nan=False), sizes)
def test_more_room_never_gives_fewer_jobs(
    where: Room, need: Need, cores: int, gib: float, job_gib: float
) -> None:
    before = compile_jobs(where, need)
    larger = dataclasses.replace(
        where, cores=where.cores + cores, memory_gib=(where.memory_gib or 0) + gib
    )
    assert compile_jobs(larger, need) >= before
    assert compile_jobs(dataclasses.replace(where, unified=True, resident=True), need) <= before
    heavier = dataclasses.replace(need, job_gib=need.job_gib + job_gib)
    assert compile_jobs(where, heavier) <= before


@given(rooms, st.lists(needs, min_size=1, max_size=6))
def test_side_by_side_they_stay_within_the_host(where: Room, wanted: list[Need]) -> None:
    shares = share(where, wanted)
    assert 1 <= len(shares) <= len(wanted)
    assert sum(one.jobs for one in shares) <= where.cores
    taken = [n.job_mib * one.jobs for n, one in zip(wanted, shares, strict=False)]
    for mib, need, one in zip(taken, wanted, shares, strict=False):
        assert one.jobs == 1 or mib <= one.ceiling_mib
        assert one.jobs >= 1 and (not need.units or one.jobs <= need.units)
    if len(shares) > 1:
        assert sum(taken) <= sum(one.ceiling_mib for one in shares) <= where.budget_mib
        assert all(mib <= one.ceiling_mib for mib, one in zip(taken, shares, strict=True))


def test_who_has_more_files_gets_more_jobs() -> None:
    attention, small = Need("flash-attn", 7, units=73), Need("kernels", 2, units=9)
    assert [one.jobs for one in share(Room(16, 200), [attention, small])] == [14, 2]
    # 96 GiB to share: memory is the narrow place.
    assert [one.jobs for one in share(Room(32, 100), [attention, small])] == [13, 2]
    # Without the counts each gets as many.
    halves = share(Room(16, 200), [Need("a", 7), Need("b", 7)])
    assert [one.jobs for one in halves] == [8, 8]
    # Never more jobs than files.
    assert share(Room(64, 256), [Need("a", 1, units=3)])[0].jobs == 3


def test_what_does_not_fit_beside_the_first_waits() -> None:
    wanted = [Need("a", 7), Need("b", 7), Need("c", 1)]
    assert len(share(Room(8, 24), wanted)) == 3
    assert len(share(Room(8, 18.5), wanted)) == 2
    assert len(share(Room(8, 12), wanted)) == 1
    assert len(share(Room(1, 240), wanted)) == 1


def test_a_job_too_large_for_the_host_gets_what_there_is_and_says_so() -> None:
    tight = Room(4, 6.0)
    assert share(tight, [Need("flash-attn", 7)]) == (Share(1, int(6 * 1024 * 0.9)),)
    said = findings(tight, [Need("flash-attn", 7)], Disk(), Disk())
    assert "one compile job of flash-attn takes about 7.0 GiB" in said[0].what
    # What is kept back is given up before one job is refused.
    assert share(Room(4, 10.0), [Need("flash-attn", 7)]) == (Share(1, 7 * 1024),)


def host(memory: Memory, cpu: Cpu, *gpus: Gpu) -> Facts:
    return dataclasses.replace(parse(b""), memory=memory, cpu=cpu, gpus=gpus)


def test_a_host_as_facts_know_it() -> None:
    plain = host(Memory(available_bytes=100 * GIB), Cpu(usable=32))
    assert room(plain) == Room(32, 100.0)
    container = host(
        Memory(available_bytes=100 * GIB, limit_bytes=32 * GIB), Cpu(usable=32, quota_cores=7.5)
    )
    assert room(container) == Room(7, 32.0)
    spark = host(
        Memory(available_bytes=110 * GIB), Cpu(usable=20), Gpu(0, "GB10", memory_is_system=True)
    )
    assert room(spark).unified
    assert compile_jobs(room(spark), Need("flash-attn", 7)) == 13
    served = Gpu(0, memory_mib=97887, memory_free_mib=9000)
    idle = Gpu(0, memory_mib=97887, memory_free_mib=97000)
    busy = room(host(Memory(available_bytes=100 * GIB), Cpu(usable=32), idle, served))
    assert (busy.resident, busy.headroom_gib) == (True, 8.0)
    assert not room(host(Memory(), Cpu(), idle)).resident


def test_what_facts_lack_is_said_and_only_one_job_is_dared() -> None:
    unknown = room(host(Memory(), Cpu()))
    assert compile_jobs(unknown, Need("flash-attn", 7)) == 1
    assert share(unknown, [Need("flash-attn", 7)]) == (Share(1, 0),)
    told = [one.what for one in findings(unknown, [Need("x", 1, disk_gib=2)], Disk(), Disk())]
    assert told[:2] == [
        "free memory is unknown: one compile job, and no ceiling unless there is one",
        "the number of cores is unknown: one compile job",
    ]
    assert told[2].startswith("how much is free in an unknown place for building")


def test_why_so_many_is_one_line() -> None:
    need, where = Need("flash-attn", 7), Room(64, 96.0)
    assert explain(where, need, share(where, [need])[0]) == (
        "flash-attn: 13 compile jobs of 7.0 GiB; 64 cores, 96.0 GiB free, 4 GiB kept back"
    )
    spark = Room(1, 110.0, unified=True)
    assert explain(spark, need, share(spark, [need])[0]) == (
        "flash-attn: 1 compile job of 7.0 GiB; 1 cores, 110.0 GiB free, "
        "16 GiB kept back (the GPU shares it)"
    )


def disk(path: str, free_gib: float, kind: str = "ext4") -> Disk:
    return Disk(
        path=PurePosixPath(path),
        type=kind,
        size_bytes=int(free_gib * 2) * GIB,
        free_bytes=int(free_gib * GIB),
    )


def test_disks_are_looked_at_before_anything_starts() -> None:
    wanted = [Need("flash-attn", 7, targets=8, disk_gib=10), Need("sglang", 1, disk_gib=1)]
    large = Room(8, 64)
    assert findings(large, wanted, disk("/srv", 12), disk("/tmp", 30)) == ()
    (full,) = findings(large, wanted, disk("/srv", 3), disk("/tmp", 30))
    assert full.severity == "error"
    assert full.what == "building takes about 11.0 GiB in /srv, 3.0 GiB are free"
    (small,) = findings(large, wanted, disk("/srv", 12), disk("/tmp", 10))
    assert "temporary files (TMPDIR) takes about 28.0 GiB in /tmp" in small.what
    # One file system has to hold both.
    (both,) = findings(large, wanted, disk("/", 30), disk("/", 30))
    assert "building takes about 39.0 GiB" in both.what
    (memory,) = findings(large, wanted, disk("/srv", 12), disk("/tmp", 40, "tmpfs"))
    assert "count against the ceiling" in memory.what


def test_a_compiler_that_is_not_there_is_told_before_anything_is_downloaded() -> None:
    wanted = [Need("kern", 1, host_tools=("g++", "cmake", "odd")), Need("pure", 1)]
    (told,) = lacking(wanted, {"g++", "clang"})
    assert told.severity == "error"
    assert told.what == "the host has no g++, which kern is built with"
    assert list(lacking(wanted, ())) == []
