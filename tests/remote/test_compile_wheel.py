"""compile_wheel.py: placeholders, the environment of a build, and how its end is understood."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import compile_wheel
import pytest
import sandbox
from compile_wheel import Effort, Said, command, environment, failed, fill, run, words
from hypothesis import given
from hypothesis import strategies as st
from sandbox import Sandbox

from firstlight.build.placeholders import ON_HOST
from tests.remote import cuda

BOX = Sandbox(
    (), {"work": Path("/m/work"), "cuda": Path("/m/cuda"), "ccache": Path("/m/cc")}, True, True
)
REQUEST: dict[str, Any] = {
    "name": "kern",
    "jobs": 4,
    "job_mib": 512,
    "epoch": 1782000000,
    "fetched": [{"name": "cutlass"}],
    "gencodes": ["120a", "121a"],
    "tool_path": ["/opt/bin"],
    "ccache": "/x/ccache",
    "env": {"A": "${source}/a", "LDFLAGS": ""},
    "config": {"k": "v"},
    "cmake": {"DIR": "${fetched:cutlass}"},
}

names = st.from_regex(r"[a-z_:]{1,8}", fullmatch=True)
values = st.dictionaries(names, st.text(max_size=12), min_size=1, max_size=5)


@given(values, st.lists(st.text(alphabet="ab$ {}/", max_size=6).filter(lambda t: "${" not in t)))
def test_every_word_is_replaced_once(known: dict[str, str], between: list[str]) -> None:
    """What a value holds is not looked at again, whatever it looks like."""
    keys = sorted(known)
    parts = [(text, keys[n % len(keys)]) for n, text in enumerate(between)]
    given_ = "".join(f"{text} ${{{key}}}" for text, key in parts)
    assert fill(given_, known) == "".join(f"{text} {known[key]}" for text, key in parts)


@given(st.text().filter(lambda text: "${" not in text))
def test_a_text_without_words_stays(text: str) -> None:
    assert fill(text, {}) == text


def test_a_word_of_a_value_stays() -> None:
    assert fill("${a}${b}", {"a": "${b}", "b": "$1"}) == "${b}$1"


def test_every_word_of_the_vocabulary_has_a_meaning_on_a_host() -> None:
    """What a plan does not fill in, the host must; else a build ends in a fault of ours."""
    plain = {word for word in ON_HOST if ":" not in word}
    assert set(words(REQUEST, BOX, 2)) == plain | {"fetched:cutlass"}


def test_jobs_are_those_of_this_attempt() -> None:
    assert words(REQUEST, BOX, 2)["jobs"] == "2"
    assert environment(REQUEST, BOX, 2)["MAX_JOBS"] == "2"


def test_nothing_of_the_account_comes_into_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPATH", "CFLAGS", "PYTHONPATH", "LD_LIBRARY_PATH", "NVCC_APPEND_FLAGS", "CC"):
        monkeypatch.setenv(name, "foreign")
    monkeypatch.setenv("FIRSTLIGHT_JOB", "/jobs/x")
    env = environment(REQUEST, BOX, 2)
    assert "foreign" not in env.values() and "CC" not in env
    assert env["FIRSTLIGHT_JOB"] == "/jobs/x"
    assert env["PATH"].split(":")[:3] == ["/m/cuda/bin", "/m/work/venv/bin", "/m/work/bin"]
    assert env["HOME"] == "/m/work/home" and env["TMPDIR"] == "/m/work/tmp"
    assert (env["CUDA_HOME"], env["CUDA_PATH"]) == ("/m/cuda", "/m/cuda")
    assert env["FIRSTLIGHT_GENCODES"] == "120a,121a"
    assert env["CCACHE_DIR"] == "/m/cc"


def test_a_recipe_has_the_last_word() -> None:
    env = environment(REQUEST, BOX, 2)
    assert env["A"] == "/m/work/src/a" and env["LDFLAGS"] == ""


def test_a_build_without_cuda_and_cache_is_told_of_none() -> None:
    bare = Sandbox((), {"work": Path("/m/work")}, False, False)
    env = environment({**REQUEST, "ccache": "", "gencodes": []}, bare, 1)
    assert not {name for name in env if name.startswith(("CUDA_", "CCACHE", "FIRSTLIGHT_G"))}


def test_settings_become_words() -> None:
    argv = command(REQUEST, BOX, Path("/m/work/src/aot"), 2)
    assert "--config-setting=k=v" in argv
    assert "--config-setting=cmake.define.DIR=/m/work/fetched/cutlass" in argv
    assert argv[-1] == "/m/work/src/aot" and "--no-build-isolation" in argv


def shell(script: str, *more: str) -> tuple[int, Said]:
    return run(["bash", "-c", script, "test", *more], dict(os.environ), Effort())


def test_output_is_passed_on_and_the_status_kept(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, said = shell(r"printf 'one\ntwo \377\n'; echo three >&2; exit 5")
    out = capfdbinary.readouterr().out
    assert status == 5 and said == Said()
    assert b"one\ntwo \xff\nthree\n" in out and b"@@firstlight memory " in out


def test_what_holds_the_output_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache's server, for example, that a build has started."""
    monkeypatch.setattr(compile_wheel, "DRAIN_S", 0.5)
    begin = time.monotonic()
    status, _ = shell('sleep 97 & echo $! >"$1"; exit 3', pidfile := f"/tmp/pid-{os.getpid()}")
    took = time.monotonic() - begin
    pid = int(Path(pidfile).read_text())
    Path(pidfile).unlink()
    os.kill(pid, signal.SIGKILL)
    assert status == 3 and took < 20


WAITS = """\
import subprocess, sys
done = subprocess.run(["bash", "-c", sys.argv[1]], capture_output=True, text=True)
print("heard", done.stdout.strip())
"""


@pytest.mark.parametrize("boxed", [False, True], ids=["plain", "sandbox"])
@pytest.mark.parametrize(
    "left", ["sleep 96", "setsid sh -c 'trap : TERM; while sleep 1; do :; done'"]
)
def test_what_a_build_leaves_running_does_not_hold_it_up(
    left: str,
    boxed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As with uv: it waits until nobody holds the output of what it ran."""
    monkeypatch.setattr(compile_wheel, "TICK_S", 0.3)
    box = sandbox.make({"work": tmp_path}, tmp_path / "stage") if boxed else BOX
    if boxed and not box.prefix:
        pytest.skip("this machine has no sandbox")
    begin = time.monotonic()
    argv = [*box.prefix, sys.executable, "-c", WAITS, f"{left} & echo made"]
    # What we had running before, with all that is below it, is none of the build's.
    with subprocess.Popen(["bash", "-c", "trap 'exit 7' TERM; sleep 97 & wait"]) as other:
        status, _ = run(argv, dict(os.environ), Effort())
        spared = other.poll() is None
        child = subprocess.run(["pgrep", "-P", str(other.pid)], capture_output=True, text=True)
        os.kill(int(child.stdout or other.pid), signal.SIGKILL)
    assert spared and other.returncode == 0 and child.stdout
    assert status == 0 and time.monotonic() - begin < 30
    out = capfd.readouterr().out
    assert "heard made" in out and "note: ending what the build left running: " in out


def test_a_build_that_works_alone_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs beside it, or it has a program of its own at work."""
    monkeypatch.setattr(compile_wheel, "TICK_S", 0.1)
    code = "import subprocess, time; time.sleep(1.5); subprocess.run(['sleep', '1.5'])"
    background = f"(sleep 2 &); exec {sys.executable} -c '{code.replace(chr(39), chr(34))}'"
    assert run([sys.executable, "-c", code], dict(os.environ), Effort())[0] == 0
    assert shell(background)[0] == 0
    assert "note: ending" not in capfd.readouterr().out


def test_a_build_ends_when_we_are_ended() -> None:
    def stop(_signal: int, _frame: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(SystemExit):
            shell("exec sleep 98")
    finally:
        signal.signal(signal.SIGALRM, before)
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "sleep 98"])
    assert found.returncode == 1


def test_a_compiler_that_the_kernel_kills_is_known_by_its_own_words(tmp_path: Path) -> None:
    """g++ reads a source that never ends; its compiler proper is killed."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    fifo = tmp_path / "x.cpp"
    os.mkfifo(fifo)
    script = """
    g++ -c "$1" -o /dev/null & parent=$!
    until child=$(pgrep -P $parent cc1plus); do sleep 0.05; done
    kill -KILL $child
    wait $parent
    """
    status, said = shell(script, str(fifo))
    assert status != 0 and said.killed, said
    fault = failed(REQUEST, status, said, 2)
    assert str(fault) == "memory ran out while kern was built, with 2 job(s) at a time"
    assert "about 512 MiB" in fault.fix


def test_so_is_one_of_nvcc(tmp_path: Path) -> None:
    """nvcc's own compilers are programs beside it; what stands for one here kills itself."""
    home = Path(cuda.nvcc()).resolve().parents[1]
    (tmp_path / "bin").mkdir()
    (tmp_path / "nvvm" / "bin").mkdir(parents=True)
    for path in (home / "bin").iterdir():
        if path.name != "nvcc":
            (tmp_path / "bin" / path.name).symlink_to(path)
    shutil.copy(home / "bin" / "nvcc", tmp_path / "bin" / "nvcc")
    for name in ("include", "lib64", "lib", "targets"):
        if (home / name).exists():
            (tmp_path / name).symlink_to(home / name)
    (tmp_path / "nvvm" / "libdevice").symlink_to(home / "nvvm" / "libdevice")
    cicc = tmp_path / "nvvm" / "bin" / "cicc"
    cicc.write_text("#!/bin/sh\nkill -KILL $$\n")
    cicc.chmod(0o755)
    (tmp_path / "x.cu").write_text("__global__ void f() {}\n")
    argv = [str(tmp_path / "bin" / "nvcc"), "-c", str(tmp_path / "x.cu"), "-o", "/dev/null"]
    status, said = run(argv, dict(os.environ), Effort())
    assert status != 0 and said.killed, said


@pytest.mark.parametrize(
    "line",
    [
        "fatal: unable to access 'https://github.com/x/y/': Could not resolve host: github.com",
        "curl: (6) Could not resolve host: example.org",
        '  status_string: "Couldn\'t resolve host name"',
        "wget: unable to resolve host address 'example.org'",
        "<urlopen error [Errno -3] Temporary failure in name resolution>",
        "  cause: dns error: failed to lookup address information",
        "connect: Network is unreachable",
    ],
)
def test_a_download_is_known_by_the_words_of_what_tried(line: str) -> None:
    said = Said()
    said.note(b"[1/3] compiling")
    said.note(line.encode() + b"\n")
    said.note(b"error: something that followed from it")
    fault = failed(REQUEST, 1, said, 2)
    assert str(fault).startswith("kern tried to download something, and a build has no network")
    assert line.strip() in str(fault) and "`fetched`" in fault.fix


def test_a_real_attempt_without_network() -> None:
    code = "import socket; socket.create_connection(('nowhere.invalid', 80))"
    _, said = shell('"$1" -c "$2"', sys.executable, code)
    assert said.network


def test_a_full_disk_is_known_by_a_real_one() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    status, said = shell("LC_ALL=C cat /etc/passwd >/dev/full")
    fault = failed(REQUEST, status, said, 2)
    assert str(fault).startswith("no space left while kern was built: ")
    assert "No space left on device" in str(fault) and "make room" in fault.fix


def test_an_end_without_a_known_cause_is_only_told() -> None:
    assert str(failed(REQUEST, 3, Said(), 2)) == "the build of kern ended with exit status 3"
