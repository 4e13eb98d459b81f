"""Proving a running server: known answers, and its own figures against what was asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstlight.accuracy.configkeys import overridden
from firstlight.accuracy.kvflags import COUNTS, flags
from firstlight.accuracy.kvlaunch import Launch
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError, ProofError
from firstlight.core.words import columns
from firstlight.effects import http
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows.gate import OVERRIDE
from firstlight.flows.kv import args_of
from firstlight.serve import effective, smoke
from firstlight.serve.effective import Difference, Effective
from firstlight.serve.manifest import Manifest, smoke_digest
from firstlight.serve.profile import API_KEY, Profile
from firstlight.serve.serverlog import ServerLog
from firstlight.serve.smoke import Answer, Outcome, Question, Verdict

_ANSWER_S = 180.0
_TRIES = 3


@dataclass(frozen=True)
class Proof:
    """What was asked and answered, and what the server says of itself."""

    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]
    verdicts: tuple[Verdict, ...]
    found: Effective
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> Verdict:
        """All of it as one: a failure fails, a doubt stays a doubt."""
        state = (Verdict(Outcome(d.outcome), str(d)) for d in self.differences)
        return smoke.overall((*self.verdicts, *state))


def prove(
    shell: Shell, made: Manifest, profile: Profile, log: ServerLog, console: Console, key: str = ""
) -> Proof:
    """Ask every question of the profile and compare the effective state; `key` is an API key."""
    questions = smoke.questions_of(profile.smoke)
    with_key = headers(key)
    with shell.forward(made.port) as url:
        answers = _answers(url, questions, profile.served_model_name, with_key, console)
        info = http.get(f"{url}/server_info", headers=with_key).json
        models = http.get(f"{url}/v1/models", headers=with_key).json
    verdicts = tuple(smoke.judge(q, a) for q, a in zip(questions, answers, strict=True))
    found = effective.effective(log, info, models)
    elements = _elements(shell, made, profile)
    differences = effective.compare(effective.asked_by(profile), found, elements)
    return Proof(questions, answers, verdicts, found, differences)


def _elements(shell: Shell, made: Manifest, profile: Profile) -> int | None:
    """Numbers in the KV cache for one token on one rank, where the model's config tells."""
    config = shell.run(Script('cat -- "$1/config.json"', args=(made.model,)))
    return elements_of(config.text, profile)


def elements_of(config: str, profile: Profile) -> int | None:
    """The same from the text of a config.json, and what the flags lay over it."""
    ranks, override = ranks_of(profile), args_of(profile).get(OVERRIDE)
    try:
        found = overridden(json.loads(config), override)
    except (ValueError, TypeError):
        return None
    return effective.elements_per_token(found, ranks) if ranks else None


def ranks_of(profile: Profile) -> int | None:
    """GPUs that share the heads of a token; None where stages share its layers, or nobody knows."""
    args = args_of(profile)
    parallel = {key: args[key] for key in (*COUNTS, "enable_dp_attention") if key in args}
    try:
        launch = flags(Launch().version, parallel).launch
    except FirstlightError:
        return None
    return launch.attn_tp if launch.pp == 1 else None


def api_key(profile: Profile, environ: Mapping[str, str]) -> str:
    """The key that the profile's server asks for, "" for none."""
    return environ.get(API_KEY, "") if API_KEY in profile.service.secrets else ""


def headers(key: str) -> dict[str, str]:
    """The HTTP headers that carry a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def require(proof: Proof, host: str, profile: str, log: str) -> None:
    """Raise ProofError unless the proof passed; an inconclusive one is no pass.

    `log` is where the server's whole log is: `invoke logs` will show the one that comes back.
    """
    verdict = proof.verdict
    if verdict.outcome is Outcome.PASS:
        return
    word = "failed its proof" if verdict.outcome is Outcome.FAIL else "could not be proved"
    asked = zip(proof.questions, proof.verdicts, strict=True)
    lines = [_judged(q, v) for q, v in asked if v.outcome is not Outcome.PASS]
    lines += [str(difference) for difference in proof.differences]
    raise ProofError(
        f"the server of {profile} {word}: {'; '.join(lines) or verdict.reason}",
        where=host,
        remedy=f"read its log, on {host}: {log}\n  -> or correct the questions",
    )


def _judged(question: Question, verdict: Verdict) -> str:
    said = f"{verdict.reason}: {verdict.evidence}" if verdict.evidence else verdict.reason
    return f"{said} (asked: {_short(question.ask)})"


def to_json(proof: Proof, profile: Profile) -> dict[str, Any]:
    """The proof as data; sizes in GiB."""
    rows = zip(proof.questions, proof.answers, proof.verdicts, strict=True)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "smoke": smoke_digest(profile),
        "outcome": str(proof.verdict.outcome),
        "questions": [
            {"ask": q.ask, "answer": a.text, "outcome": str(v.outcome), "reason": v.reason}
            for q, a, v in rows
        ],
        "engine": proof.found.version,
        "kv_dtype": ", ".join(proof.found.kv_dtypes),
        "kv_tokens": proof.found.tokens,
        "kv_gib": _pool_gib(proof.found),
        "context_length": proof.found.context_length,
        "attention_backend": proof.found.attention_backend,
        "differences": [str(difference) for difference in proof.differences],
    }


def text(data: Mapping[str, Any]) -> str:
    """A proof's data as a person reads it."""
    rows = [(q["outcome"], _short(q["ask"]), _short(q["answer"])) for q in data["questions"]]
    state = [
        f"KV cache: {pool_text(data)}",
        *(f"DIFFERENT: {difference}" for difference in data["differences"]),
        f"verdict: {data['outcome']}",
    ]
    return "\n".join([columns(rows), *state] if rows else state)


def pool_text(data: Mapping[str, Any]) -> str:
    """`torch.bfloat16, 16384 tokens, 0.35 GiB`, as read back from the server."""
    size = f", {data['kv_gib']:.2f} GiB" if data.get("kv_gib") is not None else ""
    return f"{data['kv_dtype'] or 'dtype unknown'}, {data['kv_tokens']} tokens{size}"


def saved(told: Mapping[str, Any], made: Manifest) -> str:
    """A proof's data as it is kept on the host, with what it is the proof of."""
    data = {"deployment": made.id, "release": made.release, **told}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def shortcoming(data: Mapping[str, Any]) -> str:
    """What was wrong in a kept proof that is no pass: the first thing, in a line."""
    judged = [q for q in data.get("questions", ()) if q["outcome"] != Outcome.PASS]
    said = [f"{_short(q['ask'])} {q['reason']}" for q in judged] + list(data.get("differences", ()))
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return f"{said[0]}{more}" if said else "nothing that proves it was asked"


def _answers(
    url: str,
    questions: tuple[Question, ...],
    model: str,
    headers: Mapping[str, str],
    console: Console,
) -> tuple[Answer, ...]:
    """An answer for each question; a server that does not answer one is not asked the next."""
    answers: list[Answer] = []
    for number, question in enumerate(questions, 1):
        if answers and not answers[-1].status:
            answers.append(Answer(0, error="not asked: the question before it had no answer"))
            continue
        console.note(f"question {number} of {len(questions)}: {question.ask}")
        answers.append(_answer(url, question, model, headers))
    return tuple(answers)


def _answer(url: str, question: Question, model: str, headers: Mapping[str, str]) -> Answer:
    """One answer; a server that is busy or quickly fails to answer is asked again."""
    body = smoke.request_for(question, model)
    for attempt in range(_TRIES):
        time.sleep(attempt)
        reply = http.post_json(f"{url}/v1/chat/completions", body, _ANSWER_S, headers)
        if 0 < reply.status < 500 or reply.seconds > _ANSWER_S / 6:
            break
    return smoke.answer_from(reply.status, reply.json, reply.error)


def _pool_gib(found: Effective) -> float | None:
    if found.kv_gib is not None:
        return found.kv_gib
    sizes = [pool.gib for pool in found.pools if pool.gib]
    return sum(sizes) if sizes else None


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else flat[:79] + "…"
