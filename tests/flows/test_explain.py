"""`invoke explain`: a log from a file or a pipe, known, unknown or sound; `check` of its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.core.errors import FirstlightError
from firstlight.effects.console import Console, nowhere
from firstlight.flows import explain
from tests.flows.project import INVOKE, REPO, Project, make_project
from tests.serve.logs import CRASH, READY, V0523

KILLED = (
    "ok\n\x1b[31mnvcc error   : 'cicc' died due to signal 9 (Kill signal)\x1b[0m\nninja: error\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, [{"name": "local"}])


def told(tmp_path: Path, log: str) -> tuple[str, int]:
    file = tmp_path / "log"
    file.write_bytes(log.encode())
    report = explain.run(REPO, Console(nowhere()), log=str(file))
    return report.text.replace(str(file), "LOG"), report.exit_code


def test_a_known_failure_is_told_with_its_line_fix_and_link(project: Project) -> None:
    file = project.write("build.log", KILLED)
    done = project.invoke("explain", "--log", str(file), check=True)
    assert done.stdout.splitlines() == [
        "cause: the kernel killed a compiler (cicc): the machine, or the build's memory limit, "
        "was full",
        f"evidence: {file}:2: nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "fix: build with fewer jobs (MAX_JOBS), one nvcc thread each (NVCC_THREADS=1, "
        "SGL_KERNEL_COMPILE_THREADS=1) and one architecture: count 4 to 7 GiB for each job",
        "link: https://github.com/Dao-AILab/flash-attention/pull/2079",
    ]


def test_programs_are_told_the_same_and_a_pipe_is_read(project: Project) -> None:
    done = subprocess.run(
        [str(INVOKE), "explain", "--log", "-", "--json"],
        cwd=project.root,
        env=project.environ(),
        input=KILLED,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    said = json.loads(done.stdout)
    assert (said["rule"], said["line"], said["known"]) == ("compiler-killed", 2, True)
    assert said["log"] == "standard input"


def test_an_unknown_failure_is_shown_by_its_first_error(tmp_path: Path) -> None:
    text, code = told(tmp_path, "a\nb\nx.c:1: error: odd\nc\nd\ne\nerror: the last noise\n")
    assert code == 1
    assert text.splitlines()[:7] == [
        "cause: unknown: no rule knows this; it is the first error of the log",
        "evidence: LOG:3: x.c:1: error: odd",
        "         1 | a",
        "         2 | b",
        "  >      3 | x.c:1: error: odd",
        "         4 | c",
        "         5 | d",
    ]
    assert "noise" not in text


def test_a_sound_log_has_no_error(tmp_path: Path) -> None:
    assert told(tmp_path, "all well\n") == ("nothing in LOG looks like an error", 1)
    assert told(tmp_path, "") == ("nothing in LOG looks like an error", 1)


def test_what_a_server_survived_is_no_cause(tmp_path: Path) -> None:
    crash = CRASH.format(error="torch.OutOfMemoryError: CUDA out of memory.")
    assert told(tmp_path, V0523 + crash + READY)[1] == 1
    text, code = told(tmp_path, V0523 + crash)
    assert code == 0 and text.startswith("cause: the GPU's memory is full\nevidence: LOG:")
    odd = V0523 + CRASH.format(error="KeyError: 'x'")
    assert "evidence: LOG:11: KeyError: 'x'" in told(tmp_path, odd)[0]


def test_a_kernel_that_a_server_cannot_compile_is_told_by_the_compiler(tmp_path: Path) -> None:
    """SGLang says what ninja said as one exception, and last of all that the graphs failed."""
    ninja = "RuntimeError: Ninja build failed. Ninja output:\n[1/4] nvcc -c r.cu\nFAILED: r.o\n"
    last = "ninja: build stopped: subcommand failed.\n\nDuring handling of the above exception, "
    last += "another exception occurred:\n\nTraceback (most recent call last):\n  File 'x'\n"
    last += "Exception: Capture cuda graph failed: Ninja build failed. Ninja output:\n"
    log = V0523 + CRASH.format(error=ninja + "HERE\n" + last)
    text, code = told(tmp_path, log.replace("HERE", "/bin/sh: 1: /usr/bin/nvcc: not found"))
    assert code == 0 and text.startswith("cause: nvcc is not found\nevidence: LOG:")
    text, code = told(tmp_path, log.replace("HERE", 'r.cu(9): error: identifier "f" is undefined'))
    assert code == 1 and 'r.cu(9): error: identifier "f" is undefined' in text.splitlines()[1]


def test_recorded_server_logs_are_explained(shared: Path) -> None:
    found = {}
    for log in sorted((shared / "data" / "server-logs").glob("*.log")):
        report = explain.run(REPO, Console(nowhere()), log=str(log))
        if report.exit_code == 0:
            found[log.name[:2]] = report.data["rule"]
    assert found == {
        "02": "kv-scales-wanted",
        "04": "killed",
        "08": "no-kernel-image",
        "09": "hang",
        "10": "pool-size",
    }


def test_bytes_that_are_no_text_are_survived(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"\xff\xfe\x00\r\r\n" + b"\xc3" * 100 + b"\nNo space left on device")
    report = explain.run(REPO, Console(nowhere()), log=str(file))
    assert (report.data["rule"], report.data["line"]) == ("disk", 3)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-16-be"])
def test_a_log_of_windows_is_read_as_it_was_written(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "log"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = "building\r\n" * 70_000 + "\u00e9: No space left on device\r\n"
    file.write_bytes((mark + text).encode(encoding))
    report = explain.run(REPO, Console(nowhere()), log=str(file))
    assert (report.data["rule"], report.data["line"]) == ("disk", 70_001)
    assert "\u00e9: No space left on device" in report.text


@pytest.mark.parametrize("how", ["name", "standard input"])
def test_a_device_is_no_log(project: Project, how: str) -> None:
    with Path("/dev/zero").open("rb") as zero:
        done = subprocess.run(
            [str(INVOKE), "explain", "--log", "/dev/zero" if how == "name" else "-"],
            cwd=project.root,
            env=project.environ(),
            stdin=zero,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
    shown = "/dev/zero" if how == "name" else how
    assert done.returncode == 2
    assert done.stderr == f"error: {shown} is a device and no log\n  -> name a file or a pipe\n"


def test_an_empty_log_may_come_from_nowhere(project: Project) -> None:
    done = project.invoke("explain", "--log", "/dev/null")
    assert "nothing in /dev/null looks like an error" in done.stdout


class Noting(Console):
    """A console that keeps what it shows."""

    def __init__(self) -> None:
        super().__init__(nowhere())
        self.notes: list[str] = []

    def note(self, *texts: str, watched_s: float | None = None) -> None:  # noqa: ARG002
        self.notes += texts


def test_how_far_a_large_log_is_read_is_shown(tmp_path: Path) -> None:
    file, console = tmp_path / "log", Noting()
    file.write_bytes(b"building\n" * (300 << 10))
    explain.run(REPO, console, log=str(file))
    assert [note.replace(str(file), "LOG") for note in console.notes] == [
        "reading LOG: 1.0 MiB of 2.6 MiB",
        "reading LOG: 2.0 MiB of 2.6 MiB",
        "reading LOG: 2.6 MiB",
    ]


def test_a_huge_log_takes_little_memory(tmp_path: Path) -> None:
    """200 MiB without an end of a line, and many errors that no rule knows."""
    file = tmp_path / "log"
    with file.open("wb") as log:
        log.truncate(200 << 20)
        log.seek(0, 2)
        log.write(b"\nx.c:1: error: odd thing\n" * 20_000)
    code = (
        "import sys; from pathlib import Path; from firstlight.flows import explain;"
        "from firstlight.effects.console import Console, nowhere;"
        "explain.run(Path(sys.argv[1]), Console(nowhere()), log=sys.argv[2]);"
        # What `getrusage` says is inherited from the larger process that started it.
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(REPO), str(file)], capture_output=True, check=True
    )
    assert int(done.stdout) < 200 << 10  # KiB


@pytest.mark.parametrize(
    ("log", "said"), [("", "which log?"), ("/nope/x", "cannot read /nope/x: No")]
)
def test_a_log_that_is_not_there_is_said(log: str, said: str) -> None:
    with pytest.raises(FirstlightError) as refused:
        explain.run(REPO, Console(nowhere()), log=log)
    assert str(refused.value).startswith(said)
    assert refused.value.exit_code == 2


def test_check_tells_faults_of_the_table_with_their_place(project: Project) -> None:
    project.change("recipes/failures.yaml", ("  - id: disk\n", "  - id: disk\n    wher: x\n"))
    said = project.invoke("check").stdout
    assert "unknown key 'wher'; did you mean 'where'?" in said
    project.change(
        "recipes/failures.yaml",
        ("    wher: x\n", ""),
        ("'No space left on device'", "'No space (left'"),
    )
    (line,) = (
        number
        for number, text in enumerate(project.read("recipes/failures.yaml").splitlines(), 1)
        if "'No space (left'" in text
    )
    done = project.invoke("check")
    assert done.returncode == 2
    assert (
        f"recipes/failures.yaml:{line}:9: 'No space (left' is no regular expression" in done.stdout
    )


def test_what_users_of_a_ready_server_write_is_no_cause(tmp_path: Path) -> None:
    asked = 'Received request: {"text": "Why is there No space left on device?"}'
    served = V0523 + READY + f"[2026-11-30 08:01:00] {asked}\n"
    assert told(tmp_path, served) == ("nothing in LOG looks like an error", 1)
    died = f"{served}[2026-11-30 08:02:00] OSError: [Errno 28] No space left on device\n"
    text, code = told(tmp_path, died)
    assert (code, text.splitlines()[0]) == (0, "cause: a disk of the host is full")
    assert text.splitlines()[1].endswith(": OSError: [Errno 28] No space left on device")
