"""Figures as people read them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.words import columns, harmless, listed, size, span

SIZES = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (18683499315, "17.4 GiB")]
SIZES += [(2**20 - 1, "1.0 MiB"), (2**20 - 60, "1023.9 KiB"), (-(2**30), "-1.0 GiB")]


@pytest.mark.parametrize(("count", "text"), [*SIZES, (2**50, "1024.0 TiB")])
def test_sizes_are_binary(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.25, "4.2 s"),
        (59.96, "1 min 00 s"),
        (59.94, "59.9 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_columns_are_aligned() -> None:
    assert columns([("a", "b"), ("long", "x")]) == "a     b\nlong  x"


def test_what_is_listed_twice_or_left_empty_counts_once_or_not() -> None:
    assert listed(" bf16, fp8_e4m3,,bf16 ,") == ("bf16", "fp8_e4m3")
    assert listed(" , ") == ()


def test_what_a_terminal_obeys_is_spelled_out() -> None:
    evil = "a\x1b[2J\x9b1A\rb\u202e\ud800"
    assert harmless(evil) == r"a\x1b[2J\u009b1A\x0db\u202e\ud800"
    kept = "\tβ, 中\u3000文, \U0001f469\u200d\U0001f467\n"
    assert harmless(kept) == kept


@given(st.text(st.characters(codec="utf-8")))
def test_of_any_text_nothing_is_left_that_moves_a_cursor(text: str) -> None:
    done = harmless(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in done)
    assert harmless(done) == done
    said = harmless(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(said) == {text: text} and harmless(said) == said
