"""Numbers that a person gives: what is taken, what is not, and the words for it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firstlight.flows.given import MANY, number, whole
from firstlight.hosts.inventory import UnknownName


@given(st.integers(0, MANY), st.integers(0, 30))
def test_a_whole_number_is_read_whatever_zeros_stand_before_it(value: int, zeros: int) -> None:
    assert whole("--keep", "0" * zeros + str(value)) == value


@given(st.text())
@example("٣")
@example("²")
@example("1_0")
@example("1\n")
@example("9" * 5000)
@example("0" * 5000)
@example(str(MANY + 1))
def test_any_text_is_a_number_in_range_or_one_clear_message(text: str) -> None:
    try:
        assert 0 <= whole("--keep", text) <= MANY
        assert text.isascii() and text.isdigit()
    except UnknownName as error:
        assert str(error).startswith("--keep takes a whole number")
        assert len(str(error)) < 700


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e3", "٣", "1_0", " 1", "9" * 5000])
def test_gib_are_plain_figures(text: str) -> None:
    with pytest.raises(UnknownName, match="--memory takes GiB; got "):
        number("--memory", text, 65536, "GiB")
    assert [number("--memory", good, 65536, "GiB") for good in ("17.4", "17", "17.", ".5")] == [
        17.4,
        17,
        17,
        0.5,
    ]


def test_what_is_too_much_is_told_with_the_most() -> None:
    with pytest.raises(UnknownName, match=r"^--keep takes a whole number, 9 at most; got '10'$"):
        whole("--keep", "10", 9)
    with pytest.raises(UnknownName, match=r"got '9{60}'\.\.\. \(5000 characters\)$"):
        whole("--keep", "9" * 5000)
