"""`invoke ask`: one question to a running server."""

from __future__ import annotations

import os
from pathlib import Path

from firstlight.core.command import typed
from firstlight.core.errors import HostError
from firstlight.core.report import Report
from firstlight.effects import catalog, http
from firstlight.effects.console import Console
from firstlight.flows import prove, recipes, server
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.inventory import UnknownName
from firstlight.serve import smoke

_MAX_TOKENS = 512


def run(
    root: Path, console: Console, *, question: str = "", profile: str = "", host: str = ""
) -> Report:
    """Show one greedy answer of at most 512 tokens."""
    if not question.strip():
        given = typed("ask", {"profile": profile, "host": host})
        raise UnknownName("what to ask?", remedy=f'{given} --question "..."')
    if not question.isascii() and any("\ud800" <= sign <= "\udfff" for sign in question):
        raise UnknownName("the question is no text: it has bytes that are no UTF-8")
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    wanted = recipes.profile(root, recipes.profile_name(inventory, target, profile)).value
    asked = smoke.Question(question, kind="text", max_tokens=_MAX_TOKENS)
    with reached(opener(inventory, target, console), console) as shell:
        found = server.require_running(shell, look(shell), wanted.name)
        console.note("waiting for the answer")
        with shell.forward(found.port) as url:
            headers = prove.headers(prove.api_key(wanted, os.environ))
            body = smoke.request_for(asked, found.served_model_name)
            reply = http.post_json(f"{url}/v1/chat/completions", body, 600.0, headers)
    answer = smoke.answer_from(reply.status, reply.json, reply.error)
    if answer.status != 200:
        raise HostError(
            f"no answer: {answer.error or reply.trouble}",
            where=target.name,
            remedy=typed("status", {"host": target.name}),
        )
    verdict = smoke.judge(asked, answer)
    warning = "" if verdict.outcome is smoke.Outcome.PASS else f"\n[{verdict.reason}]"
    data = {"question": question, "answer": answer.text, "finish": answer.finish}
    return Report(answer.text + warning, data)
