"""A config.json becomes what each layer keeps, or a list of what is missing; never a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.accuracy.attention import describe
from firstlight.accuracy.classes import (
    INDEXED,
    LATENT,
    NOT_MODELLED,
    ONE_POOL_FIRST,
    TWO_POOLS,
)
from firstlight.accuracy.configclasses import INDEXED_ALWAYS
from firstlight.accuracy.configkeys import overridden
from firstlight.accuracy.geometry import Geometry, Heads, Latent, State, Unknown
from firstlight.accuracy.kvcache import capacity
from firstlight.accuracy.kvlaunch import GIB, Launch
from firstlight.accuracy.kvstate import state_bytes
from firstlight.accuracy.rules import OVERRIDES
from tests.accuracy import shapes
from tests.accuracy.shapes import EVERY, Config


def known(config: Config) -> Geometry:
    found = describe(config)
    assert isinstance(found, Geometry), str(found)
    return found


def missing(config: Config) -> str:
    found = describe(config)
    assert isinstance(found, Unknown)
    return "\n".join(found.missing)


def test_an_override_of_a_part_leaves_the_rest_of_it() -> None:
    config = {"text_config": {"head_dim": 64, "num_hidden_layers": 8}, "a": 1}
    changed = overridden(config, '{"text_config": {"num_hidden_layers": 4}, "a": {"b": 2}}')
    assert changed == {"text_config": {"head_dim": 64, "num_hidden_layers": 4}, "a": {"b": 2}}
    quantised = {"quantization_config": {"kv_cache_scheme": {"type": "int"}}}
    instead = {"quantization_config": {"kv_cache_quant_algo": "FP8"}}
    assert overridden(quantised, instead) == instead
    for odd in (None, "{", "[]", "[" * 10000, 5):
        assert overridden(config, odd) == config


def test_a_pixtral_is_latent_where_it_has_a_rank() -> None:
    """PixtralForConditionalGeneration is Pixtral 12B and Mistral Large 3 both."""
    text = {"num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8}
    heads = {"architectures": ["PixtralForConditionalGeneration"], "text_config": text}
    with_dim = {**heads, "text_config": {**text, "head_dim": 128}}
    assert known(with_dim).full[0].rows == Heads(8, 128, 128)
    ranked = {**text, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128}
    assert known({**heads, "text_config": ranked}).full[0].rows == Latent(512, 64)


def test_a_deepseek_ocr_has_heads() -> None:
    """Its class is not among the latent ones, though its config is a DeepSeek-V2's."""
    language = {"num_hidden_layers": 12, "num_attention_heads": 10, "hidden_size": 1280}
    config = {"architectures": ["DeepseekOCRForCausalLM"], "language_config": language}
    assert known(config).full[0].rows == Heads(10, 128, 128)


def test_a_class_that_keeps_rows_in_every_layer_is_not_asked_for_their_kinds() -> None:
    """GLM-5.2 lists all its layers as `deepseek_sparse_attention`."""
    kinds = {"layer_types": ["deepseek_sparse_attention"] * 61}
    assert known({**shapes.DEEPSEEK_V32, **kinds}).full == known(shapes.DEEPSEEK_V32).full
    nameless = {**shapes.DEEPSEEK_V32, **kinds, "architectures": None}
    assert len(known(nameless).full) == 61
    assert len(known({**shapes.LLAMA_8B, "layer_types": ["ring"] * 32}).full) == 32


def test_heads_that_blocks_share() -> None:
    """A DeciLM (Nemotron Super): blocks without attention have rows in the pool all the same."""
    own = {"no_op": False, "n_heads_in_group": 8}
    blocks = [{"attention": own}, {"attention": {"no_op": True, "n_heads_in_group": None}}] * 40
    config = {
        "architectures": ["DeciLMForCausalLM"],
        **{"num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192},
        **{"num_key_value_heads": None, "block_configs": blocks},
    }
    found = known(config)
    assert (len(found.full), found.full[0].rows, found.notes) == (80, Heads(8, 128, 128), ())
    other = {"attention": {**own, "n_heads_in_group": 16}}
    assert "different numbers" in missing({**config, "block_configs": [*blocks, other]})
    odds: list[object] = ["x", [1], [{"attention": 5}], {}]
    for odd in odds:
        assert known({**config, "block_configs": odd}).full[0].rows == Heads(64, 128, 128)


def test_heads_in_a_part_for_attention() -> None:
    config = {"architectures": ["DbrxForCausalLM"], "n_layers": 40, "n_heads": 48, "d_model": 6144}
    found = known({**config, "attn_config": {"kv_n_heads": 8}})
    assert (len(found.full), found.full[0].rows) == (40, Heads(8, 128, 128))


def test_kimi_k3_has_states_and_latent_rows() -> None:
    text = {k: v for k, v in shapes.KIMI_LINEAR.items() if k != "architectures"}
    config = {"architectures": ["KimiK3ForConditionalGeneration"], "text_config": text}
    assert known(config).kind == "MLA + KDA"


def test_a_class_keeps_one_pool_until_its_version_has_two() -> None:
    """A note said so, and the figures were those of two."""
    gpt = EVERY["gpt-oss"]
    before, after = describe(gpt, "0.5.7"), describe(gpt, "0.5.8")
    assert isinstance(before, Geometry) and isinstance(after, Geometry)
    assert (len(before.full), len(before.sliding), before.kind) == (36, 0, "MHA/GQA")
    assert (len(after.full), len(after.sliding)) == (18, 18)
    launch = Launch(version="0.5.7", kv_dtype="bf16")
    told = "0.5.7 keeps one pool for all layers of GptOssForCausalLM; 0.5.8 has two"
    found = capacity(before, launch, 10.0)
    assert told in found.notes and found.sliding is None
    assert found.tokens == int(10 * GIB) // (36 * 8 * 64 * 2 * 2)


def test_a_flag_leaves_one_pool_in_every_version() -> None:
    found = describe(EVERY["gpt-oss"], "0.5.23", one_pool=True)
    assert isinstance(found, Geometry)
    assert (len(found.full), found.sliding, found.two_pools_since) == (36, (), "")


def test_a_class_that_came_with_two_pools_is_told_to_be_missing() -> None:
    found = describe(EVERY["gemma4"], "0.5.10")
    assert isinstance(found, Geometry) and found.sliding
    notes = capacity(found, Launch(version="0.5.10"), 10.0).notes
    assert any("0.5.10 does not have Gemma4" in note for note in notes)


GLM5: Config = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "num_hidden_layers": 8,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}


def test_what_the_class_has_counts_where_the_file_leaves_it_out() -> None:
    """GLM-5 without `index_topk` was sized without an index, where the audit knew of one."""
    for name in INDEXED_ALWAYS:
        (rows,) = {layer.rows for layer in known({**GLM5, "architectures": [name]}).full}
        assert rows == Latent(512, 64, 128)
    none = known({**GLM5, "index_topk": None})
    assert none.full[0].rows == Latent(512, 64)
    assert known({**GLM5, "index_head_dim": 64}).full[0].rows == Latent(512, 64, 64)


def test_a_part_may_leave_out_what_is_usual_for_its_type() -> None:
    """Gemma 3 of 12 B names no head dim, that of 4 B no heads either: 256, and not 3840 / 16."""
    for sizes, rows in (
        ({"num_attention_heads": 16, "num_key_value_heads": 8}, Heads(8, 256, 256)),
        ({}, Heads(4, 256, 256)),
        ({"num_key_value_heads": 2, "head_dim": 128}, Heads(2, 128, 128)),
    ):
        part = {"model_type": "gemma3_text", "hidden_size": 3840, "num_hidden_layers": 48, **sizes}
        config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": part}
        assert {layer.rows for layer in known(config).full} == {rows}
    llava = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    found = known({**llava, "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert [layer.rows for layer in found.full] == [Heads(32, 128, 128)] * 32
    assert isinstance(describe({**llava, "text_config": {"vocab_size": 32064}}), Unknown)


def test_the_head_dim_of_a_class_where_the_file_has_none() -> None:
    qwen = {**shapes.LLAMA_8B, "architectures": ["Qwen3ForCausalLM"], "hidden_size": 2048}
    without = {key: value for key, value in qwen.items() if key != "head_dim"}
    assert known(without).full[0].rows == Heads(8, 128, 128)


def test_an_index_is_one_from_the_version_on_that_has_it() -> None:
    dsa = {**GLM5, "architectures": ["DeepseekV3ForCausalLM"], "index_head_dim": 128}
    longcat = {**dsa, "architectures": ["LongcatFlashForCausalLM"], "index_topk": 2048}
    assert known(dsa).full[0].rows == Latent(512, 64)
    assert known(longcat).full[0].rows == Latent(512, 64, 128)
    older = describe(longcat, "0.5.12")
    assert isinstance(older, Geometry) and older.full[0].rows == Latent(512, 64)


def test_hunyuan_4_finds_its_top_k_in_every_fourth_layer() -> None:
    found = known({**GLM5, "architectures": ["HYV4ForCausalLM"]})
    assert [layer.indexed for layer in found.full] == [n in (0, 1, 5) for n in range(8)]
    assert len(found.draft) == 1 and "16 bits alone" in "; ".join(found.notes)


def test_glm_5_next_has_an_index_in_the_layers_without_a_state() -> None:
    text: Config = {"num_hidden_layers": 8, "kv_lora_rank": 512, "index_topk": 2048}
    text = {**text, "index_head_dim": 128, "index_kpool": 4}
    config = {"architectures": ["Glm5NextForConditionalGeneration"], "text_config": text}
    found = known(config)
    assert [layer.state is None for layer in found.layers] == [n in (3, 7) for n in range(8)]
    assert found.full[0].rows == Latent(512, 0, 128, 4)
    assert found.states[0] == State("KDA", 64, 128, 128, channels=3 * 64 * 128, groups=0, kernel=4)
    own = {"kda_layers": [0], "num_heads": 2, "head_dim": 64, "short_conv_kernel_size": 4}
    named = known({**config, "text_config": {**text, "linear_attn_config": own}})
    assert [layer.state is None for layer in named.layers] == [False, *[True] * 7]


def test_the_audit_and_the_arithmetic_know_the_same_classes() -> None:
    """They had tables of their own, of which one was older."""
    rules = {name for row in OVERRIDES if row.name == "DSA" for name in row.architectures}
    assert rules == INDEXED.keys()
    assert INDEXED.keys() <= LATENT | NOT_MODELLED.keys()
    assert INDEXED.keys() >= INDEXED_ALWAYS
    assert ONE_POOL_FIRST.keys() <= TWO_POOLS.keys()


def test_an_index_beside_k_and_v() -> None:
    found = known(shapes.QWEN4_EXP)
    assert found.kind == "MHA/GQA + index (QSA) + GDN"
    assert {layer.rows for layer in found.full} == {Heads(2, 256, 256, 128, 4)}
    assert "pages of 64 tokens" in "; ".join(found.notes)
    text = dict(shapes.QWEN4_EXP["text_config"])
    without = {key: value for key, value in text.items() if not key.startswith("indexer_")}
    assert known({**shapes.QWEN4_EXP, "text_config": without}).full[0].rows == Heads(2, 256, 256)
    lacks = missing({**shapes.QWEN4_EXP, "text_config": {**without, "indexer_n_heads": 4}})
    assert lacks == (
        "index dim: indexer_head_dim is not given\n"
        "tokens of one index key: indexer_compress_ratio is not given"
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [("NanbeigeForCausalLM", "num_loops"), ("IQuestLoopCoderForCausalLM", "loop_num")],
)
def test_layers_that_are_run_in_a_loop_have_rows_for_each_round(name: str, key: str) -> None:
    """Nanbeige was sized for one round, whatever its config said."""
    config = {**shapes.LLAMA_8B, "architectures": [name]}
    assert [len(known(config | more).full) for more in ({}, {key: 2}, {key: None})] == [32, 64, 32]


def test_a_class_that_transformers_runs_has_plain_heads_in_every_layer() -> None:
    """A public boot of Gemma 4 31B on 0.5.10: 28,938 tokens in FP8 take 6.62 GiB of K."""
    text = shapes.GEMMA4_31B["text_config"]
    config = {"architectures": ["TransformersMultiModalForCausalLM"], "text_config": text}
    found = known(config)
    assert (len(found.full), found.full[0].rows, found.sliding) == (60, Heads(16, 256, 256), ())


def test_a_pattern_that_the_class_has_where_the_file_leaves_it_out() -> None:
    spark = {**shapes.LLAMA_8B, "architectures": ["Spark2_5ForCausalLM"]}
    assert (len(known(spark).full), len(known(spark).sliding)) == (8, 24)
    named = known({**spark, "layer_types": ["full_attention"] * 32})
    assert (len(named.full), len(named.sliding)) == (32, 0)


def test_layers_with_attention_by_number() -> None:
    text = {k: v for k, v in shapes.QWEN36_27B["text_config"].items() if "interval" not in k}
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "full_attention_layers": [0, 63]}
    found = known({"architectures": ["GigaChat35ForCausalLM"], **text, **latent})
    assert [n for n, layer in enumerate(found.layers) if layer.rows] == [0, 63]
    assert (found.kind, found.full[0].rows) == ("MLA + GDN", Latent(512, 64))


def test_a_model_of_states_alone_is_not_sized() -> None:
    config = dict(EVERY["kimi-linear"])
    states: dict[str, object] = dict(config["linear_attn_config"])
    every = {"kda_layers": [*range(1, 100)], "full_attn_layers": []}
    told = missing(config | {"linear_attn_config": states | every})
    assert told == "a layer that keeps rows of tokens: a model of states alone is not sized here"


@pytest.mark.parametrize(
    ("name", "kind", "full", "sliding", "states", "rows"),
    [
        ("llama", "MHA/GQA", 32, 0, 0, Heads(8, 128, 128)),
        ("deepseek-r1", "MLA", 61, 0, 0, Latent(512, 64)),
        ("deepseek-v3.2", "MLA + index (DSA)", 61, 0, 0, Latent(512, 64, 128)),
        ("mimo", "MHA/GQA, two pools", 9, 39, 0, Heads(4, 192, 128)),
        ("gemma4", "MHA/GQA, two pools", 10, 50, 0, Heads(4, 512, 512)),
        ("gpt-oss", "MHA/GQA, two pools", 18, 18, 0, Heads(8, 64, 64)),
        ("qwen3.6", "MHA/GQA + GDN", 16, 0, 48, Heads(4, 256, 256)),
        ("nemotron", "MHA/GQA + Mamba 2", 6, 0, 23, Heads(2, 128, 128)),
        ("granite4", "MHA/GQA + Mamba 2", 4, 0, 36, Heads(8, 64, 64)),
        ("falcon-h1", "MHA/GQA + Mamba 2", 36, 0, 36, Heads(2, 128, 128)),
        ("ling3", "MLA + KDA", 6, 0, 18, Latent(512, 64)),
        ("kimi-linear", "MLA + KDA", 7, 0, 20, Latent(512, 64)),
        ("lfm2", "MHA/GQA + short conv", 6, 0, 10, Heads(8, 64, 64)),
        ("llama4", "MHA/GQA, two pools", 12, 36, 0, Heads(8, 128, 128)),
    ],
)
def test_each_kind_of_model(
    name: str, kind: str, full: int, sliding: int, states: int, rows: Heads | Latent
) -> None:
    found = known(EVERY[name])
    assert (found.kind, len(found.full), len(found.sliding)) == (kind, full, sliding)
    assert len(found.states) == states
    assert {layer.rows for layer in found.full} == {rows}


def test_layers_that_slide_have_heads_of_their_own() -> None:
    assert known(shapes.GEMMA4_31B).sliding[0].rows == Heads(16, 256, 256)
    assert known(shapes.MIMO_V2).sliding[0].rows == Heads(8, 192, 128)
    step = {**shapes.GPT_OSS_120B, "architectures": ["Step3p5ForCausalLM"]}
    step["attention_other_setting"] = {"num_attention_groups": 2}
    assert known(step).sliding[0].rows == Heads(2, 64, 64)


def test_a_window_is_one_pool_with_the_rest_where_the_engine_does_not_split() -> None:
    gemma3 = {**shapes.GPT_OSS_120B, "architectures": ["Gemma3ForCausalLM"]}
    assert (len(known(gemma3).full), known(gemma3).sliding) == (36, ())


def test_one_way_for_each_state_to_fill_its_published_pool() -> None:
    """Boots gf-granite4h (38 slots), gf-ling3-tp1 (614), gf-qwen36-27b-pro6000 (154)."""
    for config, slots, conv, ssm in (
        (shapes.GRANITE4_MICRO, 38, 0.03, 2.74),
        (shapes.LING3, 614, 0.38, 10.81),
        (shapes.QWEN36_27B, 154, 0.43, 21.8),
    ):
        sizes = state_bytes(known(config), Launch())
        assert sizes.conv_bytes * (slots + 1) / GIB == pytest.approx(conv, abs=0.005)
        assert sizes.ssm_bytes * (slots + 1) / GIB == pytest.approx(ssm, abs=0.005)


def test_a_short_convolution_has_a_window_and_no_matrix() -> None:
    sizes = state_bytes(known(shapes.LFM2), Launch(tp=2))
    assert (sizes.conv_bytes, sizes.ssm_bytes) == (10 * 2048 // 2 * 2 * 2, 0)


def test_the_own_head_of_a_model_is_its_draft() -> None:
    assert (len(known(shapes.DEEPSEEK_R1).draft), known(shapes.DEEPSEEK_R1).nextn) == (1, 1)
    # Qwen3.5 has a head, and not the key by which the engine prices one.
    assert (len(known(shapes.QWEN36_27B).draft), known(shapes.QWEN36_27B).nextn) == (1, None)


def test_layers_may_share_an_index() -> None:
    config = {**shapes.DEEPSEEK_V32, "num_hidden_layers": 9, "index_topk_freq": 4}
    kept = [n for n, layer in enumerate(known(config).layers) if layer.indexed]
    assert kept == [0, 1, 5]
    shared = {**config, "indexer_types": ["full", "shared", "shared"] * 3}
    assert [la.indexed for la in known(shared).layers] == [True, False, False] * 3


def test_longcat_has_two_attentions_a_block() -> None:
    config = {**shapes.DEEPSEEK_R1, "architectures": ["LongcatFlashForCausalLM"]}
    assert len(known({**config, "num_hidden_layers": 28}).full) == 56


def test_one_head_for_all_queries() -> None:
    config = {**shapes.LLAMA_8B, "architectures": ["GPTBigCodeForCausalLM"], "multi_query": True}
    assert known(config).full[0].rows == Heads(1, 128, 128)


def test_as_many_kv_heads_as_heads_is_said() -> None:
    config = {k: v for k, v in shapes.LLAMA_8B.items() if k != "num_key_value_heads"}
    found = known(config)
    assert found.full[0].rows == Heads(32, 128, 128)
    assert found.notes == (
        "the config names no KV heads: as many as attention heads, as the engine takes it",
    )


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"architectures": ["NewForCausalLM"]}, "what attention NewForCausalLM has"),
        ({**shapes.LLAMA_8B, "architectures": ["NewForCausalLM"]}, "the class is in no table"),
        ({}, "num_hidden_layers is not given"),
        ({**shapes.LLAMA_8B, "num_hidden_layers": "many"}, "num_hidden_layers is not given"),
        (
            {**shapes.LLAMA_8B, "hidden_size": None},
            "head dim: hidden_size or n_embd or d_model",
        ),
        ({**shapes.LLAMA_8B, "hidden_size": 8}, "hidden_size is smaller than num_attention_heads"),
        ({**shapes.DEEPSEEK_R1, "kv_lora_rank": None}, "latent rank: kv_lora_rank is not given"),
        ({**shapes.DEEPSEEK_V32, "index_head_dim": -1}, "index dim: index_head_dim -1 is no count"),
        ({"architectures": ["DeepseekV4ForCausalLM"]}, "window: sliding_window or window_size"),
        ({**shapes.DSV4_FLASH, "compress_ratios": [4]}, "compress_ratios does not list them"),
        ({**shapes.DSV4_FLASH, "compress_ratios": [2] * 43}, "that compresses 2 tokens to one"),
        ({**shapes.DSV4_FLASH, "compress_ratios": [0] * 43}, "no layer compresses"),
        ({**shapes.DSV4_FLASH, "head_dim": 576}, "a layout of 448 + 64 alone"),
        (
            {**shapes.DSV4_FLASH, "model_type": "deepseek_v41", "compress_ratios": [4, 2] * 22},
            "the source of layer 1: kv_source_layer_ids lists none before it",
        ),
        ({"architectures": ["Mamba2ForCausalLM"]}, "states alone, without rows of tokens"),
        ({**shapes.LFM2, "layer_types": ["full_attention", "ring"] * 8}, "of kind ring keeps"),
        ({**shapes.GPT_OSS_120B, "layer_types": ["full_attention"]}, "1 are listed"),
        (
            {k: v for k, v in shapes.LFM2.items() if k != "layer_types"},
            "which layers hold attention (conv_L_cache says that not all do)",
        ),
        ({**shapes.LFM2, "conv_L_cache": None}, "no keys of a kind known (GDN, Mamba 2"),
        ({**shapes.KIMI_LINEAR, "linear_attn_config": {"kda_layers": [1]}}, "sizes of the KDA"),
        ({**shapes.KIMI_LINEAR, "linear_attn_config": {"kda_layers": "1"}}, "which layers hold"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_named(config: Config, line: str) -> None:
    assert line in missing(config)


def test_unknown_reads_as_one_line() -> None:
    assert str(describe({"architectures": ["X"]})).startswith("X: what attention X has")


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(EVERY)), data=st.data())
def test_a_broken_config_is_told_or_has_sizes_above_zero(name: str, data: Any) -> None:
    config = json.loads(json.dumps(EVERY[name]))
    inner = config.get("text_config", config)
    for key in data.draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=3)):
        inner[key] = data.draw(_JUNK)
    found = describe(config)
    if isinstance(found, Unknown):
        assert found.missing
        return
    for layer in found.layers:
        if isinstance(layer.rows, Heads):
            assert min(layer.rows.kv_heads, layer.rows.k_dim, layer.rows.v_dim) > 0
        elif layer.rows:
            assert layer.rows.rank > 0
