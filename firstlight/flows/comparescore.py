"""Asking one running server for everything that a comparison holds against other precisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from firstlight.accuracy import needle
from firstlight.accuracy.needle import Needle
from firstlight.accuracy.scores import (
    Answer,
    Measured,
    Retrieval,
    Scores,
    noise,
    read_answer,
    read_scores,
)
from firstlight.accuracy.suite import (
    SESSION,
    SMALLEST,
    Suite,
    answer_request,
    go_on_request,
    score_request,
)
from firstlight.core.errors import ProofError, StepError
from firstlight.effects import http
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import prove, server
from firstlight.flows.comparekeep import now
from firstlight.serve.deploy import Target
from firstlight.serve.effective import Effective
from firstlight.serve.serverlog import ServerLog

# A long context on a slow machine takes its time for one answer.
_ANSWER_S = 3600.0
_TRIES = 3


@dataclass(frozen=True)
class Precision:
    """What is to be measured: a precision, the key that its figures go by, and the most tokens of
    a text where an earlier precision has settled that, so that all score the same."""

    kv: str
    key: str
    limit: int | None


@dataclass(frozen=True)
class _Desk:
    """A server that is asked, and how."""

    shell: Shell
    target: Target
    headers: Mapping[str, str]
    console: Console

    def ask(self, path: str, body: object) -> Any:
        """The JSON of an answer; raises StepError when there is none."""
        reply = server.across(self.shell, self.console, partial(self._once, path, body))
        for attempt in range(1, _TRIES):
            if reply.status and reply.status < 500:
                break
            time.sleep(attempt)
            reply = server.across(self.shell, self.console, partial(self._once, path, body))
        if reply.ok and reply.json is not None:
            return reply.json
        said = reply.error or reply.trouble or reply.text[:300]
        raise StepError(
            f"the server gave no answer to {path} (HTTP status {reply.status})",
            where=self.shell.host.name,
            log=said,
        )

    def _once(self, path: str, body: object) -> http.Reply:
        with self.shell.forward(self.target.manifest.port) as url:
            return http.post_json(url + path, body, _ANSWER_S, self.headers)


def measure(
    shell: Shell,
    target: Target,
    log: ServerLog,
    suite: Suite,
    wanted: Precision,
    key: str,
    console: Console,
) -> Measured:
    """Ask a server that is ready; `key` is its API key.

    Raises ProofError when it does not run with the precision that was asked for, or when one of
    its figures is no number, and StepError when it does not answer.
    """
    begin = time.monotonic()
    proof = prove.prove(shell, target.manifest, target.rendered.profile, log, console, key)
    _require_as_asked(proof, wanted.kv, shell.host.name)
    desk = _Desk(shell, target, prove.headers(key), console)
    limit = limit_of(proof.found, wanted, shell.host.name)
    console.note("counting tokens")
    sample = _count(desk.ask("/generate", go_on_request(suite.sample, 1)))
    texts = dict(suite.texts) | {SESSION: suite.session(limit, sample)}
    told = prove.to_json(proof, target.rendered.profile)
    scores = tuple(_scores(desk, name, text, console) for name, text in texts.items())
    first = scores[0]
    again = _scores(desk, first.name, texts[first.name], console)
    return Measured(
        key=wanted.key,
        kv=wanted.kv,
        dtype=told["kv_dtype"],
        pool_tokens=told["kv_tokens"],
        pool_gib=told["kv_gib"],
        context_length=proof.found.context_length,
        limit=limit,
        release=target.manifest.release,
        host=shell.host.name,
        at=now(),
        noise=noise(first, again),
        texts=scores,
        needles=_needles(desk, suite, limit, sample, console),
        answer=_answer(desk, console),
        seconds=round(time.monotonic() - begin, 1),
    )


def _require_as_asked(proof: prove.Proof, kv: str, host: str) -> None:
    """A figure of another cache than the one that was asked for would be worse than none."""
    if proof.differences or not proof.found.kv_dtypes:
        told = "; ".join(map(str, proof.differences)) or "the log states no KV pool"
        raise ProofError(
            f"the server that was asked for {kv} runs with another: {told}", where=host
        )


def limit_of(found: Effective, wanted: Precision, host: str) -> int:
    """The most tokens of a text: what the context and the pool hold, or what was settled; raises
    StepError where the server does not take as many."""
    room = min(size for size in (found.context_length, found.tokens, 1 << 30) if size)
    limit = wanted.limit or room
    if room < SMALLEST:
        raise StepError(
            f"with {wanted.kv} the server takes {room} tokens; {SMALLEST} are needed",
            where=host,
            remedy="give the profile a longer context and a larger pool to compare",
        )
    if room < limit:
        raise StepError(
            f"with {wanted.kv} the server takes {room} tokens; those before scored {limit}",
            where=host,
            remedy=f"name {wanted.kv} first in --kv, and remove the kept scores of the others "
            "(evidence/PROFILE/scores)",
        )
    return limit


def _scores(desk: _Desk, name: str, text: str, console: Console) -> Scores:
    console.note(f"scoring {name}, {len(text):,} characters")
    return read_scores(name, desk.ask("/generate", score_request(text)))


def _answer(desk: _Desk, console: Console) -> Answer:
    console.note("a long greedy answer")
    model = desk.target.manifest.served_model_name
    return read_answer(desk.ask("/v1/chat/completions", answer_request(model)))


def _needles(
    desk: _Desk, suite: Suite, limit: int, sample: int, console: Console
) -> tuple[Retrieval, ...]:
    found: list[Retrieval] = []
    for length, depth, one in suite.needles(limit, sample):
        console.note(f"a needle at {depth:.0%} of {length:,} tokens")
        found.append(_needle(partial(desk.ask, "/generate"), length, depth, one))
    return tuple(sorted(found, key=lambda row: (row.length, row.depth)))


def _needle(ask: Callable[[object], Any], length: int, depth: float, one: Needle) -> Retrieval:
    reply = ask(go_on_request(one.prompt, needle.TOKENS))
    said = reply.get("text") if isinstance(reply, Mapping) else None
    if not isinstance(said, str):
        raise ProofError(f"the needle at {depth:.0%} of {length} tokens got no text for an answer")
    return Retrieval(
        length=length, depth=depth, tokens=_count(reply), found=needle.found(one, said), said=said
    )


def _count(reply: object) -> int:
    meta = reply.get("meta_info") if isinstance(reply, Mapping) else None
    count = meta.get("prompt_tokens") if isinstance(meta, Mapping) else None
    if not isinstance(count, int) or count < 1:
        raise ProofError("the server does not say how many tokens it was sent")
    return count
