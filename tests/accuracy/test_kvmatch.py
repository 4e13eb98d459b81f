"""Predicted against found: nothing to say where the log says the same, a finding beyond 2 %."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import kv_example
from firstlight.accuracy.attention import describe
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvcache import capacity
from firstlight.accuracy.kvflags import flags
from firstlight.accuracy.kvlaunch import GIB, Budget, Launch
from firstlight.accuracy.kvmatch import Figure, Match, Told, matched
from firstlight.flows.capacity import lines, short, to_json, told_by
from firstlight.serve.serverlog import read
from tests.accuracy import shapes

QWEN35 = kv_example.model()
LAUNCH = flags(
    "0.5.23",
    {
        "tp_size": 8,
        "kv_cache_dtype": "bf16",
        "language_model_only": True,
        "mem_fraction_static": 0.8,
    },
).launch
EXPECTED = Budget(92.0, 49.0, 0.8, measured=False)


def log_of(launch: Launch, budget: Budget) -> Told:
    """What a server would print that has this memory: GiB with two decimals."""
    made = capacity(QWEN35, launch, budget.rest_gib)
    states = made.states
    return Told(
        tokens=made.tokens,
        pool_gib=round(sum(pool.stored_gib for pool in made.pools), 2),
        slots=states.slots,
        state_gib=round((states.slots + 1) * states.slot_bytes / GIB, 2),
        before_gib=budget.before_gib,
        after_gib=budget.after_gib,
    )


def match(told: Told, expected: Any = EXPECTED, launch: Launch = LAUNCH) -> Match:
    return matched(QWEN35, launch, told, expected, 0.8)


@given(st.integers(30, 90), st.sampled_from(["bf16", "fp8_e4m3"]))
def test_a_log_that_says_what_was_predicted_has_no_finding(after: int, dtype: str) -> None:
    budget, launch = Budget(92.0, float(after), 0.8), replace(LAUNCH, kv_dtype=dtype)
    found = match(log_of(launch, budget), replace(budget, measured=False), launch)
    assert (found.findings, found.causes, found.missing) == ((), (), ())
    assert {figure.unit for figure in found.figures} == {"tokens", "GiB", "bytes", "slots"}


def test_what_the_line_leaves_out_is_no_finding() -> None:
    """A public boot of Qwen3.8-Flash-Next on two cards: 484,032 tokens, 2.77 GiB of K and of V."""
    model = describe(shapes.QWEN4_EXP)
    assert isinstance(model, Geometry)
    launch = Launch(tp=2, page_size=64)
    told = Told(tokens=484_032, pool_gib=5.54, slack_gib=0.02, slots=97, state_gib=5.27)
    found = matched(model, launch, told, None, None)
    assert (found.findings, len(found.figures)) == ((), 3)


def test_weights_that_take_more_are_the_cause_of_fewer_tokens() -> None:
    told = log_of(LAUNCH, Budget(91.5, 46.0, 0.8))
    found = match(told)
    assert [figure.what for figure in found.findings] == ["tokens, as estimated before the launch"]
    assert found.causes == (
        "free before the weights: 91.50 GiB, 92.00 were expected (-0.40 GiB for the pools)",
        "the weights took 45.50 GiB, 43.00 by their size on disk (-2.50 GiB for the pools)",
    )
    # All of the difference is told: the parts are its sum.
    assert Budget(91.5, 46.0, 0.8).rest_gib - EXPECTED.rest_gib == pytest.approx(-0.4 - 2.5)
    assert short(to_json(found)) == "1 of 6 figures off by more than 2 %"
    assert (
        sum(line.startswith("FINDING: tokens, as estimated") for line in lines(to_json(found))) == 1
    )


def test_rows_that_are_half_as_wide_are_a_finding_whatever_the_tokens() -> None:
    told = log_of(LAUNCH, EXPECTED)
    assert told.pool_gib is not None
    found = match(replace(told, pool_gib=round(told.pool_gib / 2, 2)))
    assert [figure.unit for figure in found.findings] == ["GiB", "bytes"]
    assert all(figure.off == pytest.approx(1, abs=0.01) for figure in found.findings)


def test_a_state_pool_that_came_out_otherwise_is_a_finding() -> None:
    told = log_of(LAUNCH, EXPECTED)
    assert told.slots and told.state_gib
    found = match(replace(told, slots=told.slots // 2, state_gib=round(told.state_gib / 2, 2)))
    assert [figure.what for figure in found.findings] == ["slots of the state pool"]


def test_a_cap_needs_no_memory_to_be_told() -> None:
    capped = replace(LAUNCH, max_total_tokens=10_000, page_size=64)
    found = matched(QWEN35, capped, Told(9984), None, None)
    assert [(f.what, f.predicted, f.is_finding) for f in found.figures] == [
        ("tokens, by --max-total-tokens", 9984, False)
    ]
    assert len(found.missing) == 2


def test_without_any_figure_that_is_said() -> None:
    found = matched(QWEN35, LAUNCH, Told(9984), None, None)
    assert (found.figures, len(found.missing)) == ((), 3)
    assert short(to_json(found)).startswith("not predicted: tokens before the launch: no GPU's")


def test_what_printing_hides_is_no_finding() -> None:
    assert not Figure("x", 0.116, 0.12, "GiB", slack=0.005).is_finding
    assert Figure("x", 0.116, 0.12, "GiB", slack=0.003).is_finding
    assert Figure("x", 1, 0, "slots").is_finding


LOG = """\
[2026-01-01 10:00:00 TP0] Load weight begin. avail mem=92.00 GB
[2026-01-01 10:00:00 TP1] Load weight begin. avail mem=91.00 GB
[2026-01-01 10:01:00 TP1] Load weight end. elapsed=60.00 s, type=X, avail mem=47.50 GB, mem usage=43.50 GB.
[2026-01-01 10:01:00 TP0] Load weight end. elapsed=60.00 s, type=X, avail mem=49.00 GB, mem usage=43.00 GB.
[2026-01-01 10:01:01 TP0] Mamba Cache is allocated. max_mamba_cache_size: 82, conv_state size: 0.13GB, ssm_state size: 7.29GB
[2026-01-01 10:01:01 TP1] Mamba Cache is allocated. max_mamba_cache_size: 82, conv_state size: 0.13GB, ssm_state size: 7.29GB
[2026-01-01 10:01:02 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 580364, K size: 4.15 GB, V size: 4.15 GB
[2026-01-01 10:01:02 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 580364, K size: 4.15 GB, V size: 4.15 GB
[2026-01-01 10:01:03 TP0] max_total_num_tokens=580364, max_running_requests=1, context_len=8192
"""  # noqa: E501


def test_one_rank_of_the_log_is_taken_and_the_least_memory_of_all() -> None:
    told, dtype = told_by(read(LOG))
    assert dtype == "bf16"
    assert told is not None and (told.tokens, told.slots) == (580364, 82)
    sizes = (told.pool_gib, told.slack_gib, told.state_gib, told.before_gib, told.after_gib)
    assert sizes == pytest.approx((8.3, 0.01, 7.42, 91.0, 47.5))


def test_of_pipeline_stages_the_one_that_holds_most_is_taken() -> None:
    """The first stage of 61 layers has 30 of them, and its pool is 3 % smaller than predicted."""
    stages = LOG.replace("TP", "PP").replace(
        "82, conv_state size: 0.13GB", "82, conv_state size: 0GB", 1
    )
    told, _ = told_by(read(stages.replace("K size: 4.15", "K size: 3.90", 1)), kv_gib=8.05)
    assert told is not None
    assert (told.pool_gib, told.state_gib) == pytest.approx((8.3, 7.42))


def test_what_the_server_says_with_more_decimals_is_better_than_its_log() -> None:
    told, _ = told_by(read(LOG), kv_gib=8.297)
    assert told is not None
    assert (told.pool_gib, told.slack_gib) == (8.297, 0.0005)
    # With two pools there is no telling which part of it is whose.
    draft = LOG.replace("[2026-01-01 10:01:03", LOG.splitlines()[6] + "\n[2026-01-01 10:01:03")
    told, _ = told_by(read(draft), kv_gib=8.297)
    assert told is None or told.pool_gib != 8.297


def test_a_log_without_a_pool_tells_nothing() -> None:
    assert told_by(read(LOG.partition("KV Cache")[0])) == (None, None)


def test_what_only_the_rounding_of_the_log_excuses_is_told_to_be_so() -> None:
    near, far = Figure("a", 98.5, 100, "tokens"), Figure("b", 0.205, 0.21, "GiB", slack=0.0051)
    told = "figures predicted, all within 2 % of the server's log"
    assert short(to_json(Match((near, near)))) == f"2 {told}"
    assert "(-2.4%)" in str(far) and not far.is_finding
    assert short(to_json(Match((near, far)))) == f"2 {told} and its rounding"
