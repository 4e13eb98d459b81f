"""What a server's answer must hold to be counted, and what is refused as no figure."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.accuracy.scores import (
    Measured,
    noise,
    read_answer,
    read_scores,
    require_same_texts,
)
from firstlight.core.errors import ProofError
from tests.accuracy.measured import measured, scores


def reply(**changes: Any) -> dict[str, Any]:
    """What SGLang 0.5.23 sends for three tokens; `changes` are of meta_info."""
    meta = {
        "prompt_tokens": 3,
        "input_token_logprobs": [[None, 504, None], [-15.4041, 28899, None], [-0.25, 29, None]],
        "input_top_logprobs": [None, [[-0.8416, 29, None]], [[-0.25, 29, None]]],
    }
    return {"text": "", "meta_info": meta | changes}


def test_scores_are_those_of_all_tokens_but_the_first() -> None:
    found = read_scores("t", reply())
    assert (found.ids, found.logprobs, found.tops) == (
        (504, 28899, 29),
        (-15.4041, -0.25),
        (29, 29),
    )


@pytest.mark.parametrize("value", [None, float("nan"), float("-inf"), -3.4e38, 0.5, "-1", True])
def test_a_logprob_that_is_no_number_is_an_error(value: object) -> None:
    rows = [[None, 1, None], [value, 2, None], [-0.1, 3, None]]
    with pytest.raises(ProofError, match="text t: the logprob of token 1 is"):
        read_scores("t", reply(input_token_logprobs=rows))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"meta_info": {}},
        reply(input_token_logprobs=[]),
        reply(input_token_logprobs=None),
        reply(input_top_logprobs=None),
        reply(input_top_logprobs=[None, [[-0.1, 2, None]]]),
        reply(input_top_logprobs=[None, None, [[-0.1, 2, None]]]),
        reply(prompt_tokens=4),
        reply(input_token_logprobs=[[None, None, None], [-1.0, 2, None], [-1.0, 3, None]]),
    ],
)
def test_an_answer_that_lacks_something_is_an_error(answer: object) -> None:
    with pytest.raises(ProofError, match="text t: "):
        read_scores("t", answer)


def test_a_long_answer_is_its_tokens() -> None:
    content = [{"token": "The", "logprob": -0.1}, {"token": " sky", "logprob": -0.2}]
    choice = {"finish_reason": "length", "logprobs": {"content": content}}
    found = read_answer({"choices": [choice]})
    assert (found.tokens, found.finish) == (("The", " sky"), "length")
    lacking: list[object] = [{}, {"choices": []}, {"choices": [{"logprobs": None}]}]
    for broken in lacking:
        with pytest.raises(ProofError, match="without its tokens"):
            read_answer(broken)


def test_other_tokens_cannot_be_compared() -> None:
    one = measured("bf16", scores("a", [-1.0, -1.0]), scores("b", [-1.0]))
    other = measured("fp8", scores("a", [-1.0, -1.0]), scores("b", [-1.0, -2.0]))
    require_same_texts(one, one)
    with pytest.raises(ProofError, match="bf16 and fp8 scored different tokens: b"):
        require_same_texts(one, other)


def test_noise_is_the_largest_difference_of_a_token() -> None:
    assert noise(scores("a", [-1.0, -2.0]), scores("a", [-1.5, -2.0])) == 0.5


def test_what_is_kept_is_read_back_as_it_was() -> None:
    one = measured("bf16", scores("a", [-0.1, -2.25]))
    assert Measured.model_validate_json(one.model_dump_json(by_alias=True)) == one
