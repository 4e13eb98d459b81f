"""A comparison as text, data and picture; answers that part; needles; sessions of any length."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.accuracy import comparetext, needle
from firstlight.accuracy.comparejson import to_json
from firstlight.accuracy.comparison import Comparison, Refusal, compare, of_one_length
from firstlight.accuracy.divergence import Divergence, divergence
from firstlight.accuracy.driftplot import svg
from firstlight.accuracy.scores import Measured
from firstlight.accuracy.suite import SMALLEST, Suite
from firstlight.accuracy.transcript import session
from firstlight.core.errors import ProofError
from firstlight.effects import library
from tests.accuracy.measured import measured, scores, two

AT = "2025-01-01T00:00:00Z"
SVG = "{http://www.w3.org/2000/svg}"
KEPT = (("bf16", 4096), ("fp8_e4m3", 8192), ("fp8_e5m2", 4096))


def compared(*all_: Measured, refused: tuple[Refusal, ...] = ()) -> Comparison:
    return compare("p<1>", AT, all_, refused)


@settings(max_examples=25)
@given(two())
def test_the_picture_is_xml_and_its_marks_lie_inside(drawn: tuple[Measured, Measured]) -> None:
    root = ElementTree.fromstring(svg(compared(*drawn)))
    wide, high = (float(part) for part in root.attrib["viewBox"].split()[2:])
    assert root.findall(f"{SVG}polyline")
    for mark in root.iter(f"{SVG}circle"):
        x, y = float(mark.attrib["cx"]), float(mark.attrib["cy"])
        assert 0 <= x <= wide and 0 <= y <= high and math.isfinite(x + y)


def test_a_picture_without_a_second_precision_says_so() -> None:
    text = svg(compared(measured("bf16", scores("a", [-1.0]))))
    assert "no second precision was measured" in "".join(ElementTree.fromstring(text).itertext())


@settings(max_examples=25)
@given(two())
def test_data_can_be_written_and_read(drawn: tuple[Measured, Measured]) -> None:
    data = to_json(compared(*drawn))
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    (other,) = data["others"]
    told = other["whole"]["mean_nll"] - other["whole"]["mean_nll_first"]
    assert other["whole"]["loss"] == pytest.approx(told)
    assert other["mean_nll"] == pytest.approx(other["whole"]["mean_nll"])


def test_the_table_says_what_was_lost_where_and_what_has_no_data() -> None:
    first = measured("bf16", scores("a", [-1.0] * 2000))
    lost = [-1.0] * 1023 + [-1.5] * 977
    other = measured("fp8", scores("a", lost, [0] * 2000), said="one three")
    lines = comparetext.text(compared(first, other)).splitlines()
    table = {" ".join(line.split()[:3]): line for line in lines}
    assert "0.0000" in lines[lines.index(table["0-1k 1,023 bf16"]) + 1]
    assert "+0.5000  +0.5000 to +0.5000  0.0%" in lines[lines.index(table["1-4k 977 bf16"]) + 1]
    assert "no text was longer than 2,001 of 8,192 tokens" in table["4-16k 0 no"]
    assert "  fp8: parts at token 1, after 'one'" in lines
    assert "    bf16: 'two'" in lines and "    fp8: 'three'" in lines


def test_a_precision_that_was_refused_is_told_with_its_line() -> None:
    refusal = Refusal("fp8", "the server died", "log line 7: no FP8 here", 4, "/e/fp8.log")
    text = comparetext.text(compared(measured("bf16", scores("a", [-1.0])), refused=(refusal,)))
    assert "fp8 was not measured: the server died\n  | log line 7: no FP8 here" in text
    assert compared(refused=(refusal,)).exit_code == 4
    assert comparetext.text(compared(refused=(refusal,))).startswith("nothing was measured\nfp8 ")


def test_what_is_kept_of_other_lengths_is_measured_again() -> None:
    """Scores of two comparisons ended in an error that nothing but removing files could mend."""
    short, long, same = (measured(kv, context=size) for kv, size in KEPT)
    assert of_one_length({"a": long, "b": short, "c": same}) == {"b": short, "c": same}
    assert of_one_length({}) == {}


def test_texts_of_other_tokens_are_not_compared() -> None:
    with pytest.raises(ProofError, match="scored different tokens"):
        compared(measured("bf16", scores("a", [-1.0])), measured("fp8", scores("a", [-1.0] * 2)))


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_answers_part_where_they_differ_first(first: list[str], other: list[str]) -> None:
    found = divergence(first, other)
    if found is None:
        assert first == other
        return
    assert first[: found.at] == other[: found.at]
    assert first[found.at : found.at + 1] != other[found.at : found.at + 1]


def test_an_answer_that_ends_early_parts_at_its_end() -> None:
    assert divergence(["a", "b"], ["a"]) == Divergence(1, "a", "b", "")


@given(st.integers(0, 5), st.integers(1, 30_000), st.integers(1, 30_000))
def test_a_longer_session_begins_with_the_shorter(seed: int, one: int, other: int) -> None:
    files = {"notes": "first\nsecond\nthird\n"}
    short, long = sorted((one, other))
    made = session(seed, long, files)
    assert len(made) == long and made[:short] == session(seed, short, files)


def test_a_session_is_not_one_turn_over_and_over() -> None:
    lines = session(1, 100_000, {}).splitlines()
    asked = [line for line in lines if line.startswith("user: ")]
    assert len(asked) > 80 and len(set(asked)) > 0.9 * len(asked)


@given(st.floats(0, 1), st.integers(0, 1000))
def test_a_needle_lies_once_in_its_text_and_is_asked_for_at_its_end(
    depth: float, seed: int
) -> None:
    text = session(3, 8000, {})
    made = needle.needle(text, depth, seed)
    what = made.prompt[made.prompt.rfind("The access code") :]
    assert made.prompt.count(f"{what} {made.code}.") == 1 and made.prompt.endswith(" is")
    at = made.prompt.index(f"{what} {made.code}.") / len(made.prompt)
    assert abs(at - depth) < 0.1
    assert needle.found(made, f" {made.code}. And then") and needle.found(made, f"\n{made.code}")
    assert not needle.found(made, " 7. No, " + made.code) and not needle.found(made, "nothing")


def test_the_fixed_texts_are_there_and_make_one_digest() -> None:
    texts = library.texts()
    assert set(texts) == {"agent", "chinese", "code", "english"}
    assert all(len(text) > 500 for text in texts.values())
    compile(texts["code"], "code.txt", "exec")
    suite = Suite(texts)
    assert suite.digest == Suite(dict(texts)).digest
    assert suite.digest != Suite(texts | {"code": texts["code"] + " "}).digest


@given(st.integers(SMALLEST, 300_000), st.integers(600, 2400))
def test_needles_are_never_longer_than_the_limit(limit: int, sample: int) -> None:
    suite = Suite({"notes": "one\n\ntwo\n"})
    asked = suite.needles(min(limit, 20_000), sample)
    assert asked and all(length <= limit for length, _, _ in asked)
    assert len({(length, depth) for length, depth, _ in asked}) == len(asked)
