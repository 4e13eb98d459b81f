"""Progress out of a compilation's log: what ninja, CMake, make and pip write, and what is shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.ninja import Progress, fold, text

NVCC = (
    "[12/73] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile --dependency-output "
    "/b/build/temp/csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.o.d -I/b/csrc/cutlass/include "
    "-c -c /b/csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.cu "
    "-o /b/build/temp/csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.o -O3 -std=c++20 "
    "-gencode arch=compute_120,code=sm_120 --threads 1"
)


def fold_all(*lines: str) -> Progress:
    """A log that nobody watched while it was written."""
    seen = Progress()
    for line in lines:
        seen = fold(seen, line, None)
    return seen


@pytest.mark.parametrize(
    "line, done, total, file",
    [
        (NVCC, 12, 73, "flash_fwd_hdim64_bf16_sm80.cu"),
        ("  " + NVCC, 12, 73, "flash_fwd_hdim64_bf16_sm80.cu"),
        ("[3/9] nvcc -x cu -c norm.cu -o norm.cuda.o", 3, 9, "norm.cu"),
        ("[1/2] c++ -MF a.o.d -c '/w d/x.cc' -o a.o", 1, 2, "x.cc"),
        ("[1/5] Building CXX object CMakeFiles/ops.dir/csrc/api.cpp.o", 1, 5, "api.cpp"),
        ("[4/5] Building CUDA object CMakeFiles/ops.dir/a/b.cu.o", 4, 5, "b.cu"),
        ("[5/5] Linking CXX shared module ops.abi3.so", 5, 5, "ops.abi3.so"),
        ("[2/2] g++ a.o b.o -shared -lcudart -o /b/flash_2.so", 2, 2, "flash_2.so"),
        (
            "[9/9] : && c++ -shared -Wl,-soname,libx.so -o lib/libx.so D/a.cu.o D/b.cpp.o -ldl",
            *(9, 9, "libx.so"),
        ),
        ("[0/1] Re-running CMake...", 0, 1, ""),
        ("\x1b[32m[7/8] cc -c one.c\x1b[0m", 7, 8, "one.c"),
        ("  │ [7/8] cc -c one.c", 7, 8, "one.c"),
    ],
)
def test_a_line_of_ninja(line: str, done: int, total: int, file: str) -> None:
    seen = fold_all(line)
    assert (seen.done, seen.total, seen.file, seen.percent) == (done, total, file, False)


def test_a_line_of_make() -> None:
    seen = fold_all("[ 12%] Building CUDA object CMakeFiles/x.dir/foo.cu.o")
    assert (seen.done, seen.total, seen.percent) == (12, 100, True)
    assert text(seen) == "[12%] foo.cu"
    assert text(fold(seen, "[100%] Built target x", None)) == "[100%] foo.cu"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Building wheels for collected packages: flash-attn",
        "tests/test_x.py ....... [ 12%]",
        "[2026/10/01 12:00] started",
        "[5/3] more than all",
        "[0/0] nothing",
        "warning: see [12/73] of the manual",
        "@@firstlight later words",
    ],
)
def test_other_lines_say_nothing_of_progress(line: str) -> None:
    assert fold_all(line).total == 0


def test_a_rate_and_what_is_left() -> None:
    seen = fold(Progress(), "building 'flash_attn_2_cuda' extension", 100.0)
    for number in range(1, 13):
        seen = fold(seen, NVCC.replace("[12/", f"[{number}/"), 100.0 + number * 15)
    seen = fold(seen, "@@firstlight memory 9523 0", 285.0)
    assert seen.rate == pytest.approx(4.0)
    assert seen.eta_s == pytest.approx(61 * 15)
    assert text(seen) == (
        "[12/73] 4.0 a minute, about 15 min left, 9.3 GiB, flash_fwd_hdim64_bf16_sm80.cu"
    )
    limited = fold(seen, "@@firstlight memory 9523 16384", 290.0)
    assert ", 9.3 of 16.0 GiB, " in text(limited)


@pytest.mark.parametrize(
    "eta_s, said",
    [(4, "10 s"), (44, "40 s"), (100, "2 min"), (899, "15 min"), (7_900, "2 h 10 min")],
)
def test_a_guess_is_said_as_one(eta_s: float, said: str) -> None:
    assert f"about {said} left" in text(Progress(1, 2, rate=1.0, eta_s=eta_s))


def test_a_log_found_half_way_has_no_rate_until_something_is_finished() -> None:
    seen = fold_all(*(f"[{number}/73] cc -c a{number}.c" for number in range(1, 41)))
    assert text(seen) == "[40/73] a40.c"
    seen = fold(seen, "[41/73] cc -c a41.c", 1000.0)
    assert seen.rate is None
    seen = fold(seen, "[43/73] cc -c a43.c", 1060.0)
    assert seen.rate == pytest.approx(2.0)


def test_a_log_with_times_shows_the_same_however_it_is_read() -> None:
    lines = ["@@firstlight memory 100 0 5000", "building"]
    for number in range(1, 11):
        lines.append(f"[{number}/20] cc -c a{number}.c")
        lines.append(f"@@firstlight memory {number * 1024} 0 {5000 + number * 30}")
    watched = Progress()
    for at, line in enumerate(lines):
        watched = fold(watched, line, 77.0 + at)
    assert watched == fold_all(*lines)
    # The tenth was finished before 5300, after 5270.
    assert watched.rate == pytest.approx(60 * 10 / 270)
    assert watched.eta_s == pytest.approx(10 * 27 - 30)


def test_times_of_two_clocks_are_never_compared() -> None:
    seen = fold(Progress(), "[1/9] cc -c a.c", 10.0)
    seen = fold(seen, "[2/9] cc -c b.c", 70.0)
    assert seen.rate == pytest.approx(60 / 60)
    seen = fold(seen, "@@firstlight memory 1 0 1700000000", 71.0)
    assert (seen.rate, seen.eta_s) == (None, None)
    seen = fold(fold(seen, "@@firstlight memory 1 0 1700000060", 9.0), "[3/9] cc -c c.c", 8.0)
    assert seen.rate == pytest.approx(1.0)


def test_runs_of_ninja_one_after_another_are_counted() -> None:
    seen = fold_all("[0/1] Re-running CMake...", "[1/3] cc -c a.c", "[3/3] cc -c b.c")
    assert seen.runs == 1
    seen = fold(seen, "[1/3] cc -c c.c", None)
    assert (seen.runs, text(seen)) == (2, "[1/3] run 2, c.c")
    # One module of one file after another.
    assert fold_all("[1/1] cc -c a.c", "[1/1] cc -c b.c").runs == 2
    # An edge that owns the console is named twice.
    assert fold_all("[1/3] cc -c a.c", "[1/3] custom", "[2/3] cc -c b.c").runs == 1


def test_the_rate_of_a_run_is_not_that_of_the_run_before() -> None:
    seen = Progress()
    for at, line in enumerate(("[1/2] a.c", "[2/2] b.c", "[1/50] c.c")):
        seen = fold(seen, line, 10.0 * at)
    assert seen.rate == pytest.approx(6.0)
    assert fold(seen, "[2/50] d.c", 140.0).rate == pytest.approx(60 * 2 / 130)


@given(st.text())
def test_no_line_breaks_it(line: str) -> None:
    seen = fold(Progress(), line, 1.0)
    assert 0 <= seen.done <= seen.total or seen.total == 0
    assert isinstance(text(seen), str)


counts = st.tuples(st.integers(0, 60), st.integers(1, 60)).filter(lambda pair: pair[0] <= pair[1])
ours = st.integers(0, 10**6).map(lambda mib: f"@@firstlight memory {mib} 0")
timed = st.integers(0, 10**9).map(lambda at: f"@@firstlight memory 1 0 {at}")
ninjas = counts.map(lambda pair: f"[{pair[0]}/{pair[1]}] cc -c x.c")


@given(st.lists(st.tuples(ninjas | ours | timed | st.just("x"), st.none() | st.floats(0, 1e9))))
def test_whatever_the_clock_does_the_figures_stay_sane(log: list[tuple[str, float | None]]) -> None:
    seen = Progress()
    for line, now_s in log:
        seen = fold(seen, line, now_s)
        assert seen.rate is None or (seen.rate > 0 and math.isfinite(seen.rate))
        assert seen.eta_s is None or seen.eta_s >= 0
        text(seen)
