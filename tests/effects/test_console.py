"""The person's terminal: what it is told, and what it must not obey."""

import io
from pathlib import Path

import pytest

from firstlight.effects.console import Console
from firstlight.flows import front
from tests.flows.project import make_project


def test_nothing_that_is_said_or_noted_moves_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(stream)
    console.say("the engine said \x1b[1A\x1b[2K  bf16 is safe\r\n\tdone")
    console.note("building \x1b]0;title\x07")
    said, noted = stream.getvalue().split("\n\tdone\n")
    assert said == r"the engine said \x1b[1A\x1b[2K  bf16 is safe\x0d"
    assert noted == "  ... building \\x1b]0;title\\x07\n"


def test_a_log_is_handed_on_as_it_is() -> None:
    stream = io.StringIO()
    Console(stream).plain("\x1b[32mready\x1b[0m\n")
    assert stream.getvalue() == "\x1b[32mready\x1b[0m\n"


def test_an_error_that_repeats_a_strangers_word_moves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path, [])
    with pytest.raises(SystemExit):
        front.run("render", project.root, profile="x\x1b[2J")
    assert r"x\x1b[2J" in (told := capsys.readouterr().err) and "\x1b" not in told
