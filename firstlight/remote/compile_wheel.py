"""Part of a remote program: run a component's own build in its sandbox, watched and within memory.

While it runs, a line `@@firstlight memory USED LIMIT` (MiB; 0 = no limit) comes every few seconds.
When the kernel killed a compiler for memory, the build goes on once more with half the jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import memory
from left_running import Leftovers, adopt
from sandbox import Sandbox
from unified_diff import Fault

TICK_S = 5.0
# So long a build that has ended may still have something to say.
DRAIN_S = 5.0
KILLED = re.compile(
    rb"Killed signal terminated program|died (?:due to|with) signal 9|signal: 9,"
    # How a shell says it, of what nvcc and ninja have it run.
    rb"|^Killed\s*$|: line \d+: +\d+ Killed\b"
)
NO_SPACE = re.compile(rb"No space left on device")
NO_NETWORK = re.compile(
    rb"Connection refused|Network is unreachable|Temporary failure in name resolution"
    rb"|[Cc]ould(?: not|n't) resolve (?:proxy|host)|[Uu]nable to resolve host"
    rb"|Name or service not known|dns error"
)
WORD = re.compile(r"\$\{([^}]*)\}")


@dataclass
class Effort:
    """What a build took: CPU and wall time in seconds, the most memory in MiB, what was run."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mib: int = 0
    attempts: int = 0
    jobs: int = 0
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass
class Said:
    """What a build's output tells of its end: the line of each cause that was seen first."""

    killed: bytes = b""
    space: bytes = b""
    network: bytes = b""

    def note(self, line: bytes) -> None:
        self.killed = self.killed or (line if KILLED.search(line) else b"")
        self.space = self.space or (line if NO_SPACE.search(line) else b"")
        self.network = self.network or (line if NO_NETWORK.search(line) else b"")


def fill(text: str, values: dict[str, str]) -> str:
    """The text with its `${...}` replaced; a word without a value is a fault of ours."""
    return WORD.sub(lambda use: values[use[1]], text)


def words(request: dict[str, Any], box: Sandbox, jobs: int) -> dict[str, str]:
    """What the placeholders of a recipe mean in this sandbox."""
    work = box.folders["work"]
    fetched = {
        f"fetched:{one['name']}": str(work / "fetched" / one["name"]) for one in fetches(request)
    }
    return {
        "jobs": str(jobs),
        "cuda_home": str(box.folders.get("cuda", "")),
        "source": str(work / "src"),
        "build": str(work / "build"),
        "venv": str(work / "venv"),
        "launcher": str(work / "bin" / "nvcc_launcher"),
        **fetched,
    }


def fetches(request: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request["fetched"]
    return found


def environment(request: dict[str, Any], box: Sandbox, jobs: int) -> dict[str, str]:
    """The whole environment of a build: nothing of the account's own comes through."""
    work, cuda = box.folders["work"], box.folders.get("cuda")
    path = [*([str(cuda / "bin")] if cuda else []), str(work / "venv" / "bin"), str(work / "bin")]
    path += [*request["tool_path"], "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    env = {
        "PATH": ":".join(path),
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "LANG": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(request["epoch"]),
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "LDFLAGS": "-Wl,-s",
        "MAX_JOBS": str(jobs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        # torch would look for a compiler cache by itself, and hide that a build is not repeatable.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(work / "uv"),
        **({"CUDA_HOME": str(cuda), "CUDA_PATH": str(cuda)} if cuda else {}),
        **({"FIRSTLIGHT_GENCODES": ",".join(request["gencodes"])} if request["gencodes"] else {}),
        # By it the supervisor knows what belongs to this job.
        **{name: os.environ[name] for name in ("FIRSTLIGHT_JOB",) if name in os.environ},
        **cache_settings(request, box),
    }
    values = words(request, box, jobs)
    return env | {name: fill(text, values) for name, text in request["env"].items()}


def cache_settings(request: dict[str, Any], box: Sandbox) -> dict[str, str]:
    """The compiler cache's, where the build has one; the compiler counts by its content."""
    if not request["ccache"]:
        return {}
    return {
        "FIRSTLIGHT_CCACHE": str(box.folders["work"] / "bin" / "ccache"),
        "CCACHE_DIR": str(box.folders["ccache"]),
        "CCACHE_COMPILERCHECK": "content",
        "CCACHE_MAXSIZE": "30G",
    }


def command(request: dict[str, Any], box: Sandbox, project: Path, jobs: int) -> list[str]:
    """The PEP 517 build of the project's folder, as the sandbox sees it."""
    work = box.folders["work"]
    values = words(request, box, jobs)
    settings = {
        **request["config"],
        **{f"cmake.define.{k}": v for k, v in request["cmake"].items()},
    }
    flags = [f"--config-setting={key}={fill(text, values)}" for key, text in settings.items()]
    argv = [str(work / "bin" / "uv"), "build", "--wheel", "--no-build-isolation", "--offline"]
    argv += ["--python", str(work / "venv/bin/python"), "--out-dir", str(work / "dist"), *flags]
    return [*argv, str(project)]


def run(argv: list[str], env: dict[str, str], effort: Effort) -> tuple[int, Said]:
    """Run to the end with its output passed on; its exit status, and what it said of its end."""
    kills, said = memory.oom_kills(), Said()
    adopt(True)
    child = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    # What a build has left running may hold its output open; nobody waits for that.
    reader = threading.Thread(target=pass_on, args=(child.stdout, said), daemon=True)
    reader.start()
    try:
        watch(child, effort, Leftovers(argv, child.pid))
    finally:
        child.kill()
        child.wait()
        adopt(False)
        reader.join(timeout=DRAIN_S)
    if memory.oom_kills() > kills:
        said.killed = said.killed or b"the kernel killed a process"
    return child.returncode, said


def pass_on(stream: Any, said: Said) -> None:
    for line in stream:
        said.note(line)
        # Where the log's disk is full, the build must not wait for a reader that is gone.
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def watch(child: subprocess.Popen[bytes], effort: Effort, leftovers: Leftovers) -> None:
    while True:
        line = memory.line()
        effort.peak_mib = max(effort.peak_mib, int(line.split()[2]))
        print(line, flush=True)
        if left := leftovers.look():
            print(f"note: ending what the build left running: {len(left)} process(es)", flush=True)
        try:
            child.wait(timeout=TICK_S)
            return
        except subprocess.TimeoutExpired:
            continue


def largest_mib() -> int:
    """The most that one process which has ended held: it may have come and gone between looks."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def build(request: dict[str, Any], box: Sandbox, project: Path) -> tuple[Path, Effort]:
    """The wheel that the project's own build makes; raises Fault when it makes none."""
    effort, begin, jobs = Effort(), time.monotonic(), int(request["jobs"])
    before = cpu_s()
    while True:
        argv, env = command(request, box, project, jobs), environment(request, box, jobs)
        effort.attempts, effort.jobs = effort.attempts + 1, jobs
        effort.command, effort.env = tuple(argv), tuple(sorted(env.items()))
        status, said = run([*box.prefix, *argv], env, effort)
        if status == 0 or not said.killed or effort.attempts > 1 or jobs == 1:
            break
        jobs = max(1, jobs // 2)
        print(f"note: memory ran out; once more with {jobs} job(s)", flush=True)
    effort.wall_s = time.monotonic() - begin
    effort.cpu_s = cpu_s() - before
    effort.peak_mib = max(effort.peak_mib, largest_mib())
    if status != 0:
        raise failed(request, status, said, jobs)
    return the_wheel(request), effort


def cpu_s() -> float:
    """What all children that have ended took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def failed(request: dict[str, Any], status: int, said: Said, jobs: int) -> Fault:
    """Why there is no wheel, as far as the build's own words tell."""
    name = request["name"]
    if said.killed:
        return Fault(
            f"memory ran out while {name} was built, with {jobs} job(s) at a time",
            f"one job of it needs about {request['job_mib']} MiB: free memory, or use another host",
        )
    if said.space:
        return Fault(
            f"no space left while {name} was built: {shown(said.space)}",
            "make room, raise disk_gib of the component, or give the host another root",
        )
    if said.network:
        return Fault(
            f"{name} tried to download something, and a build has no network: "
            f"{shown(said.network)}",
            "lock what it downloads (`fetched` or `requires` of the component), or turn that off",
        )
    return Fault(f"the build of {name} ended with exit status {status}", "")


def shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:200]


def the_wheel(request: dict[str, Any]) -> Path:
    made = sorted((Path(request["work"]) / "dist").glob("*.whl"))
    if len(made) != 1:
        names = ", ".join(path.name for path in made) or "none"
        raise Fault(f"the build of {request['name']} must leave one wheel; it left {names}", "")
    return made[0]
