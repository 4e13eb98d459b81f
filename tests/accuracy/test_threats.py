"""What else an audit finds: each threat where it is, and none where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstlight.accuracy.audit import Ask
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.threats import Threat, threats
from tests.accuracy.test_audit import PLAIN, described, made
from tests.remote.checkpoints import layer

CLEAN = {
    "attention_backend": "triton",
    "moe_runner_backend": "flashinfer_cutlass",
    "fp4_gemm_backend": "flashinfer_cutlass",
    "chat_template": "chatml",
}
HEAD = (PLAIN[0], PLAIN[1] | layer(0, "mtp.layers"))


def found(
    checkpoint: Checkpoint,
    dtype: str = "bfloat16",
    version: str = "0.5.23",
    sm: int = 120,
    **more: Any,
) -> list[Threat]:
    return list(threats(checkpoint, Ask(version, CLEAN | more, sm), dtype))


def kinds(made_: list[Threat]) -> list[tuple[str, str]]:
    return [(one.kind, one.where) for one in made_]


def test_a_profile_that_names_everything_is_left_alone(tmp_path: Path) -> None:
    assert found(made(tmp_path)) == []


@pytest.mark.parametrize(
    "flag, where",
    [
        ("attention_backend", "args.attention_backend"),
        ("moe_runner_backend", "args.moe_runner_backend"),
        ("fp4_gemm_backend", "args.fp4_gemm_backend"),
    ],
)
@pytest.mark.parametrize("value", ["auto", None])
def test_backends_left_to_the_engine(tmp_path: Path, flag: str, where: str, value: Any) -> None:
    left: dict[str, Any] = {flag: value}
    assert kinds(found(made(tmp_path), **left)) == [("auto-backend", where)]


def test_both_halves_of_attention_may_be_named_instead(tmp_path: Path) -> None:
    both: dict[str, Any] = {
        "prefill_attention_backend": "triton",
        "decode_attention_backend": "triton",
    }
    assert found(made(tmp_path), attention_backend="auto", **both) == []


KEY = "args.speculative_draft_kv_cache_dtype"


@pytest.mark.parametrize(
    "version, flags, dtype, where",
    [
        ("0.5.23", {"kv_cache_dtype": "bf16"}, "bfloat16", ""),
        ("0.5.16", {"kv_cache_dtype": "bf16"}, "bfloat16", ""),
        ("0.5.16", {}, "fp8_e4m3", "args.kv_cache_dtype"),
        # The target stays BF16 where its class hides the declaration; the draft's shows it.
        ("0.5.9", {}, "bfloat16", "args.kv_cache_dtype"),
        ("0.5.23", {}, "fp8_e4m3", KEY),
        ("0.5.23", {"speculative_draft_kv_cache_dtype": "bf16"}, "fp8_e4m3", ""),
        ("0.5.16", {"speculative_draft_kv_cache_dtype": "bf16"}, "fp8_e4m3", "args.kv_cache_dtype"),
        (
            "0.5.23",
            {"kv_cache_dtype": "bf16", "speculative_draft_kv_cache_dtype": "fp8_e4m3"},
            "bfloat16",
            KEY,
        ),
    ],
)
def test_the_cache_of_a_draft(
    tmp_path: Path, version: str, flags: dict[str, Any], dtype: str, where: str
) -> None:
    head = made(tmp_path, HEAD, num_nextn_predict_layers=1)
    told = found(head, dtype, version, speculative_algorithm="NEXTN", **flags)
    assert kinds(told) == ([("draft-kv", where)] if where else [])
    assert all("scales of the draft in this checkpoint: absent" in one.what for one in told)
    # Without speculation the head is not loaded.
    assert found(head, dtype, version, **flags) == []


def test_weights_that_the_card_does_not_multiply_as_they_are(tmp_path: Path) -> None:
    (told,) = found(made(tmp_path), sm=90)
    assert told.kind == "weight-only" and "NVFP4 weights on SM90" in told.what
    (chosen,) = found(made(tmp_path), moe_runner_backend="marlin")
    assert (chosen.severity, chosen.where) == ("note", "args.moe_runner_backend")


@pytest.mark.parametrize(
    "given, beyond",
    [("4096", False), ("4097", True), ("4k", False), ("8Ki", True), ("odd", False), ("inf", False)],
)
def test_a_context_beyond_the_checkpoint(tmp_path: Path, given: str, beyond: bool) -> None:
    told = kinds(found(made(tmp_path), context_length=given))
    assert told == ([("context", "args.context_length")] if beyond else [])


def test_rope_that_is_changed_against_the_checkpoint(tmp_path: Path) -> None:
    override = '{"rope_scaling": {"rope_type": "yarn", "factor": 4}}'
    told = kinds(found(made(tmp_path), json_model_override_args=override))
    assert told == [("context", "args.json_model_override_args")]
    assert found(made(tmp_path), json_model_override_args='{"num_experts": 4}') == []


def test_penalties_that_nobody_asked_for(tmp_path: Path) -> None:
    made(tmp_path)
    text = '{"repetition_penalty": 1.05, "presence_penalty": 0.0, "temperature": 0.6}'
    (tmp_path / "generation_config.json").write_text(text)
    (told,) = found(described(tmp_path))
    assert told.where == "generation_config.json: repetition_penalty"
    assert found(described(tmp_path), sampling_defaults="openai") == []


def test_a_chat_template_that_is_missing(tmp_path: Path) -> None:
    assert kinds(found(made(tmp_path), chat_template=None)) == [
        ("chat-template", "args.chat_template")
    ]


def test_python_of_the_checkpoint(tmp_path: Path) -> None:
    plain = made(tmp_path / "plain")
    (told,) = found(plain, trust_remote_code=True)
    assert told.what == "the checkpoint brings no Python, so nothing needs it"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "m.py").touch()
    code = made(tmp_path / "code", auto_map={"AutoModel": "m.Model", "AutoConfig": "a/b--c.C"})
    runs, elsewhere = found(code, trust_remote_code=True)
    assert ("m.Model" in runs.what, elsewhere.severity) == (True, "warning")
    assert found(code) == []
