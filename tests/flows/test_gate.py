"""The gate in a deploy: a cache against the policy is refused before anything starts, and what is
let through is told each time."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.tiny import CONFIG, NATIVE, Tiny, make_pantry, make_tiny, refused
from tests.remote.checkpoints import checkpoint, kv_scales, layer

FP8 = {
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": False},
    }
}
CALIBRATED = ("kv_cache_dtype: bf16", "kv_cache_dtype: auto")
POLICY = "smoke:\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    folder = tmp_path_factory.mktemp("gate")
    tiny = make_tiny(folder, make_pantry(folder / "pantry"))
    tiny.let_fp8_in()
    tiny.project.invoke("build", check=True)
    yield tiny
    tiny.end()


def model(tiny: Tiny, *parts: object) -> None:
    """Give the profile's model other files."""
    folder = tiny.root.parent / "model"
    shutil.rmtree(folder)
    checkpoint(folder, *parts, config={**CONFIG, **FP8})  # type: ignore[arg-type]


def policy(kv: str) -> tuple[str, str]:
    return POLICY, f"policy: {{kv: {kv}, reason: measured in May}}\n{POLICY}"


@contextlib.contextmanager
def changed(tiny: Tiny, *edits: tuple[str, str]) -> Iterator[None]:
    """The profile with these edits, and afterwards as it was."""
    path = "recipes/profiles/tiny.yaml"
    before = tiny.project.read(path)
    tiny.profile(*edits)
    try:
        yield
    finally:
        tiny.project.write(path, before)


def nothing_was_started(tiny: Tiny) -> bool:
    return not tiny.servers() and not list((tiny.root / "deployments").glob("*/*/launch.sh"))


def test_a_lossy_cache_against_its_policy_is_refused_before_anything_starts(built: Tiny) -> None:
    model(built, layer(0), layer(1))
    with changed(built, CALIBRATED, policy("allow_calibrated")):
        message = refused(built.project.invoke("deploy"), 5)
    assert "recipes/profiles/tiny.yaml:9:19: kv_cache_dtype auto is lossy-uncalibrated" in message
    assert "policy.kv is allow_calibrated; write args.kv_cache_dtype: bf16" in message
    assert "`invoke audit --profile tiny --host local` shows every value and why" in message
    assert nothing_was_started(built)


def test_scales_that_are_loaded_make_a_wide_cache_wrong(built: Tiny) -> None:
    model(built, layer(0) | kv_scales(0, 0.5, 0.25), layer(1) | kv_scales(1, 0.5, 0.75))
    with changed(built, policy("allow_any")):
        message = refused(built.project.invoke("deploy"), 5)
    assert "kv_cache_dtype bf16 is " in message and "policy.kv is allow_any" in message
    assert nothing_was_started(built)


def test_a_model_that_is_not_there_is_no_matter_of_policy(built: Tiny) -> None:
    """With allow_any it was let through as unknown, and the server that ran was stopped for it."""
    folder = built.root.parent / "model"
    away = folder.rename(folder.with_name("away"))
    try:
        with changed(built, policy("allow_any")):
            message = refused(built.project.invoke("deploy"), 3)
    finally:
        away.rename(folder)
    assert f"the model is not there: {folder}" in message
    assert nothing_was_started(built)


def test_the_static_rule_of_a_policy_is_a_refusal_too(built: Tiny) -> None:
    with changed(built, CALIBRATED):
        message = refused(built.project.invoke("deploy"), 5)
        # To `check` it is one more fault of a file.
        assert built.project.invoke("check").returncode == 2
    assert "policy.kv is require_bf16, but kv_cache_dtype is 'auto'" in message
    assert nothing_was_started(built)


def test_a_plan_shows_where_the_audit_stands(built: Tiny) -> None:
    shown = built.project.invoke("deploy", "--dry-run", check=True).stdout
    steps = [line for line in shown.splitlines() if line.startswith("# ") and ". " in line]
    assert [step.partition(". ")[2] for step in steps][1] == "say what becomes of its KV cache"
    assert "\ninvoke audit --profile tiny --host local\n" in shown


def test_what_is_let_through_is_told_with_its_reason_each_time(built: Tiny) -> None:
    model(built, layer(0), layer(1))
    lossy = ("kv_cache_dtype: bf16", "kv_cache_dtype: fp8_e4m3")
    line = (
        "kv_cache_dtype fp8_e4m3 is lossy-uncalibrated: fp8_e4m3; "
        "allowed by policy.kv allow_any: measured in May"
    )
    edits = (lossy, policy("allow_any"), ("fault: none", "fault: fp8"), NATIVE)
    with changed(built, *edits):
        first = built.project.invoke("deploy", check=True).stdout
        again = built.project.invoke("deploy", check=True).stdout
        assert first.count(line) == 2 and again.count(line) == 1
        (proof,) = built.root.glob("deployments/tiny/????????????/proof.json")
        kept = json.loads(proof.read_text())
        built.project.invoke("stop", check=True)
    assert kept["policy"]["verdict"] == "lossy-uncalibrated"
    assert kept["policy"]["reason"] == "measured in May"
    figures = {one["what"]: one["found"] for one in kept["capacity"]["figures"]}
    assert figures["tokens, by --max-total-tokens"] == 16384
    assert figures["bytes of a token"] == pytest.approx(11_520, rel=0.1)
    assert kept["capacity"]["findings"] == []
    launch = json.loads(built.project.read("evidence/tiny/launch-local.json"))
    assert launch["policy"] == kept["policy"] and launch["capacity"] == kept["capacity"]
    assert "  evidence: evidence/tiny/launch-local.json\n" in first
    assert "capacity  3 figures predicted, all within 2 % of the server's log" in again


def test_what_the_engine_answered_is_kept_in_the_release(built: Tiny) -> None:
    """The tiny engine has no reader of quantisation: what it cannot say is asked again."""
    model(built, layer(0), layer(1))
    found = built.project.invoke("audit", "--json")
    cells = {cell["asked"]: cell for cell in json.loads(found.stdout)["cells"]}
    assert cells["bf16"]["verdict"] == "safe"
    assert not list(built.root.glob("releases/*/cache/probe-*.json"))
    folder = next(iter(built.root.glob("releases/*/venv/lib/python*/site-packages/sglang/srt")))
    configs = folder / "configs"
    reader(folder, configs)
    try:
        built.project.invoke("audit", "--json")
        (kept,) = built.root.glob("releases/*/cache/probe-*.json")
        answer = json.loads(kept.read_text())
    finally:
        shutil.rmtree(configs)
        shutil.rmtree(folder / "model_loader")
    assert (answer["algo"], answer["shows"], answer["loads"]) == ("FP8", True, True)
    said = json.loads(built.project.invoke("audit", "--json").stdout)
    evidence = [line for cell in said["cells"] for line in cell["evidence"]]
    assert {"where": "this release, models/llama.py:14", "says": "the engine reads FP8"} in evidence


def reader(folder: Path, configs: Path) -> None:
    """What an engine would need to have to be asked."""
    loader = folder / "model_loader"
    for made in (configs, loader):
        made.mkdir()
        (made / "__init__.py").touch()
    (configs / "load_config.py").write_text("class LoadConfig: pass\n")
    (configs / "model_config.py").write_text(
        "class ModelConfig:\n    def __init__(self, model_path, quantization=None):\n"
        "        self.quantization = 'modelopt_fp4'\n"
    )
    (loader / "weight_utils.py").write_text(
        "def get_quant_config(config, load_config, mapping):\n"
        "    return type('Found', (), {'kv_cache_quant_algo': 'FP8'})()\n"
    )
