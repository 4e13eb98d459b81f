"""Small checkpoints: true safetensors files, made by hand, so that they can be wrong as well."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
Tensor = tuple[str, list[int], bytes]
_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F64": 8}


def zeros(dtype: str, *shape: int) -> Tensor:
    return dtype, list(shape), bytes(prod(shape) * _BYTES[dtype])


def f32(*values: float, shape: list[int] | None = None) -> Tensor:
    dims = shape if shape is not None else [] if len(values) == 1 else [len(values)]
    return "F32", dims, struct.pack(f"<{len(values)}f", *values)


def header(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The header that belongs to tensors which lie one after the other."""
    made: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return made


def raw(text: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with that header as it is; `length` is a lie about it."""
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def shard(path: Path, tensors: Mapping[str, Tensor], **edits: Any) -> Path:
    """A true file; `edits` replace members of its header, None takes one out."""
    made = header(tensors) | edits
    text = json.dumps({k: v for k, v in made.items() if v is not None}, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw(text.encode(), b"".join(data for _, _, data in tensors.values())))
    return path


CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}


def layer(number: int, prefix: str = "model.layers") -> dict[str, Tensor]:
    at = f"{prefix}.{number}"
    return {
        f"{at}.self_attn.k_proj.weight": zeros("BF16", 4, 8),
        f"{at}.self_attn.v_proj.weight": zeros("BF16", 4, 8),
        f"{at}.mlp.experts.0.up_proj.weight": zeros("U8", 4, 4),
        f"{at}.mlp.experts.1.up_proj.weight": zeros("U8", 4, 4),
    }


def kv_scales(number: int, k: float, v: float, prefix: str = "model.layers") -> dict[str, Tensor]:
    """As ModelOpt names them."""
    at = f"{prefix}.{number}.self_attn"
    return {f"{at}.k_proj.k_scale": f32(k), f"{at}.v_proj.v_scale": f32(v)}


def checkpoint(
    folder: Path, *parts: Mapping[str, Tensor], config: Any = CONFIG, index: bool = True
) -> Path:
    """A folder with one shard for each part, and an index."""
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        shard(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    folder.mkdir(parents=True, exist_ok=True)
    if index:
        text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=2)
        (folder / INDEX).write_text(text)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder
