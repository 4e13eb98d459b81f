"""Whatever a value holds, bash reads back exactly that value."""

import json
import subprocess
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.core.command import Command, Script, assignments, quote, typed

# Everything that an argument can carry: no NUL, and nothing that UTF-8 cannot write.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
nasty = st.sampled_from(
    ["$(id)", "`id`", "a b", "'", '"', "\\", "*", "~", "#", "!", "-n", "", "\n"]
)
SHOW = 'python3 -c "import json,sys; print(json.dumps(sys.argv[1:]))" "$@"'


def bash(text: str) -> str:
    done = subprocess.run(["bash", "-s"], input=text.encode(), capture_output=True, check=True)
    return done.stdout.decode()


@settings(max_examples=40, deadline=None)
@given(st.lists(words | nasty, max_size=6))
def test_script_arguments_come_back_unchanged(args: list[str]) -> None:
    script = Script(SHOW, args=tuple(args))
    assert json.loads(bash(script.source())) == args


@settings(max_examples=40, deadline=None)
@given(st.lists(words | nasty, min_size=1, max_size=6))
def test_command_lines_come_back_unchanged(args: list[str]) -> None:
    show = "import json,sys; print(json.dumps(sys.argv[1:]))"
    assert json.loads(bash(Command(("python3", "-c", show, *args)).line())) == args


@settings(max_examples=30, deadline=None)
@given(words | nasty)
def test_environment_comes_back_unchanged(value: str) -> None:
    script = Script(
        "python3 -c \"import json,os; print(json.dumps(os.environ['V']))\"", env={"V": value}
    )
    assert json.loads(bash(script.source())) == value


def test_a_command_runs_in_its_folder() -> None:
    assert bash(Command(("pwd",), cwd=PurePosixPath("/tmp")).line()).strip() == "/tmp"


def test_a_bad_name_for_a_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="A=1;id"):
        assignments({"A=1;id": "x"})


def test_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def test_commands_in_a_script_cannot_eat_the_script() -> None:
    assert bash(Script("cat\necho after").source()) == "after\n"


def test_a_script_cut_short_runs_nothing() -> None:
    source = Script("echo ran").source()
    cut = source[: source.rindex("__main")]
    assert subprocess.run(["bash", "-s"], input=cut.encode(), capture_output=True).stdout == b""


def test_the_exit_status_of_the_body_is_kept() -> None:
    assert (
        subprocess.run(["bash", "-s"], input=Script("(exit 7)").source().encode()).returncode == 7
    )


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["host", "dry_run", "log"]), words | nasty | st.booleans()))
def test_a_verb_as_a_person_types_it_is_read_as_what_was_given(
    flags: dict[str, str | bool],
) -> None:
    wanted = ["invoke", "build"]
    for name, value in flags.items():
        wanted += [f"--{name.replace('_', '-')}"] if value else []
        wanted += [value] if isinstance(value, str) and value else []
    line = typed("build", flags)
    read = f"set -- {line}\nexec {SHOW}\n"
    assert json.loads(bash(read)) == wanted
