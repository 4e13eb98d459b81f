"""`invoke audit` as a person types it: the story that this project comes from, and its cure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstlight.core.errors import ConfigError, PolicyError, ProofError
from firstlight.effects import catalog
from firstlight.flows.gate import Engine, flags_of
from firstlight.serve.capabilities import Capabilities, Flag
from firstlight.serve.profile import Profile
from tests.effects.sshd import fill_home, needs_sshd, running
from tests.flows.project import Project, make_project
from tests.remote.checkpoints import checkpoint, kv_scales, layer

# 0.5.23, not locked in this project, so that the recipe says which engine it is.
STACK = "sglang-cu130-sm120"
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 2,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
    },
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": False},
    },
}
PLAIN = (layer(0), layer(1))
SCALED = (layer(0) | kv_scales(0, 0.5, 0.25), layer(1) | kv_scales(1, 0.5, 0.75))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, [{"name": "local", "root": str(tmp_path / "root")}])


def profile(project: Project, model: Path, name: str = "coder", **more: Any) -> list[str]:
    """Write a profile and give its lines."""
    said = {
        "schema": 1,
        "name": name,
        "stack": STACK,
        "model": {"kind": "path", "path": str(model)},
        "served_model_name": name,
        "match": {"sm": 120},
        "args": {"tp_size": 8, "kv_cache_dtype": "auto"},
        **more,
    }
    text = yaml.safe_dump(said, sort_keys=False)
    project.write(f"recipes/profiles/{name}.yaml", text)
    return text.splitlines()


def words(text: str) -> str:
    """Without the widths of columns."""
    return " ".join(text.split())


def test_the_story_is_refused_with_the_line_to_change(project: Project, tmp_path: Path) -> None:
    lines = profile(project, checkpoint(tmp_path / "m", *PLAIN, config=CONFIG))
    done = project.invoke("audit", "--profile", "coder")
    assert (done.returncode, done.stderr) == (ProofError.exit_code, "")
    *_, last = done.stdout.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "kv_cache_dtype" in line)
    assert last == (
        f"refused: recipes/profiles/coder.yaml:{number}:19: kv_cache_dtype auto is "
        "lossy-uncalibrated (fp8_e4m3, scales no), and policy.kv is require_bf16; "
        "write args.kv_cache_dtype: bf16"
    )
    assert "no warning is printed" in done.stdout
    # With what was said, it is safe.
    profile(project, tmp_path / "m", args={"kv_cache_dtype": "bf16"})
    again = project.invoke("audit", "--profile", "coder", check=True)
    assert "kv_cache_dtype bf16 is within it" in again.stdout
    assert "> bf16 bfloat16 no safe" in words(again.stdout)


def test_what_the_flags_lay_over_the_config_counts(project: Project, tmp_path: Path) -> None:
    """The checkpoint says nothing of a quantised cache; the profile makes the engine read one."""
    plain = {key: value for key, value in CONFIG.items() if key != "quantization_config"}
    folder = checkpoint(tmp_path / "m", *PLAIN, config=plain)
    loose: dict[str, Any] = {"policy": {"kv": "allow_calibrated", "reason": "measured in May"}}
    profile(project, folder, **loose)
    assert "auto is within it" in project.invoke("audit", "--profile", "coder", check=True).stdout
    over = {"quantization_config": CONFIG["quantization_config"]}
    profile(project, folder, args={"kv_cache_dtype": "auto", "json_model_override_args": over})
    done = project.invoke("audit", "--profile", "coder")
    assert done.returncode == ProofError.exit_code
    assert "kv_cache_dtype auto is lossy-uncalibrated (fp8_e4m3, scales no)" in done.stdout


def test_a_flag_that_is_not_there_is_auto(project: Project, tmp_path: Path) -> None:
    profile(project, checkpoint(tmp_path / "m", *PLAIN, config=CONFIG), args={"tp_size": 8})
    done = project.invoke("audit", "--profile", "coder", "--json")
    assert done.returncode == ProofError.exit_code
    found = json.loads(done.stdout)
    assert (found["own"], found["change"], found["within"]) == ("auto", "bf16", False)
    assert found["line"]["file"] == "recipes/profiles/coder.yaml"
    assert [cell["verdict"] for cell in found["cells"]][:2] == ["lossy-uncalibrated", "safe"]


@pytest.mark.parametrize("args", [{"tp_size": 8}, {"tp_size": 8, "kv_cache_dtype": "auto"}])
def test_what_a_deploy_refuses_no_audit_lets_through(
    project: Project, tmp_path: Path, args: dict[str, Any]
) -> None:
    """`auto` is BF16 for this checkpoint, and safe; the policy wants it written down all the same,
    and the audit said that it was within it."""
    plain = {key: value for key, value in CONFIG.items() if key != "quantization_config"}
    profile(project, checkpoint(tmp_path / "m", *PLAIN, config=plain), args=args)
    deployed = project.invoke("deploy", "--profile", "coder")
    done = project.invoke("audit", "--profile", "coder", "--json")
    assert (done.returncode, deployed.returncode) == (ProofError.exit_code, PolicyError.exit_code)
    found = json.loads(done.stdout)
    assert (found["within"], found["change"]) == (False, "bf16")
    assert found["cells"][0]["verdict"] == "safe"
    line = found["line"]
    place = f"{line['file']}:{line['line']}:{line['column']}: {line['message']}"
    assert place in deployed.stderr and "write args.kv_cache_dtype: bf16" in place
    told = project.invoke("audit", "--profile", "coder").stdout
    assert f"refused: {place}" in told and "auto is against it" in told


def test_the_last_word_is_in_extra_args(project: Project, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", *PLAIN, config=CONFIG)
    more: dict[str, Any] = {
        "args": {"kv_cache_dtype": "bf16"},
        "extra_args": ["--kv-cache-dtype=fp8_e5m2"],
    }
    lines = profile(project, folder, **more)
    done = project.invoke("audit", "--profile", "coder")
    number = next(n for n, line in enumerate(lines, 1) if "fp8_e5m2" in line)
    assert done.returncode == ProofError.exit_code
    assert f"coder.yaml:{number}:3: kv_cache_dtype fp8_e5m2 is lossy" in done.stdout


@pytest.mark.parametrize("words", [["--kv-cache-dt", "fp8_e4m3"], ["--kv-cache-d=fp8_e4m3"]])
def test_a_flag_cut_short_is_the_flag(project: Project, tmp_path: Path, words: list[str]) -> None:
    """The engine's argparse takes it so."""
    folder = checkpoint(tmp_path / "m", *PLAIN, config=CONFIG)
    lines = profile(project, folder, args={"kv_cache_dtype": "bf16"}, extra_args=words)
    done = project.invoke("audit", "--profile", "coder")
    number = next(n for n, line in enumerate(lines, 1) if "--kv-cache-d" in line)
    assert done.returncode == ProofError.exit_code
    assert f"coder.yaml:{number}:3: kv_cache_dtype fp8_e4m3 is lossy" in done.stdout


def test_a_policy_with_its_reason_is_told(project: Project, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", *SCALED, config=CONFIG)
    profile(project, folder, policy={"kv": "allow_calibrated", "reason": "measured in May"})
    done = project.invoke("audit", "--profile", "coder", check=True)
    assert "auto is within it; reason: measured in May" in done.stdout
    # BF16 is no cure where the scales are loaded and the backend applies them.
    profile(project, folder, args={"kv_cache_dtype": "bf16", "attention_backend": "flashinfer"})
    wrong = project.invoke("audit", "--profile", "coder")
    assert wrong.returncode == ProofError.exit_code
    assert "kv_cache_dtype bf16 is wrong" in wrong.stdout
    assert "no value is known to be within it here" in wrong.stdout


def test_what_cannot_be_read_is_not_allowed(project: Project, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", *PLAIN, config=CONFIG)
    next(folder.glob("*-00002-*")).write_bytes(b"short")
    policy = {"kv": "allow_any", "reason": "measured in May"}
    lines = profile(project, folder, args={"kv_cache_dtype": "bf16"}, policy=policy)
    done = project.invoke("audit", "--profile", "coder")
    assert done.returncode == ProofError.exit_code
    number = lines.index("model:") + 2
    place = f"refused: recipes/profiles/coder.yaml:{number}:3"
    told = "its files are broken, and no policy.kv allows that: model-00002-of-"
    assert f"{place}: {told}" in done.stdout
    assert "bf16 is against it, as no broken checkpoint is within any" in done.stdout


def test_a_value_that_no_engine_takes_is_no_matter_of_policy(
    project: Project, tmp_path: Path
) -> None:
    """`[bf16]` was audited as bf16, and found safe, where `check` and `deploy` refused it."""
    folder = checkpoint(tmp_path / "m", *PLAIN, config=CONFIG)
    profile(project, folder, args={"kv_cache_dtype": ["bf16"], "context_length": -1})
    done = project.invoke("audit", "--profile", "coder")
    assert done.returncode == ConfigError.exit_code
    assert "kv_cache_dtype is ['bf16']; expected one value in one word" in done.stderr
    assert "context_length is -1; expected a whole number, 1 or more" in done.stderr


def test_another_stack_is_another_engine(project: Project, tmp_path: Path) -> None:
    loose: dict[str, Any] = {"policy": {"kv": "allow_calibrated", "reason": "measured in May"}}
    profile(project, checkpoint(tmp_path / "m", *PLAIN, config=CONFIG), **loose)
    older = project.invoke(
        "audit", "--profile", "coder", "--stack", "sglang-0.5.9-cu130-sm120", check=True
    )
    assert "sglang 0.5.9, SM120" in older.stdout
    assert "> auto bfloat16 no safe" in words(older.stdout)


def test_a_folder_alone_is_nobodys_choice(project: Project, tmp_path: Path) -> None:
    checkpoint(project.root / "near", *SCALED, config=CONFIG)
    done = project.invoke("audit", "--model", "near", "--stack", STACK, "--json", check=True)
    found = json.loads(done.stdout)
    assert (found["own"], found["within"], found["checkpoint"]) == (
        None,
        None,
        str(project.root / "near"),
    )
    assert {cell["asked"]: cell["verdict"] for cell in found["cells"]} == {
        "auto": "lossy-calibrated",
        "bf16": "wrong",
        "fp8_e4m3": "lossy-calibrated",
        "fp8_e5m2": "lossy-uncalibrated",
        "nvfp4": "lossy-uncalibrated",
    }
    assert not (tmp_path / "root").exists()


def test_a_host_is_asked(tmp_path: Path) -> None:
    needs_sshd()
    folder = checkpoint(tmp_path / "it's a model", *PLAIN, config=CONFIG)
    with running(tmp_path / "sshd") as server:
        home = tmp_path / "home"
        server.allow(fill_home(home))
        (home / ".ssh" / "known_hosts").write_text(server.known())
        near = {"name": "near", "address": "127.0.0.1", "port": server.port}
        project = make_project(tmp_path, [near | {"root": str(tmp_path / "root")}], home=home)
        profile(project, folder)
        done = project.invoke("audit", "--profile", "coder", "--host", "near")
    assert done.returncode == ProofError.exit_code, done.stderr
    assert "write args.kv_cache_dtype: bf16" in done.stdout


def test_flags_are_those_of_the_release_where_it_is_known(project: Project) -> None:
    flags = {
        "--kv-cache-dtype": Flag(choices=("auto", "bf16")),
        "--tp-size": Flag(aliases=("--tensor-parallel-size",)),
        "--trust-remote-code": Flag(kind="store_true"),
    }
    engine = Engine("0.5.23", Capabilities(version="0.5.23", flags=flags))
    assert (engine.choices, Engine("0.5.23", None).choices) == (("auto", "bf16"), None)
    args = {"tensor_parallel_size": 8, "trust_remote_code": True, "kv_cache_dtype": "auto"}
    profile(project, Path("/m"), args=args, extra_args=["--kv-cache-dtype", "bf16"])
    said = catalog.find(project.root, "recipes/profiles", "coder", Profile).value
    assert flags_of(said, engine.capabilities) == {
        "tp_size": "8",
        "trust_remote_code": True,
        "kv_cache_dtype": "bf16",
    }
    assert flags_of(said, None)["tensor_parallel_size"] == "8"
    short = said.model_copy(update={"args": {}, "extra_args": ("--tensor", "8", "--t", "4", "--")})
    assert flags_of(short, engine.capabilities) == {"tp_size": "8", "t": "4", "": True}


MISTAKES = [
    (("--model", "/nowhere", "--stack", STACK), 3, "local: the model is not there: /nowhere"),
    (("--model", "/nowhere", "--stack", "kernels-cu130-sm120"), 2, "has no sglang"),
    (("--model", "/nowhere", "--stack", "sglang-cu130-sm12"), 2, "did you mean"),
    (("--profile", "code"), 2, "no recipes/profiles/code.yaml"),
]


@pytest.mark.parametrize("given, code, told", MISTAKES)
def test_mistakes_are_told(project: Project, given: tuple[str, ...], code: int, told: str) -> None:
    done = project.invoke("audit", *given)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
