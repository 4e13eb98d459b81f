"""Drift: buckets that leave no token out, intervals that hold their mean, no loss from nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.accuracy.drift import (
    BLOCK,
    Pair,
    bootstrap,
    buckets,
    by_position,
    by_text,
    drift,
    pairs,
)
from firstlight.accuracy.scores import Measured
from tests.accuracy.measured import measured, scores, two


@given(st.integers(1, 2_000_000))
def test_buckets_hold_every_position_once(longest: int) -> None:
    found = buckets(longest)
    assert [bucket.low for bucket in found] == [0, *(bucket.high for bucket in found[:-1])]
    assert found[-1].low < longest <= found[-1].high


def test_buckets_are_named_as_people_say_them() -> None:
    names = [bucket.name for bucket in buckets(262_144)]
    assert names == ["0-1k", "1-4k", "4-16k", "16-64k", "64-256k"]


@settings(max_examples=25)
@given(two())
def test_every_token_is_in_one_bucket_and_in_one_text(drawn: tuple[Measured, Measured]) -> None:
    found = pairs(*drawn)
    assert len(found) == sum(len(text.logprobs) for text in drawn[0].texts)
    held = [one for _, one in by_position(found, 8192) if one is not None]
    assert sum(one.tokens for one in held) == len(found)
    assert sum(one.tokens for one in by_text(found)) == len(found)


@settings(max_examples=25)
@given(two())
def test_an_interval_holds_its_mean_and_comes_out_the_same_again(
    drawn: tuple[Measured, Measured],
) -> None:
    found = drift("all", pairs(*drawn))
    assert found is not None
    assert 0 <= found.agreement <= 1
    assert abs(found.jump.difference) == max(abs(pair.difference) for pair in pairs(*drawn))
    if found.interval is not None:
        low, high = found.interval.low, found.interval.high
        assert low - 1e-9 <= found.difference <= high + 1e-9
        assert bootstrap(pairs(*drawn)) == found.interval


@settings(max_examples=25)
@given(two())
def test_the_same_figures_twice_are_no_drift(drawn: tuple[Measured, Measured]) -> None:
    first, _ = drawn
    found = drift("all", pairs(first, first))
    assert found is not None
    assert (found.difference, found.agreement, found.jump.difference) == (0, 1, 0)
    assert found.interval is None or (found.interval.low, found.interval.high) == (0, 0)


@settings(max_examples=25)
@given(two())
def test_what_is_lost_one_way_is_won_the_other(drawn: tuple[Measured, Measured]) -> None:
    first, other = drawn
    there, back = drift("", pairs(first, other)), drift("", pairs(other, first))
    assert there is not None and back is not None
    assert there.difference == pytest.approx(-back.difference)
    assert there.agreement == back.agreement


def group(losses: list[float]) -> list[Pair]:
    return [Pair("t", at, 1.0, 1.0 + loss, True) for at, loss in enumerate(losses)]


def test_few_blocks_get_no_interval() -> None:
    assert bootstrap(group([0.1] * (7 * BLOCK))) is None
    assert bootstrap(group([0.1] * (8 * BLOCK))) is not None


def test_a_constant_loss_has_an_interval_without_width() -> None:
    found = bootstrap(group([0.25] * 1000))
    assert found is not None
    assert [found.low, found.high] == pytest.approx([0.25, 0.25])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Over 80 samples of a known mean; an interval of 95 % misses 4 of them."""
    draw, missed = random.Random(1), 0
    for _ in range(80):
        found = bootstrap(group([draw.gauss(0.1, 1.0) for _ in range(64 * BLOCK)]))
        assert found is not None
        missed += not found.low <= 0.1 <= found.high
    assert 1 <= missed <= 12


def test_neighbours_that_fall_together_widen_the_interval() -> None:
    draw = random.Random(2)
    loose = [draw.gauss(0, 1) for _ in range(2048)]
    runs = [draw.gauss(0, 1) for _ in range(2048 // BLOCK) for _ in range(BLOCK)]
    runs = [value for value in runs[::BLOCK] for _ in range(BLOCK)]
    narrow, wide = bootstrap(group(loose)), bootstrap(group(runs))
    assert narrow is not None and wide is not None
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_positions_count_the_tokens_before() -> None:
    first = measured("bf16", scores("t", [-1.0] * 1500))
    held = {bucket.name: one for bucket, one in by_position(pairs(first, first), 8192)}
    assert held["0-1k"] is not None and held["0-1k"].tokens == 1023
    assert held["1-4k"] is not None and held["1-4k"].tokens == 477
    assert held["4-16k"] is None
