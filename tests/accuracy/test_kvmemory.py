"""The memory that is left: estimated from weights, measured by a server, or not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import kv_example
from firstlight.accuracy import checkpoint as checkpoints
from firstlight.accuracy.card import card
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.fitting import Workload, fit
from firstlight.accuracy.kvcache import capacity
from firstlight.accuracy.kvflags import Flags, flags
from firstlight.accuracy.kvlaunch import BF16, GIB, Budget
from firstlight.accuracy.kvmemory import (
    Memory,
    Missing,
    Served,
    estimate,
    measured,
    odd_rows,
    served_by,
    weights_bytes,
)
from firstlight.accuracy.kvneed import needs
from firstlight.effects.local import LocalShell
from firstlight.flows.checkpoint import read_folder
from firstlight.hosts.inventory import Host
from tests.remote.checkpoints import checkpoint, layer, zeros

QWEN35 = kv_example.model()
ARGS: dict[str, Any] = {
    "tp_size": 8,
    "kv_cache_dtype": "bf16",
    "language_model_only": True,
    "mamba_radix_cache_strategy": "no_buffer",
    "mem_fraction_static": 0.8,
}
CARD_MIB = 97_887
WORK = Workload(16, 65_536)


def asked(**more: Any) -> Flags:
    return flags("0.5.23", {**ARGS, **more})


@pytest.fixture
def found(tmp_path: Path) -> Checkpoint:
    """A model of 60 layers of which two are there, and a draft head beside them."""
    draft = {"mtp.layers.0.self_attn.k_proj.weight": zeros("BF16", 64, 8)}
    folder = checkpoint(tmp_path, layer(0), layer(1) | draft, config=kv_example.CONFIG)
    shell = LocalShell(Host(name="local"))
    return checkpoints.describe(read_folder(shell, PurePosixPath(folder)))


def test_a_draft_that_is_not_switched_on_is_not_loaded(found: Checkpoint) -> None:
    layers = 2 * (2 * 4 * 8 * 2 + 2 * 4 * 4)
    assert weights_bytes(found, asked()) == layers
    assert weights_bytes(found, asked(speculative_algorithm="NEXTN")) == layers + 64 * 8 * 2


def test_an_estimate_says_that_it_is_one(found: Checkpoint) -> None:
    made = estimate(found, QWEN35, asked(), [CARD_MIB, CARD_MIB - 100] * 4, "gpu01")
    assert isinstance(made, Memory) and isinstance(made.left, Budget)
    before = (CARD_MIB - 100) / 1024 - 2.7
    after = before - weights_bytes(found, asked()) / 8 / GIB
    assert made.rest_gib == pytest.approx(after - before * 0.2)
    assert (made.source, made.left.measured) == ("estimate", False)
    assert "estimated" in made.told and "own" not in made.told
    assert not card(QWEN35, asked().launch, made.left).measured


def test_a_fraction_that_is_not_named_is_the_engines_own(found: Checkpoint) -> None:
    made = estimate(found, QWEN35, asked(mem_fraction_static=None), [CARD_MIB] * 8, "gpu01")
    assert isinstance(made, Memory) and isinstance(made.left, Budget)
    assert made.left.fraction == pytest.approx(0.844)
    assert "fraction 0.844, the engine's own" in made.told


def test_fewer_cards_than_asked_for_are_told(found: Checkpoint) -> None:
    made = estimate(found, QWEN35, asked(), [CARD_MIB] * 4, "gpu01")
    assert isinstance(made, Memory)
    assert "gpu01 has 4 GPUs, the launch asks for 8" in made.told


@pytest.mark.usefixtures("found")
def test_facts_that_are_missing_are_listed(tmp_path: Path) -> None:
    bare = checkpoint(tmp_path / "bare", config=kv_example.CONFIG, index=False)
    shell = LocalShell(Host(name="local"))
    empty = checkpoints.describe(read_folder(shell, PurePosixPath(bare)))
    made = estimate(empty, QWEN35, asked(), [], "local")
    assert made == Missing(
        ("the memory of a GPU: local has none", f"the weights: {bare} holds no safetensors")
    )
    broken = next(tmp_path.glob("model-00001*"))
    broken.write_bytes(broken.read_bytes()[:10])
    half = checkpoints.describe(read_folder(shell, PurePosixPath(tmp_path)))
    assert estimate(half, QWEN35, asked(), [CARD_MIB], "x") == Missing(
        ("the weights: not every shard could be read",)
    )


@settings(max_examples=40, deadline=None)
@given(gib=st.floats(1.0, 80.0), dtype=st.sampled_from(["bfloat16", "float8_e4m3fn"]))
def test_measured_tokens_give_back_themselves(gib: float, dtype: str) -> None:
    launch = replace(asked().launch, kv_dtype="bf16" if dtype == "bfloat16" else "fp8_e4m3")
    tokens = capacity(QWEN35, launch, gib).tokens
    made = measured(QWEN35, asked(), Served(f"torch.{dtype}", tokens), None)
    assert made is not None and made.source == "measured"
    # Where one slot more is taken, tokens fall back by as much as a slot holds.
    slot = 24_007_680 / GIB
    assert made.rest_gib == pytest.approx(gib, abs=2.2 * slot)
    assert 0 <= capacity(QWEN35, launch, made.rest_gib).tokens - tokens <= slot * GIB / 7_680


def test_a_measurement_stands_beside_the_estimate() -> None:
    guess = Memory(Budget(93.0, 60.0, 0.8, measured=False), "estimate", "")
    there = int(capacity(QWEN35, asked().launch, guess.rest_gib).tokens * 0.9)
    made = measured(QWEN35, asked(), Served("torch.bfloat16", there), guess)
    assert made is not None and isinstance(made.left, Budget)
    assert made.left.measured
    assert made.left.rest_gib < guess.rest_gib
    assert "(+11.1%)" in made.told


def test_a_cap_on_tokens_measures_the_cap() -> None:
    capped = asked(max_total_tokens=16_384)
    made = measured(QWEN35, capped, Served("torch.bfloat16", 16_384, 0.24), None)
    assert made is not None
    assert "there may be more memory" in made.told
    assert measured(QWEN35, capped, Served("torch.bfloat16", 20_000), None) is None
    assert measured(QWEN35, capped, Served("torch.uint8", 16_384), None) is None


def test_a_pool_of_another_size_than_predicted_is_told() -> None:
    tokens, row = 641_164, 15_360
    right = Served("torch.bfloat16", tokens, (tokens + 1) * row / GIB)
    assert odd_rows(QWEN35, asked(), right) == ""
    double = replace(right, kv_gib=2 * (right.kv_gib or 0))
    assert "30,720 bytes a token, and 15,360" in odd_rows(QWEN35, asked(), double)
    assert odd_rows(QWEN35, asked(), replace(right, kv_gib=None)) == ""
    assert odd_rows(QWEN35, asked(), replace(right, kv_gib=8 * (right.kv_gib or 0))) == ""


def test_a_proof_that_says_too_little_is_none() -> None:
    whole = {"kv_dtype": "torch.bfloat16", "kv_tokens": 10, "kv_gib": 1}
    assert served_by(whole) == Served("torch.bfloat16", 10, 1.0)
    assert served_by({**whole, "kv_tokens": None}) is None
    assert served_by({}) is None


def test_what_a_workload_needs_is_just_enough() -> None:
    launch = asked().launch
    wide, narrow, _ = needs(QWEN35, launch, WORK)
    assert (wide.kv_dtype, wide.row_bytes, wide.slot_bytes) == (BF16, 15_360, 24_007_680)
    assert wide.gib is not None and narrow.gib is not None and narrow.gib < wide.gib
    for gib, enough in ((wide.gib, True), (wide.gib - 0.05, False)):
        held = fit(QWEN35, launch, capacity(QWEN35, launch, gib), WORK.context)
        assert (held.requests >= WORK.concurrency) is enough
    never = needs(QWEN35, asked(max_total_tokens=1000).launch, WORK)
    assert [need.gib for need in never] == [None] * 3
    assert needs(QWEN35, launch, None)[0].gib is None
