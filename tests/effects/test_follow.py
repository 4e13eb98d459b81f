"""Watching jobs: what is shown while they run, alone and side by side, and how an end is told."""

from __future__ import annotations

import io
import os
import pty
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import Detached, StepError
from firstlight.core.plan import Job, Jobs, Plan, Step, preview
from firstlight.effects import console as terminal
from firstlight.effects import jobs
from firstlight.effects.console import Console
from firstlight.effects.execute import Site, execute
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host

SUPERVISE = PurePosixPath(Path(__file__).parents[2] / "firstlight" / "remote" / "supervise.sh")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    shell, root = LocalShell(Host(name="local")), PurePosixPath(tmp_path / "root")
    yield Site(shell, root, SUPERVISE)
    for folder in Path(root / "jobs").glob("*/supervise.sh"):
        if folder.parent.suffix != ".old":
            assert jobs.cancel(shell, root, folder.parent.name, grace_s=0) == 0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console that shows every change at once and is silent for at most a second."""
    monkeypatch.setattr(terminal, "_QUIET_S", 0.0)
    monkeypatch.setattr(terminal, "_SILENT_S", 1.0)


def job(id_: str, text: str, label: str = "") -> Job:
    return Job(id_, Script(text), label=label)


def watch(site: Site, *asked: Job, stream: io.StringIO | None = None, typed: str = "") -> str:
    """Execute a plan of one step; what was said."""
    stream = stream or io.StringIO()
    action = asked[0] if len(asked) == 1 else Jobs(asked)
    plan = Plan("build", "local", (Step("compile", "compile it", action),))
    with Console(stream) as console:
        console.typed = typed
        execute(plan, {"host": site}, console)
    return stream.getvalue()


NINJA = """
echo building; sleep 1
for i in 1 2 3; do
  echo "  [$i/4] nvcc -c /src/k$i.cu -o k$i.o"; echo "@@firstlight memory $((i * 1024)) 8192"
  sleep 1
done
"""


@pytest.mark.usefixtures("impatient")
def test_a_compilation_is_one_line_and_our_own_lines_are_not_shown(site: Site) -> None:
    said = watch(site, job("one", NINJA))
    assert "@@firstlight" not in said
    assert "  ... building\n" in said
    (last,) = [line for line in said.splitlines() if "k3.cu" in line][-1:]
    assert last.startswith("  ... [3/4] ") and " a minute, about " in last
    # On a busy machine it may be told how long the silence lasts.
    assert last.partition(" (")[0].endswith(" left, 3.0 of 8.0 GiB, k3.cu")


@pytest.mark.usefixtures("impatient")
def test_the_last_line_is_shown_of_anything_else(site: Site) -> None:
    said = watch(site, job("one", "echo fetching x.whl; sleep 0.6; echo '@@firstlight else'"))
    assert "  ... fetching x.whl\n" in said and "else" not in said


@pytest.mark.usefixtures("impatient")
def test_silence_is_told_where_output_is_no_terminal(site: Site) -> None:
    said = watch(site, job("one", "sleep 1.7; echo linking; sleep 2.8"))
    assert "  ... nothing said yet (1." in said
    repeated = [line for line in said.splitlines() if line.startswith("  ... linking (")]
    assert repeated and all(line.endswith(" s so far)") for line in repeated)


def test_a_line_is_written_at_least_once_a_minute() -> None:
    assert (terminal._QUIET_S, terminal._SILENT_S) == (10.0, 60.0)


@pytest.mark.usefixtures("impatient")
def test_jobs_run_side_by_side(site: Site, tmp_path: Path) -> None:
    meet = 'touch "{0}/{1}"; until [ -e "{0}/{2}" ]; do sleep 0.1; done; echo {1} met; sleep 0.5'
    first = job("j1", meet.format(tmp_path, "a", "b"), "flash-attn")
    second = job("j2", meet.format(tmp_path, "b", "a"), "sglang")
    said = watch(site, first, second)
    assert "  ... flash-attn: a met\n" in said and "  ... sglang: b met\n" in said
    assert "  flash-attn: done after " in said and "  sglang: done after " in said


def test_a_failure_lets_the_others_end_and_the_first_one_is_raised(
    site: Site, tmp_path: Path
) -> None:
    stream = io.StringIO()
    bad = job("j1", "echo noise; echo 'error: no nvcc'; echo 'fix: install it'; exit 4", "kernels")
    after = f"until [ -e {site.root}/jobs/%s/exit ]; do sleep 0.1; done; sleep 2; "
    later = job("j3", after % "j1" + "exit 7", "flash-attn")
    good = job("j2", after % "j3" + f"touch {tmp_path}/made", "sglang")
    with pytest.raises(StepError) as failed:
        watch(site, later, good, bad, stream=stream)
    assert (tmp_path / "made").exists()
    assert failed.value.what == "cannot compile it (kernels): no nvcc"
    assert failed.value.remedy.startswith("install it\n  -> the whole log: ")
    assert failed.value.remedy.split(" log: ")[1].startswith(f"{site.root}/jobs/j1/log")
    assert failed.value.log == "noise"
    said = stream.getvalue()
    assert "  kernels: failed: no nvcc; the others go on\n" in said
    assert "  flash-attn: failed: exit status 7; the others go on\n" in said
    assert "  sglang: done after " in said


@pytest.mark.usefixtures("impatient")
def test_what_ran_before_anybody_watched_gives_no_rate(site: Site, tmp_path: Path) -> None:
    text = 'for i in 1 2 3; do echo "[$i/9] cc -c a$i.c"; done; until [ -e "$1" ]; do sleep 0.1; '
    wait = Job("one", Script(f"{text}done; exit 0", (str(tmp_path / "go"),)))
    jobs.start(site.shell, site.root, SUPERVISE, wait)
    while b"a3" not in jobs.poll(site.shell, site.root, "one", 0).data:
        time.sleep(0.1)
    threading.Timer(1.5, (tmp_path / "go").touch).start()
    said = watch(site, wait)
    assert "  it runs already; watching it\n" in said
    assert "  ... [3/9] a3.c\n" in said and "minute" not in said


def test_memory_that_ran_out_is_the_cause(site: Site) -> None:
    told = "firstlight: the job ran out of memory (ceiling 4096 MiB; processes killed: 2)"
    with pytest.raises(StepError) as failed:
        watch(site, job("one", f"echo '{told}'; exit 1"))
    assert failed.value.what == (
        "cannot compile it: the job ran out of memory (ceiling 4096 MiB; processes killed: 2)"
    )
    assert failed.value.remedy.startswith("give it fewer compile jobs or more memory")
    with pytest.raises(StepError, match="nvcc knows no sm_121"):
        watch(site, job("two", f"echo '{told}'; echo 'error: nvcc knows no sm_121'; exit 1"))
    with pytest.raises(StepError, match=r"exit status 137 \(killed: no memory, or by hand\)"):
        watch(site, job("three", "exit 137"))


def test_advice_has_the_flags_that_were_given(site: Site) -> None:
    """Another host's build, or the whole stack's, is none that anybody wants to go on with."""
    asked = "invoke build --host gpu01 --stack s --component flash-attn --arch 12.0"
    with pytest.raises(StepError) as failed:
        watch(site, job("one", "exit 1"), typed=asked)
    assert f"; `{asked}` again goes on from what is finished" in failed.value.remedy
    interrupt_when(lambda: state(site, "two") == "running")
    with pytest.raises(Detached) as left:
        watch(site, job("two", "sleep 1000"), typed=asked)
    end = "`invoke build --cancel --host local`"
    assert left.value.remedy == f"`{asked}` again watches it; {end} ends it"


def interrupt_when(seen: Callable[[], bool]) -> None:
    def wait() -> None:
        while not seen():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def state(site: Site, id_: str) -> str:
    return jobs.poll(site.shell, site.root, id_, 0).state


def test_ctrl_c_leaves_all_of_them_running(site: Site) -> None:
    interrupt_when(lambda: state(site, "j1") == state(site, "j2") == "running")
    with pytest.raises(Detached) as left:
        watch(site, job("j1", "sleep 1000"), job("j2", "sleep 1000"))
    assert left.value.what == "jobs j1, j2 go on"
    assert left.value.remedy == (
        "`invoke build --host local` again watches them;"
        " `invoke build --cancel --host local` ends them"
    )
    assert [state(site, one) for one in ("j1", "j2")] == ["running", "running"]


class Person(io.StringIO):
    """A terminal where somebody answers yes."""

    def isatty(self) -> bool:
        return True


def test_ctrl_c_and_yes_ends_all_of_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Person("y\n")
    monkeypatch.setattr("sys.stdin", answers)
    interrupt_when(lambda: state(site, "j1") == state(site, "j2") == "running")
    with pytest.raises(Detached, match="stopped jobs j1, j2; 0 processes left"):
        watch(site, job("j1", "sleep 1000"), job("j2", "sleep 1000"), stream=Person())
    assert [state(site, one) for one in ("j1", "j2")] == ["cancelled", "cancelled"]


def test_the_preview_shows_every_job_and_its_ceiling() -> None:
    beside = Jobs((Job("j1", Script("echo a"), memory_mib=4096), Job("j2", Script("echo b"))))
    text = preview(Plan("build", "gpu01", (Step("x", "compile two", beside),)))
    assert "# 2 jobs side by side; one that fails lets the others end\n" in text
    assert "# detached job j1, at most 4096 MiB of memory; a lost link does not stop it\n" in text
    assert "# detached job j2; a lost link does not stop it\n" in text
    assert "echo a" in text and "echo b" in text


def test_a_terminal_gets_a_moving_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    here, there = pty.openpty()
    with os.fdopen(there, "w") as stream, Console(stream) as console:
        console.note("flash-attn: [12/73] a.cu", f"sglang: {'x' * 200}")
        time.sleep(0.3)
    drawn = os.read(here, 1 << 16).decode()
    os.close(here)
    assert "flash-attn: [12/73] a.cu" in drawn
    assert "sglang: xxx" in drawn and "x" * 80 not in drawn


def test_a_line_of_thousands_of_characters_is_cut() -> None:
    stream = io.StringIO()
    Console(stream).note("g++  -shared " + "a.o " * 2000)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("  ... g++ -shared a.o a.o") and line.endswith("…")
    assert len(line) < 210
