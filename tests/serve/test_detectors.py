"""Faults of a text: that they are seen, and above all that sound texts are left alone."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.serve.detectors import findings


def kinds(text: str) -> set[str]:
    return {finding.kind for finding in findings(text)}


BROKEN = {
    "": "empty",
    " \n\t ": "empty",
    "!!!!!!!!!!!!": "one character",
    "aaaaaaaa": "one character",
    "Sure, here it is: " + "!" * 40: "one character",
    "The answer " + "€" * 30: "one character",
    "Hello there!" + "#" * 30: "one character",
    "It is a story. " + "and the first: " * 8: "loop",
    "Paris. " + "The capital of France is Paris. " * 6: "loop",
    "Well, " * 3 + "no " * 40: "loop",
    "I think\n" * 20: "loop",
    "caf\ufffd au lait, na\ufffdve": "replacement characters",
    "Paris.<|im_end|>\n<|im_start|>user": "special tokens",
    "Paris<unused12>": "special tokens",
    "a <pad> b": "special tokens",
    "Paris.</s>": "special tokens",
    "Paris<|reserved_special_token_5|>": "special tokens",
    "Four.<\uff5cend\u2581of\u2581sentence\uff5c>": "special tokens",
    "<start_of_turn>model": "special tokens",
    "Rome[control_12] Paris": "special tokens",
    "Rome \u2047 Paris": "special tokens",
    "Well then" + "-" * 40: "one character",
    "So, " + '**_ "_ ' * 20: "loop",
    ", " * 30: "loop",
    "好的" * 20: "loop",
    "灯亮了请进来。" * 7: "loop",
    "so to to the hill and and the the way that was was on to to the and and it the the was to to "
    "the of of it": "loop",
    "Once there was the king of the hills and " + "the king of the hills and " * 5: "loop",
    "The story of " + "the very old " * 7: "loop",
}


@pytest.mark.parametrize(("text", "kind"), BROKEN.items(), ids=[repr(t[:24]) for t in BROKEN])
def test_broken_texts(text: str, kind: str) -> None:
    assert kind in kinds(text)


SOUND = [
    "Paris",
    "4",
    "...",
    "The capital of France is Paris.",
    "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 3,
    "Heading\n" + "=" * 60 + "\n" + "-" * 100,
    "Name: " + "_" * 50,
    ", ".join(str(n) for n in range(1, 101)),
    "La la la la la, sing with me.",
    "[" + "0, " * 200 + "0]",
    "[" + "0, " * 200,
    "The token `<|im_end|>` ends a turn:\n```\n<|im_start|>user\nhi<|im_end|>\n```",
    "A cut word at the very end: caf\ufffd",
    "hello " * 3,
    "James while John " + "had " * 11 + "a better effect on the teacher.",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
    "<main>" + "<div>" * 5 + "hi" + "</div>\n" * 5 + "</main>",
    "The bits are 0b" + "10" * 64,
    "To set every bit, write x = 0b" + "1" * 64 + ", or -1.",
    "⠀" * 60 + "⣿⣿⣿ a dog",
]


@pytest.mark.parametrize("text", [t for t in SOUND if t != SOUND[10]], ids=lambda t: repr(t[:24]))
def test_sound_texts(text: str) -> None:
    assert findings(text) == ()


def test_an_endless_row_of_numbers_is_a_loop() -> None:
    assert kinds(SOUND[10]) == {"loop"}


def test_evidence_shows_the_fault() -> None:
    (finding,) = findings("Then " + "we go on and on and on, my friend; " * 9)[:1]
    assert "we go on" in finding.evidence or "on and on" in finding.evidence
    (finding,) = findings("?" * 30)
    assert finding.evidence == "'?' 30 times in a row"


@settings(deadline=None)
@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert all(finding.kind and finding.evidence for finding in findings(text))


@settings(deadline=None)
@given(st.text(min_size=1, max_size=6), st.integers(2, 300))
def test_any_repetition_is_judged(unit: str, times: int) -> None:
    findings(unit * times)


@settings(deadline=None)
@given(st.text(alphabet="abcdefgh ", min_size=8, max_size=60).filter(lambda u: u.strip()))
def test_a_unit_said_twenty_times_at_the_end_is_seen(unit: str) -> None:
    assert findings("A good beginning. " + unit * 20)


def test_recorded_texts(shared: Path) -> None:
    """Figures reached on the recorded rows: 0 of 115 good ones alarmed, 54 of 76 bad ones seen.

    Seen of the kinds that these detectors are for: 51 of 59. Not looked for, since they need the
    sense of a text: subtle, truncated, in a wrong language.
    """
    lines = (shared / "data" / "coherence.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    good = [row for row in rows if row["label"] == "good"]
    bad = [row for row in rows if row["label"] == "bad"]
    alarms = [row["id"] for row in good if findings(row["output"] or "")]
    seen = [row["id"] for row in bad if findings(row["output"] or "")]
    beyond = {"subtle", "truncated", "wrong-language"}
    near = [row for row in bad if row["kind"] not in beyond]
    hits = sum(row["id"] in seen for row in near)
    print(f"false alarms {len(alarms)}/{len(good)} {alarms}")
    print(f"seen {len(seen)}/{len(bad)}, of the kinds looked for {hits}/{len(near)}")
    assert len(good) >= 115 and len(bad) >= 76
    assert not alarms
    assert len(seen) >= 54
    assert hits >= 0.85 * len(near)
