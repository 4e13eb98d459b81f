"""What a proof counts on before it calls a pool too small or too large."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.flows.prove import ranks_of
from firstlight.serve.profile import Profile


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
