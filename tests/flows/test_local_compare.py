"""What FP8 costs a real model, measured for real on this machine; see docs/compare.md.

It comes after test_local.py and finds its downloads in the same HOME.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.project import make_project
from tests.flows.watching import free_port, is_open, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

NAME = "smollm2-cpu-fp8kv"
PRECISIONS = ("bf16", "fp8_e4m3", "fp8_e5m2")
LONG = 2000.0


def test_fewer_bits_cost_more_and_nothing_stays_behind(tmp_path: Path, person_home: Path) -> None:
    project = make_project(tmp_path, [{"name": "local"}], home=person_home)
    port = free_port()
    # Short, for the sake of time: the generated session fills the context.
    small = ("  kv_cache_dtype: bf16\n", "  kv_cache_dtype: bf16\n  context_length: 2048\n")
    served = ("port: 30002", f"port: {port}\n  launcher: process")
    project.change(f"recipes/profiles/{NAME}.yaml", small, served)
    project.invoke("build", "--profile", NAME, timeout=LONG, check=True)
    words = ("compare", "--profile", NAME, "--kv", ",".join(PRECISIONS), "--json")
    told = json.loads(project.invoke(*words, timeout=LONG, check=True).stdout)
    bf16, (e4m3, e5m2) = told["first"], told["others"]
    assert told["refused"] == []
    dtypes = [one["kv_dtype"] for one in (bf16, e4m3, e5m2)]
    assert dtypes == ["torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"]
    assert e4m3["kv_gib"] == pytest.approx(bf16["kv_gib"] / 2, rel=0.03)
    assert bf16["texts"] == e4m3["texts"] == e5m2["texts"]
    assert {text["name"] for text in bf16["texts"]} >= {"english", "chinese", "code", "agent"}
    assert bf16["mean_nll"] < e4m3["mean_nll"] < e5m2["mean_nll"]
    assert 1 > e4m3["whole"]["same_top1"] > e5m2["whole"]["same_top1"] > 0.5
    assert e4m3["whole"]["loss_95"][1] < e5m2["whole"]["loss_95"][0]
    assert e4m3["whole"]["loss_95"][0] > 0
    assert all(one["noise_nats"] < e4m3["whole"]["loss"] for one in (bf16, e4m3, e5m2))
    assert all(Path(path).stat().st_size > 1000 for path in told["evidence"])
    root = person_home / ".local" / "share" / "firstlight"
    assert not list(root.glob(f"deployments/{NAME}*"))
    assert not is_open(port) and not processes_of(root / "releases")
