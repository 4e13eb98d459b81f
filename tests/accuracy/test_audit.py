"""The three-layer verdict, over the situations of facts §2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import read_checkpoint
from hypothesis import given
from hypothesis import strategies as st

from firstlight.accuracy import audittext, kvcpu, rules
from firstlight.accuracy.audit import COLUMNS, Ask, Audit, Probe, audit
from firstlight.accuracy.checkpoint import Checkpoint, describe
from firstlight.accuracy.kvchoice import WIDE, declared
from firstlight.accuracy.reading import parse
from tests.accuracy.test_checkpoint import CT_SCHEME, FP8_SCHEME, hf, modelopt
from tests.remote.checkpoints import checkpoint, f32, kv_scales, layer

QWEN35, QWEN3, LLAMA = (
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3ForCausalLM",
    "LlamaForCausalLM",
)
DECLARED = modelopt("NVFP4", kv_cache_scheme=FP8_SCHEME)
ROOT = Path(__file__).parents[2]
PLAIN = (layer(0), layer(1))
CALIBRATED = (layer(0) | kv_scales(0, 0.5, 0.25), layer(1) | kv_scales(1, 0.5, 0.75))
ONES = (layer(0) | kv_scales(0, 1.0, 1.0), layer(1) | kv_scales(1, 1.0, 1.0))
PARTIAL = (layer(0) | kv_scales(0, 0.5, 0.25), layer(1))
ZEROS = (layer(0) | kv_scales(0, 0.0, 0.0), layer(1) | kv_scales(1, 0.0, -1.0))


def made(
    folder: Path,
    parts: tuple[Any, ...] = PLAIN,
    name: str = LLAMA,
    block: Mapping[str, Any] | None = DECLARED,
    **more: Any,
) -> Checkpoint:
    """A checkpoint of two layers, read as a host reads it; `block` is quantization_config."""
    config = {"architectures": [name], "num_hidden_layers": 2, "max_position_embeddings": 4096}
    config |= {"torch_dtype": "bfloat16"} | more
    if block is not None:
        config["quantization_config"] = block
    checkpoint(folder, *parts, config=config)
    return described(folder)


def described(folder: Path) -> Checkpoint:
    return describe(parse(read_checkpoint.answer(str(folder)).decode(), "local"))


def asked(found: Checkpoint, version: str = "0.5.23", sm: int | None = 120, **flags: Any) -> Audit:
    return audit(found, Ask(version, flags, sm))


def row(found: Audit, value: str) -> tuple[str, str, str, bool]:
    cell = found.cell(value)
    return cell.dtype, cell.scales, cell.verdict, cell.warned


BITS = {"type": "float", "num_bits": 8.0}
FP8_AND_SCHEME = {"quant_method": "fp8", "kv_cache_scheme": FP8_SCHEME}
M3 = {
    "quant_method": "mxfp8",
    "moe_quant_algo": "NVFP4",
    "moe_quant_format": "nvfp4-pack-quantized",
}
# What `kv_cache_quant_algo` becomes: facts §2.2, in the order of READ.
FORMS: list[tuple[str, Mapping[str, Any], str]] = [
    ("FP4 flat scheme", DECLARED, "FP8 FP8 FP8 FP8 FP8"),
    ("FP4 other scheme", modelopt("NVFP4", kv_cache_scheme={"type": "int"}), "- - - - -"),
    ("FP4 flat name", modelopt("NVFP4", kv_cache_scheme="FLOAT8"), "FP8 FP8 FP8 FP8 FP8"),
    ("FP4 flat name NVFP4", modelopt("NVFP4", kv_cache_scheme="FP4"), "NVFP4 " * 5),
    ("FP4 flat algo", modelopt("NVFP4", kv_cache_quant_algo="FP8"), "- - FP8 FP8 FP8"),
    ("FP8 flat algo", modelopt("FP8", kv_cache_quant_algo="FP8"), "- - FP8 FP8 FP8"),
    ("FP8 flat scheme", modelopt("FP8", kv_cache_scheme=FP8_SCHEME), "FP8 FP8 FP8 FP8 FP8"),
    ("mixed nested", hf("MIXED_PRECISION", "FP8"), "? FP8 FP8 FP8 FP8"),
    ("nested", hf("NVFP4", "FP8"), "FP8 FP8 FP8 FP8 FP8"),
    ("nested, null", hf("NVFP4", None), "- - - - -"),
    (
        "compressed-tensors",
        {"quant_method": "compressed-tensors", "kv_cache_scheme": CT_SCHEME},
        "- - - FP8 FP8",
    ),
    (
        "compressed-tensors, a scale a channel",
        {"quant_method": "compressed-tensors", "kv_cache_scheme": CT_SCHEME | {"strategy": "x"}},
        "- - - - -",
    ),
    ("MXFP8", modelopt("MXFP8", kv_cache_quant_algo="FP8"), "? ? ? FP8 FP8"),
    ("MXFP8 scheme", modelopt("MXFP8", kv_cache_scheme=FP8_SCHEME), "? ? ? FP8 FP8"),
    (
        "MXFP8, the name first",
        modelopt("MXFP8", kv_cache_scheme={"type": "int"}, kv_cache_quant_algo="FP8"),
        "? ? ? FP8 FP8",
    ),
    ("bits with a point", modelopt("NVFP4", kv_cache_scheme=BITS), "FP8 FP8 FP8 FP8 FP8"),
    (
        "an algorithm beside the part",
        DECLARED | {"quantization": {"quant_algo": "NVFP4"}},
        "FP8 FP8 FP8 FP8 FP8",
    ),
    (
        "an algorithm without a method",
        {"quant_algo": "NVFP4", "kv_cache_scheme": FP8_SCHEME},
        "FP8 FP8 FP8 FP8 FP8",
    ),
    (
        "a word that is none ends it",
        modelopt("NVFP4", kv_cache_scheme="auto", kv_cache_quant_algo="FP8"),
        "- - - - -",
    ),
    ("no other word is FP8", modelopt("NVFP4", kv_cache_quant_algo="FLOAT8"), "- - - - -"),
    (
        "compressed-tensors without a strategy",
        {"quant_method": "compressed-tensors", "kv_cache_scheme": FP8_SCHEME},
        "- - - - -",
    ),
    ("FP8, a scheme", FP8_AND_SCHEME, "- - - - -"),
    ("FP8, both", FP8_AND_SCHEME | {"kv_cache_quant_algo": "FP8"}, "- - - FP8 FP8"),
    ("AWQ", {"quant_method": "awq", "kv_cache_scheme": FP8_SCHEME}, "- - - - -"),
    ("MiniMax-M3", M3, "? ? ? ? FP8"),
    ("Quark", {"quant_method": "quark", "kv_cache_quant_algo": "FP8"}, "- - - - -"),
    ("Quark, a scheme", {"quant_method": "quark", "kv_cache_scheme": FP8_SCHEME}, "- - - - -"),
    (
        "compressed-tensors, a name",
        {"quant_method": "compressed-tensors", "kv_cache_quant_algo": "FP8"},
        "- - - - -",
    ),
    ("MXFP8, a scheme as a text", modelopt("MXFP8", kv_cache_scheme="FP8"), "? ? ? - -"),
    (
        "a form of nobody's",
        {"quant_method": "compressed-tensors", "kv_cache_scheme": "FP8"},
        "? ? ? ? ?",
    ),
    ("FP8 weights alone", {"quant_method": "fp8"}, "- - - - -"),
]


@pytest.mark.parametrize("block, said", [one[1:] for one in FORMS], ids=[one[0] for one in FORMS])
def test_what_each_version_makes_of_each_form(
    tmp_path: Path, block: Mapping[str, Any], said: str
) -> None:
    nested = "quantization" in block and "quant_algo" not in block
    found = made(tmp_path, block=None if nested else block)
    if nested:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(block))
        found = described(tmp_path)
    for version, word in zip(rules.READ, said.split(), strict=True):
        algo, evidence = declared(found, version)
        assert algo == {"-": "", "?": None}.get(word, word), version
        assert evidence
        # The class shows its quantisation in all five.
        dtype = {"FP8": "fp8_e4m3", "?": "unknown"}.get(word, "bfloat16")
        assert asked(found, version).cell("auto").dtype == dtype


SITUATIONS: list[tuple[str, str, tuple[Any, ...], dict[str, Any], str, tuple[str, ...]]] = [
    # class, version, tensors, flags, value -> dtype, scales, verdict, the engine's warning
    ("story", QWEN35, PLAIN, {}, "0.5.23 auto", ("fp8_e4m3", "no", "lossy-uncalibrated", "-")),
    ("and its cure", QWEN35, PLAIN, {}, "0.5.23 bf16", ("bfloat16", "no", "safe", "-")),
    ("before", QWEN35, PLAIN, {}, "0.5.9 auto", ("bfloat16", "no", "safe", "-")),
    (
        "from 0.5.12",
        QWEN35,
        PLAIN,
        {},
        "0.5.12 auto",
        ("fp8_e4m3", "no", "lossy-uncalibrated", "-"),
    ),
    ("warned", QWEN35, PLAIN, {}, "0.5.23 fp8_e4m3", ("fp8_e4m3", "no", "lossy-uncalibrated", "!")),
    # The warning's false positive: calibrated scales are loaded, and it is printed.
    (
        "false positive",
        QWEN35,
        CALIBRATED,
        {},
        "0.5.23 fp8_e4m3",
        ("fp8_e4m3", "yes", "lossy-calibrated", "!"),
    ),
    ("scales", QWEN35, CALIBRATED, {}, "0.5.23 auto", ("fp8_e4m3", "yes", "lossy-calibrated", "-")),
    ("too late", QWEN35, CALIBRATED, {}, "0.5.23 bf16", ("bfloat16", "yes", "wrong", "-")),
    (
        "dropped",
        QWEN35,
        CALIBRATED,
        {},
        "0.5.16 auto",
        ("fp8_e4m3", "ignored", "lossy-uncalibrated", "-"),
    ),
    ("dropped bf16", QWEN35, CALIBRATED, {}, "0.5.16 bf16", ("bfloat16", "ignored", "safe", "-")),
    (
        "Qwen3",
        QWEN3,
        CALIBRATED,
        {},
        "0.5.23 auto",
        ("fp8_e4m3", "ignored", "lossy-uncalibrated", "-"),
    ),
    ("ones", LLAMA, ONES, {}, "0.5.23 auto", ("fp8_e4m3", "yes", "lossy-uncalibrated", "-")),
    ("ones bf16", LLAMA, ONES, {}, "0.5.23 bf16", ("bfloat16", "yes", "safe", "-")),
    ("partial", LLAMA, PARTIAL, {}, "0.5.23 auto", ("fp8_e4m3", "yes", "lossy-uncalibrated", "-")),
    ("partial bf16", LLAMA, PARTIAL, {}, "0.5.23 bf16", ("bfloat16", "yes", "wrong", "-")),
    (
        "e5m2",
        LLAMA,
        CALIBRATED,
        {},
        "0.5.23 fp8_e5m2",
        ("fp8_e5m2", "yes", "lossy-uncalibrated", "-"),
    ),
    ("nvfp4", LLAMA, PLAIN, {}, "0.5.23 nvfp4", ("nvfp4", "no", "lossy-uncalibrated", "-")),
    ("no nvfp4 yet", LLAMA, PLAIN, {}, "0.5.12 nvfp4", ("refused", "unknown", "refused", "-")),
    (
        "prefix hit",
        LLAMA,
        CALIBRATED,
        {"attention_backend": "flashinfer"},
        "0.5.12 auto",
        ("fp8_e4m3", "yes", "wrong", "-"),
    ),
    (
        "triton ignores",
        LLAMA,
        CALIBRATED,
        {"attention_backend": "triton"},
        "0.5.9 auto",
        ("fp8_e4m3", "ignored", "lossy-uncalibrated", "-"),
    ),
    (
        "triton ignores, bf16",
        LLAMA,
        CALIBRATED,
        {"attention_backend": "triton"},
        "0.5.9 bf16",
        ("bfloat16", "yes", "safe", "-"),
    ),
    ("either", LLAMA, CALIBRATED, {}, "0.5.9 bf16", ("bfloat16", "yes", "unknown", "-")),
    (
        "a backend that was not read",
        LLAMA,
        CALIBRATED,
        {"attention_backend": "fa4"},
        "0.5.23 auto",
        ("fp8_e4m3", "yes", "unknown", "-"),
    ),
    (
        "one of two is enough",
        LLAMA,
        CALIBRATED,
        {"prefill_attention_backend": "fa4", "decode_attention_backend": "triton"},
        "0.5.23 bf16",
        ("bfloat16", "yes", "wrong", "-"),
    ),
    (
        "scales from a file",
        LLAMA,
        PLAIN,
        {"quantization_param_path": "/s.json"},
        "0.5.23 fp8_e4m3",
        ("fp8_e4m3", "no", "unknown", "-"),
    ),
    ("no class of ours", "Mystery", PLAIN, {}, "0.5.23 auto", ("unknown", "no", "unknown", "-")),
    ("but bf16", "Mystery", PLAIN, {}, "0.5.23 bf16", ("bfloat16", "no", "safe", "-")),
    (
        "nor its scales",
        "Mystery",
        CALIBRATED,
        {},
        "0.5.23 bf16",
        ("bfloat16", "unknown", "unknown", "-"),
    ),
]


@pytest.mark.parametrize(
    "name, parts, flags, at, expected", [one[1:] for one in SITUATIONS], ids=lambda _: ""
)
def test_the_situations(
    tmp_path: Path,
    name: str,
    parts: tuple[Any, ...],
    flags: dict[str, Any],
    at: str,
    expected: tuple[str, ...],
) -> None:
    version, value = at.split()
    found = asked(made(tmp_path, parts, name), version, **flags)
    *cell, warned = row(found, value)
    assert (*cell, "!" if warned else "-") == expected
    assert found.cell(value).evidence


def test_what_is_not_known_says_that_the_code_was_not_asked(tmp_path: Path) -> None:
    found = asked(made(tmp_path, CALIBRATED, "Mystery"))
    for value in ("auto", "bf16", "fp8_e4m3"):
        lines = map(str, found.cell(value).evidence)
        assert any(line.startswith("engine code not asked") for line in lines), value


def test_a_probe_answers_what_the_tables_do_not(tmp_path: Path) -> None:
    plain = made(tmp_path / "plain", PLAIN, "Mystery")
    scaled = made(tmp_path / "scaled", CALIBRATED, "Mystery")
    said = Probe("probe.json", algo="FP8", shows=True, loads=True)
    assert audit(plain, Ask("0.5.23", {}, 120, probe=said)).cell("auto").dtype == "fp8_e4m3"
    assert audit(scaled, Ask("0.5.23", {}, 120, probe=said)).cell("bf16").verdict == "wrong"
    deaf = Probe("probe.json", algo="FP8", shows=False, loads=False)
    assert audit(scaled, Ask("0.5.23", {}, 120, probe=deaf)).cell("auto").verdict == "safe"


ROOMLESS: list[tuple[str, Mapping[str, Any] | None, str]] = [
    ("no quantisation", None, "ignored"),
    ("compressed-tensors", {"quant_method": "compressed-tensors"}, "ignored"),
    ("ModelOpt FP8", modelopt("FP8"), "ignored"),
    ("ModelOpt mixed", modelopt("MIXED_PRECISION", quantized_layers={}), "ignored"),
    ("mixed, a name", modelopt("MIXED_PRECISION", kv_cache_quant_algo="INT8"), "unknown"),
    ("GPTQ", {"quant_method": "gptq", "bits": 4}, "ignored"),
    ("ModelOpt FP8, a word", modelopt("FP8", kv_cache_quant_algo="auto"), "unknown"),
    ("a method of nobody's", {"quant_method": "modelslim"}, "unknown"),
]


@pytest.mark.parametrize("block, fate", [one[1:] for one in ROOMLESS], ids=[r[0] for r in ROOMLESS])
def test_a_class_that_loads_scales_needs_a_place_for_them(
    tmp_path: Path, block: Mapping[str, Any] | None, fate: str
) -> None:
    """Only quantisation gives attention a k_scale (0.5.23 layers/radix_attention.py)."""
    found = made(tmp_path, CALIBRATED, block=block)
    probe = Probe("probe.json", algo="", shows=True, loads=True)
    table = audit(found, Ask("0.5.23", {"attention_backend": "flashinfer"}, 120, probe=probe))
    narrow, wide = table.cell("fp8_e4m3"), table.cell("bf16")
    lossy, safe = {"ignored": ("lossy-uncalibrated", "safe")}.get(fate, ("unknown", "unknown"))
    assert (narrow.scales, narrow.verdict, wide.verdict) == (fate, lossy, safe)


def test_scales_of_which_none_is_above_zero_are_none(tmp_path: Path) -> None:
    found = made(tmp_path, ZEROS, LLAMA)
    probe = Probe("probe.json", algo="FP8", shows=True, loads=True)
    flags = {"attention_backend": "flashinfer", "kv_cache_dtype": "fp8_e4m3"}
    table = audit(found, Ask("0.5.23", flags, 120, probe=probe), "allow_calibrated")
    assert (table.cell("fp8_e4m3").verdict, table.within) == ("lossy-uncalibrated", False)
    assert table.cell("bf16").verdict == "safe"


def test_a_version_outside_the_table_is_said_to_be_so(tmp_path: Path) -> None:
    plain = made(tmp_path)
    for version in ("0.6.0", "0.4.1", "0.5.9rc1", "nightly"):
        found = asked(plain, version, kv_cache_dtype="bf16")
        assert {cell.verdict for cell in found.cells} == {"unknown"}
        assert (found.within, "outside the table" in found.notes[0]) == (False, True)
    probe = Probe("probe.json", algo="FP8", shows=True, loads=False)
    newer = audit(plain, Ask("0.6.0", {"kv_cache_dtype": "bf16"}, 120, probe=probe))
    assert (newer.cell("bf16").verdict, newer.within) == ("safe", True)
    assert newer.cell("auto").verdict == "lossy-uncalibrated"
    half = audit(plain, Ask("0.6.0", {}, 120, probe=Probe("probe.json", algo="FP8")))
    assert half.cell("auto").verdict == "unknown"


def test_a_version_between_two_is_what_both_say(tmp_path: Path) -> None:
    found = made(tmp_path / "a", name=QWEN35)
    between = asked(found, "0.5.14")
    assert between.cell("auto").verdict == "lossy-uncalibrated"
    assert "0.5.12 and 0.5.16 are held together" in between.notes[0]
    early = asked(found, "0.5.10")
    assert (early.cell("auto").verdict, early.cell("bf16").verdict) == ("unknown", "safe")
    assert len(asked(found, "0.5.23+cu130").notes) == 1


@pytest.mark.parametrize(
    "sm, auto, e5m2", [(120, "fp8_e4m3", "refused"), (90, "bfloat16", "refused")]
)
def test_dsa_follows_the_card(tmp_path: Path, sm: int, auto: str, e5m2: str) -> None:
    found = made(tmp_path, name="DeepseekV32ForCausalLM", block=None, index_topk=2048)
    table = asked(found, "0.5.16", sm)
    assert (table.cell("auto").dtype, table.cell("fp8_e5m2").dtype) == (auto, e5m2)
    # What the override wrote is an argument to the engine, so it warns.
    assert table.cell("auto").warned == (auto == "fp8_e4m3")
    assert asked(found, "0.5.16", None).cell("auto").dtype == "unknown"


@pytest.mark.parametrize("version", rules.READ[1:])
def test_deepseek_v4_has_no_cache_of_16_bits(tmp_path: Path, version: str) -> None:
    """From 0.5.16 on its arguments allow bfloat16, and its pool stops at it."""
    found = asked(made(tmp_path, name="DeepseekV4ForCausalLM", block=None), version)
    assert found.cell("auto").dtype == "fp8_e4m3"
    assert {found.cell(value).verdict for value in ("bf16", "bfloat16")} == {"refused"}
    assert (found.within, found.change) == (False, "")


@pytest.mark.parametrize(
    "name",
    ["Glm5NextForConditionalGeneration", "Dots3NoteForCausalLM", "GlmMoeDsaForCausalLM"],
)
def test_classes_that_came_to_be_sparse_later(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, name=name, block=None, index_topk=2048)
    assert asked(found, "0.5.23").cell("auto").dtype == "fp8_e4m3"
    assert asked(found, "0.5.20", 90).cell("auto").dtype == "bfloat16"


def test_hunyuan_4_has_sinks_also_where_the_file_does_not_say_so(tmp_path: Path) -> None:
    """Its `auto` was called FP8, which the engine refuses."""
    found = asked(made(tmp_path, name="HYV4ForCausalLM", block=None), "0.5.23")
    assert found.cell("auto").dtype == "bfloat16"
    assert found.cell("fp8_e4m3").dtype == "refused"


def test_a_configuration_that_saves_no_defaults_is_sparse_all_the_same(tmp_path: Path) -> None:
    glm = asked(made(tmp_path / "a", name="GlmMoeDsaForCausalLM", block=None))
    dense = asked(made(tmp_path / "b", name="DeepseekV3ForCausalLM", block=None))
    assert (glm.cell("auto").dtype, glm.within) == ("fp8_e4m3", False)
    assert (dense.cell("auto").dtype, dense.within) == ("bfloat16", True)


def test_minimax_m3_with_experts_of_nvfp4_has_fp8_unsaid(tmp_path: Path) -> None:
    found = made(tmp_path, name="MiniMaxM3SparseForConditionalGeneration", block=M3)
    table = asked(found)
    assert (table.cell("auto").dtype, table.cell("bf16").verdict) == ("fp8_e4m3", "refused")
    hopper = asked(found, sm=90)
    assert (hopper.cell("auto").dtype, hopper.cell("bf16").verdict) == ("fp8_e4m3", "safe")
    assert asked(found, "0.5.20").cell("auto").verdict == "unknown"
    # Its method is settled where the release's reader is not asked.
    probe = Probe("probe.json", algo="", shows=True, loads=True)
    table = audit(found, Ask("0.5.23", {}, 90, probe=probe))
    assert table.cell("auto").dtype == "fp8_e4m3"


def test_no_version_outside_the_table_has_a_safe_auto(tmp_path: Path) -> None:
    """What is rewritten before anything is loaded is in no probe."""
    probe = Probe("probe.json", algo="", shows=True, loads=False)
    table = audit(made(tmp_path, block=None), Ask("0.6.0", {}, 120, probe=probe))
    assert [table.cell(value).verdict for value in ("auto", "bf16")] == ["unknown", "safe"]
    assert (table.within, table.change) == (False, "bf16")


def test_a_class_for_all_models_is_not_the_one_that_was_read(tmp_path: Path) -> None:
    found = made(tmp_path / "a", name=QWEN35)
    assert asked(found, "0.5.9").within
    generic = asked(found, "0.5.9", model_impl="transformers")
    assert (generic.cell("auto").verdict, generic.cell("bf16").verdict) == ("unknown", "safe")
    probe = Probe("probe.json", algo="FP8", shows=False, loads=False)
    flags = {"model_impl": "transformers"}
    scaled = made(tmp_path / "b", CALIBRATED, QWEN35)
    table = audit(scaled, Ask("0.5.23", flags, 120, probe=probe))
    assert {table.cell(value).verdict for value in ("auto", "bf16")} == {"unknown"}


@pytest.mark.parametrize(
    "method, flag, auto",
    [
        ("modelopt", "modelopt_fp4", "fp8_e4m3"),
        ("modelopt", "modelopt", "fp8_e4m3"),
        ("modelopt", "petit_nvfp4", "unknown"),
        ("compressed-tensors", "w8a8_fp8", "bfloat16"),
        ("awq", "awq_marlin", "bfloat16"),
        ("awq", "quark", "unknown"),
    ],
)
def test_a_flag_for_another_quantisation(tmp_path: Path, method: str, flag: str, auto: str) -> None:
    block = DECLARED if method == "modelopt" else {"quant_method": method}
    if method == "compressed-tensors":
        block |= {"kv_cache_scheme": CT_SCHEME}
    found = made(tmp_path, block=block)
    assert asked(found, quantization=flag).cell("auto").dtype == auto


STRANGE = "model.layers.0.self_attn.attn.k_scale"


@pytest.mark.parametrize(
    "name, tensor, verdict",
    [
        (LLAMA, STRANGE, "safe"),
        (LLAMA, "model.layers.0.self_attn.qkv_proj.k_scale", "safe"),
        (QWEN35, STRANGE, "unknown"),
        (QWEN3, STRANGE, "safe"),
        ("Mystery", "model.layers.0.attention.k_proj.k_scale", "unknown"),
        ("Mystery", "model.layers.0.self_attn.k_proj.k_zero_point", "safe"),
    ],
)
def test_names_that_only_a_class_of_its_own_may_take(
    tmp_path: Path, name: str, tensor: str, verdict: str
) -> None:
    """A name that the engine's map passes over may be a parameter's own."""
    found = asked(made(tmp_path, (layer(0) | {tensor: f32(0.5)}, layer(1)), name))
    assert found.cell("bf16").verdict == verdict


@pytest.mark.parametrize(
    "name, tensor, fate",
    [
        (QWEN35, "k_scale", "yes"),
        (QWEN35, "kv_scale", "unknown"),
        (QWEN35, "k_proj.output_scale", "unknown"),
        (LLAMA, "k_proj.output_scale", "yes"),
        ("Qwen3NextForCausalLM", "k_scale", "unknown"),
        ("Qwen3NextForCausalLM", "k_proj.k_scale", "yes"),
        ("Qwen3MoeForCausalLM", "k_proj.k_scale", "ignored"),
        ("Gemma2ForCausalLM", "k_proj.k_scale", "unknown"),
        ("Gemma2ForCausalLM", "k_scale", "yes"),
        ("MiniMaxM2ForCausalLM", "k_proj.k_scale", "yes"),
        ("MiniMaxM3SparseForCausalLM", "k_proj.k_scale", "unknown"),
    ],
)
def test_a_class_may_have_a_map_of_its_own(
    tmp_path: Path, name: str, tensor: str, fate: str
) -> None:
    parts = [layer(n) | {f"model.layers.{n}.self_attn.{tensor}": f32(0.5)} for n in range(2)]
    found = asked(made(tmp_path, tuple(parts), name))
    assert found.cell("fp8_e4m3").scales == fate
    assert (found.cell("bf16").verdict == "safe") == (fate == "ignored")


def test_when_a_class_came_to_take_a_spelling(tmp_path: Path) -> None:
    found = made(tmp_path, CALIBRATED, "Gemma3ForCausalLM")
    fates = [asked(found, version).cell("fp8_e4m3").scales for version in rules.READ]
    assert fates == ["unknown", "unknown", "yes", "yes", "yes"]


def test_quark_has_a_place_for_scales(tmp_path: Path) -> None:
    found = asked(made(tmp_path, CALIBRATED, block={"quant_method": "quark"}))
    assert (found.cell("auto").dtype, found.cell("auto").verdict) == ("bfloat16", "wrong")


def test_projections_of_other_names_do_not_make_one_scale_a_scale_for_all(tmp_path: Path) -> None:
    renamed = [
        {key.replace("_proj", "_matrix"): value for key, value in layer(n).items()}
        for n in range(2)
    ]
    scales = {f"model.layers.0.self_attn.{x}_scale": f32(0.5) for x in "kv"}
    found = made(tmp_path, (renamed[0] | scales, renamed[1]), LLAMA)
    assert (found.target.state, found.target.missing) == ("partial", frozenset({1}))
    assert asked(found).cell("auto").verdict == "lossy-uncalibrated"


def test_a_latent_cache_has_another_program_of_the_same_name(tmp_path: Path) -> None:
    found = made(tmp_path, CALIBRATED, "KimiVLForConditionalGeneration")
    probe = Probe("probe.json", algo="FP8", shows=True, loads=True)
    flags = {"attention_backend": "flashinfer"}
    table = audit(found, Ask("0.5.23", flags, 120, probe=probe))
    assert {table.cell(value).verdict for value in ("auto", "bf16")} == {"unknown"}


def test_a_file_of_scales_is_for_one_argument(tmp_path: Path) -> None:
    table = asked(made(tmp_path), quantization_param_path="/s.json")
    verdicts = [table.cell(value).verdict for value in ("auto", "bf16", "fp8_e4m3")]
    assert verdicts == ["lossy-uncalibrated", "safe", "unknown"]


@pytest.mark.parametrize("version", ["0.5.12", "0.5.20"])
def test_a_backend_that_stops_at_auto(tmp_path: Path, version: str) -> None:
    table = asked(made(tmp_path), version, attention_backend="tokenspeed_mla")
    verdicts = [table.cell(value).verdict for value in ("auto", "bf16", "fp8_e4m3")]
    assert verdicts == ["refused", "refused", "lossy-uncalibrated"]


def test_trtllm_mla_takes_the_shorter_spelling_alone(tmp_path: Path) -> None:
    found = made(tmp_path)
    table = asked(found, attention_backend="trtllm_mla", kv_cache_dtype="bfloat16")
    assert (table.cell("bfloat16").verdict, table.change) == ("refused", "bf16")


def test_a_backend_that_rewrites_the_argument(tmp_path: Path) -> None:
    found = asked(made(tmp_path, block=None), attention_backend="tokenspeed_mla")
    assert row(found, "bf16") == ("fp8_e4m3", "no", "lossy-uncalibrated", True)


def test_trtllm_mha_on_sm120(tmp_path: Path) -> None:
    found = made(tmp_path)
    table = asked(found, attention_backend="trtllm_mha")
    # The engine's own check sees the argument and not what `auto` becomes.
    assert (table.cell("fp8_e4m3").dtype, table.cell("auto").dtype) == ("refused", "fp8_e4m3")
    assert asked(found, "0.5.16", attention_backend="trtllm_mha").cell("bf16").dtype == "refused"
    assert asked(found, sm=100, attention_backend="trtllm_mha").cell("fp8_e4m3").dtype == "fp8_e4m3"


def test_what_the_release_does_not_take_is_refused(tmp_path: Path) -> None:
    ask = Ask("0.5.23", {}, 120, choices=("auto", "bf16"))
    found = audit(made(tmp_path), ask)
    assert (found.cell("fp8_e4m3").verdict, found.notes) == ("refused", ())
    assert "not built there" in asked(made(tmp_path)).notes[0]
    assert "capabilities.json" in str(found.cell("fp8_e4m3").evidence[0])


def test_a_draft_head_without_scales_beside_a_target_with(tmp_path: Path) -> None:
    head = layer(0, "mtp.layers")
    found = made(
        tmp_path, (CALIBRATED[0], CALIBRATED[1] | head), QWEN35, num_nextn_predict_layers=1
    )
    assert (found.target.state, found.draft_scales.state) == ("calibrated", "absent")
    (threat,) = [
        t for t in asked(found, speculative_algorithm="NEXTN").threats if "draft" in t.kind
    ]
    assert "absent" in threat.what and threat.where == "args.speculative_draft_kv_cache_dtype"


@pytest.mark.parametrize(
    "policy, dtype, within",
    [
        ("require_bf16", "auto", False),
        ("require_bf16", "bf16", False),
        ("allow_calibrated", "auto", True),
        ("allow_any", "fp8_e5m2", True),
        ("allow_any", "bf16", False),
    ],
)
def test_policies(tmp_path: Path, policy: Any, dtype: str, within: bool) -> None:
    found = made(tmp_path, CALIBRATED, QWEN35)
    result = audit(found, Ask("0.5.23", {"kv_cache_dtype": dtype}, 120), policy)
    assert result.within == within
    if policy == "allow_any" and not within:
        assert result.change == "fp8_e4m3"


def test_a_checkpoint_that_the_engine_stops_at_is_not_judged(tmp_path: Path) -> None:
    alone = {"model.layers.1.self_attn.v_proj.v_scale": f32(0.5)}
    found = asked(made(tmp_path, (layer(0), layer(1) | alone)))
    assert {cell.verdict for cell in found.cells} == {"unknown"}
    assert "at which the engine stops" in str(found.cell("bf16").evidence[0])


@pytest.mark.parametrize("policy", ["require_bf16", "allow_calibrated", "allow_any"])
def test_broken_files_are_within_no_policy(tmp_path: Path, policy: Any) -> None:
    made(tmp_path)
    second = next(tmp_path.glob("*-00002-*"))
    second.write_bytes(second.read_bytes()[:-1])
    found = audit(described(tmp_path), Ask("0.5.23", {"kv_cache_dtype": "bf16"}, 120), policy)
    assert (found.within, found.change) == (False, "")
    assert found.broken.startswith(f"{second.name}: ") and "cut short" in found.broken


def test_weights_of_a_form_that_is_not_read_are_unknown_and_not_broken(tmp_path: Path) -> None:
    """The engine reads such files; whoever gave a reason to allow all may know them."""
    config = {"architectures": [LLAMA], "num_hidden_layers": 2, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").touch()
    ask = Ask("0.5.23", {"kv_cache_dtype": "bf16"}, 120)
    found = audit(described(tmp_path), ask, "allow_any")
    assert (found.cell("bf16").verdict, found.broken, found.within) == ("unknown", "", True)
    assert not audit(described(tmp_path), ask).within


def test_a_scale_that_is_no_number_leaves_all_open(tmp_path: Path) -> None:
    broken = layer(0) | kv_scales(0, float("nan"), 0.5)
    found = asked(made(tmp_path, (broken, CALIBRATED[1])), kv_cache_dtype="bf16")
    assert found.cell("bf16").verdict == found.cell("auto").verdict == "unknown"
    tensor = "model-00001-of-00002.safetensors: model.layers.0.self_attn.k_proj.k_scale"
    assert any(one.where == tensor for one in found.cell("bf16").evidence)


def test_the_backend_of_another_card_is_not_guessed(tmp_path: Path) -> None:
    found = made(tmp_path, CALIBRATED)
    assert asked(found, sm=120).cell("auto").verdict == "lossy-calibrated"
    assert asked(found, sm=90).cell("auto").verdict == "unknown"
    named = asked(found, sm=90, attention_backend="flashinfer")
    assert named.cell("auto").verdict == "lossy-calibrated"


@pytest.mark.parametrize(
    "version, flags, wide, narrow",
    [
        # trtllm_mla is guarded; what the other side runs by itself is not.
        ("0.5.23", {"prefill_attention_backend": "trtllm_mla"}, "wrong", "lossy-calibrated"),
        ("0.5.23", {"attention_backend": "trtllm_mla"}, "safe", "lossy-calibrated"),
        # flashinfer forgets scales there and triton applies them: one of the two decodes.
        ("0.5.16", {"prefill_attention_backend": "triton"}, "wrong", "unknown"),
        ("0.5.16", {"decode_attention_backend": "flashinfer"}, "wrong", "wrong"),
        ("0.5.23", {"decode_attention_backend": "fa4"}, "wrong", "unknown"),
    ],
)
def test_a_side_that_names_no_backend_has_one_all_the_same(
    tmp_path: Path, version: str, flags: dict[str, str], wide: str, narrow: str
) -> None:
    """A backend for the prefill alone was judged as if it were all."""
    found = made(tmp_path, CALIBRATED, LLAMA)
    result = audit(found, Ask(version, flags, 120))
    assert result.cell("bf16").verdict == wide
    assert result.cell("fp8_e4m3").verdict == narrow


def test_quantising_on_the_way_in_may_make_room_for_scales(tmp_path: Path) -> None:
    found = made(tmp_path, CALIBRATED, block=None)
    assert asked(found).cell("bf16").verdict == "safe"
    assert asked(found, quantization="fp8").cell("bf16").verdict == "unknown"


@pytest.mark.parametrize(
    "more, flags, dtype",
    [
        ({}, {}, "bfloat16"),
        ({"torch_dtype": "float16"}, {}, "float16"),
        ({"torch_dtype": "float32"}, {}, "float16"),
        ({"torch_dtype": None, "model_type": "gemma3"}, {}, "bfloat16"),
        ({"torch_dtype": "half"}, {}, "float16"),
        ({"torch_dtype": "float8_e4m3fn"}, {}, "unknown"),
        ({"torch_dtype": "float8_e4m3fn"}, {"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, {"dtype": "bfloat16"}, "bfloat16"),
        ({}, {"dtype": "auto"}, "bfloat16"),
    ],
)
def test_auto_without_a_declaration_is_the_models_dtype(
    tmp_path: Path, more: dict[str, Any], flags: dict[str, Any], dtype: str
) -> None:
    cell = asked(made(tmp_path, block=None, **more), **flags).cell("auto")
    assert (cell.dtype, cell.verdict) == (dtype, "safe" if dtype in WIDE else "unknown")


def test_the_evidence_names_file_tensor_and_rule(tmp_path: Path) -> None:
    wheres = [one.where for one in asked(made(tmp_path, CALIBRATED, QWEN35)).cell("auto").evidence]
    assert "config.json: quantization_config.kv_cache_scheme" in wheres
    first = "model-00001-of-00002.safetensors: model.layers.0.self_attn.k_proj.k_scale and 3 more"
    assert first in wheres
    assert any(where.startswith("rule §2.2") for where in wheres)


STATES = {
    "plain": PLAIN,
    "calibrated": CALIBRATED,
    "ones": ONES,
    "partial": PARTIAL,
    "zeros": ZEROS,
}
BLOCKS: list[Mapping[str, Any] | None] = [
    None,
    *(b for _, b, _ in FORMS if "quantization" not in b),
]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> list[Checkpoint]:
    names = (QWEN35, QWEN3, LLAMA, "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Mystery")
    folder = tmp_path_factory.mktemp("held")
    return [
        made(folder / f"{at}-{name}-{state}", parts, name, block, index_topk=8)
        for at, block in enumerate(BLOCKS)
        for name in names
        for state, parts in STATES.items()
    ]


@given(data=st.data())
def test_no_narrow_cache_is_ever_safe(held: list[Checkpoint], data: st.DataObject) -> None:
    found = data.draw(st.sampled_from(held))
    backends = st.sampled_from(("", "flashinfer", "triton", "trtllm_mha", "tokenspeed_mla", "fa4"))
    answers = st.sampled_from((None, True, False))
    probe = data.draw(
        st.none()
        | st.builds(Probe, st.just("probe"), st.sampled_from((None, "", "FP8")), answers, answers)
    )
    ask = Ask(
        version=data.draw(st.sampled_from((*rules.READ, "0.5.10", "0.5.18", "0.6.0", "0.5.8"))),
        flags={
            "attention_backend": data.draw(backends),
            "kv_cache_dtype": data.draw(st.sampled_from((*COLUMNS, "mxfp8", "fp4_e2m1", "x"))),
        },
        sm=data.draw(st.sampled_from((None, 90, 100, 120))),
        probe=probe,
    )
    result = audit(found, ask)
    for cell in result.cells:
        assert (cell.verdict != "safe") or (cell.dtype in WIDE and not cell.is_narrow)
        assert (cell.verdict == "refused") == (cell.dtype == "refused")
        assert cell.dtype != "unknown" or cell.verdict == "unknown"
        assert cell.evidence
        if cell.verdict == "lossy-calibrated":
            assert (cell.scales, found.target.state) == ("yes", "calibrated")
            assert found.quantisation.used is not None
    if result.change:
        assert result.cell(result.change).verdict == "safe"
    assert audittext.text(result, found)
    json.dumps(audittext.to_json(result, found))


CPU = {"device": "cpu"}
NATIVE = CPU | {"attention_backend": "torch_native"}
# Of a processor and its flags, with our patch and without: what each value of the flag gets.
ON_A_CPU: list[tuple[bool | None, Mapping[str, str], bool, str]] = [
    (False, CPU, False, "refused refused"),
    (True, CPU, False, "lossy-uncalibrated refused"),
    (None, CPU, False, "unknown refused"),
    (True, NATIVE, False, "refused refused"),
    (None, NATIVE, False, "refused refused"),
    (True, CPU | {"decode_attention_backend": "torch_native"}, False, "refused refused"),
    (False, NATIVE, True, "lossy-uncalibrated lossy-uncalibrated"),
    (True, NATIVE, True, "lossy-uncalibrated lossy-uncalibrated"),
    (False, CPU, True, "lossy-uncalibrated lossy-uncalibrated"),
    (None, CPU, True, "lossy-uncalibrated refused"),
    (True, CPU | {"prefill_attention_backend": "torch_native"}, True, "refused refused"),
]


@pytest.mark.parametrize("amx, flags, lifted, told", ON_A_CPU)
def test_a_cpu_without_amx_has_no_cache_of_eight_bits(
    tmp_path: Path, amx: bool | None, flags: Mapping[str, str], lifted: bool, told: str
) -> None:
    """The engine stops with `CPU FP8 KV cache requires Intel AMX support.`"""
    ask = Ask("0.5.23", flags, None, amx=amx, patches=(kvcpu.LIFTS,) if lifted else ())
    table = audit(made(tmp_path, block=None), ask)
    verdicts = [table.cell(value).verdict for value in ("fp8_e4m3", "fp8_e5m2")]
    assert " ".join(verdicts) == told
    assert table.cell("bf16").verdict == "safe"
    assert table.cell("nvfp4").verdict == "refused"


def test_auto_is_refused_on_a_cpu_where_it_becomes_fp8(tmp_path: Path) -> None:
    """And no version says it that does not have the rule."""
    found = made(tmp_path, name=QWEN35)
    table = audit(found, Ask("0.5.23", CPU, None, amx=False))
    assert row(table, "auto")[0] == "refused"
    (where,) = [str(line) for line in table.cell("auto").evidence if "Intel AMX" in line.says]
    assert where.startswith("rule 0.5.20 mem_cache/kv_cache_configurator.py:313, 0.5.23 :457: ")
    assert audit(found, Ask("0.5.16", CPU, None, amx=False)).cell("fp8_e4m3").verdict != "refused"
    assert "CPU" in audittext.text(table, found) and "SM?" not in audittext.text(table, found)


def test_the_patch_that_lets_it_in_is_the_one_that_we_carry() -> None:
    text = (ROOT / "patches" / kvcpu.LIFTS).read_text()
    assert kvcpu.LIFTS in (ROOT / "patches/registry.yaml").read_text()
    assert '!= {"torch_native"}' in text
