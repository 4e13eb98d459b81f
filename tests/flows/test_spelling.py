"""A verb or a flag that is none, told before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.flows.spelling import misspelt

ROOT = Path(__file__).parents[2]
VERBS = {
    "build": {"--host": True, "--dry-run": False},
    "ask": {"--question": True, "--host": True},
}
OWN = {"--help": True, "--echo": False, "-e": False}


@pytest.mark.parametrize(
    ("line", "word", "kind"),
    [
        ("biuld", "biuld", "verb"),
        ("build gpu01", "gpu01", "verb"),
        ("build --hots gpu01", "--hots", "flag of build"),
        ("build --hots=gpu01", "--hots", "flag of build"),
        ("build --host gpu01 --dry", "--dry", "flag of build"),
        ("build --host gpu01 ask --dry-run", "--dry-run", "flag of ask"),
        ("build --host --dry-run --dry", "--dry", "flag of build"),
        ("ask -q hello", "-q", "flag of ask"),
        ("build --host", "--host", "value after"),
        ("build --dry-run=yes --host", "--dry-run=yes", "value for"),
        ("build --host gpu01 ask --question", "--question", "value after"),
    ],
)
def test_the_first_word_that_is_none(line: str, word: str, kind: str) -> None:
    found = misspelt(line.split(), VERBS, OWN)
    assert found is not None and (found.word, found.kind) == (word, kind)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "build",
        "build --host gpu01 --dry-run ask --question biuld",
        "ask --question --hots",
        "ask --question=--hots --host=",
        "build --help",
        "build --echo",
        "build --host=",
        "build -e whatever",
        "build -- --hots",
    ],
)
def test_words_that_invoke_takes_are_left_alone(line: str) -> None:
    assert misspelt(line.split(), VERBS, OWN) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("biuld",), "error: no verb 'biuld'; did you mean 'build'?\n  -> `invoke --list`"),
        (("build", "--hots", "x"), "error: no flag of build '--hots'; did you mean '--host'?\n"),
        (("stop", "--dry"), "error: no flag of stop '--dry'; did you mean '--dry-run'?\n"),
        (("ship", "--form", "x"), "error: no flag of ship '--form'; did you mean '--from'?\n"),
        (("check", "--debug", "--jsno"), "did you mean '--json'?\n  -> `invoke check --help`"),
        (("ask", "-q", "x"), "-> `invoke ask --help` shows them all"),
        (
            ("status", "--host"),
            "no value after '--host'\n  -> `invoke status --help` shows what it",
        ),
        (("ask", "Why is it so?"), "shows them all; `invoke ask --help`, which flags take words\n"),
    ],
)
def test_invoke_names_the_nearest(words: tuple[str, ...], told: str) -> None:
    line = [sys.executable, "-m", "invoke", *words]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize("words", [("status", "-h"), ("status", "--help"), ("-l",)])
def test_short_flags_of_invoke_itself_work(words: tuple[str, ...]) -> None:
    line = [sys.executable, "-m", "invoke", *words]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shown", ["--list", "--help build"])
def test_a_list_whose_reader_left_ends_without_a_word(shown: str) -> None:
    # Nobody reads: the other end is closed before anything is written.
    line = 'exec 3> >(exit 0); wait $!; "$@" >&3'
    words = ("bash", "-c", line, "bash", sys.executable, "-m", "invoke", *shown.split())
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + 13, "")
