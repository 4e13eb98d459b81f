"""Flags of a profile become the launch that sizing reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.accuracy.geometry import Geometry, Latent, Layer
from firstlight.accuracy.kvcache import price
from firstlight.accuracy.kvdsa import bare_rows
from firstlight.accuracy.kvflags import flags, from_words
from firstlight.accuracy.kvlaunch import BF16, Launch, Speculation
from firstlight.accuracy.kvwindow import in_one_pool
from firstlight.core.errors import FirstlightError

NEW, OLD = "0.5.23", "0.5.9"


def test_no_flag_is_the_engine_as_it_comes() -> None:
    found = flags(OLD, {})
    assert found.launch == Launch(version=OLD)
    assert (found.fraction, found.context, found.gpus, found.replicas) == (None, None, 1, 1)
    assert found.kv_dtype == "auto"
    assert [note.partition(":")[0] for note in found.notes] == ["kv_cache_dtype is auto"]


def test_every_knob_of_sizing_is_read() -> None:
    args: dict[str, Any] = {
        "kv_cache_dtype": "fp8_e4m3",
        "tensor_parallel_size": 8,
        "pp_size": 2,
        "page_size": 64,
        "swa_full_tokens_ratio": 0.5,
        "mamba_full_memory_ratio": "0.3",
        "max_mamba_cache_size": 96,
        "mamba_ssm_dtype": "bfloat16",
        "disable_radix_cache": True,
        "mamba_radix_cache_strategy": "no_buffer",
        "disable_overlap_schedule": True,
        "max_running_requests": 32,
        "max_total_tokens": 4096,
        "language_model_only": True,
        "mm_feature_transport": "cuda_ipc",
        "dsa_prefill_backend": "trtllm",
        "enable_hierarchical_cache": True,
        "mem_fraction_static": 0.8,
        "context_length": 1000,
        "chunked_prefill_size": 4096,
    }
    found = flags(NEW, args)
    assert found.launch == Launch(
        version=NEW,
        kv_dtype="fp8_e4m3",
        tp=8,
        pp=2,
        page_size=64,
        swa_ratio=0.5,
        state_ratio=0.3,
        state_slots=96,
        ssm_dtype="bfloat16",
        radix=False,
        overlap=False,
        max_running=32,
        chunk=4096,
        max_total_tokens=4096,
        language_only=True,
        features_on_gpu=True,
        dsa_raw=True,
        index_everywhere=True,
    )
    assert (found.fraction, found.context, found.chunk, found.gpus) == (0.8, 1000, 4096, 16)
    assert found.notes == ()


@pytest.mark.parametrize(
    "args, dp, replicas",
    [
        ({"dp_size": 4}, 1, 4),
        ({"dp_size": 4, "enable_dp_attention": True}, 4, 1),
        ({"attn_dp_size": 4}, 4, 1),
        ({"attn_dp_size": 4, "dp_size": 4}, 4, 1),
        ({"attn_dp_size": 2, "dp_size": 4}, 2, 2),
    ],
)
def test_data_parallelism_is_of_two_kinds(args: dict[str, Any], dp: int, replicas: int) -> None:
    found = flags(NEW, {"tp_size": 8, "kv_cache_dtype": "bf16", "page_size": 1, **args})
    assert (found.launch.dp, found.replicas) == (dp, replicas)
    assert any("side by side" in note for note in found.notes) == (replicas > 1)


@pytest.mark.parametrize(
    "args, made, noted",
    [
        ({"speculative_algorithm": "NEXTN", "speculative_num_draft_tokens": 6}, Speculation(6), ""),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": 2}, Speculation(3), "3 is"),
        ({"speculative_algorithm": "EAGLE"}, Speculation(4, tree=3), "4 is taken"),
        (
            {"speculative_algo": "eagle", "speculative_draft_model_path": "/d"},
            Speculation(4, path=True, tree=3),
            "config is not read",
        ),
        ({"speculative_algorithm": "DFLASH"}, Speculation(16, "dflash", tree=1), "its own"),
        (
            {"speculative_algorithm": "DSPARK", "speculative_dspark_block_size": 5},
            Speculation(6, "dflash"),
            "its own",
        ),
        ({"speculative_algorithm": "NGRAM"}, Speculation(12, layers=0, tree=1), "12 is taken"),
    ],
)
def test_speculation(args: dict[str, Any], made: Speculation, noted: str) -> None:
    found = flags(NEW, args)
    assert found.launch.speculation == made
    assert noted in "; ".join(found.notes)


@pytest.mark.parametrize(
    "name, version, tokens, tree",
    [
        ("LlamaForCausalLM", NEW, 8, 20),
        ("LlamaForCausalLM", OLD, 8, 20),
        ("Grok1ForCausalLM", NEW, 8, 20),
        ("Qwen3MoeForCausalLM", NEW, 4, 3),
        ("Qwen3MoeForCausalLM", "0.5.8", 4, 3),
        ("Qwen3MoeForCausalLM", "0.5.7", 8, 20),
        ("Glm4MoeForCausalLM", "0.5.7", 4, 3),
        ("Glm4MoeForCausalLM", "0.5.6", 8, 20),
        ("DeepseekV3ForCausalLM", "0.4.7", 4, 3),
        ("DeepseekV3ForCausalLM", "0.4.6", 8, 20),
    ],
)
def test_a_draft_without_its_length_is_as_long_as_class_and_version_say(
    name: str, version: str, tokens: int, tree: int
) -> None:
    """Four tokens were taken for all of them, and no tree."""
    args: dict[str, Any] = {"speculative_algorithm": "EAGLE"}
    found = flags(version, args, geometry=of_class(name))
    assert found.launch.speculation == Speculation(tokens, tree=tree)
    assert f"{tokens} is taken, as {version} does" in "; ".join(found.notes)
    alone = flags(version, {"speculative_algorithm": "STANDALONE"}, geometry=of_class(name))
    assert alone.launch.speculation == Speculation(4, layers=0, tree=3)


def of_class(name: str) -> Geometry:
    """A model of that class, with a sparse index where the class has one."""
    indexed = 128 if name in ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM") else 0
    return Geometry(name, "", (Layer(Latent(512, 64, indexed)),))


@pytest.mark.parametrize(
    "algorithm, heads, layers, noted",
    [
        ("EAGLE3", 0, 1, "one layer is taken"),
        ("EAGLE", 0, 1, "one layer is taken"),
        ("EAGLE3", 1, 1, "one layer is taken"),
        ("EAGLE", 1, None, "taken as the head's"),
        ("STANDALONE", 0, 0, "rows of a STANDALONE draft are its own"),
        ("DFLASH", 0, None, "rows of a DFLASH draft are its own"),
    ],
)
def test_a_draft_of_its_own_is_not_as_deep_as_its_target(
    algorithm: str, heads: int, layers: int | None, noted: str
) -> None:
    """Beside a model without a head it was priced with as many layers, or with none."""
    made = of_class("LlamaForCausalLM")
    target = replace(made, layers=made.layers * 32, draft=made.layers * heads)
    args: dict[str, Any] = {"speculative_draft_model_path": "/d", "page_size": 1}
    found = flags("0.5.16", {**args, "speculative_algorithm": algorithm}, geometry=target)
    assert found.launch.speculation and found.launch.speculation.layers == layers
    assert noted in "; ".join(found.notes)
    if algorithm == "EAGLE3":
        without = price(target, flags("0.5.16", {}, geometry=target).launch)
        assert price(target, found.launch) == without * 33 // 32


DSV32, GLM5 = "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"
TRTLLM, FLASHMLA = {"dsa_decode_backend": "trtllm"}, {"dsa_decode_backend": "flashmla_kv"}
BOTH_FLASHMLA = {**FLASHMLA, "dsa_prefill_backend": "flashmla_kv"}
TILELANG = {"dsa_decode_backend": "tilelang", "dsa_prefill_backend": "tilelang"}
PREFILL = {**TRTLLM, "dsa_prefill_backend": "flashmla_kv", "disaggregation_mode": "prefill"}


@pytest.mark.parametrize(
    "name, version, sm, args, bare",
    [
        (DSV32, NEW, 120, {}, True),
        (DSV32, NEW, 100, {}, True),
        (DSV32, NEW, 90, {}, False),
        (DSV32, NEW, None, {}, False),
        (DSV32, "0.5.10", 120, BOTH_FLASHMLA, True),
        (DSV32, OLD, 120, {}, False),
        (GLM5, NEW, 120, {}, False),
        (GLM5, NEW, 121, {}, False),
        (GLM5, NEW, 100, {}, True),
        (GLM5, "0.5.16", 120, {}, True),
        # A side that is named leaves the other to the card.
        (DSV32, NEW, 120, FLASHMLA, True),
        (DSV32, NEW, 120, BOTH_FLASHMLA, False),
        (DSV32, OLD, 90, TRTLLM, True),
        (DSV32, NEW, 120, {"enable_hisparse": True}, False),
        (DSV32, NEW, 90, TILELANG, True),
        (DSV32, "0.5.16", 90, TILELANG, False),
        (DSV32, NEW, 90, PREFILL, False),
        (DSV32, "0.5.20", 90, PREFILL, True),
    ],
)
def test_rows_of_dsa_go_by_card_version_and_kernel(
    name: str, version: str, sm: int | None, args: dict[str, Any], bare: bool
) -> None:
    """The card's own default was not known: only a kernel that was named counted."""
    found = flags(version, {"kv_cache_dtype": "fp8_e4m3", **args}, geometry=of_class(name), sm=sm)
    assert found.launch.dsa_raw is bare
    assert ("which card is not known" in "; ".join(found.notes)) == (sm is None)


def test_a_card_that_is_not_known_matters_to_dsa_alone() -> None:
    args: dict[str, Any] = {"kv_cache_dtype": "fp8_e4m3"}
    assert flags(NEW, args, geometry=of_class("DeepseekV2ForCausalLM")).notes == ()
    assert flags("0.5.9", args, geometry=of_class(DSV32)).notes == ()
    assert flags(NEW, {**args, **BOTH_FLASHMLA}, geometry=of_class(DSV32)).notes == ()


def test_rocm_has_kernels_of_its_own() -> None:
    assert bare_rows({}, DSV32, "0.5.10", None, rocm=True)
    assert not bare_rows({}, DSV32, "0.5.9", None, rocm=True)


@pytest.mark.parametrize(
    "name, version, args, one",
    [
        ("GptOssForCausalLM", NEW, {}, False),
        ("GptOssForCausalLM", NEW, {"disable_hybrid_swa_memory": True}, True),
        ("GptOssForCausalLM", "0.5.8", {"speculative_algorithm": "EAGLE3"}, True),
        ("GptOssForCausalLM", "0.5.9", {"speculative_algorithm": "EAGLE3"}, False),
        ("GptOssForCausalLM", "0.5.9", {"attention_backend": "trtllm_mha"}, True),
        ("GptOssForCausalLM", "0.5.10", {"attention_backend": "trtllm_mha"}, False),
        ("MiMoV2FlashForCausalLM", "0.5.9", {"enable_hierarchical_cache": True}, True),
        ("MiMoV2FlashForCausalLM", "0.5.16", {"enable_hierarchical_cache": True}, False),
        ("Step3p5ForCausalLM", NEW, {"enable_hierarchical_cache": True}, True),
        ("Step3p5ForCausalLM", NEW, {}, False),
    ],
)
def test_flags_that_leave_one_pool(name: str, version: str, args: Any, one: bool) -> None:
    assert in_one_pool(name, version, args) is one


@pytest.mark.parametrize(
    "version, args, strategy, slots",
    [
        (OLD, {}, "no_buffer", 3),
        (NEW, {}, "extra_buffer", 5),
        ("0.5.13", {}, "no_buffer", 3),
        ("0.5.14", {}, "extra_buffer", 5),
        (NEW, {"linear_attn_backend": "flashinfer"}, "no_buffer", 3),
        (NEW, {"disable_overlap_schedule": True}, "no_buffer", 3),
        (NEW, {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, "extra_buffer_lazy", 4),
        (OLD, {"mamba_scheduler_strategy": "extra_buffer"}, "extra_buffer", 5),
        (OLD, {"speculative_algorithm": "EAGLE"}, "no_buffer", 1),
    ],
)
def test_how_states_are_kept(version: str, args: Any, strategy: str, slots: int) -> None:
    found = flags(version, args).launch
    assert (found.strategy, found.slots_per_request) == (strategy, slots)


@pytest.mark.parametrize(("mode", "every"), [("null", False), ("prefill", True), ("decode", True)])
def test_prefill_and_decode_apart_keep_every_index(mode: str, every: bool) -> None:
    assert flags(NEW, {"disaggregation_mode": mode}).launch.index_everywhere is every


def test_chunks_that_are_off_are_not_known() -> None:
    assert flags(NEW, {"chunked_prefill_size": -1}).launch.chunk is None
    assert flags(NEW, {"chunked_prefill_size": 8192}).launch.chunk == 8192


def test_the_branches_of_a_draft_are_steps_times_their_number() -> None:
    args: dict[str, Any] = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 5}
    spec = flags(NEW, {**args, "speculative_eagle_topk": 4}).launch.speculation
    assert spec == Speculation(6, tree=20)
    assert flags(NEW, args).launch.speculation == Speculation(6)


def test_the_environment_wins_over_the_flag() -> None:
    env = {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}
    assert flags(NEW, {"mamba_ssm_dtype": "float32"}, env).launch.ssm_dtype == "bfloat16"


@pytest.mark.parametrize(
    "args, said",
    [
        ({"tp_size": "eight"}, "tp_size is 'eight', and a whole number is expected"),
        ({"mem_fraction_static": "most"}, "mem_fraction_static is 'most'"),
        ({"mamba_radix_cache_strategy": "big"}, "no_buffer or extra_buffer or"),
        ({"mamba_ssm_dtype": "fp8"}, "float32 or bfloat16 or float16"),
        ({"kv_cache_dtype": "fp9"}, "'fp9' is no KV dtype"),
        ({"tp_size": 6, "attn_dp_size": 4}, "tp is a multiple of dp"),
        ({"tp_size": 0}, "tp_size is 0, and 1 or more is expected"),
        ({"context_length": -1}, "context_length is -1, and 0 or more is expected"),
        ({"speculative_algorithm": "NEXTN", "speculative_num_draft_tokens": -3}, "0 or more"),
        ({"mamba_full_memory_ratio": "inf"}, "'inf', and a number is expected"),
    ],
)
def test_values_that_no_engine_takes_are_told(args: dict[str, Any], said: str) -> None:
    with pytest.raises(FirstlightError, match=said):
        flags(NEW, args)


def test_what_is_not_modelled_is_said() -> None:
    args: dict[str, Any] = {
        "enable_hisparse": True,
        "dcp_size": 2,
        "attention_backend": "trtllm_mha",
    }
    notes = "; ".join(flags(NEW, args).notes)
    for word in ("enable_hisparse is not modelled", "dcp_size is not", "pages of 64"):
        assert word in notes
    assert flags(NEW, args).launch.kv_dtype == BF16


def test_words_of_a_command_line() -> None:
    words = ["--tp-size", "8", "--language-model-only", "--page-size=64", "stray", "--x"]
    assert from_words(words) == {
        "tp_size": "8",
        "language_model_only": True,
        "page_size": "64",
        "x": True,
    }


@given(st.lists(st.text(max_size=8)))
def test_any_words_can_be_read(words: list[str]) -> None:
    assert len(from_words(words)) <= sum(word.startswith("--") for word in words)
