"""The accuracy room: what a server says of fixed texts with one KV precision, token by token.

The figures come from `/generate` with `return_logprob` and `logprob_start_len` 0: for each token
of the input its logprob (nats) and the most likely token at its place. JSON has no NaN: an engine
that computed one sends `null`, which is never left out and never counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from firstlight.accuracy.values import a_number
from firstlight.core.errors import ProofError
from firstlight.core.schema import Model

# What an engine gives in place of minus infinity lies below, and no probability lies above.
_LEAST, _MOST = -1e5, 1e-3


class Scores(Model):
    """A text as the server scored it: `ids` are its n tokens; `logprobs` (nats) and `tops` (ids of
    the most likely tokens) are those of the last n - 1, for nothing comes before the first."""

    name: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[int, ...]


class Answer(Model):
    """A greedy answer, token by token as the server wrote it; `finish` is why it ended."""

    tokens: tuple[str, ...]
    finish: str = ""


class Retrieval(Model):
    """One needle: asked of a text of `tokens` tokens, laid at `depth` (0 begin, 1 end) of it."""

    length: int
    depth: float
    tokens: int
    found: bool
    said: str


class Measured(Model):
    """All that was measured with one precision. `kv` is the flag, `dtype` what the server's log
    states for its pool; `noise` is the largest difference (nats) of one token between two passes
    over the same text; `limit` is the most tokens that a text could have."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    key: str
    kv: str
    dtype: str
    pool_tokens: int | None
    pool_gib: float | None
    context_length: int | None
    limit: int
    release: str
    host: str
    at: str
    seconds: float
    noise: float
    texts: tuple[Scores, ...]
    answer: Answer
    needles: tuple[Retrieval, ...]


def read_scores(name: str, reply: object) -> Scores:
    """The scores in an answer of `/generate`; raises ProofError for any that is no number."""
    meta = _get(reply, "meta_info")
    rows, tops = _get(meta, "input_token_logprobs"), _get(meta, "input_top_logprobs")
    if not isinstance(rows, list) or not isinstance(tops, list) or len(rows) < 2:
        raise ProofError(f"text {name}: the server sent no logprobs of its input")
    if len(tops) != len(rows) or len(rows) != _get(meta, "prompt_tokens"):
        said = f"{len(rows)} logprobs and {len(tops)} most likely tokens"
        count = _get(meta, "prompt_tokens")
        raise ProofError(f"text {name}: the server sent {said} for {count} tokens")
    values = tuple(_logprob(name, at, row) for at, row in enumerate(rows) if at)
    likely = tuple(_token(name, at, _first(row)) for at, row in enumerate(tops) if at)
    ids = tuple(_token(name, at, row) for at, row in enumerate(rows))
    return Scores(name=name, ids=ids, logprobs=values, tops=likely)


def read_answer(reply: object) -> Answer:
    """The tokens in an answer of `/v1/chat/completions` that was asked for logprobs."""
    choice = _first(_get(reply, "choices"))
    content = _get(_get(choice, "logprobs"), "content")
    tokens = [_get(one, "token") for one in content] if isinstance(content, list) else []
    if not tokens or not all(isinstance(token, str) for token in tokens):
        raise ProofError("the long answer came without its tokens, or it is empty")
    return Answer(tokens=tuple(map(str, tokens)), finish=str(_get(choice, "finish_reason") or ""))


def noise(one: Scores, again: Scores) -> float:
    """The largest difference of one token between two passes over the same text, in nats."""
    pairs = zip(one.logprobs, again.logprobs, strict=True)
    return max(abs(a - b) for a, b in pairs)


def require_same_texts(first: Measured, other: Measured) -> None:
    """Raise ProofError unless both scored the very same tokens: nothing else can be compared."""
    mine = {text.name: text.ids for text in first.texts}
    theirs = {text.name: text.ids for text in other.texts}
    if mine != theirs:
        odd = sorted(
            name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)
        )
        raise ProofError(
            f"{first.kv} and {other.kv} scored different tokens: {', '.join(odd)}",
            remedy="remove the profile's kept scores (evidence/PROFILE/scores), and compare again",
        )


def _logprob(name: str, at: int, row: object) -> float:
    said = row[0] if isinstance(row, list) and row else None
    value = a_number(said)
    if value is None or not math.isfinite(value) or not _LEAST < value < _MOST:
        told = "no number (a NaN is sent as null)" if said is None else f"{said}"
        raise ProofError(f"text {name}: the logprob of token {at} is {told}")
    return float(value)


def _token(name: str, at: int, row: object) -> int:
    value = row[1] if isinstance(row, list) and len(row) > 1 else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProofError(f"text {name}: token {at} came without its number")
    return value


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None
