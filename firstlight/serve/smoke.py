"""The smoke room: a few questions with known answers, and what the answers prove.

Three verdicts. An answer that could not be had or seen is inconclusive, and never a pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from firstlight.serve.detectors import findings
from firstlight.serve.profile import Smoke

SEED = 20240917
"""Fixed, so that two runs of one question at temperature 0 can be compared."""


ECHO_ASK = "Copy this text exactly:\n\n"


class Outcome(StrEnum):
    """What one question, or all of them, came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Question:
    """One question. `known`: one of the words `expect` stands in the answer; `pattern`: the regular
    expression expect[0] is found in it; `echo`: it is expect[0] exactly; `text`: only the
    detectors judge it, so it can fail a server but never prove one."""

    ask: str
    expect: tuple[str, ...] = ()
    kind: Literal["known", "pattern", "echo", "text"] = "known"
    max_tokens: int = 64


@dataclass(frozen=True)
class Answer:
    """What came back: `status` 0 = no HTTP answer, `error` says why; `finish` as the server says.

    `cut` = the length limit ended it while the model was still thinking.
    """

    status: int
    text: str = ""
    finish: str = ""
    error: str = ""
    cut: bool = False


@dataclass(frozen=True)
class Verdict:
    """The judgement of one question; `evidence` quotes the answer."""

    outcome: Outcome
    reason: str
    evidence: str = ""
    proves: bool = False


def questions_of(smoke: Smoke) -> tuple[Question, ...]:
    """The questions of a profile, the echo last."""
    asked = tuple(
        Question(q.ask, (q.expect,), "pattern", q.max_tokens)
        if isinstance(q.expect, str)
        else Question(q.ask, q.expect, "known", q.max_tokens)
        for q in smoke.questions
    )
    if smoke.echo is None:
        return asked
    return (*asked, Question(ECHO_ASK + smoke.echo, (smoke.echo,), "echo", _echo_room(smoke.echo)))


def request_for(question: Question, model: str) -> dict[str, object]:
    """The body for `/v1/chat/completions`: greedy, with a fixed seed, not streamed."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": question.ask}],
        "temperature": 0,
        "seed": SEED,
        "max_tokens": question.max_tokens,
        "stream": False,
    }


def answer_from(status: int, body: object, error: str = "") -> Answer:
    """An answer out of a parsed HTTP body, whatever its shape; never raises."""
    choice = _first(_get(body, "choices"))
    if status != 200 or choice is None:
        said = _get(_get(body, "error"), "message") or _get(body, "message")
        return Answer(status, error=error or str(said or "no answer in the reply"))
    message = _get(choice, "message")
    content = _get(message, "content")
    text, finish = content if isinstance(content, str) else "", str(_get(choice, "finish_reason"))
    spoken = _without_thoughts(text)
    thought = bool(_get(message, "reasoning_content")) or spoken != text
    return Answer(status, spoken, finish, cut=finish == "length" and thought and not spoken.strip())


def judge(question: Question, answer: Answer) -> Verdict:
    """The verdict of one question by its answer alone."""
    unseen = _unseen(answer)
    if unseen:
        return Verdict(Outcome.INCONCLUSIVE, unseen)
    if answer.status != 200:
        return _fail(f"the server refused the question: HTTP {answer.status}", answer.error)
    found = findings(answer.text)
    if found:
        faults = "; ".join(f"{finding.kind}: {finding.evidence}" for finding in found)
        return _fail(faults, answer.text)
    if question.kind == "text":
        return Verdict(Outcome.PASS, "nothing wrong with the text", _quote(answer.text))
    return _by_expectation(question, answer)


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """All verdicts as one: a fail fails, a doubt stays a doubt, and only a known answer proves."""
    all_of = tuple(verdicts)
    for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        some = [verdict for verdict in all_of if verdict.outcome is outcome]
        if some:
            more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
            return Verdict(outcome, some[0].reason + more, some[0].evidence)
    proofs = sum(verdict.proves for verdict in all_of)
    if not proofs:
        return Verdict(Outcome.INCONCLUSIVE, "no question with a known answer was asked")
    return Verdict(Outcome.PASS, f"{proofs} known answers of {len(all_of)} questions", proves=True)


# The server is not to blame for these: too slow, too busy, not let in, or the proxy's own words.
_NOT_NOW = frozenset({0, 401, 403, 407, 408, 429})


def _unseen(answer: Answer) -> str:
    """Why an answer could not be had or seen; "" when there is one to judge."""
    if answer.status in _NOT_NOW or answer.status >= 500:
        what = f"HTTP {answer.status}" if answer.status else "no HTTP answer"
        return f"{what}: {answer.error or 'no reason given'}"
    if answer.status == 200 and answer.error:
        return answer.error
    if answer.cut:
        return "the length limit came before the answer: raise the question's max_tokens"
    if answer.finish == "abort":
        return "the server gave the request up"
    return ""


def _by_expectation(question: Question, answer: Answer) -> Verdict:
    if not question.expect:
        return Verdict(Outcome.INCONCLUSIVE, "the question has no expected answer")
    if _RIGHT[question.kind](question.expect, answer.text):
        return Verdict(Outcome.PASS, "the expected answer", _quote(answer.text), proves=True)
    if answer.finish == "length" and question.kind != "echo":
        reason = "cut by the length limit before the answer could be seen: raise max_tokens"
        return Verdict(Outcome.INCONCLUSIVE, reason, _quote(answer.text))
    wanted = " or ".join(repr(expected) for expected in question.expect)
    return _fail(f"expected {wanted}", answer.text)


def _holds(expect: tuple[str, ...], text: str) -> bool:
    """One of the expected words stands in the text, by itself and whatever its case."""
    plain = _folded(text)
    return any(
        re.search(rf"(?<!\w){re.escape(_folded(word))}(?!\w)", plain)
        for word in expect
        if word.strip()
    )


def _echoes(expect: tuple[str, ...], text: str) -> bool:
    """Exactly the text asked for; white space around it and one pair of quotes do not count."""
    said = text.strip()
    for mark in ('"', "'", "`"):
        if len(said) > 2 and said[0] == said[-1] == mark:
            said = said[1:-1].strip()
    return said == expect[0].strip()


def _matches(expect: tuple[str, ...], text: str) -> bool:
    return re.search(expect[0], text) is not None


_RIGHT: Mapping[str, Callable[[tuple[str, ...], str], bool]] = {
    "known": _holds,
    "pattern": _matches,
    "echo": _echoes,
}


def _echo_room(text: str) -> int:
    """Tokens enough for any tokenizer: one a byte, and some for an end."""
    return len(text.encode()) + 16


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


_THOUGHT = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)


def _without_thoughts(text: str) -> str:
    return _THOUGHT.sub("", text, count=1)


def _fail(reason: str, text: str) -> Verdict:
    return Verdict(Outcome.FAIL, reason, _quote(text))


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 160 else f"{flat[:120]} ... {flat[-35:]}"


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None
