"""What a checkpoint declares and holds, in the forms that real ones have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import read_checkpoint
from hypothesis import given
from hypothesis import strategies as st

from firstlight.accuracy.checkpoint import Checkpoint, context, describe, sampling
from firstlight.accuracy.declared import quantisation
from firstlight.accuracy.reading import as_ranges, numbers, parse
from firstlight.accuracy.scales import stack_of
from firstlight.core.errors import HostError
from tests.remote.checkpoints import CONFIG, Tensor, checkpoint, f32, kv_scales, layer, zeros

FP8_SCHEME = {"type": "float", "num_bits": 8, "dynamic": False}
CT_SCHEME = {**FP8_SCHEME, "strategy": "tensor", "symmetric": True}


def modelopt(algo: str, **more: Any) -> dict[str, Any]:
    """A flat block as ModelOpt writes it into config.json."""
    return {"quant_method": "modelopt", "quant_algo": algo, "ignore": ["lm_head"], **more}


def hf(algo: str, kv: str | None) -> dict[str, Any]:
    """hf_quant_config.json."""
    inner = {"quant_algo": algo, "kv_cache_quant_algo": kv, "exclude_modules": ["lm_head"]}
    return {"producer": {"name": "modelopt", "version": "0.4"}, "quantization": inner}


def one(block: dict[str, Any]) -> dict[str, Any]:
    return {"config.json": {"quantization_config": block}}


FORMS: dict[str, tuple[dict[str, Any], tuple[str, str, str, str, str]]] = {
    "ModelOpt, hf_quant_config.json": (
        {"config.json": {}, "hf_quant_config.json": hf("NVFP4", "FP8")},
        ("hf_quant_config.json", "modelopt_fp4", "NVFP4", "nested-algo", "FP8"),
    ),
    "ModelOpt, nested, null": (
        {"hf_quant_config.json": hf("NVFP4", None)},
        ("hf_quant_config.json", "modelopt_fp4", "NVFP4", "nested-algo", ""),
    ),
    "ModelOpt, flat scheme": (
        one(modelopt("NVFP4", kv_cache_scheme=FP8_SCHEME)),
        ("config.json", "modelopt_fp4", "NVFP4", "flat-scheme", "FP8"),
    ),
    "ModelOpt, flat scheme, another": (
        one(modelopt("NVFP4", kv_cache_scheme={"type": "int", "num_bits": 4})),
        ("config.json", "modelopt_fp4", "NVFP4", "flat-scheme", "int 4"),
    ),
    "ModelOpt, flat name": (
        one(modelopt("NVFP4", kv_cache_scheme="float8")),
        ("config.json", "modelopt_fp4", "NVFP4", "flat-name", "FP8"),
    ),
    "ModelOpt, flat name, FP4": (
        one(modelopt("NVFP4", kv_cache_scheme="FP4")),
        ("config.json", "modelopt_fp4", "NVFP4", "flat-name", "NVFP4"),
    ),
    "ModelOpt, flat algo": (
        one(modelopt("NVFP4", kv_cache_quant_algo="FP8")),
        ("config.json", "modelopt_fp4", "NVFP4", "flat-algo", "FP8"),
    ),
    "ModelOpt FP8": (
        one(modelopt("FP8", kv_cache_quant_algo="FP8")),
        ("config.json", "modelopt_fp8", "FP8", "flat-algo", "FP8"),
    ),
    "ModelOpt, mixed": (
        {"hf_quant_config.json": hf("MIXED_PRECISION", "FP8")},
        ("hf_quant_config.json", "modelopt_mixed", "MIXED_PRECISION", "nested-algo", "FP8"),
    ),
    "ModelOpt, MXFP8": (
        one(modelopt("MXFP8", kv_cache_quant_algo="FP8")),
        ("config.json", "modelopt_mxfp8", "MXFP8", "flat-algo", "FP8"),
    ),
    "compressed-tensors, FP8": (
        one(
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "kv_cache_scheme": CT_SCHEME,
            }
        ),
        ("config.json", "compressed-tensors", "FP8", "flat-scheme", "FP8"),
    ),
    "compressed-tensors, NVFP4": (
        one({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
        ("config.json", "compressed-tensors", "NVFP4", "", ""),
    ),
    "compression_config": (
        {
            "config.json": {
                "compression_config": {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                }
            }
        },
        ("config.json", "compressed-tensors", "INT4", "", ""),
    ),
    "FP8 in blocks": (
        one({"quant_method": "fp8", "weight_block_size": [128, 128]}),
        ("config.json", "fp8", "FP8", "", ""),
    ),
    "MXFP8": (
        one({"quant_method": "fp8", "weight_block_size": [1, 32]}),
        ("config.json", "fp8", "MXFP8", "", ""),
    ),
    "MXFP4": (one({"quant_method": "mxfp4"}), ("config.json", "other", "MXFP4", "", "")),
    "in the text part": (
        {"config.json": {"text_config": {"quantization_config": modelopt("NVFP4")}}},
        ("config.json", "modelopt_fp4", "NVFP4", "", ""),
    ),
}


@pytest.mark.parametrize("documents, wanted", FORMS.values(), ids=FORMS)
def test_every_form_of_a_declaration(documents: dict[str, Any], wanted: tuple[str, ...]) -> None:
    used = quantisation(documents).used
    assert used is not None
    form = used.kv[0].form if used.kv else ""
    assert (used.file, used.family, used.algo, form, used.kv_says) == wanted


def test_as_trained() -> None:
    found = quantisation({"config.json": CONFIG})
    assert (found.used, found.statements, found.disagreements) == (None, (), ())


def test_config_json_goes_before_the_other_file() -> None:
    """The whole of it, even where only the other one speaks of the cache."""
    documents = one(modelopt("NVFP4")) | {"hf_quant_config.json": hf("NVFP4", "FP8")}
    found = quantisation(documents)
    assert found.used is not None
    assert (found.used.place, found.used.kv_says) == ("config.json: quantization_config", "")
    assert found.disagreements == (
        "config.json: quantization_config says nothing of the KV cache, hf_quant_config.json FP8; "
        "the engine reads config.json: quantization_config",
    )
    assert found.used.untouched == ("lm_head",)


def test_two_files_that_agree_are_no_disagreement() -> None:
    documents = one(modelopt("NVFP4", kv_cache_scheme=FP8_SCHEME))
    assert (
        quantisation(documents | {"hf_quant_config.json": hf("NVFP4", "FP8")}).disagreements == ()
    )
    (line,) = quantisation(documents | {"hf_quant_config.json": hf("FP8", "FP8")}).disagreements
    assert line.startswith("config.json: quantization_config says NVFP4, hf_quant_config.json says")


def test_a_scheme_goes_before_a_name() -> None:
    block = modelopt("NVFP4", kv_cache_quant_algo="NVFP4", kv_cache_scheme=FP8_SCHEME)
    used = quantisation(one(block)).used
    assert used is not None
    assert [(kv.form, kv.says) for kv in used.kv] == [
        ("flat-scheme", "FP8"),
        ("flat-algo", "NVFP4"),
    ]


@pytest.mark.parametrize(
    "change, plain",
    [
        ({}, True),
        ({"strategy": "attn_head"}, False),
        ({"dynamic": True}, False),
        ({"symmetric": False}, False),
    ],
)
def test_only_a_static_symmetric_scale_for_a_tensor_is_plain(
    change: dict[str, Any], plain: bool
) -> None:
    block = {"quant_method": "compressed-tensors", "kv_cache_scheme": CT_SCHEME | change}
    used = quantisation(one(block)).used
    assert used is not None
    assert used.kv[0].per_tensor is plain


def made(folder: Path, *parts: dict[str, Tensor], config: Any = CONFIG) -> Checkpoint:
    """A checkpoint that was written, read and described."""
    checkpoint(folder, *parts, config=config)
    return described(folder)


def only(*layers: int) -> frozenset[int]:
    return frozenset(layers)


def described(folder: Path) -> Checkpoint:
    return describe(parse(read_checkpoint.answer(str(folder)).decode(), "here"))


def test_scales_that_are_missing_in_all(tmp_path: Path) -> None:
    found = made(tmp_path, layer(0), layer(1)).target
    assert (found.state, found.layers, found.missing) == ("absent", only(0, 1), only(0, 1))
    assert found.span is None


def test_scales_that_are_missing_in_some(tmp_path: Path) -> None:
    found = made(tmp_path, layer(0) | kv_scales(0, 0.5, 0.5), layer(1)).target
    assert (found.state, found.missing, found.k) == ("partial", only(1), {0: 0.5})


def test_scales_that_are_all_one(tmp_path: Path) -> None:
    found = made(tmp_path, layer(0) | kv_scales(0, 1, 1), layer(1) | kv_scales(1, 1, 1)).target
    assert (found.state, found.ones, found.forms) == ("ones", only(0, 1), ("modelopt",))


def test_calibrated_scales(tmp_path: Path) -> None:
    parts = layer(0) | kv_scales(0, 1.0, 1.0), layer(1) | kv_scales(1, 0.25, 3.0)
    found = made(tmp_path, *parts).target
    assert (found.state, found.ones, found.span) == ("calibrated", only(0), (0.25, 3.0))


def test_a_scale_that_is_not_above_zero_counts_as_missing(tmp_path: Path) -> None:
    parts = layer(0) | kv_scales(0, -1.0, float("nan")), layer(1) | kv_scales(1, 0.5, -1.0)
    found = made(tmp_path, *parts).target
    assert (found.state, found.missing, found.one_sided) == ("partial", only(0), only(1))


def test_one_scale_for_both_and_scales_of_every_head(tmp_path: Path) -> None:
    both = {"model.layers.0.self_attn.kv_scale": f32(0.5)}
    heads = {"model.layers.1.self_attn.k_scale": f32(0.5, 0.75)}
    found = made(tmp_path, layer(0) | both, layer(1) | heads).target
    assert (found.state, found.k, found.v) == ("calibrated", {0: 0.5, 1: 0.75}, {0: 0.5})
    assert found.vectors == ("model.layers.1.self_attn.k_scale",)
    assert found.forms == ("legacy", "plain")


def test_names_that_the_engine_does_not_map_are_no_scales(tmp_path: Path) -> None:
    other = {"model.layers.0.self_attn.k_cache_scale": f32(0.5)}
    found = made(tmp_path, layer(0) | other).target
    assert (found.state, found.unmapped) == ("absent", tuple(other))


def test_a_hybrid_has_a_cache_in_some_layers_only(tmp_path: Path) -> None:
    """Qwen3.5: an outer class, three layers in four without attention, a vision tower, a draft."""
    text = "model.language_model.layers"
    linear = {f"{text}.{n}.linear_attn.in_proj_qkv.weight": zeros("BF16", 4, 8) for n in range(3)}
    tower = {"model.visual.blocks.0.attn.qkv.weight": zeros("BF16", 4, 8)}
    draft = layer(0, "mtp.layers") | kv_scales(0, 0.5, 0.5, "mtp.layers")
    inner = {"num_hidden_layers": 4, "mtp_num_hidden_layers": 1, "max_position_embeddings": 262144}
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": inner}
    found = made(tmp_path, linear | tower | layer(3, text), draft, config=config)
    assert (found.text_key, found.depth) == ("text_config", 4)
    assert (found.target.layers, found.target.state) == (only(3), "absent")
    assert (found.draft_scales.layers, found.draft_scales.state) == (only(0), "calibrated")
    assert found.draft.declared_layers == 1
    assert {group.name.split(".")[0] for group in found.draft.groups} == {"mtp"}
    assert found.flaws == ()


def test_a_layer_behind_the_last_one_is_a_draft(tmp_path: Path) -> None:
    config = {**CONFIG, "num_hidden_layers": 1, "num_nextn_predict_layers": 1}
    parts = layer(0) | kv_scales(0, 0.5, 0.5), layer(1)
    found = made(tmp_path, *parts, config=config)
    assert (found.target.state, found.target.layers) == ("calibrated", only(0))
    assert (found.draft_scales.state, found.draft_scales.layers) == ("absent", only(1))


@pytest.mark.parametrize(
    "name, layer, stack",
    [
        ("model.layers.3.self_attn.k_proj.weight", 3, "target"),
        ("model.layers.61.self_attn.k_proj.weight", 61, "draft"),
        ("model.mtp.0.k_proj.weight", 0, "draft"),
        ("visual.blocks.70.attn.qkv.weight", 70, "other"),
        ("audio_tower.layers.3.self_attn.k_proj.weight", 3, "other"),
        ("experts.99.w", 99, "target"),
    ],
)
def test_whose_tensor_it_is(name: str, layer: int, stack: str) -> None:
    assert stack_of(name, layer, 61) == stack


def test_drafts_that_are_declared_and_not_there_and_the_reverse(tmp_path: Path) -> None:
    found = made(tmp_path / "a", layer(0), config={**CONFIG, "num_nextn_predict_layers": 1})
    assert [(flaw.kind, flaw.severity) for flaw in found.flaws] == [("draft", "warning")]
    found = made(tmp_path / "b", layer(0), layer(7))
    assert found.flaws[0].what.startswith("no draft layers are declared")


def test_a_config_without_the_keys_that_are_needed(tmp_path: Path) -> None:
    found = made(tmp_path, layer(0), config={"model_type": 7, "text_config": []})
    assert [(flaw.kind, flaw.severity) for flaw in found.flaws] == [("config-keys", "error")] * 2
    assert (found.depth, found.architectures, found.target.state) == (None, (), "absent")


def test_no_folder_at_all(tmp_path: Path) -> None:
    found = described(tmp_path / "nowhere")
    assert [flaw.kind for flaw in found.flaws] == ["no-folder"]
    assert (found.target.state, found.quantisation.used) == ("unknown", None)
    assert not found.reading.loadable


def test_oddities_of_keys_and_values(tmp_path: Path) -> None:
    odd = {
        "model.layers.0.self_attn.k_proj.bias": zeros("BF16", 4),
        "model.layers.0.self_attn.rotary_emb.inv_freq": zeros("F32", 4),
        "model.layers.0.self_attn.sinks": zeros("BF16", 4),
        "model.layers.0.mlp.bias": zeros("BF16", 4),
        "visual.blocks.0.attn.qkv.bias": zeros("BF16", 4),
    }
    found = made(tmp_path, layer(0) | odd).odd
    assert [group.name.rsplit("self_attn.")[-1] for group in found] == [
        "k_proj.bias",
        "rotary_emb.inv_freq",
        "sinks",
    ]


def test_layers_with_a_state_are_not_expected_to_have_scales(tmp_path: Path) -> None:
    """Kimi Linear's KDA has projections of the same names as attention."""
    config = {**CONFIG, "linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2]}}
    found = made(tmp_path, layer(0), layer(1) | kv_scales(1, 0.5, 0.5), config=config).target
    assert (found.state, found.layers) == ("calibrated", only(1))


def test_what_the_engine_stops_at(tmp_path: Path) -> None:
    v = {"model.layers.0.self_attn.v_proj.v_scale": f32(0.5)}
    k = {"model.layers.1.self_attn.k_scale": f32(0.5, 0.5)}
    other = {"model.layers.1.self_attn.attn.v_scale": f32(0.5)}
    found = made(tmp_path, layer(0) | v, layer(1) | k | other)
    assert found.target.v_alone == {0}
    whats = [flaw.what for flaw in found.flaws if flaw.kind == "scales"]
    assert [what.split(" ")[0] for what in whats] == ["layers", *k, *other]


def test_mixed_precision_that_says_too_little() -> None:
    """Versions from 0.5.16 on then go on to the other file."""
    file = {"hf_quant_config.json": hf("MIXED_PRECISION", "FP8")}
    found = quantisation(one(modelopt("MIXED_PRECISION")) | file)
    assert found.used and found.used.file == "config.json"
    assert found.instead and found.instead.kv_says == "FP8"
    whole = modelopt("MIXED_PRECISION", quantized_layers={}, kv_cache_scheme=FP8_SCHEME)
    assert quantisation(one(whole) | file).instead is None


@pytest.mark.parametrize(
    "scaling, limit",
    [
        ({}, 1000),
        ({"rope_type": "yarn", "factor": 4.0}, 4000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250}, 1000),
        ({"rope_type": "llama3", "factor": 8.0}, 1000),
    ],
)
def test_the_context_that_the_engine_derives(scaling: dict[str, Any], limit: int) -> None:
    text: dict[str, Any] = {"max_position_embeddings": 1000, "rope_scaling": scaling}
    assert context(text, {}).limit == limit


def test_penalties() -> None:
    found = sampling({"temperature": 0.6, "repetition_penalty": 1.05, "presence_penalty": 0})
    assert found.penalties == {"repetition_penalty": 1.05}
    assert found.values["temperature"] == 0.6
    assert sampling({"repetition_penalty": 1.0, "frequency_penalty": True}).penalties == {}


def test_context_of_old_and_new_files() -> None:
    old: dict[str, Any] = {
        "max_position_embeddings": 32768,
        "rope_scaling": {"type": "yarn", "factor": 4.0},
    }
    new: dict[str, Any] = {
        "rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 8}
    }
    found = context(old, {"model_max_length": 10**30})
    assert (found.positions, found.rope_kind, found.factor) == (32768, "yarn", 4.0)
    assert found.tokenizer_limit is None
    found = context(new, {"model_max_length": 131072})
    assert (found.rope_kind, found.original_positions, found.tokenizer_limit) == ("yarn", 8, 131072)
    assert context({"rope_scaling": None}, {}).rope_kind == "default"


def test_templates_and_remote_code(tmp_path: Path) -> None:
    auto = {"AutoConfig": "configuration_x.X", "AutoModel": "someone/else--modeling_x.Y"}
    checkpoint(tmp_path, layer(0), config={**CONFIG, "auto_map": auto})
    tokenizer = {"chat_template": "", "auto_map": {"AutoTokenizer": ["tok.Slow", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (tmp_path / "configuration_x.py").touch()
    found = described(tmp_path)
    assert found.templates == ()
    assert found.remote_code.elsewhere == ("someone/else--modeling_x.Y",)
    assert found.remote_code.missing == ("tok.py",)
    assert found.remote_code.auto_map["config.json: AutoConfig"] == "configuration_x.X"
    (tmp_path / "chat_template.jinja").write_text("{{ x }}")
    assert described(tmp_path).templates == ("chat_template.jinja",)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "Traceback"])
def test_an_answer_that_is_none(text: str) -> None:
    with pytest.raises(HostError, match="gpu01: the answer about the checkpoint cannot be read"):
        parse(text, "gpu01")


@given(st.frozensets(st.integers(0, 60)))
def test_ranges_say_the_numbers(found: frozenset[int]) -> None:
    assert numbers(as_ranges(found)) == found


KEYS = [
    *("quantization_config", "text_config", "quantization", "quant_method", "kv_cache_scheme"),
    *("quant_algo", "type", "kv_cache_quant_algo", "auto_map", "rope_scaling", "ignore"),
    *("num_hidden_layers", "architectures", "producer"),
]
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values, json_values, json_values)
def test_no_config_is_a_crash(config: Any, other: Any, tokenizer: Any) -> None:
    documents = {"config.json": config, "hf_quant_config.json": other} | {
        "tokenizer_config.json": tokenizer,
        "generation_config.json": other,
    }
    empty: dict[str, Any] = {
        "chat_templates": {},
        "code": [],
        "index": None,
        "shards": [],
        "tensors": 0,
    }
    cost = dict.fromkeys(("bytes_read", "rchar", "header_bytes", "files_opened", "peak_kib"), 0)
    text = {
        "format": 1,
        "folder": "/x",
        "revision": None,
        "documents": {name: one for name, one in documents.items() if isinstance(one, dict)},
        "groups": [],
        "scales": [],
        "findings": [],
        "cost": cost | {"cpu_s": 0.1},
        **empty,
    }
    describe(parse(json.dumps(text), "here"))
