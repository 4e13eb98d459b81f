"""A published boot as the library's values: its config, its arguments, its free memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from benchmarks.kv_version import version_of
from firstlight.accuracy.classes import INDEXED, KNOWN
from firstlight.accuracy.configkeys import INNER, text_config
from firstlight.accuracy.geometry import Geometry, Latent
from firstlight.accuracy.kvdraft import SHORT, Length, usual
from firstlight.accuracy.kvdsa import bare_rows
from firstlight.accuracy.kvflags import flags
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
    "uint8": "fp4",
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
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def config_of(published: Published) -> dict[str, Any]:
    """The config facts in the form of a config.json: counts of kinds become lists of layers.

    A class in no table is left out: the facts themselves are stated, so their form decides. A
    sliding window without a class is two pools only where the log shows two.
    """
    merged = text_config(published["config"])
    config = {key: value for key, value in merged.items() if key not in INNER}
    if published.get("model_class") in KNOWN:  # what was loaded, whatever the checkpoint asks for
        config["architectures"] = [published["model_class"]]
    if config.get("index_head_dim") and published.get("model_class") in INDEXED:
        config.setdefault("index_topk", 2048)
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


def launch_of(published: Published, geometry: Geometry, version: str = "") -> Launch | None:
    """The arguments of a row, of `version` or of the one it is taken for; None when its KV dtype is
    not of this engine."""
    kv_dtype = _kv_dtype(published, geometry)
    if kv_dtype is None:
        return None
    version = version or version_of(published)
    dp = (_number(published, "dp") or 1) if published.get("dp_attention") else 1
    args = flags_of(published)
    asked = _asked(version, args, geometry)
    return replace(
        asked,
        kv_dtype=kv_dtype,
        tp=tp_of(published, dp) or dp,
        dp=dp,
        pp=_number(published, "pp") or 1,
        page_size=_number(published, "page_size") or 1,
        swa_ratio=gib(published, "swa_full_tokens_ratio") or asked.swa_ratio,
        max_running=_requests(published, args, dp),
        max_total_tokens=_number(published, "max_total_tokens_arg"),
        device="npu" if published.get("sm") == "NPU" else "cuda",
        dsa_raw=bare_rows(args, geometry.name, version, _card(published), rocm=_rocm(published)),
        index_everywhere=asked.index_everywhere or bool(published.get("disaggregation")),
        speculation=_speculation(published, args, geometry, version),
    )


def tp_of(published: Published, dp: int) -> int | None:
    """Cards of one stage, of the row or of its command; None where neither says."""
    if attn_tp := _number(published, "attn_tp"):
        return attn_tp * dp
    args = flags_of(published)
    told = (args.get(name) for name in ("tp", "tp_size", "tensor_parallel_size"))
    return _number(published, "tp") or next((n for n in map(_whole, told) if n), None)


def _asked(version: str, args: Mapping[str, str], geometry: Geometry) -> Launch:
    """What the flags of a command say of the pools, as `invoke kv` reads them."""
    kept = {name: _value(value) for name, value in args.items() if name in _FLAGS_READ}
    return flags(version, kept, geometry=geometry).launch


_FLAGS_READ = frozenset(
    {
        *("mamba_full_memory_ratio", "max_mamba_cache_size", "mamba_ssm_dtype"),
        *("mamba_radix_cache_strategy", "mamba_scheduler_strategy", "linear_attn_backend"),
        *("disable_overlap_schedule", "disable_radix_cache", "enable_linear_replayssm_spec"),
        *("chunked_prefill_size", "swa_full_tokens_ratio"),
        *("language_model_only", "mm_feature_transport"),
        *("dsa_prefill_backend", "dsa_decode_backend"),
        *("nsa_prefill_backend", "nsa_decode_backend"),
        *("disaggregation_mode", "enable_hierarchical_cache"),
    }
)


def _value(text: str) -> JsonValue:
    return int(text) if re.fullmatch(r"-?\d+", text) else text or True


def _number(published: Published, key: str) -> int | None:
    value = published.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _requests(published: Published, args: Mapping[str, str], dp: int) -> int | None:
    """Requests of all ranks: an argument is of all of them, the line of the log of one."""
    if (asked := _whole(args.get("max_running_requests"))) is not None:
        return asked
    told = _number(published, "max_running_requests")
    line = f"max_running_requests={told}," in " ".join(_lines(published))
    return told * dp if told and line else told


def _lines(published: Published) -> tuple[str, ...]:
    figures = published.get("log_figures")
    return tuple(map(str, figures)) if isinstance(figures, list) else ()


_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?:[ =]+([^\s-][^\s,;)]*))?")


def flags_of(published: Published) -> dict[str, str]:
    """The flags that a row names, in its command or in its remark; a switch has the value ""."""
    text = f"{published.get('launch_command') or ''} {published.get('note') or ''}"
    return {name.replace("-", "_"): value or "" for name, value in _FLAG.findall(text)}


def _rocm(published: Published) -> bool:
    return published.get("sm") == "ROCm"


def _card(published: Published) -> int:
    """Compute capability, as 120; 0 where it is not known."""
    found = re.fullmatch(r"SM(\d+)", str(published.get("sm")))
    return int(found[1]) if found else 0


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _kv_dtype(published: Published, geometry: Geometry) -> str | None:
    """What the log says, else the argument; `auto` on a DSA model is FP8 from SM100 on (§2.3)."""
    told = published.get("kv_dtype") or published.get("kv_cache_dtype_arg") or "auto"
    indexed = any(isinstance(la.rows, Latent) and la.rows.index_dim for la in geometry.full)
    if told == "auto" and indexed and _card(published) >= 100:
        return "fp8_e4m3"
    return next((ours for key, ours in _DTYPES.items() if key in str(told).lower()), None)


def _speculation(
    published: Published, args: Mapping[str, str], geometry: Geometry, version: str
) -> Speculation | None:
    """A draft that is no next-token head of the target is taken to have one layer (EAGLE)."""
    name = str(published.get("spec_algorithm") or "").upper()
    if not name:
        return None
    dflash = name.startswith("DFLASH")
    own = "nextn" not in str(published.get("draft_model_class") or "nextn").lower()
    # A row without its command is taken to name the short length, as most do.
    told = bool(published.get("launch_command"))
    length = usual("EAGLE", geometry.name, version) if told else SHORT
    steps, branches, tokens = _drafted(args, length, geometry)
    return Speculation(
        draft_tokens=tokens,
        algorithm="dflash" if dflash else "eagle",
        path=own or "speculative_draft_model_path" in args,
        layers=1 if own and not dflash else None,
        tree=steps * branches,
    )


def _drafted(args: Mapping[str, str], length: Length, geometry: Geometry) -> tuple[int, int, int]:
    """Steps, branches and draft tokens; 0 tokens where the row has none and states depend on it."""
    keys = ("num_steps", "eagle_topk", "num_draft_tokens")
    steps, branches, tokens = (_whole(args.get(f"speculative_{key}")) for key in keys)
    if steps is None:
        usually = 0 if geometry.states else length.tokens
        return length.steps, length.branches, tokens or usually
    return steps, branches or 1, tokens or steps + 1


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
    if not 0 < fraction < 1 or not before > 0:
        return None
    return Budget(before, after, fraction)
