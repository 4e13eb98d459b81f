"""Server logs of every format: phases, pools, figures; and that pieces make the same whole."""

import re
from dataclasses import replace
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


def test_a_server_that_says_warnings_only_is_followed_by_its_bars() -> None:
    loading = "Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:01,  1.40s/it]\r"
    capturing = (
        "  0%|          | 0/58 [00:00<?, ?it/s]\r"
        "Capturing num tokens (num_tokens=8192 avail_mem=42.25 GB):   2%|  | 1/58 [00:00<00:16]\r"
    )
    log = read(loading)
    assert log.phase is Phase.WEIGHTS and progress(log) == (1, 2)
    log = feed(log, capturing)
    assert log.phase is Phase.GRAPHS and progress(log) == (1, 58)
    assert feed(log, READY + capturing).phase is Phase.READY


def test_a_logger_that_names_the_place_in_the_source_is_read() -> None:
    text = re.sub(r"^(\[[^]]*\]) ", r"\1 INFO model_runner.py:512: ", V0523, flags=re.M)
    named, plain = read(text), read(V0523)
    assert replace(named, last="", search=plain.search) == replace(plain, last="")
    died = read("[2026-01-02 10:00:00 TP0] ERROR scheduler.py:9: Scheduler hit an exception: x\n")
    assert died.phase is Phase.DIED


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


STAMPS = {
    "journal": "Nov 30 08:00:00 gpu01 bash[123]: ",
    "journal, precise": "Nov 30 08:00:00.123456 gpu01 bash[123]: ",
    "journal, iso": "2026-11-30T08:00:00.1+00:00 gpu-01.lan firstlight-x[123]: ",
    "journal, full": "Mon 2026-11-30 08:00:00 UTC gpu01 bash[123]: ",
    "journal, since boot": "[ 1234.567890] gpu01 bash[123]: ",
    "compose": "sglang-1  | ",
    "containers": "2026-11-30T08:00:00.123456789Z ",
    "Kubernetes": "2026-11-30T08:00:00.123456789Z stderr F ",
    "torch": "[rank0]: ",
    "Ray": "\x1b[36m(SchedulerActor pid=12, ip=10.0.0.1)\x1b[0m ",
    "a disk that lost power": "\0\0\0",
}


@pytest.mark.parametrize("stamp", STAMPS.values(), ids=list(STAMPS))
def test_what_others_put_before_each_line_is_seen_through(stamp: str) -> None:
    crash = CRASH.format(error="RuntimeError: CUDA error: no kernel image is available for it")
    plain = V0523 + crash
    log = read("".join(f"{stamp}{line}\n" for line in plain.splitlines()), RULES)
    found = cause(log)
    assert (log.phase, log.died_in, log.lines) == (Phase.DIED, Phase.WARMUP, plain.count("\n"))
    assert (log.pools, log.max_total_tokens) == (read(V0523).pools, 16384)
    assert found == cause(read(plain, RULES)) and found is not None
    assert (found.kind, found.line) == ("no-kernel-image", 11)


def test_lines_of_windows_are_the_same_lines() -> None:
    text = V0523 + CRASH.format(error="KeyError: 1")
    assert cause(read(text.replace("\n", "\r\n"))) == cause(read(text))


def test_a_line_without_end_is_not_kept_whole() -> None:
    log = read(V0523)
    for _ in range(40):
        log = feed(log, "\0" * 10_000)
    assert len(log.tail) < 100_000
    log = feed(log, "x" * 10_000 + "\n" + READY)
    assert (log.phase, log.last) == (Phase.READY, "The server is fired up and ready to roll!")


def test_nothing_in_a_last_line_moves_a_terminal() -> None:
    log = read("\x1b]0;title\x07\x1b[2Jload\x08ing\x9b31m \x00it\n")
    assert last_line(log) == "loading31m it"
    assert last_line(read("y" * 5000)) == "y" * 400


def test_ranks_of_every_parallelism_and_milliseconds() -> None:
    rank = "DP0 PP0 ATTN_CP0 MOE_DP0 TP0 EP0"
    log = read(V059.replace(" TP0]", f".123 {rank}]").replace(" TP1]", " ATTN_CP0 TP1]"))
    assert [pool.rank for pool in log.pools] == ["ATTN_CP0 TP1", rank]
    assert (log.phase, log.passed[0]) == (Phase.GRAPHS, Phase.WEIGHTS)
    assert read(f"[10:00:00 {rank[:-1]}1] Load weight begin.\n").phase is Phase.STARTING


def test_a_pool_line_without_tokens_is_completed_by_the_summary() -> None:
    old = V059.replace("#tokens: 1000, ", "")
    assert [pool.tokens for pool in read(old).pools] == [0, 0]
    summary = "[10:01:00 TP0] max_total_num_tokens=555, max_prefill_tokens=9, context_len=2048\n"
    late = "[10:01:01 TP2] KV Cache is allocated. K size: 1.50 GB, V size: 1.50 GB.\n"
    log = read(old + summary + late)
    assert [(pool.tokens, pool.gib) for pool in log.pools] == [(555, 3.0)] * 3


def test_weights_that_come_after_the_graphs_bring_no_phase_back() -> None:
    late = "[10:00:06] Load weight end. Committed real weights after CUDA graph capture in 1.00 s\n"
    graphs = "[10:00:05] Capture target decode CUDA graph begin. backend=full\n"
    log = read(V0523.partition("[2026-11-30 08:00:05] max")[0] + graphs + late)
    assert (log.phase, len(log.weights)) == (Phase.GRAPHS, 1)


def test_the_oldest_logs_name_their_ranks_in_the_message() -> None:
    text = "server_args=ServerArgs(x)\n[gpu=0] Load weight begin. avail mem=23.32 GB\n"
    text += "[gpu=1] Load weight end. type=L, dtype=torch.float16, avail mem=8.20 GB\n"
    log = read(text + "[gpu=0] max_total_num_tokens=41545, context_len=4096\n")
    assert (log.weights[0].rank, log.max_total_tokens) == ("gpu=1", 41545)
    assert log.passed == (Phase.WEIGHTS, Phase.WARMUP)


def test_a_rank_without_a_time_is_a_rank() -> None:
    crash = "[PP1 ATTN_CP0 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    log = read(f"2026-06-23T15:16:14Z {crash}  File 'a'\nKeyError: 1\n", RULES)
    assert (log.phase, log.died_in) == (Phase.DIED, Phase.STARTING)
    lines = "[TP1] Load weight begin.\n[TP0] KV Cache is allocated. #tokens: 9, KV size: 2.00 GB\n"
    assert [(pool.rank, pool.gib) for pool in read(lines).pools] == [("TP0", 2.0)]


def test_an_excerpt_tells_its_phases_by_what_is_left() -> None:
    bar = "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.60s/it]\n"
    assert read(bar).phase is Phase.WEIGHTS
    end = "[10:00:01] Capture target verify CUDA graph end. elapsed=6.90 s, avail mem=4.72 GB.\n"
    assert read(bar + end).phase is Phase.GRAPHS
    assert read(bar + end + bar).phase is Phase.GRAPHS
    old = "Mamba Cache is allocated. conv_state size: 0.55GB, ssm_state size: 12.30GB \n"
    assert read(old).states == (StatePool("", None, 0.55, 12.3),)


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
    "02": (Phase.DIED, None, "kv-scales-wanted", [("", "float4_e2m1fn_x2", 5537463, False)]),
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
