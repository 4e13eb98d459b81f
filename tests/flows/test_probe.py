"""Asking a release's engine: one that cannot answer leaves the rules alone with the question."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError
from firstlight.effects.shell import Result
from firstlight.flows.probe import ask_engine
from firstlight.hosts.inventory import Host
from tests.flows.test_flows_fake import GPU01, FakeShell

RELEASE = PurePosixPath("/srv/firstlight/releases/r1")


def raising(error: HostError) -> FakeShell:
    def answer(_: Script) -> Result:
        raise error

    return FakeShell(Host.model_validate(GPU01), answer)


def test_a_python_that_hangs_or_is_killed_is_told_and_no_error() -> None:
    late = raising(HostError("a script gave no result within 600 s; it was stopped", where="gpu01"))
    probe, why = ask_engine(late, RELEASE, "LlamaForCausalLM", None)
    assert probe is None
    assert why == (
        "the engine could not be asked: a script gave no result within 600 s; it was stopped"
    )


def test_a_link_that_breaks_is_no_answer_of_the_engine() -> None:
    with pytest.raises(ConnectionLost):
        ask_engine(
            raising(ConnectionLost("gone", where="gpu01")), RELEASE, "LlamaForCausalLM", None
        )
