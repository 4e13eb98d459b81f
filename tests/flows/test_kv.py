"""`invoke kv`: the card of a profile, from a folder, a host, a server, or for a plan."""

from __future__ import annotations

import io
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from benchmarks import kv_example
from firstlight.core.errors import FirstlightError, HostError
from firstlight.core.schema import load
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.flows import kv, recipes, target
from firstlight.hosts.inventory import UnknownName
from firstlight.serve.manifest import Manifest, render_manifest
from firstlight.serve.profile import Profile
from tests.flows.project import REPO, Project, make_project
from tests.flows.test_checkpoint import serving
from tests.remote.checkpoints import checkpoint, layer

EXAMPLE = str(REPO / "benchmarks" / "qwen35")
GIB = 1 << 30
# What `nvidia-smi --query-gpu=... --format=csv` says of two cards of 16 GiB.
SMI = """\
#!/bin/sh
case $1 in --query-gpu=*) ;; *) exit 0 ;; esac
echo "index, name, memory.total [MiB], memory.free [MiB]"
echo "0, NVIDIA Played, 16384 MiB, 16000 MiB"
echo "1, NVIDIA Played, 16380 MiB, 16000 MiB"
"""
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_size": 512,
    "max_position_embeddings": 32768,
}
# 2 layers of K and V, 4 heads by 64 numbers of 2 bytes, shared by 2 GPUs.
ROW = 2 * 2 * 4 * 64 * 2 // 2
PROFILE = """\
schema: 1
name: small
stack: sglang-cpu
model: {{kind: path, path: {folder}}}
served_model_name: small
args: {{kv_cache_dtype: bf16, mem_fraction_static: 0.5, {args}}}
extra_args: [--tp-size, "2"]
workload: {{concurrency: 100, context: 32768}}
"""


def test_of_two_flags_the_last_counts_and_chunks_may_be_off() -> None:
    """So the engine reads them; `--chunked-prefill-size -1` was refused as no number."""
    text = PROFILE.format(folder="/m", args="tp_size: 8, context_length: 16k")
    text = text.replace('"2"]', '"2", --chunked-prefill-size, "-1"]')
    args = kv.args_of(load(text, "small.yaml", Profile).value)
    assert {key: args[key] for key in ("tp_size", "context_length", "chunked_prefill_size")} == {
        "tp_size": 2,
        "context_length": 16000,
        "chunked_prefill_size": -1,
    }


def project(tmp_path: Path, args: str = "page_size: 16", **host: Any) -> Project:
    """A project with a profile of a small true checkpoint."""
    folder = checkpoint(tmp_path / "model", layer(0), layer(1), config=CONFIG)
    local = {"name": "local", "root": str(tmp_path / "firstlight"), **host}
    text = PROFILE.format(folder=folder, args=args)
    return make_project(tmp_path, [local], files={"recipes/profiles/small.yaml": text})


def with_gpus(tmp_path: Path) -> dict[str, Any]:
    """A local host on whose PATH somebody plays a driver."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    return {"env": {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"}}


def told(made: Project, **options: str) -> tuple[str, Any]:
    """The text and the data of the verb."""
    report = kv.run(made.root, Console(io.StringIO()), **{"profile": "small", **options})
    assert report.exit_code == 0
    return report.text, json.loads(json.dumps(report.data))


def column(data: Any, dtype: str) -> Any:
    return next(one for one in data["dtypes"] if one["kv_dtype"] == dtype)


def test_the_worked_example_needs_no_host(tmp_path: Path) -> None:
    """The figures of docs/kv-capacity.md, by the verb and the profile that ship."""
    made = project(tmp_path)
    text, data = told(made, profile="qwen35-nvfp4", model=EXAMPLE, memory="17.4")
    assert column(data, "bf16")["tokens"] == 641_164
    assert column(data, "fp8_e4m3")["tokens"] == 1_282_328
    assert data["memory"] == "given" and data["affordable"] is False
    assert "With --max-mamba-cache-size 80 it is: 1,089,745 tokens" in text
    more, _ = told(made, profile="qwen35-nvfp4", model=EXAMPLE, memory="40")
    assert "Affordable in BF16" in more
    assert not (tmp_path / "firstlight").exists()


def test_a_stack_that_serves_nothing_is_told(tmp_path: Path) -> None:
    """It ended as a fault of ours."""
    made = project(tmp_path)
    path = "recipes/profiles/small.yaml"
    text = made.read(path).replace("stack: sglang-cpu", "stack: kernels-cu130-sm120")
    made.write(path, text)
    with pytest.raises(UnknownName, match="stack kernels-cu130-sm120 has no sglang"):
        told(made, memory="17.4")


def test_without_a_gpu_the_missing_facts_are_told(tmp_path: Path) -> None:
    text, data = told(project(tmp_path))
    assert data["missing"] == ["the memory of a GPU: local has none"]
    assert (data["memory"], column(data, "bf16")["row_bytes"]) == (None, ROW)
    assert column(data, "bf16")["gib"] == pytest.approx(100 * 32768 * ROW / GIB, abs=0.02)
    assert "say --memory GIB" in text and "is not served on local yet" in text


def test_an_estimate_from_played_cards(tmp_path: Path) -> None:
    text, data = told(project(tmp_path, **with_gpus(tmp_path)))
    before = 16380 / 1024 - 1.2
    assert data["memory"] == "estimate" and data["measured"] is False
    assert data["rest_gib"] == pytest.approx(before / 2, abs=1e-3)
    tokens = column(data, "bf16")["tokens"]
    assert tokens % 16 == 0
    assert tokens == pytest.approx(data["rest_gib"] * GIB / ROW, rel=1e-5)
    assert "an estimate from the weights on disk" in text
    assert data["affordable"] is True


def serve(made: Project, tmp_path: Path, tokens: int) -> Path:
    """Lay a deployment with its proof on the host, as a deploy leaves it."""
    inventory = catalog.inventory(made.root)
    profile = recipes.profile(made.root, "small").value
    id_ = target.expected_id(made.root, inventory.hosts["local"], profile, "r1", "process")
    manifest = Manifest(
        profile="small", id=id_, release="r1", model="/m", served_model_name="small",
        launcher="process", sudo=False, restart="no", stop_s=1, bind="127.0.0.1", port=1,
        firstlight="0",
    )  # fmt: skip
    home = tmp_path / "firstlight" / "deployments" / "small" / id_
    home.mkdir(parents=True)
    (home / "manifest.json").write_text(render_manifest(manifest))
    proof = {"kv_dtype": "torch.bfloat16", "kv_tokens": tokens, "kv_gib": tokens * ROW / GIB}
    (home / "proof.json").write_text(json.dumps(proof))
    (home.parent / "current").symlink_to(id_)
    return home


def test_what_a_server_measured_takes_the_place_of_the_estimate(tmp_path: Path) -> None:
    made = project(tmp_path, **with_gpus(tmp_path))
    serve(made, tmp_path, 3_200_000)
    text, data = told(made)
    assert (data["memory"], data["measured"]) == ("measured", True)
    assert column(data, "bf16")["tokens"] == 3_200_000
    assert column(data, "fp8_e4m3")["tokens"] == pytest.approx(6_400_000, abs=32)
    assert "holds 3,200,000 tokens in bf16, 3.05 GiB; the estimate from the weights gave" in text
    assert "mamba" not in text and "bytes a token, and" not in text
    # A folder that is named is another model: nothing of it was measured.
    other, _ = told(made, model=str(tmp_path / "model"))
    assert "estimated:" in other


def test_what_another_form_of_the_profile_measured_is_not_used(tmp_path: Path) -> None:
    made = project(tmp_path, **with_gpus(tmp_path))
    serve(made, tmp_path, 3_200_000)
    made.change("recipes/profiles/small.yaml", ("page_size: 16", "page_size: 32"))
    text, data = told(made)
    assert data["memory"] == "estimate"
    assert "is an older form of the profile: not used" in text


@pytest.mark.parametrize("memory", ["x", "0", "-0", "-1", "inf", "nan", "1e308", "17,4"])
def test_a_memory_that_is_none_is_refused(tmp_path: Path, memory: str) -> None:
    with pytest.raises(FirstlightError, match="takes the GiB that are left") as left:
        told(project(tmp_path), memory=memory)
    assert left.value.exit_code == 2


def test_a_model_that_is_not_there_says_how_to_plan(tmp_path: Path) -> None:
    """`--memory` alone was told to be enough."""
    made = project(tmp_path)
    path = "recipes/profiles/small.yaml"
    made.write(path, made.read(path).replace(str(tmp_path / "model"), str(tmp_path / "nothing")))
    for memory in ("", "17.4"):
        with pytest.raises(HostError, match=r"no config\.json in .*/nothing: ") as left:
            told(made, memory=memory)
        assert left.value.remedy.startswith("name --model DIR, a folder with at least its config")


@pytest.mark.parametrize("folder", ["nothing", "~nobody-has-this-name/model"])
def test_a_folder_that_is_named_wrongly_is_to_be_corrected(tmp_path: Path, folder: str) -> None:
    """The advice was to name --model, which was given."""
    with pytest.raises(UnknownName, match=r"local: no config\.json in ") as left:
        told(project(tmp_path), model=folder, memory="17.4")
    assert (left.value.remedy, left.value.exit_code) == ("correct --model", 2)


def test_a_folder_alone_goes_by_no_profiles_flags(tmp_path: Path) -> None:
    """The usual profile serves on a CPU with 16,384 tokens: so many were told of any model."""
    made = project(tmp_path, "max_total_tokens: 64")
    made.write("inventory/hosts.yaml", "schema: 1\ndefaults: {host: local, profile: small}\n")
    text, data = told(made, profile="", model=EXAMPLE, memory="17.4")
    assert text.startswith(f"{EXAMPLE} on local, planned for 1 GPU, kv_cache_dtype auto\n")
    assert "Note: no profile is named" in text
    assert data["profile"] is None and column(data, "bf16")["tokens"] == 323_420


def test_gpus_that_are_planned_for_are_no_ones_of_the_host(tmp_path: Path) -> None:
    made = project(tmp_path)
    given, _ = told(made, profile="qwen35-nvfp4", model=EXAMPLE, memory="17.4")
    assert f"{EXAMPLE} on local, planned for 8 GPUs, kv_cache_dtype" in given
    assert "model on local, 2 GPUs, kv_cache_dtype" in told(made)[0]


def test_a_model_of_no_table_lists_what_is_not_known(tmp_path: Path) -> None:
    odd = {**kv_example.CONFIG, "architectures": ["NobodysForCausalLM"]}
    folder = checkpoint(tmp_path / "odd", layer(0), config=odd)
    with pytest.raises(HostError, match="what attention NobodysForCausalLM has"):
        told(project(tmp_path), model=str(PurePosixPath(folder)), memory="10")


def test_the_context_of_an_override_is_that_of_the_card(tmp_path: Path) -> None:
    """The card went by the length in the file, which the engine does not."""
    text, _ = told(
        project(tmp_path, "json_model_override_args: {max_position_embeddings: 65000}"),
        memory="17.4",
    )
    assert "requests of 65,000 at once" in text


@pytest.mark.parametrize("override", ["{num_hidden_layers: 4}", "'{\"num_hidden_layers\": 4}'"])
def test_an_override_of_the_config_is_laid_over_it(tmp_path: Path, override: str) -> None:
    made = project(tmp_path, f"json_model_override_args: {override}")
    _, data = told(made, memory="10")
    assert column(data, "bf16")["token_bytes"] == 2 * ROW


DSA = {
    "num_hidden_layers": 2,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_topk": 2048,
    "index_head_dim": 128,
}
# Rows of one layer without scales and with them, and the key of the index.
BARE, SCALED, KEY = 512 + 64, 512 + 4 * 4 + 2 * 64, 132


@pytest.mark.parametrize(
    ("stack", "name", "match", "row"),
    [
        ("sglang-cu130-sm120", "DeepseekV32ForCausalLM", "{}", BARE),
        ("sglang-cu130-sm120", "GlmMoeDsaForCausalLM", "{}", SCALED),
        ("sglang-cu130-sm120", "DeepseekV32ForCausalLM", "{sm: 90}", SCALED),
        ("sglang-0.5.9-cu130-sm120", "DeepseekV32ForCausalLM", "{}", SCALED),
    ],
)
def test_rows_of_dsa_go_by_the_card_of_match_or_of_the_stack(
    tmp_path: Path, stack: str, name: str, match: str, row: int
) -> None:
    made = project(tmp_path)
    folder = checkpoint(tmp_path / "dsa", layer(0), config={**DSA, "architectures": [name]})
    path = "recipes/profiles/small.yaml"
    made.change(path, ("stack: sglang-cpu", f"stack: {stack}"))
    made.write(path, f"{made.read(path)}match: {match}\n")
    text, data = told(made, model=str(folder), memory="10")
    assert column(data, "fp8_e4m3")["token_bytes"] == 2 * (row + KEY)
    assert "which card is not known" not in text


def test_a_card_that_nobody_names_is_told(tmp_path: Path) -> None:
    config = {**DSA, "architectures": ["DeepseekV32ForCausalLM"]}
    folder = checkpoint(tmp_path / "dsa", layer(0), config=config)
    text, data = told(project(tmp_path), model=str(folder), memory="10")
    assert "which card is not known: FP8 rows of DSA are taken with scales" in text
    assert column(data, "fp8_e4m3")["token_bytes"] == 2 * (SCALED + KEY)


def test_a_host_that_is_asked_says_which_card(tmp_path: Path) -> None:
    tools = with_gpus(tmp_path)
    played = tmp_path / "tools" / "nvidia-smi"
    said = SMI.replace("memory.free [MiB]", "compute_cap").replace("16000 MiB", "12.0")
    played.write_text(said)
    config = {**DSA, "architectures": ["DeepseekV32ForCausalLM"]}
    folder = checkpoint(tmp_path / "dsa", layer(0), layer(1), config=config)
    text, data = told(project(tmp_path, **tools), model=str(folder))
    assert data["memory"] == "estimate" and "which card" not in text
    assert column(data, "fp8_e4m3")["token_bytes"] == 2 * (BARE + KEY)


def test_a_draft_without_its_length_is_that_of_the_class(tmp_path: Path) -> None:
    made = project(tmp_path, "speculative_algorithm: EAGLE")
    config = {**CONFIG, "architectures": ["LlamaForCausalLM"]}
    folder = checkpoint(tmp_path / "llama", layer(0), config=config)
    text, data = told(made, model=str(folder), memory="10")
    assert data["launch"]["speculation"]["draft_tokens"] == 8
    assert "8 is taken, as 0.5" in text


def test_a_flag_leaves_one_pool(tmp_path: Path) -> None:
    made = project(tmp_path, "disable_hybrid_swa_memory: true")
    config = {**CONFIG, "architectures": ["GptOssForCausalLM"], "sliding_window": 128}
    config["layer_types"] = ["sliding_attention", "full_attention"]
    folder = checkpoint(tmp_path / "gpt", layer(0), config=config)
    _, data = told(made, model=str(folder), memory="10")
    assert data["attention"] == "MHA/GQA"
    assert column(data, "bf16")["token_bytes"] == ROW


def test_a_model_of_a_hub_is_read_by_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning for a host that cannot be reached: this machine and the hub are enough."""
    gone = {"name": "gone", "address": "127.0.0.1", "port": 1}
    made = project(tmp_path)
    commit = "0123456789abcdef0123456789abcdef01234567"
    source = f"{{kind: hf, repo: someone/tiny, revision: {commit}}}"
    made.change(
        "recipes/profiles/small.yaml", (f"{{kind: path, path: {tmp_path / 'model'}}}", source)
    )
    hosts = [gone, {"name": "local", "root": str(tmp_path / "firstlight")}]
    made.write(
        "inventory/hosts.yaml",
        json.dumps({"schema": 1, "defaults": {"host": "gone"}, "hosts": hosts}),
    )
    with serving(tmp_path / "model") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        _, data = told(made, memory="10")
    assert data["model"] == f"{hub.url}/someone/tiny"
    assert column(data, "bf16")["token_bytes"] == ROW
    assert {wanted for path, wanted, _ in hub.asked if path.endswith(".safetensors")} != {""}


def test_the_verb_prints_data_for_programs(tmp_path: Path) -> None:
    words = ("kv", "--profile", "qwen35-nvfp4", "--model", EXAMPLE, "--memory", "17.4", "--json")
    done = project(tmp_path).invoke(*words, check=True)
    assert column(json.loads(done.stdout), "bf16")["tokens"] == 641_164


V4 = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "num_hidden_layers": 4,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "compress_ratios": [0, 128, 4, 128, 0],
}


def test_compressed_pools_are_computed_in_their_one_layout(tmp_path: Path) -> None:
    made = project(tmp_path, args="max_running_requests: 128")
    folder = tmp_path / "v4"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(V4))
    path = "recipes/profiles/small.yaml"
    fp8 = made.read(path).replace("kv_cache_dtype: bf16", "kv_cache_dtype: fp8_e4m3")
    made.write(path, f"{fp8}policy: {{kv: allow_any, reason: its one layout}}\n")
    text, data = told(made, model=str(folder), memory="2")
    assert [one["tokens"] > 0 for one in data["dtypes"]] == [False, True, False]
    assert data["launch"]["page_size"] == 256
    assert "no layout" in text
    assert "in FP8" in text and "in BF16" not in text
    made.write(path, made.read(path).replace("args: {", "args: {enable_hisparse: true, "))
    with pytest.raises(HostError, match="not computed: DeepSeek-V4 with enable_hisparse"):
        told(made, model=str(folder), memory="2")
