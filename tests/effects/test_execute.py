"""The loop that executes a plan: what it leaves behind, and what it says when a step fails."""

import io
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import StepError
from firstlight.core.plan import Action, Plan, Run, Step, WriteFile
from firstlight.effects.console import Console
from firstlight.effects.execute import Outcome, Site, execute
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host


def do(*actions: Action, done: list[Outcome] | None = None) -> None:
    steps = tuple(Step(f"s{n}", f"do thing {n}", action) for n, action in enumerate(actions, 1))
    site = Site(LocalShell(Host(name="local")), PurePosixPath("/x"), PurePosixPath("/x/y"))
    with Console(io.StringIO()) as console:
        execute(Plan("deploy", "local", steps), {"host": site}, console, done=done)


def test_a_file_is_written_with_its_mode_and_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "a 'new' folder" / "env"
    content = "A='$(id)'\n%s\\n no newline at the end"
    do(WriteFile(PurePosixPath(path), content, 0o600, secret=True))
    assert path.read_text() == content and path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(StepError):
        do(WriteFile(PurePosixPath(path), "secret"))
    assert list(tmp_path.iterdir()) == [path]


def test_a_step_that_fails_says_what_and_what_to_do() -> None:
    done: list[Outcome] = []
    fails = Run(Script("echo said >&2; exit 3"))
    with pytest.raises(StepError) as caught:
        do(Run(Script("true")), fails, Run(Script("true")), done=done)
    assert str(caught.value) == (
        "local: cannot do thing 2 (exit status 3)\n  -> put right what stops it\n"
        "  -> `invoke deploy --host local` again goes on from what is finished\n  | said"
    )
    assert [outcome.step for outcome in done] == ["s1"]


def test_the_fix_that_a_program_tells_is_the_remedy() -> None:
    with pytest.raises(StepError) as caught:
        do(Run(Script("printf 'error: no room\\nfix: make some\\n' >&2; exit 1")))
    assert caught.value.remedy.startswith("make some\n  -> ")
    assert caught.value.log == "error: no room"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("No space left on device", "free some space there, or set another `root`"),
        ("Disk quota exceeded", "free some space there, or set another `root`"),
        ("Read-only file system", "make that file system writable"),
    ],
)
def test_a_disk_that_takes_nothing_more_is_the_remedy_s_subject(said: str, remedy: str) -> None:
    with pytest.raises(StepError) as caught:
        do(Run(Script('echo "cp: error writing x: $1" >&2; exit 1', (said,))))
    assert caught.value.remedy.startswith(remedy)
    assert said in caught.value.log
