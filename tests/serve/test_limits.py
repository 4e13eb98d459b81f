"""Values that no engine takes: told by `check`, where no release is built to be asked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.profiles import FILE, HEAD, told

KV = "kv_cache_dtype: bf16"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("max_total_tokens: -5", "max_total_tokens is -5; expected a whole number, 1 or more"),
        ("context_length: 0", "context_length is 0; expected a whole number, 1 or more"),
        ("page_size: 0", "page_size is 0; expected a whole number, 1 or more"),
        ("tp_size: 0", "tp_size is 0; expected a whole number, 1 or more"),
        ("tensor_parallel_size: -8", "tensor_parallel_size is -8; expected a whole number, 1 or"),
        ("chunked_prefill_size: -2", "chunked_prefill_size is -2; expected a whole number, -1 or"),
        ("mem_fraction_static: 0", "mem_fraction_static is 0; expected a number above 0 and below"),
        ("mem_fraction_static: 1", "mem_fraction_static is 1; expected a number above 0 and below"),
        ("mem_fraction_static: .nan", "mem_fraction_static is nan; expected a number above 0 and"),
        ("swa_full_tokens_ratio: 1.1", "swa_full_tokens_ratio is 1.1; expected a number above 0 "),
        ("mamba_full_memory_ratio: 0", "mamba_full_memory_ratio is 0; expected a number above 0"),
    ],
)
def test_numbers_that_cannot_be(written: str, message: str) -> None:
    (fault,) = told(f"{HEAD}args: {{{KV}, {written}}}\n")
    assert fault.startswith(f"{FILE}:6:{32 + written.index(': ')}: {message}")


@pytest.mark.parametrize(
    "written",
    [
        *("max_total_tokens: 16Ki", "context_length: 64k", "context_length: null", "tp: '8'"),
        *("chunked_prefill_size: -1", "mem_fraction_static: 0.999", "swa_full_tokens_ratio: 1"),
        *("mamba_full_memory_ratio: 1.5", "page_size: false", "node_rank: 0"),
        # What is no number is told by the flag's own type, once its release is there.
        *("tp_size: eight", "context_length: 2.5", "mem_fraction_static: 85%"),
    ],
)
def test_numbers_that_can_be(written: str) -> None:
    assert told(f"{HEAD}args: {{{KV}, {written}}}\n") == []


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--tp-size", "0"], "7:14: tp_size is '0'; expected a whole number, 1 or more"),
        (["--x", "--page-size=-1"], "7:21: page_size is '-1'; expected a whole number, 1 or more"),
        (["--chunked-prefill-size", "-1", "--tp", "2"], None),
    ],
)
def test_words_are_held_to_the_same(words: list[str], fault: str | None) -> None:
    text = f"{HEAD}args: {{{KV}}}\nextra_args: {json.dumps(words)}\n"
    assert told(text) == ([f"{FILE}:{fault}"] if fault else [])


@pytest.mark.parametrize("value", ["[bf16]", "0", "true", "{a: b}"])
@pytest.mark.parametrize("kv", ["require_bf16", "allow_calibrated"])
def test_a_cache_has_one_value_in_one_word(value: str, kv: str) -> None:
    (fault,) = told(f"{HEAD}args: {{kv_cache_dtype: {value}}}\npolicy: {{kv: {kv}}}\n")
    assert fault.startswith(f"{FILE}:6:24: kv_cache_dtype is ")
    assert fault.endswith("; expected one value in one word, such as bf16")


@given(st.integers(max_value=0))
def test_no_number_below_one_is_a_size(number: int) -> None:
    assert len(told(f"{HEAD}args: {{{KV}, tp_size: {number}}}\n")) == 1
