"""The arithmetic held against boots that others have published; every exception by id and cause."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kv_groundtruth import main, report, scored, tally
from benchmarks.kv_row import Scored, score
from benchmarks.kv_version import version_of
from tests.accuracy import shapes

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / ".." / "shared" / "data" / "kv-groundtruth.jsonl"

published = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not here")

# What misses, and why.
MISSES = {
    ("gh-sgl7691", "GiB left"): (
        "8 ranks of DP attention on ROCm: -561,981 tokens mean -37 GiB, which rank 0's published "
        "12.3 GiB cannot give; another rank's memory decided"
    ),
}
# What is right, but for another layout than the plain one.
LAYOUTS = {
    ("gf-hybrid-fp8-eagle", "ssm"): "states in 16 bits, by an argument that the row does not have",
    ("gf-dsv32-commit", "KV"): "FP8 without scales; the row has neither dtype nor card",
    ("gh-sgl11309-before", "KV"): "before that change the line left the index keys out",
}
# Sizes so small that two decimals are coarser than 1 %: (id, figure).
ROUNDED = {
    ("gf-qwen25-05b-docs", "K"),
    ("gf-qwen25-05b-docs", "V"),
}
# Rows that are asked for and have a config, and yet no figure to check.
NOTHING: set[str] = set()


@pytest.fixture(scope="module")
def rows() -> list[Scored]:
    return list(scored(FILE.read_text().splitlines()))


def by_verdict(rows: list[Scored], verdict: str) -> set[tuple[str, str]]:
    return {(r.id, c.what) for r in rows for c in r.checks if c.verdict == verdict}


@published
def test_what_misses_is_listed_with_its_cause(rows: list[Scored]) -> None:
    assert by_verdict(rows, "miss") == MISSES.keys()


@published
def test_other_layouts_are_listed_with_their_cause(rows: list[Scored]) -> None:
    assert by_verdict(rows, "layout") == LAYOUTS.keys()


@published
def test_bytes_of_a_token_within_one_percent(rows: list[Scored]) -> None:
    """Every row marked consistent and not circular, but for those listed."""
    asked = [r for r in rows if r.asked]
    assert {r.id for r in asked if not any(c.about == "bytes" for c in r.checks)} == NOTHING
    rounded = {(r.id, c.what) for r in asked for c in r.checks if c.verdict == "rounding"}
    assert {pair for pair in rounded if not pair[1].startswith("draft_")} == ROUNDED
    for row in asked:
        for check in row.checks:
            if check.about == "bytes" and check.verdict == "hit":
                assert abs(check.off) <= 0.01


@published
def test_tokens_within_two_percent_where_the_figures_are_there(rows: list[Scored]) -> None:
    """Rows with a config, the memory around the load and no cap, but for those listed."""
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    able = {
        row["id"]
        for row in lines
        if row["config"]
        and row["calc"]["budget_gib_from_mem_fraction"] is not None
        and row["max_total_tokens_arg"] is None
    }
    checked = {r.id for r in rows if any(c.about == "tokens" for c in r.checks)}
    assert checked == able
    missed = {row for row, what in MISSES if what == "tokens from memory"}
    assert (len(able), len(able - missed)) == (32, 32)


@published
def test_the_score(rows: list[Scored]) -> None:
    every = tally(rows)["all"]
    assert every == {
        "bytes": (96, 96),
        "others": (17, 17),
        "states": (8, 8),
        "draft": (16, 16),
        "tokens": (32, 32),
        "split": (9, 9),
        "rule": (10, 10),
        "boot": (1, 2),
    }


@published
def test_it_runs_as_it_is_documented() -> None:
    command = [sys.executable, "benchmarks/kv_groundtruth.py", str(FILE), "--all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "MHA/GQA, two pools" in done.stdout
    assert "98 rows" in done.stdout


# -- rows without a config, whose model is public and has the shape below ---------------------

_QWEN2_14B = {**shapes.LLAMA_8B, "num_hidden_layers": 48, "head_dim": 128}
_LAGUNA = {
    **shapes.LLAMA_8B,
    "num_hidden_layers": 48,
    "head_dim": 128,
    "sliding_window": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12,
}
_PUBLIC: dict[str, dict[str, Any]] = {
    "spark-laguna-int4": _LAGUNA,
    "spark-laguna-versuch1": _LAGUNA,
    "spark-laguna-versuch2": _LAGUNA,
    "gf-granite4h": shapes.GRANITE4_MICRO,
    "gf-ling3-tp1": shapes.LING3,
    "gf-grok1": {**shapes.LLAMA_8B, "num_hidden_layers": 64, "head_dim": 128},
    "gh-sgl748": {**shapes.LLAMA_8B, "num_hidden_layers": 80, "head_dim": 128},
    "gh-sgl4257": _QWEN2_14B,
    "gh-sgl5637": _QWEN2_14B,
    "gh-sgl5668": _QWEN2_14B,
    "gh-sgl7590": {"num_hidden_layers": 24, "num_attention_heads": 16, "head_dim": 64},
}


@published
@pytest.mark.parametrize("name", sorted(_PUBLIC))
def test_a_row_without_config_agrees_with_its_public_shape(name: str) -> None:
    lines = map(json.loads, FILE.read_text().splitlines())
    row = next(row for row in lines if row["id"] == name)
    config = {k: v for k, v in _PUBLIC[name].items() if k != "architectures"}
    # The drop of free memory of gh-sgl748 holds 0.46 GiB besides its pool: other buffers.
    found = [c for c in score({**row, "config": config}).checks if not c.what.startswith("drop")]
    assert found
    assert [check for check in found if check.verdict == "miss"] == []


# -- kinds of rows that the file does not have -------------------------------------------------

_EMPTY: dict[str, Any] = {"calc": {"consistent": True, "circular": False}}
_LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_GDN = {
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "layer_types_count": {"linear_attention": 36, "full_attention": 12},
}


def verdicts(row: dict[str, Any]) -> dict[str, str]:
    return {c.what: c.verdict for c in score({**_EMPTY, "id": "x", **row}).checks}


def test_four_bits_with_and_without_scales_in_the_line() -> None:
    row = {"config": _LLAMA, "tp": 1, "kv_dtype": "fp4_e2m1", "tokens": 1_000_000}
    # 32 layers x 8 heads x 128 = 32,768 values of K a token
    assert verdicts({**row, "k_gib": 17.17, "v_gib": 17.17}) == {"K": "hit", "V": "hit"}
    assert verdicts({**row, "k_gib": 15.26, "v_gib": 15.26}) == {"K": "layout", "V": "layout"}
    assert verdicts({**row, "k_gib": 30.52, "v_gib": 30.52}) == {"K": "miss", "V": "miss"}


def test_buffers_are_taken_off_the_card_in_steps() -> None:
    """A public boot of Mistral 7B: 64 buffers of 110.4 MiB take 112 each."""
    row = {"config": _LLAMA, "tp": 1, "tokens": 56_524, "context_len": 32_768}
    memory = {"avail_after_load_gib": 9.69, "avail_after_pool_gib": 2.44}
    (check,) = score({**_EMPTY, "id": "x", **row, **memory, "max_running_requests": 2049}).checks
    assert (check.predicted, check.verdict) == (7.0, "hit")


def test_the_class_that_the_log_names_is_the_one_that_ran() -> None:
    """Gemma 4 before the engine had it: transformers' own, with one shape for all layers."""
    row = {"config": shapes.GEMMA4_31B, "tp": 1, "kv_dtype": "torch.float8_e4m3fn"}
    sizes = {"tokens": 28_938, "k_gib": 6.62, "v_gib": 6.62, "sglang_version": "0.5.10.post1"}
    ran = {"model_class": "TransformersMultiModalForCausalLM"}
    assert verdicts({**row, **sizes, **ran}) == {"K": "hit", "V": "hit"}
    assert verdicts({**row, **sizes}) == {"K": "miss", "V": "miss"}


def test_an_index_that_the_line_leaves_out() -> None:
    """A public boot of Qwen3.8-Flash-Next on two cards."""
    row = {"config": shapes.QWEN4_EXP, "tp": 2, "page_size": 64, "kv_dtype": "torch.bfloat16"}
    pool = {"tokens": 484_032, "k_gib": 2.77, "v_gib": 2.77}
    states = {"mamba_slots": 97, "mamba_conv_gib": 0.10, "mamba_ssm_gib": 5.17}
    found = verdicts({**row, **pool, **states})
    assert found == {"K": "hit", "V": "hit", "conv": "hit", "ssm": "hit"}


def test_states_by_ratio_and_by_number() -> None:
    """15 GiB: 394 slots of 19,316,736 bytes, or 100 of them, and 12,288 bytes a token."""
    row = {
        "config": _GDN,
        "tp": 4,
        "page_size": 128,
        "avail_before_load_gib": 60.0,
        "avail_after_load_gib": 30.0,
        "mem_fraction_static": 0.75,
        "sm": "NPU",
    }
    by_ratio = score({**_EMPTY, "id": "x", **row, "mamba_slots": 394, "tokens": 691_328})
    assert {c.what: (c.predicted, c.verdict) for c in by_ratio.checks} == {
        "state slots": (394, "hit"),
        "tokens from memory": (691_328, "hit"),
    }
    by_number = score({**_EMPTY, "id": "x", **row, "mamba_slots": 100, "tokens": 1_153_408})
    assert {c.what: (c.predicted, c.verdict) for c in by_number.checks} == {
        "state slots": (394, "layout"),
        "tokens from memory": (1_153_408, "hit"),
    }


def test_an_eagle3_draft_that_loads_first_is_priced() -> None:
    row = {
        "config": _LLAMA,
        "tp": 1,
        "spec_algorithm": "EAGLE3",
        "draft_model_class": "LlamaForCausalLMEagle3",
        "draft_loaded_before_pool": True,
        "avail_before_load_gib": 80.0,
        "avail_after_load_gib": 64.0,
        "avail_after_draft_load_gib": 62.0,
        "mem_fraction_static": 0.85,
        "log_figures": ["KV Cache is allocated. dtype: torch.bfloat16, #tokens: 397187"],
        "tokens": 397_187,
    }
    (check,) = score({**_EMPTY, "id": "x", **row}).checks
    assert (check.predicted, check.verdict) == (397_187, "hit")


def test_a_row_of_pipeline_stages_is_of_the_first() -> None:
    """62 layers on 4 stages: 15 of them in stage 0, and 16 in the one that decides the tokens."""
    row = {
        "config": {**_LLAMA, "num_hidden_layers": 62},
        "tp": 1,
        "pp": 4,
        "tokens": 163_840,
        "k_gib": 4.69,
        "v_gib": 4.69,
        "avail_before_load_gib": 40.0,
        "avail_after_load_gib": 18.0,
        "mem_fraction_static": 0.8,
    }
    assert verdicts(row) == {"K": "hit", "V": "hit", "tokens from memory": "hit"}


def test_an_older_build_with_one_pool_for_all_layers() -> None:
    row = {
        "model_class": "GptOssForCausalLM",
        "config": {
            **_LLAMA,
            "layer_types_count": {"sliding_attention": 16, "full_attention": 16},
        },
        "tp": 1,
        "tokens": 1_000_000,
        "k_gib": 61.04,
        "v_gib": 61.04,
    }
    assert verdicts(row) == {"K": "layout", "V": "layout"}
    assert verdicts({**row, "k_gib": 30.52, "v_gib": 30.52}) == {"K": "hit", "V": "hit"}
    assert verdicts({**row, "k_gib": 40.0, "v_gib": 40.0}) == {"K": "miss", "V": "miss"}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"avail_after_load_gib": 10.0}, "hit", "least mem_fraction_static 0.8333"),
        ({"avail_after_load_gib": 15.01}, "hit", "one slot of the state pool"),
        ({"avail_after_load_gib": 15.01, "config": None}, "miss", ""),
        ({}, "miss", ""),
    ],
)
def test_a_boot_that_failed_is_refused(changes: dict[str, Any], verdict: str, words: str) -> None:
    row = {"config": _GDN, "tp": 4, "outcome": "failed at pool init", "tokens": None}
    memory = {"avail_before_load_gib": 60.0, "avail_after_load_gib": 30.0}
    found = score({**_EMPTY, "id": "x", **row, **memory, "mem_fraction_static": 0.75, **changes})
    (check,) = found.checks
    assert (check.about, check.verdict) == ("boot", verdict)
    assert words in check.note


def test_a_small_pool_is_right_within_the_decimals_of_the_memory() -> None:
    """0.10 GiB are left: what two figures of two decimals hide is 82 tokens of 819."""
    row = {"config": _LLAMA, "tp": 1, "mem_fraction_static": 0.9, "avail_before_load_gib": 20.0}
    row = {**row, "avail_after_load_gib": 2.1}
    found = {tokens: verdicts({**row, "tokens": tokens}) for tokens in (819, 880, 900, 910)}
    assert [told["tokens from memory"] for told in found.values()] == [
        *("hit", "rounding", "rounding", "miss")
    ]


def test_an_npu_with_states_before_0_5_10() -> None:
    """A public boot of Qwen3-Next, 4 NPUs: 450,560 tokens by hand take 10.32 GiB of K."""
    row = {"config": _GDN, "tp": 4, "sm": "NPU", "page_size": 128, "date": "2026-01-04"}
    sizes = {"tokens": 450_560, "k_gib": 10.32, "v_gib": 10.32, "max_total_tokens_arg": 450_560}
    assert verdicts({**row, **sizes}) == {"K": "hit", "V": "hit"}
    assert verdicts({**row, **sizes, "sglang_version": "0.5.10"}) == {"K": "miss", "V": "miss"}


def test_a_dtype_that_a_row_leaves_open_may_be_fp8() -> None:
    row = {"config": _LLAMA, "tp": 1, "tokens": 1_000_000, "k_gib": 30.52, "v_gib": 30.52}
    assert verdicts(row) == {"K": "layout", "V": "layout"}
    assert verdicts({**row, "kv_dtype": "bfloat16"}) == {"K": "miss", "V": "miss"}
    assert verdicts({**row, "k_gib": 20.0}) == {"K": "miss", "V": "miss"}


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"sm": "SM90", "sglang_version": "0.5.12"}, 656),
        ({"sm": "SM100", "sglang_version": "0.5.9"}, 656),
        ({"sm": "SM100", "sglang_version": "0.5.10"}, 576),
        ({"sm": "SM120", "sglang_version": "0.5.16"}, 576),
        ({"sm": "SM120", "sglang_version": "0.5.17"}, 656),
        ({"sm": "ROCm", "sglang_version": "0.5.12"}, 576),
        (
            {
                **{"sm": "SM100", "sglang_version": "0.5.12"},
                "launch_command": "sglang --nsa-prefill-backend flashmla_kv "
                "--nsa-decode-backend flashmla_kv",
            },
            656,
        ),
        # The engine fills the side that is left, and one that reads bare rows decides.
        (
            {
                **{"sm": "SM100", "sglang_version": "0.5.12"},
                "launch_command": "sglang --nsa-prefill-backend flashmla_kv",
            },
            576,
        ),
    ],
)
def test_what_dsa_rows_hold_by_card_and_version(changes: dict[str, Any], rows: int) -> None:
    config = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 78}
    glm = {**config, "index_head_dim": 128, "index_topk": 2048}
    row = {"config": glm, "model_class": "GlmMoeDsaForCausalLM", "kv_dtype": "torch.float8_e4m3fn"}
    size = 78 * (rows + 132) * 1_000_001 / (1 << 30)
    found = verdicts({**row, "tokens": 1_000_000, "kv_gib": round(size, 2), **changes})
    assert found == {"KV": "hit"}


def test_a_version_that_a_row_leaves_open_is_told() -> None:
    """One that is of 0.5.7 by its day, and had the tokens of 0.5.6."""
    row = {
        "config": {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61},
        "model_class": "DeepseekV3ForCausalLM",
        **{"tp": 16, "dp": 16, "attn_tp": 1, "dp_attention": True, "page_size": 128},
        **{"avail_before_load_gib": 60.77, "avail_after_load_gib": 20.66, "date": "2026-01-20"},
        **{"mem_fraction_static": 0.8, "spec_algorithm": "EAGLE", "tokens": 132_608},
        "max_running_requests": 24,
        "log_figures": ["max_total_num_tokens=132608, max_running_requests=24, context_len=8192"],
    }
    (check,) = score({**_EMPTY, "id": "x", **row}).checks
    assert (check.verdict, check.note) == ("layout", "the row leaves the version open: 0.5.6")
    stated = score({**_EMPTY, "id": "x", **row, "sglang_version": "0.5.7"}).checks[0]
    assert stated.verdict == "miss"


def test_arguments_in_a_command_count() -> None:
    row = {
        "config": _GDN,
        "tp": 4,
        "tokens": 1_000_000,
        "avail_before_load_gib": 60.0,
        "avail_after_load_gib": 30.0,
        "mem_fraction_static": 0.75,
    }
    plain, told = (
        score({**_EMPTY, "id": "x", **row, "launch_command": command}).checks[-1].predicted
        for command in ("sglang serve", "sglang serve --mamba-full-memory-ratio 0.3 --tp 4")
    )
    assert told > 1.4 * plain


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"config": None}, "no config"),
        ({"config": {"num_hidden_layers": 4}}, "missing: attention heads"),
        ({"config": _LLAMA, "kv_cache_dtype_arg": "int2"}, "KV dtype int2 is none of SGLang's"),
        ({"config": _LLAMA, "tokens": None}, "no size and no budget"),
        (
            {"config": _GDN, "tp": 3, "tokens": 10, "mamba_slots": 4, "mamba_ssm_gib": 1.0},
            "4864 values of a convolution cannot be shared by 3 GPUs",
        ),
        ({"config": {"layer_types_count": {"ring": 4}, "num_hidden_layers": 4}}, "of kind ring"),
        ({"config": _LLAMA, "tokens": 10, "k_gib": 1.0}, "missing: attn_tp or tp"),
    ],
)
def test_a_row_that_cannot_be_checked_says_why(row: dict[str, Any], words: str) -> None:
    assert words in score({"id": "x", **row}).skipped


def test_a_row_without_its_cards_is_told() -> None:
    row = {"id": "x", "config": _LLAMA, "tokens": 10, "k_gib": 1.0}
    assert "  x: missing: attn_tp or tp" in report([score(row)], every=False)
    command = {"launch_command": "sglang serve --tp-size 4"}
    four, given = (score({**row, **more}).checks for more in (command, {"tp": 4}))
    assert four == given


def test_counts_of_layers_may_lie_in_a_part() -> None:
    plain = {k: v for k, v in _GDN.items() if k != "architectures"}
    row = {"id": "x", "tp": 1, "tokens": 1000, "k_gib": 0.03, "model_class": "Qwen3NextForCausalLM"}
    flat, nested = (score({**row, "config": c}) for c in (plain, {"text_config": plain}))
    assert flat.checks == nested.checks
    assert flat.kind == "MHA/GQA + GDN"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tokens", "12k", "tokens is '12k', no whole number"),
        ("tokens", True, "tokens is True, no whole number"),
        ("tp", 10**30, "no whole number"),
        ("k_gib", float("nan"), "k_gib is nan, no number"),
        ("config", [1, 2], "config is [1, 2], no object"),
        ("calc", "none", "calc is 'none', no object"),
        ("model_class", ["A"], "model_class is ['A'], no text"),
        ("log_figures", "Load weight end", "no list"),
        ("config", {"layer_types_count": {"full_attention": 1e9}}, "no count of layers"),
        ("config", {"hybrid_layer_pattern": {"a": 2}}, "neither 0 nor 1"),
    ],
)
def test_a_row_with_an_odd_field_is_told_and_not_scored(
    field: str, value: object, words: str
) -> None:
    row = {**_EMPTY, "id": "x", "config": _LLAMA, "tp": 1, "tokens": 1_000_000, "k_gib": 61.04}
    found = score({**row, field: value})
    assert (found.kind, found.checks) == ("unreadable", ())
    assert words in found.skipped
    (line,) = [line for line in report([found], every=False) if "  x: " in line]
    assert words in line


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.sampled_from(["", "12", "fp9", "sliding_attention", "\x1b[2J", "\u2028"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "full_attention", "k"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_WHOLE_ROW: dict[str, Any] = {
    **{"id": "x", "date": "2026-01-04", "sglang_version": None, "model_class": None},
    **{"tp": 4, "dp": 2, "dp_attention": True, "attn_tp": 2, "pp": 1, "page_size": 1},
    **{"tokens": 1_000_000, "k_gib": 1.0, "v_gib": 1.0, "kv_gib": None, "swa_tokens": None},
    **{"mamba_slots": 4, "mamba_ssm_gib": 0.1, "mamba_conv_gib": 0.1, "max_running_requests": 4},
    **{"avail_before_load_gib": 60.0, "avail_after_load_gib": 30.0, "mem_fraction_static": 0.8},
    **{"spec_algorithm": "EAGLE", "draft_model_class": "ANextN", "draft_tokens": 5},
    **{"launch_command": "--page-size 1", "note": None, "log_figures": [], "outcome": None},
    **{"kv_dtype": None, "kv_cache_dtype_arg": "auto", "sm": "SM90", "config": None, "calc": {}},
}


@settings(max_examples=200, deadline=None)
@given(
    config=st.sampled_from([_LLAMA, _GDN, None]),
    inside=st.dictionaries(st.sampled_from(sorted(_GDN)), _JSON, max_size=3),
    around=st.dictionaries(st.sampled_from([*sorted(_WHOLE_ROW), "unknown"]), _JSON, max_size=3),
)
def test_no_row_of_whatever_kind_stops_the_score(
    config: dict[str, Any] | None, inside: dict[str, Any], around: dict[str, Any]
) -> None:
    told = {**config, **inside} if config else None
    found = score({**_WHOLE_ROW, "config": told, **around})
    assert found.checks or found.skipped
    assert list(report([found], every=True))


def test_whole_numbers_may_be_written_with_a_point() -> None:
    row = {"config": _LLAMA, "tp": 1.0, "tokens": 1_000_000.0, "k_gib": 61, "v_gib": 61.04}
    assert verdicts(row) == {"K": "hit", "V": "hit"}


def test_a_log_may_hold_what_looks_like_the_end_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "a\u2028b\x85c", "config": null}\n', encoding="utf-8")
    assert main([str(file)]) == 0


# -- which version a row is of -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "version"),
    [
        ({"sglang_version": "0.5.13-sm121"}, "0.5.13"),
        ({"sglang_version": "v0.4.6.post2", "date": "2026-01-01"}, "0.4.6"),
        ({}, "0.5.12"),
        ({"log_figures": ["KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1"]}, "0.5.13"),
        ({"log_figures": ["Load weight end. type=A, dtype=torch.float16"]}, "0.4.0"),
        ({"date": "2026-01-04"}, "0.5.6"),  # 0.5.7 was three days old
        ({"date": "2026-01-20"}, "0.5.7"),
        ({"date": "2024-07-26"}, "0.4.0"),
        ({"date": "2026-11-30", "log_figures": ["Load weight end. type=A"]}, "0.5.8"),
        ({"date": "2026-11-30", "log_figures": ["Load weight end. elapsed=1"]}, "0.5.23"),
        # A build between two releases writes what no release of its day does.
        ({"date": "2026-06-01", "log_figures": ["allocated. dtype: torch.bfloat16"]}, "0.5.13"),
        ({"date": "no day"}, "0.5.12"),
        ({"sglang_version": "0.0.0.dev1+g977830e91", "date": "2026-04-20"}, "0.5.10"),
    ],
)
def test_a_row_is_of_the_version_that_its_lines_and_its_day_allow(
    row: dict[str, Any], version: str
) -> None:
    assert version_of(row) == version


@pytest.mark.parametrize(("first", "version"), [(True, "0.5.23"), (False, "0.5.13")])
def test_the_order_of_loading_tells_the_version(first: bool, version: str) -> None:
    draft = {"spec_algorithm": "EAGLE", "draft_model_class": "A", "date": "2026-11-30"}
    assert version_of({**draft, "draft_loaded_before_pool": first}) == version


def test_what_is_drafted_comes_on_top_in_the_versions_that_did_so() -> None:
    """npu-deepseek_r1_w4a8_1p1d_16p: 24 requests on each of 16 ranks, 3 steps and 4 tokens."""
    row = {
        "config": {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61},
        "model_class": "DeepseekV3ForCausalLM",
        **{"tp": 16, "dp": 16, "attn_tp": 1, "dp_attention": True, "page_size": 128, "sm": "NPU"},
        **{"avail_before_load_gib": 60.77, "avail_after_load_gib": 20.66},
        **{"mem_fraction_static": 0.8, "spec_algorithm": "EAGLE", "tokens": 132_608},
        "max_running_requests": 24,
        "log_figures": ["max_total_num_tokens=132608, max_running_requests=24, context_len=8192"],
    }
    predicted = {
        version: score({**_EMPTY, "id": "x", **row, "sglang_version": version}).checks[-1].predicted
        for version in ("0.4.3", "0.5.6", "0.5.7")
    }
    assert predicted == {"0.4.3": 129_920, "0.5.6": 132_608, "0.5.7": 129_920}
    steps = {"launch_command": "sglang --speculative-num-steps 2 --speculative-eagle-topk 1"}
    fewer = score({**_EMPTY, "id": "x", **row, **steps, "sglang_version": "0.5.6"}).checks[-1]
    assert fewer.predicted == 131_840  # five tokens for each of 384, and 100, in whole pages


def test_a_file_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("{not json\n")
    assert main([str(file)]) == 1
    assert "rows.jsonl" in capsys.readouterr().err
    file.write_text("\n[1]\n")
    assert main([str(file)]) == 1
    assert "line 2 is no JSON object" in capsys.readouterr().err
    assert main([str(tmp_path / "none.jsonl")]) == 1


def test_an_empty_file_has_an_empty_score() -> None:
    assert list(report([], every=True))[-1].endswith("0 rows, 0 of them with nothing to check")
