"""What a job knows of its memory: from cgroups of both versions, real or recorded, and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import memory
import pytest

from tests.remote.programs import PROGRAMS, run

MIB = 1 << 20
V1 = Path("/sys/fs/cgroup/memory")


def tree(folder: Path, cgroup: str, mounts: dict[str, str], files: dict[str, str]) -> Path:
    """A /proc and the mounted trees that it tells of; `{top}` is where they lie."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    lines = [
        f"{at} 1 0:{at} {line.format(top=folder)}\n" for at, line in enumerate(mounts.values(), 30)
    ]
    (proc / "self" / "mountinfo").write_text("".join(lines))
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 41\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return proc


V2 = {"v2": "/ {top}/cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"}
SCOPE = "system.slice/firstlight-job-x-1-2.scope"


def test_a_scope_of_our_own(tmp_path: Path) -> None:
    place = f"cg/{SCOPE}"
    files = {
        "cg/system.slice/memory.max": "max\n",
        f"{place}/memory.current": f"{900 * MIB}\n",
        f"{place}/memory.max": f"{1024 * MIB}\n",
        f"{place}/memory.stat": f"anon 5\nactive_file {100 * MIB}\ninactive_file {300 * MIB}\n",
        f"{place}/memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
    }
    proc = tree(tmp_path, f"0::/{SCOPE}\n", V2, files)
    assert memory.used(proc) == 500 * MIB
    assert memory.limit(proc) == 1024 * MIB
    assert memory.oom_kills(proc) == 2
    assert re.fullmatch(r"@@firstlight memory 500 1024 \d{10}", memory.line(proc))


def test_the_lowest_ceiling_above_us_counts(tmp_path: Path) -> None:
    files = {
        "cg/memory.max": f"{512 * MIB}\n",
        "cg/system.slice/memory.max": f"{700 * MIB}\n",
        f"cg/{SCOPE}/memory.max": f"{1024 * MIB}\n",
    }
    proc = tree(tmp_path, f"0::/{SCOPE}\n", V2, files)
    assert memory.limit(proc) == 512 * MIB


def test_a_container_that_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    files = {"cg/memory.max": f"{64 * MIB}\n", "cg/memory.events": "oom_kill 5\n"}
    proc = tree(tmp_path, "0::/../../other\n", V2, files)
    assert (memory.limit(proc), memory.oom_kills(proc)) == (64 * MIB, 5)
    mounts = {"v1": "/docker/abc {top}/m rw - cgroup cgroup rw,memory"}
    files = {"m/memory.limit_in_bytes": f"{32 * MIB}\n", "m/memory.oom_control": "oom_kill 6\n"}
    proc = tree(tmp_path / "b", "4:memory:/docker/abc\n0::/\n", mounts, files)
    assert (memory.limit(proc), memory.oom_kills(proc)) == (32 * MIB, 6)


def test_version_1_beside_a_version_2_that_counts_nothing(tmp_path: Path) -> None:
    mounts = {
        "v2": "/ {top}/unified rw - cgroup2 cgroup2 rw",
        "cpu": "/ {top}/cpu rw - cgroup cgroup rw,cpu",
        "v1": "/ {top}/m rw shared:9 - cgroup cgroup rw,memory",
    }
    place = f"m/{SCOPE}"
    files = {
        "unified/cgroup.procs": "",
        "m/memory.limit_in_bytes": "9223372036854771712\n",
        f"{place}/memory.limit_in_bytes": f"{128 * MIB}\n",
        f"{place}/memory.usage_in_bytes": f"{90 * MIB}\n",
        f"{place}/memory.stat": f"inactive_file 1\ntotal_inactive_file {40 * MIB}\n",
        f"{place}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    }
    proc = tree(tmp_path, f"5:cpu:/\n4:memory:/{SCOPE}\n0::/{SCOPE}\n", mounts, files)
    assert memory.used(proc) == 50 * MIB
    assert (memory.limit(proc), memory.oom_kills(proc)) == (128 * MIB, 1)


def test_without_any_group_the_host_s_own_count_is_all(tmp_path: Path) -> None:
    proc = tree(tmp_path, "", {}, {})
    assert memory.find_group(proc) is None
    assert (memory.limit(proc), memory.oom_kills(proc)) == (None, 41)
    assert memory.line(proc).startswith("@@firstlight memory 0 0 ")


def test_a_proc_that_says_nothing_breaks_nothing(tmp_path: Path) -> None:
    assert memory.limit(tmp_path / "none") is None
    assert memory.oom_kills(tmp_path / "none") == 0
    assert memory.used(tmp_path / "none") == 0


HOLD = "import sys; x = bytearray(int(sys.argv[1]) << 20); print('up', flush=True); input()"


def test_resident_memory_of_the_job_s_processes_is_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_JOB", f"/srv/jobs/{os.getpid()}")
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, "60"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    for holder in holders:
        assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
    assert 120 * MIB < memory.resident() < 200 * MIB
    for holder in holders:
        holder.communicate(b"\n")
    assert memory.resident() < 60 * MIB


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A cgroup of this machine's own kernel that holds what is in it to 64 MiB."""
    if os.geteuid() != 0 or not (V1 / "memory.usage_in_bytes").exists():
        pytest.skip("needs root and a v1 memory controller that root may write to")
    entries = Path("/proc/self/cgroup").read_text().splitlines()
    path = next(e.split(":", 2)[2] for e in entries if ":memory:" in e)
    made = V1 / path.lstrip("/") / f"firstlight-job-test-{os.getpid()}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(64 * MIB))
    yield made
    made.rmdir()


def test_a_real_kernel_s_ceiling_and_kill(real_group: Path) -> None:
    """A compiler too large is killed; who asked for it lives on and can count it."""
    code = (
        f"import sys, subprocess; sys.path.insert(0, {str(PROGRAMS)!r}); import memory\n"
        "print(memory.limit() >> 20, memory.oom_kills())\n"
        "big = [sys.executable, '-c', 'x = bytearray(200 << 20)']\n"
        "print(subprocess.run(big).returncode, memory.oom_kills(), memory.used() >> 20 < 64)\n"
    )
    enter = f'echo $$ >"{real_group}/cgroup.procs"; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", enter, "_", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.stdout == "64 0\n-9 1 True\n", done.stderr


def test_as_a_program_it_prints_the_line_of_a_log() -> None:
    done = run("memory.py")
    assert re.fullmatch(r"@@firstlight memory \d+ \d+ \d{10}\n", done.out), done
