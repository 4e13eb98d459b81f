"""A published boot as the library's values: its config, its arguments, its free memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from firstlight.accuracy.classes import KNOWN
from firstlight.accuracy.geometry import Geometry, Latent
from firstlight.accuracy.kvlaunch import Budget, Launch, Speculation

Published = Mapping[str, Any]

# What a log or an argument calls a dtype, and ours; the first that is found counts.
_DTYPES = {
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "mxfp8": "mxfp8",
    "float4": "fp4",
    "fp4": "fp4",
    "e2m1": "fp4",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "int8": "int8",
    "fp8": "fp8_e4m3",
    "auto": "bf16",
}


def gib(published: Published, key: str) -> float | None:
    value = published.get(key)
    return float(value) if isinstance(value, int | float) else None


def config_of(published: Published) -> dict[str, Any]:
    """The config facts in the form of a config.json: counts of kinds become lists of layers.

    A class in no table is left out: the facts themselves are stated, so their form decides. A
    sliding window without a class is two pools only where the log shows two.
    """
    config = dict(published["config"])
    if published.get("model_class") in KNOWN:
        config.setdefault("architectures", [published["model_class"]])
    if isinstance(counts := config.pop("layer_types_count", None), Mapping):
        config["layer_types"] = [kind for kind, n in counts.items() for _ in range(n)]
    if isinstance(counts := config.get("hybrid_override_pattern"), Mapping):
        config["hybrid_override_pattern"] = "".join(kind * n for kind, n in counts.items())
    if isinstance(counts := config.get("hybrid_layer_pattern"), Mapping):
        config["hybrid_layer_pattern"] = [int(k) for k, n in counts.items() for _ in range(n)]
    if str(published.get("model_class")).endswith("ForConditionalGeneration"):
        config.setdefault("vision_config", {})
    if not config.get("architectures") and published.get("swa_tokens") is None:
        return in_one_pool(config)
    return config


def in_one_pool(config: dict[str, Any]) -> dict[str, Any]:
    """The same config with every layer that slides beside the others, as older builds keep it."""
    listed = [str(kind) for kind in config.get("layer_types") or ()]
    kinds = ["full_attention" if "sliding" in kind else kind for kind in listed]
    rest = {k: v for k, v in config.items() if k not in ("architectures", "hybrid_layer_pattern")}
    return {**rest, "layer_types": kinds}


def launch_of(published: Published, geometry: Geometry) -> Launch | None:
    """The arguments of a row; None when its KV dtype is not of this engine."""
    kv_dtype = _kv_dtype(published, geometry)
    if kv_dtype is None:
        return None
    dp = (published.get("dp") or 1) if published.get("dp_attention") else 1
    backends = (f"{kernel}_{phase}_backend" for kernel in ("nsa", "dsa") for phase in _PHASES)
    flags = flags_of(published)
    return Launch(
        version=version_of(published),
        kv_dtype=kv_dtype,
        tp=(published.get("attn_tp") or published.get("tp") or 1) * dp,
        dp=dp,
        pp=published.get("pp") or 1,
        page_size=published.get("page_size") or 1,
        swa_ratio=published.get("swa_full_tokens_ratio") or 0.8,
        state_ratio=float(flags.get("mamba_full_memory_ratio", 0.9)),
        state_slots=_whole(flags.get("max_mamba_cache_size")),
        radix="disable_radix_cache" not in flags,
        max_running=published.get("max_running_requests") if geometry.states else None,
        max_total_tokens=published.get("max_total_tokens_arg"),
        device="npu" if published.get("sm") == "NPU" else "cuda",
        dsa_raw=any(flags.get(backend) == "trtllm" for backend in backends),
        language_only="language_model_only" in flags,
        speculation=_speculation(published, flags),
    )


_PHASES = ("prefill", "decode")
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?:[ =]+([^\s-][^\s,;)]*))?")


def flags_of(published: Published) -> dict[str, str]:
    """The flags that a row names, in its command or in its remark; a switch has the value ""."""
    text = f"{published.get('launch_command') or ''} {published.get('note') or ''}"
    return {name.replace("-", "_"): value or "" for name, value in _FLAG.findall(text)}


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _kv_dtype(published: Published, geometry: Geometry) -> str | None:
    """What the log says, else the argument; `auto` on a DSA model is FP8 from SM100 on (§2.3)."""
    told = published.get("kv_dtype") or published.get("kv_cache_dtype_arg") or "auto"
    cards = re.fullmatch(r"SM(\d+)", str(published.get("sm")))
    indexed = any(isinstance(la.rows, Latent) and la.rows.index_dim for la in geometry.full)
    if told == "auto" and indexed and cards and int(cards[1]) >= 100:
        return "fp8_e4m3"
    return next((ours for key, ours in _DTYPES.items() if key in str(told).lower()), None)


def version_of(published: Published) -> str:
    """The version that is stated, else an early one of those whose lines look like these."""
    if stated := re.match(r"\d+\.\d+\.\d+", str(published.get("sglang_version") or "")):
        return stated[0]
    lines = " ".join(map(str, published.get("log_figures") or ()))
    new = published.get("draft_loaded_before_pool") or "allocated. dtype:" in lines
    return "0.5.16" if new and "dtype=torch" not in lines else "0.5.12"


def _speculation(published: Published, flags: Mapping[str, str]) -> Speculation | None:
    """A draft that is no next-token head of the target is taken to have one layer (EAGLE)."""
    name = str(published.get("spec_algorithm") or "").upper()
    if not name:
        return None
    dflash = name.startswith("DFLASH")
    own = "nextn" not in str(published.get("draft_model_class") or "nextn").lower()
    return Speculation(
        draft_tokens=_whole(flags.get("speculative_num_draft_tokens")) or 0,
        algorithm="dflash" if dflash else "eagle",
        path=own or "speculative_draft_model_path" in flags,
        layers=1 if own and not dflash else None,
    )


def budget_of(published: Published) -> Budget | None:
    """The memory around the load, with the draft where it loaded before the pools."""
    keys = ("avail_before_load_gib", "avail_after_load_gib", "mem_fraction_static")
    before, after, fraction = (gib(published, key) for key in keys)
    drafted = gib(published, "avail_after_draft_load_gib")
    if published.get("draft_loaded_before_pool") and drafted is not None:
        after = drafted
    if before is None and after is not None and (weights := gib(published, "weights_gib")):
        before = after + weights
    if before is None or after is None or fraction is None:
        return None
    return Budget(before, after, fraction)
