"""Questions, answers and verdicts; above all, that a doubt never becomes a pass."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.serve import profile
from firstlight.serve.smoke import (
    ECHO_ASK,
    Answer,
    Outcome,
    Question,
    Verdict,
    answer_from,
    judge,
    overall,
    questions_of,
    request_for,
)

PARIS = Question("What is the capital of France?", ("Paris",))
ECHO = Question("Repeat: abc-1", ("abc-1",), "echo")
FREE = Question("Tell me a story.", kind="text")
PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def said(text: str, finish: str = "stop") -> Answer:
    return Answer(200, text, finish)


def body(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def test_a_request_is_greedy_seeded_and_names_the_model() -> None:
    request = request_for(PARIS, "smol")
    assert request == {
        "model": "smol",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "seed": request["seed"],
        "max_tokens": 64,
        "stream": False,
    }
    assert isinstance(request["seed"], int)
    assert json.loads(json.dumps(request)) == request


def test_questions_of_a_profile() -> None:
    smoke = profile.Smoke(
        questions=(
            profile.Question(ask="2 + 2?", expect=("4", "four")),
            profile.Question(ask="Sky?", expect="(?i)blu(e|ish)", max_tokens=8),
        ),
        echo="abc-1",
    )
    known, pattern, echo = questions_of(smoke)
    assert (known.kind, known.expect) == ("known", ("4", "four"))
    assert (pattern.kind, pattern.expect, pattern.max_tokens) == ("pattern", ("(?i)blu(e|ish)",), 8)
    assert (echo.kind, echo.ask) == ("echo", ECHO_ASK + "abc-1")
    assert echo.max_tokens > len("abc-1")
    assert judge(pattern, said("It is Bluish.")).outcome is PASS
    assert questions_of(profile.Smoke()) == ()


@pytest.mark.parametrize(
    ("question", "answer", "outcome"),
    [
        (PARIS, said("The capital of France is Paris."), PASS),
        (PARIS, said("the capital is PARIS"), PASS),
        (PARIS, said("Parisian food"), FAIL),
        (PARIS, said("The capital of France is Lyon."), FAIL),
        (PARIS, said("Well, let me think about that for a", "length"), INCONCLUSIVE),
        (PARIS, said("It is Paris, which is also", "length"), PASS),
        (PARIS, said(""), FAIL),
        (PARIS, said("Paris " + "!" * 50), FAIL),
        (PARIS, said("Paris. " + "Paris is the capital. " * 9, "length"), FAIL),
        (PARIS, said("Paris<|im_end|>"), FAIL),
        (PARIS, Answer(0, error="timed out"), INCONCLUSIVE),
        (PARIS, Answer(503, error="busy"), INCONCLUSIVE),
        (PARIS, Answer(429), INCONCLUSIVE),
        (PARIS, Answer(401), INCONCLUSIVE),
        (PARIS, Answer(400, error="context too long"), FAIL),
        (PARIS, Answer(404, error="no such model"), FAIL),
        (PARIS, Answer(200, error="no answer in the reply"), INCONCLUSIVE),
        (PARIS, said("Paris", "abort"), INCONCLUSIVE),
        (PARIS, Answer(200, finish="length", cut=True), INCONCLUSIVE),
        (Question("Hm?"), said("Hm."), INCONCLUSIVE),
        (ECHO, said("abc-1"), PASS),
        (ECHO, said(' "abc-1"\n'), PASS),
        (ECHO, said("abc-1."), FAIL),
        (ECHO, said("ABC-1"), FAIL),
        (ECHO, said("Sure: abc-1", "length"), FAIL),
        (FREE, said("Once upon a time there was a hen."), PASS),
        (FREE, said("once once once once once once once once"), FAIL),
    ],
)
def test_one_question(question: Question, answer: Answer, outcome: Outcome) -> None:
    verdict = judge(question, answer)
    assert verdict.outcome is outcome, verdict
    assert verdict.reason
    assert verdict.proves is (outcome is PASS and question is not FREE)


def test_a_fail_says_what_was_expected_and_what_came() -> None:
    verdict = judge(Question("2 + 2?", ("4", "four")), said("It is\n 5."))
    assert (verdict.reason, verdict.evidence) == ("expected '4' or 'four'", "It is 5.")
    assert len(judge(PARIS, said("Lyon is nice. " + "x y z " * 3 + "a b" * 300)).evidence) < 200


def test_bodies_of_all_shapes() -> None:
    assert answer_from(200, body("Paris")) == Answer(200, "Paris", "stop")
    assert answer_from(200, body("<think>hm, Lyon?</think>\nParis")).text.strip() == "Paris"
    assert answer_from(200, body("<think>hm", "length")).cut
    assert answer_from(200, body(None, "length", reasoning_content="hm")).cut
    assert not answer_from(200, body("", "length")).cut
    assert answer_from(400, {"error": {"message": "bad"}}).error == "bad"
    assert answer_from(400, {"object": "error", "message": "worse"}).error == "worse"
    assert answer_from(0, None, "refused") == Answer(0, error="refused")
    assert answer_from(200, {"choices": []}).error == "no answer in the reply"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("choices"), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.integers(0, 599), JSON)
def test_any_body_is_judged(status: int, value: object) -> None:
    assert judge(PARIS, answer_from(status, value)).outcome is not PASS


@settings(deadline=None)
@given(st.text())
def test_any_answer_is_judged(text: str) -> None:
    for question in (PARIS, ECHO, FREE):
        assert judge(question, said(text)).reason


def one(outcome: Outcome, proves: bool = False) -> Verdict:
    return Verdict(outcome, f"it is {outcome}", proves=proves)


PROOF = one(PASS, proves=True)


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        ([], INCONCLUSIVE),
        ([one(PASS)], INCONCLUSIVE),
        ([PROOF], PASS),
        ([PROOF, one(PASS)], PASS),
        ([PROOF, one(INCONCLUSIVE)], INCONCLUSIVE),
        ([PROOF, one(FAIL)], FAIL),
        ([one(INCONCLUSIVE), one(FAIL), PROOF], FAIL),
    ],
)
def test_all_questions(verdicts: list[Verdict], outcome: Outcome) -> None:
    assert overall(verdicts).outcome is outcome


@given(st.lists(st.sampled_from([PROOF, one(PASS), one(FAIL), one(INCONCLUSIVE)])))
def test_a_pass_means_that_all_passed_and_one_proved(verdicts: list[Verdict]) -> None:
    passed = overall(verdicts).outcome is PASS
    assert passed is (all(v.outcome is PASS for v in verdicts) and PROOF in verdicts)


def test_the_whole_counts_its_reasons() -> None:
    whole = overall([one(FAIL), one(FAIL), PROOF])
    assert whole.reason == "it is fail (and 1 more)"
    assert overall([PROOF, one(PASS)]).reason == "1 known answers of 2 questions"
