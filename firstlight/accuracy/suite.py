"""The accuracy room: what every precision is asked in a comparison, the same for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstlight.accuracy.needle import DEPTHS, Needle, needle
from firstlight.accuracy.transcript import session
from firstlight.build.digest import digest

SMALLEST = 2048
"""Tokens that a server must take at once, at least: the fixed texts have up to about 1,500."""
SESSION = "session"
ANSWER_TOKENS = 256
QUESTION = (
    "Explain step by step how a compiler turns a source file into a program that runs, and show "
    "for each step what becomes of the line: total = price * count + 3"
)
_SEED = 4711
_SAMPLE = 4000
_LENGTHS = (1024, 4096, 16384, 65536, 262144)
# What a tokenizer makes of a text is foreseen from its first characters, and never exactly.
_SHARE = 0.9


@dataclass(frozen=True)
class Suite:
    """The fixed texts by name, and all that is made from them."""

    texts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Changes when any precision would be asked anything else."""
        made = session(_SEED, 5 * _SAMPLE, self._files)
        asked = [dict(self.texts), made, QUESTION, ANSWER_TOKENS, _LENGTHS, DEPTHS, _SHARE]
        return digest(asked)

    @property
    def _files(self) -> dict[str, str]:
        """What a session looks at: where tokens are as long everywhere, their count is foreseen."""
        return {name: text for name, text in self.texts.items() if text.isascii()}

    @property
    def sample(self) -> str:
        """The begin of the session, whose tokens a server counts first."""
        return session(_SEED, _SAMPLE, self._files)

    def session(self, tokens: int, sample_tokens: int) -> str:
        """A session that has nearly `tokens` tokens, where the sample has `sample_tokens`."""
        return session(_SEED, round(tokens * _SHARE * _SAMPLE / sample_tokens), self._files)

    def needles(self, limit: int, sample_tokens: int) -> list[tuple[int, float, Needle]]:
        """Length in tokens, depth and needle, as far as the limit allows. The deepest come first:
        up to there a server has read the session already."""
        fit = [length for length in _LENGTHS if length <= limit]
        rows = [(length, depth) for length in fit for depth in sorted(DEPTHS, reverse=True)]
        return [
            (length, depth, needle(self.session(length, sample_tokens), depth, seed))
            for seed, (length, depth) in enumerate(rows)
        ]


def score_request(text: str) -> dict[str, Any]:
    """What `/generate` is sent to score a text."""
    return {
        "text": text,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 1,
    }


def go_on_request(text: str, tokens: int) -> dict[str, Any]:
    """What `/generate` is sent to go on with a text greedily."""
    return {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}}


def answer_request(model: str) -> dict[str, Any]:
    """What `/v1/chat/completions` is sent for the long greedy answer."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
        "logprobs": True,
    }
