"""Values out of somebody's JSON, and counts as the engine reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.accuracy.values import human_count


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (16384, 16384),
        ("16384", 16384),
        ("-1", -1),
        ("16k", 16000),
        ("25.6k", 25600),
        ("1Mi", 2**20),
        ("1M", 10**6),
        (True, None),
        (None, None),
        (1.5, None),
        ("1.5", None),
        ("1.5Ki", None),
        ("-1k", None),
        ("many", None),
        ("1K", None),
        ("9" * 400, None),
        ("\u0663", None),
        ("\u0663k", None),
    ],
)
def test_counts_are_read_as_the_engine_reads_them(value: object, number: int | None) -> None:
    assert human_count(value) == number


@given(st.integers(0, 10**6), st.sampled_from(["k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]))
def test_a_suffix_is_a_power(number: int, suffix: str) -> None:
    base = 1024 if suffix.endswith("i") else 1000
    assert human_count(f"{number}{suffix}") == number * base ** (
        "kMGT".index(suffix[0].replace("K", "k")) + 1
    )
