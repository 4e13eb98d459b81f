"""What a proof counts on before it calls a pool too small or too large."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from firstlight.effects.console import Console
from firstlight.effects.shell import Result
from firstlight.flows.prove import elements_of, prove, ranks_of
from firstlight.hosts.inventory import Host
from firstlight.serve.manifest import Manifest
from firstlight.serve.profile import Profile, Question, Smoke
from firstlight.serve.serverlog import ServerLog
from firstlight.serve.smoke import Outcome
from tests.flows.test_flows_fake import FakeShell
from tests.flows.watching import free_port


def profile(*words: str, **args: Any) -> Profile:
    said = {
        "schema": 1,
        "name": "p",
        "stack": "s",
        "model": {"kind": "path", "path": "/m"},
        "served_model_name": "p",
        "args": args,
        "extra_args": words,
    }
    return Profile.model_validate(said)


@pytest.mark.parametrize(
    ("args", "words", "ranks"),
    [
        ({}, (), 1),
        ({"tp_size": 8}, (), 8),
        ({"tp": "8"}, (), 8),
        ({}, ("--tensor-parallel-size", "8"), 8),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, (), 1),
        ({"tp_size": 8, "dp_size": 2}, (), 8),
        ({"tp_size": 8, "attn_cp_size": 2}, (), 4),
        # A stage holds some of the layers, and a log does not say how many.
        ({"tp_size": 4, "pp_size": 2}, (), None),
        ({"tp_size": "eight"}, (), None),
    ],
)
def test_who_shares_the_heads_of_a_token(
    args: dict[str, Any], words: tuple[str, ...], ranks: int | None
) -> None:
    assert ranks_of(profile(*words, **args)) == ranks


CONFIG = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 32,
    "hidden_size": 512,
}


@pytest.mark.parametrize("override", [{"num_hidden_layers": 2}, '{"num_hidden_layers": 2}'])
def test_a_pool_is_held_against_the_model_that_the_flags_make(override: Any) -> None:
    """A server with fewer layers than the file says failed its proof for the size of its pool."""
    text = json.dumps(CONFIG)
    assert elements_of(text, profile()) == 4 * (64 + 64) * 32
    assert elements_of(text, profile(json_model_override_args=override)) == 4 * (64 + 64) * 2
    for odd in ("", "[]", "3", "null", "{"):
        assert elements_of(odd, profile(json_model_override_args=override)) is None


def test_a_server_that_is_gone_is_asked_one_question() -> None:
    """Each waits for minutes where a server hangs."""
    made = Manifest(
        schema=1,
        profile="p",
        id="i",
        release="r",
        model="/m",
        served_model_name="p",
        launcher="process",
        sudo=False,
        restart="no",
        stop_s=1,
        bind="127.0.0.1",
        port=free_port(),
        firstlight="0",
    )
    known = tuple(Question(ask=word, expect=(word,)) for word in ("one", "two", "three"))
    wanted = profile().model_copy(update={"smoke": Smoke(questions=known)})
    console = Console(io.StringIO())
    shell = FakeShell(Host(name="local"), lambda _: Result(1, b""))
    proof = prove(shell, made, wanted, ServerLog(), console)
    assert [verdict.outcome for verdict in proof.verdicts] == [Outcome.INCONCLUSIVE] * 3
    assert [answer.error.startswith("not asked: ") for answer in proof.answers] == [
        False,
        True,
        True,
    ]
    assert proof.verdict.outcome is not Outcome.PASS
