"""What the server really runs with, against what the profile asked."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.serve.effective import (
    Asked,
    Difference,
    Effective,
    asked_by,
    compare,
    effective,
    elements_per_token,
)
from firstlight.serve.profile import Profile
from firstlight.serve.serverlog import Pool, ServerLog, read
from tests.serve.logs import POOLS, V0523

SMOL = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_size": 576,
}
ELEMENTS = 2 * 30 * 3 * 64
INFO: dict[str, Any] = {
    "kv_cache_dtype": "bf16",
    "api_key": "do-not-keep",
    "attention_backend": "torch_native",
    "page_size": 1,
    "version": "0.5.23",
    "max_total_num_tokens": 16384,
    "internal_states": [
        {"memory_usage": {"weight": 0.22, "kvcache": 0.352, "token_capacity": 16384}}
    ],
}
MODELS = {"object": "list", "data": [{"id": "smol", "max_model_len": 8192}]}
ASKED = Asked("smol", "bf16", max_total_tokens=16384, attention_backend="torch_native")


def state(log: ServerLog | None = None, **info: Any) -> Effective:
    return effective(read(V0523) if log is None else log, INFO | info, MODELS)


def outcomes(differences: tuple[Difference, ...]) -> list[tuple[str, str]]:
    return [(difference.what, difference.outcome) for difference in differences]


def test_the_state_comes_from_log_and_server() -> None:
    found = state()
    assert (found.tokens, found.context_length, found.page_size) == (16384, 8192, 1)
    assert (found.kv_dtypes, found.kv_flag) == (("torch.bfloat16",), "bf16")
    assert (found.version, found.attention_backend) == ("0.5.23", "torch_native")
    assert (found.served, found.kv_gib, found.capacity) == (("smol",), 0.352, 16384)
    assert "do-not-keep" not in repr(found)


def test_a_server_as_asked_has_no_difference() -> None:
    assert compare(ASKED, state(), ELEMENTS) == ()


def pool(dtype: str, gib: float = 0.18, **more: Any) -> ServerLog:
    return replace(read(V0523), pools=(Pool("", "", dtype, 16384, gib, gib, **more),))


def test_fp8_behind_an_echoed_flag_fails() -> None:
    differences = compare(ASKED, state(pool("torch.float8_e4m3fn", 0.09)), ELEMENTS)
    assert outcomes(differences) == [("KV dtype", "fail"), ("KV bytes per number", "fail")]
    assert "torch.float8_e4m3fn in the pool of the one rank (16384 tokens)" in str(differences[0])


def test_one_wrong_rank_or_window_among_many_fails() -> None:
    found = effective(read(POOLS), INFO, MODELS)
    (difference,) = compare(Asked("smol", "bf16"), found)
    assert difference.found == "torch.float8_e5m2 in the pool of DP1 TP4 (900 tokens)"


def test_a_drafts_pool_says_nothing_of_the_target() -> None:
    log = pool("torch.bfloat16")
    draft = replace(log.pools[0], dtype="torch.float8_e4m3fn", draft=True)
    assert compare(ASKED, state(replace(log, pools=(*log.pools, draft)))) == ()


@pytest.mark.parametrize(
    ("asked", "dtype", "expected"),
    [
        (Asked("smol", "fp8_e4m3", require_bf16=False), "torch.float8_e4m3fn", []),
        (Asked("smol", "fp8_e5m2", require_bf16=False), "torch.float8_e4m3fn", ["fail"]),
        (Asked("smol", "fp8_e4m3", require_bf16=False), "torch.bfloat16", ["fail"]),
        (Asked("smol", "", require_bf16=False), "torch.float8_e4m3fn", []),
        (Asked("smol", "", require_bf16=True), "torch.float8_e4m3fn", ["fail"]),
        (Asked("smol", "bf16"), "torch.float16", ["fail"]),
    ],
)
def test_dtypes(asked: Asked, dtype: str, expected: list[str]) -> None:
    assert [d.outcome for d in compare(asked, state(pool(dtype)))] == expected


def test_without_a_pool_line_only_the_size_can_prove() -> None:
    found = state(ServerLog())
    assert outcomes(compare(ASKED, found)) == [("KV dtype", "inconclusive")]
    assert compare(ASKED, found, ELEMENTS) == ()
    fp8 = [{"memory_usage": {"kvcache": 0.176, "token_capacity": 16384}}]
    halved = compare(ASKED, state(ServerLog(), internal_states=fp8), ELEMENTS)
    assert ("KV bytes per number", "fail") in outcomes(halved)
    assert ("KV dtype", "inconclusive") in outcomes(halved)


@pytest.mark.parametrize("tokens", [500, 800])
def test_a_pool_too_small_to_measure_proves_nothing(tokens: int) -> None:
    """0.02 GiB, give or take 0.01: of 800 tokens it may hold one byte a number or three."""
    log = replace(read(V0523), pools=(Pool("", "", "", tokens, 0.01, 0.01),))
    assert outcomes(compare(ASKED, state(log), ELEMENTS)) == [("KV dtype", "inconclusive")]


def test_tokens() -> None:
    fewer = state(read(V0523.replace("num_tokens=16384", "num_tokens=9000")))
    assert outcomes(compare(ASKED, fewer)) == [("KV tokens", "fail")]
    capped = replace(state(), info_tokens=9000, log_tokens=9000)
    assert [str(d) for d in compare(ASKED, capped)] == ["KV tokens: asked 16384, found 9000"]
    assert compare(replace(ASKED, max_total_tokens=None), capped) == ()
    paged = replace(capped, info_tokens=16320, log_tokens=16320, page_size=64)
    assert compare(replace(ASKED, max_total_tokens=16383), paged) == ()
    silent = replace(capped, info_tokens=None, log_tokens=None)
    assert outcomes(compare(ASKED, silent)) == [("KV tokens", "inconclusive")]


def test_names_contexts_and_backends() -> None:
    other = replace(state(), served=("another",), context_length=4096, attention_backend="triton")
    asked = replace(ASKED, context_length=8192)
    assert outcomes(compare(asked, other)) == [
        ("served model", "fail"),
        ("context length", "fail"),
        ("attention backend", "fail"),
    ]
    silent = replace(other, served=(), context_length=None, attention_backend="")
    assert outcomes(compare(asked, silent)) == [
        ("served model", "inconclusive"),
        ("context length", "inconclusive"),
    ]
    assert compare(asked, replace(state(), context_length=32768)) == ()


def test_a_profile_says_what_is_asked() -> None:
    made = Profile.model_validate_json(
        """{"schema": 1, "name": "a", "stack": "s", "model": {"kind": "path", "path": "/m"},
        "served_model_name": "smol", "args": {"kv_cache_dtype": "auto", "max_total_tokens": "16Ki",
        "context_length": 4096, "attention_backend": "triton", "page_size": 64},
        "policy": {"kv": "allow_any", "reason": "measured"}}"""
    )
    assert asked_by(made) == Asked("smol", "", False, 16384, 4096, "triton", 64)


def test_numbers_per_token() -> None:
    assert elements_per_token(SMOL) == ELEMENTS == 11520
    assert elements_per_token(SMOL, ranks=8) == 2 * 30 * 64
    assert elements_per_token(SMOL | {"layer_types": ["full_attention"] * 30}) == ELEMENTS
    plain = {k: v for k, v in SMOL.items() if k not in ("head_dim", "num_key_value_heads")}
    assert elements_per_token(plain) == 2 * 30 * 9 * 64
    assert elements_per_token(SMOL | {"v_head_dim": 32}) == 30 * 3 * (64 + 32)
    for key, value in (
        ("kv_lora_rank", 512),
        ("attn_layer_period", 8),
        ("multi_query_group_num", 2),
        ("sliding_window", 4096),
        ("layer_types", ["full_attention", "linear_attention"]),
        ("num_hidden_layers", None),
    ):
        assert elements_per_token(SMOL | {key: value}) is None
    assert elements_per_token([]) is None
    assert elements_per_token(SMOL | {"layer_types": [{"a": 1}, ["full_attention"]]}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*INFO, "data", "id"]), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(JSON, JSON)
def test_any_answer_of_a_server_is_read(info: object, models: object) -> None:
    assert isinstance(compare(ASKED, effective(read(V0523), info, models), ELEMENTS), tuple)
