"""nvcc_launcher.py: which gencodes stay, and what is really run, also by the real nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvcc_launcher import filtered

from tests.remote import cuda
from tests.remote.programs import Ended, run

HARD_CODED = [
    *("nvcc", "-gencode", "arch=compute_80,code=sm_80", "-O2"),
    *("--generate-code=arch=compute_90a,code=[sm_90a,compute_90a]", "-c", "x.cu"),
    *("-gencode=arch=compute_120a,code=sm_120a", "--generate-code", "arch=compute_100,code=sm_100"),
]

others = st.sampled_from(["nvcc", "-O2", "-c", "x.cu", "-o", "arch=compute_80", "-arch=sm_90", ""])
specified = st.builds(
    "arch=compute_{0},code=sm_{0}".format, st.sampled_from(["80", "90a", "120a", "120f"])
)
gencodes = st.builds(
    lambda word, value, joined: [f"{word}={value}"] if joined else [word, value],
    st.sampled_from(["-gencode", "--generate-code"]),
    specified,
    st.booleans(),
)
commands = st.lists(st.one_of(others.map(lambda word: [word]), gencodes)).map(
    lambda parts: [word for part in parts for word in part]
)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ({"120a"}, ["-gencode=arch=compute_120a,code=sm_120a"]),
        ({"90a"}, ["--generate-code=arch=compute_90a,code=[sm_90a,compute_90a]"]),
        ({"80"}, ["-gencode", "arch=compute_80,code=sm_80"]),
        ({"100"}, ["--generate-code", "arch=compute_100,code=sm_100"]),
    ],
)
def test_only_what_is_wanted_stays(keep: set[str], kept: list[str]) -> None:
    found = filtered(HARD_CODED, keep)
    assert [word for word in found if word not in ("nvcc", "-O2", "-c", "x.cu")] == kept
    assert [word for word in found if word not in kept] == ["nvcc", "-O2", "-c", "x.cu"]


def test_a_target_is_no_other_that_begins_like_it() -> None:
    for asked in ("120", "120f", "12", "0a"):
        assert filtered(["nvcc", "-gencode", "arch=compute_120a,code=sm_120a"], {asked}) == [
            *("nvcc", "-gencode", "arch=compute_120a,code=sm_120a")
        ]


def test_when_none_would_stay_all_do() -> None:
    """nvcc without a gencode builds for a default of its own, which would be worse."""
    assert filtered(HARD_CODED, {"75"}) == HARD_CODED


@given(commands, st.sets(st.sampled_from(["80", "90a", "120a", "120f"])))
def test_nothing_else_of_a_command_changes(command: list[str], keep: set[str]) -> None:
    found = filtered(command, keep)
    rest = iter(command)
    assert all(word in rest for word in found), "words of the command, in their order"
    assert found.count("-O2") == command.count("-O2") and found.count("") == command.count("")


@given(commands)
def test_when_all_are_wanted_nothing_changes(command: list[str]) -> None:
    assert filtered(command, {"80", "90a", "120a", "120f"}) == command


def test_a_word_without_its_value_stays_as_it_is() -> None:
    assert filtered(["nvcc", "-gencode"], {"120a"}) == ["nvcc", "-gencode"]


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def launch(*words: object, **env: str) -> Ended:
    return run("nvcc_launcher.py", *words, env=env)


def test_the_compiler_is_run_with_what_stays(tmp_path: Path) -> None:
    compiler = program(tmp_path / "my nvcc", "printf '<%s>' \"$@\"; exit 7")
    words = ["a b", "-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_120a"]
    ended = launch(compiler, *words, FIRSTLIGHT_GENCODES="120a,121a")
    assert (ended.code, ended.out) == (7, "<a b><-gencode=arch=compute_120a>")
    assert launch(compiler, *words).out.count("<") == 4


def test_the_compiler_cache_goes_first(tmp_path: Path) -> None:
    cache = program(tmp_path / "ccache", 'echo cache "$@"')
    ended = launch("/x/nvcc", "-c", FIRSTLIGHT_CCACHE=str(cache))
    assert (ended.code, ended.out) == (0, "cache /x/nvcc -c\n")


def test_a_compiler_that_is_not_there() -> None:
    ended = launch("/nowhere/nvcc")
    assert ended.code == 1
    assert ended.err == "nvcc_launcher: /nowhere/nvcc: No such file or directory\n"


def test_the_real_nvcc_compiles_for_one_target_only(tmp_path: Path) -> None:
    (tmp_path / "x.cu").write_text("__global__ void f() {}\n")
    targets = cuda.code("sm_80", "sm_90a", "sm_120a")
    words = [cuda.nvcc(), "--dryrun", "-c", tmp_path / "x.cu", *targets]
    all_of_them = launch(*words).err
    assert "-arch=sm_90a" in all_of_them or "sm_90a" in all_of_them
    told = launch(*words, FIRSTLIGHT_GENCODES="120a").err
    assert "sm_120a" in told and "sm_90a" not in told and "sm_80" not in told
