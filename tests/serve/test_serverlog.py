"""Server logs of every format: phases, pools, figures; and that pieces make the same whole."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.serve.serverlog import (
    Phase,
    Pool,
    ServerLog,
    StatePool,
    cause,
    feed,
    finish,
    last_line,
    newly_passed,
    progress,
    read,
)
from tests.serve.logs import CRASH, POOLS, READY, V0523, V059
from tests.serve.rules import RULES


def phases(text: str) -> list[Phase]:
    log, seen = ServerLog(), [Phase.STARTING]
    for line in text.splitlines(keepends=True):
        log = feed(log, line)
        seen += [log.phase] if log.phase is not seen[-1] else []
    return seen


def test_phases_come_in_the_order_of_the_log() -> None:
    assert phases(V0523 + READY) == [
        Phase.STARTING,
        Phase.WEIGHTS,
        Phase.POOL,
        Phase.WARMUP,
        Phase.READY,
    ]
    assert phases(V059) == [Phase.STARTING, Phase.WEIGHTS, Phase.POOL, Phase.GRAPHS]


def test_phases_between_two_looks_are_not_lost() -> None:
    start = ServerLog()
    whole = feed(start, V0523 + READY)
    assert newly_passed(start, whole) == (Phase.WEIGHTS, Phase.POOL, Phase.WARMUP)
    assert newly_passed(whole, whole) == ()
    half = feed(start, V0523[: len(V0523) // 2])
    later = newly_passed(half, feed(half, V0523[len(V0523) // 2 :] + READY))
    assert (*newly_passed(start, half), *later) == (Phase.WEIGHTS, Phase.POOL, Phase.WARMUP)


def test_a_new_boot_passes_its_phases_anew() -> None:
    died = feed(ServerLog(), V0523 + CRASH)
    again = feed(died, V0523)
    assert again.boots > died.boots
    assert newly_passed(died, again)[0] is Phase.WEIGHTS


def test_figures_of_the_newest_format() -> None:
    log = read(V0523)
    assert log.pools == (Pool("", "", "torch.bfloat16", 16384, 0.18, 0.18),)
    assert (log.max_total_tokens, log.context_length, log.max_running) == (16384, 8192, 2048)
    assert [(w.type, w.elapsed_s, w.avail_gib, w.used_gib) for w in log.weights] == [
        ("ToyForCausalLM", 1.27, 21.39, 0.22)
    ]
    assert cause(log) is None


def test_a_dtype_stated_once_holds_for_pools_before_and_after_it() -> None:
    log = read(V059)
    assert [(p.rank, p.dtype, p.gib) for p in log.pools] == [
        ("TP1", "torch.float8_e4m3fn", 3.0),
        ("TP0", "torch.float8_e4m3fn", 3.0),
    ]


def test_pools_of_windows_ranks_states_and_drafts() -> None:
    log = read(POOLS)
    lead, other = "DP0 TP0", "DP1 TP4"
    assert log.pools == (
        Pool(lead, "SWA", "torch.bfloat16", 300, 1.0, 1.25),
        Pool(lead, "Full", "torch.bfloat16", 900, 2.0, 2.0),
        Pool(other, "", "torch.float8_e5m2", 900, kv_gib=2.92, bound=True),
        Pool(lead, "", "torch.float8_e4m3fn", 900, 0.1, 0.1, draft=True),
    )
    assert log.states == (StatePool(lead, 82, 0.13, 7.29),)


def test_progress_bars_count_while_they_are_drawn() -> None:
    halves = V059.partition("\rLoading")
    log = feed(feed(ServerLog(), halves[0]), "\rLoading shards:  50% | 2/4 [00:03<00:03")
    assert (log.phase, progress(log)) == (Phase.WEIGHTS, (2, 4))
    assert last_line(log) == "Loading shards:  50% | 2/4 [00:03<00:03"
    assert progress(read(V059)) == (2, 3)
    assert progress(read(V0523)) == (0, 0)


def test_the_last_line_has_no_stamp_and_no_colour() -> None:
    log = read("[2026-11-30 08:00:00 TP0] \x1b[32mwarming up\x1b[0m\n\n")
    assert (last_line(log), log.lines) == ("warming up", 2)


def test_a_second_boot_forgets_the_first_but_for_its_cause() -> None:
    crash = CRASH.format(error="torch.OutOfMemoryError: CUDA out of memory.")
    twice = read(V0523 + crash + V0523, RULES)
    assert (twice.boots, len(twice.pools), twice.phase) == (2, 1, Phase.WARMUP)
    found = cause(twice)
    assert found is not None and found.kind == "gpu-memory"
    assert cause(read(V0523 + crash + V0523 + READY, RULES)) is None


def test_what_one_rank_says_moves_no_phase_of_the_first() -> None:
    log = read("[10:00:00 TP0] Load weight begin.\n[10:00:01 TP3] Load weight end. type=X\n")
    assert log.phase is Phase.WEIGHTS


TEXT = V059 + CRASH.format(error="KeyError: 'lm_head'") + POOLS + V0523 + READY


@settings(deadline=None)
@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_a_log_cut_anywhere_reads_the_same(cuts: list[int]) -> None:
    log = ServerLog()
    for start, end in pairwise(sorted({0, len(TEXT), *cuts})):
        log = feed(log, TEXT[start:end])
    assert log == feed(ServerLog(), TEXT)


@settings(deadline=None)
@given(st.text(alphabet="\r\n []0123456789:-TPabKV Cache=.#,/", max_size=200), st.data())
def test_any_text_cut_anywhere_reads_the_same(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    assert feed(feed(ServerLog(), text[:cut]), text[cut:]) == feed(ServerLog(), text)
    assert finish(feed(ServerLog(), text)).tail == ""


RECORDED = {
    "01": (Phase.READY, 3113713, None, [("", "float8_e4m3fn", 3113713, False)]),
    "02": (Phase.DIED, None, "exception", [("", "float4_e2m1fn_x2", 5537463, False)]),
    "03": (
        Phase.READY,
        185897,
        None,
        [
            ("SWA", "bfloat16", 148717, False),
            ("", "bfloat16", 185897, False),
            ("", "bfloat16", 185897, True),
        ],
    ),
    "04": (
        Phase.GRAPHS,
        None,
        "killed",
        [
            ("SWA", "bfloat16", 26397, False),
            ("", "bfloat16", 32997, False),
            ("", "bfloat16", 32997, True),
        ],
    ),
    "05": (
        Phase.WARMUP,
        109120,
        None,
        [("SWA", "bfloat16", 10912, False)] * 2 + [("", "bfloat16", 109120, False)] * 2,
    ),
    "06": (
        Phase.WARMUP,
        44416,
        None,
        [("", "bfloat16", 44416, False)] * 2 + [("", "bfloat16", 44416, True)] * 2,
    ),
    "07": (Phase.WARMUP, 1218251, None, []),
    "08": (Phase.DIED, None, "no-kernel-image", []),
    "09": (Phase.DIED, 10240, "hang", [("", "", 10240, False)] * 2),
    "10": (Phase.POOL, None, "pool-size", []),
    "11": (Phase.STARTING, None, None, []),
    "12": (Phase.WARMUP, 580364, None, [("", "bfloat16", 580364, False)] * 2),
}


@pytest.mark.parametrize("number", sorted(RECORDED))
def test_recorded_logs(shared: Path, number: str) -> None:
    (path,) = (shared / "data" / "server-logs").glob(f"{number}-*.log")
    log = read(path.read_text(encoding="utf-8"), RULES)
    phase, tokens, kind, pools = RECORDED[number]
    assert (log.phase, log.max_total_tokens) == (phase, tokens)
    said = [(p.label, p.dtype.removeprefix("torch."), p.tokens, p.draft) for p in log.pools]
    assert said == pools
    found = cause(log)
    assert (found.kind if found else None) == kind


def test_the_recorded_logs_are_all_expected(shared: Path) -> None:
    there = {path.name[:2] for path in (shared / "data" / "server-logs").glob("*.log")}
    assert there == set(RECORDED)


def test_recorded_evidence_is_the_first_causal_line(shared: Path) -> None:
    folder = shared / "data" / "server-logs"
    found = cause(read((folder / "02-crash-after-pool-fp4-scales.log").read_text(), RULES))
    assert found is not None
    assert found.line == 25
    assert found.text.startswith("RuntimeError: NVFP4 KV cache global scales must be calibrated")
    hybrid = read((folder / "12-success-hybrid-gdn-kt-4090.log").read_text())
    assert [(s.rank, s.slots, s.ssm_gib) for s in hybrid.states] == [
        ("TP0", 82, 7.29),
        ("TP1", 82, 7.29),
    ]
