"""The accuracy room: whose quantisation runs, where the flag `--quantization` names one as well.

What a file declares is read by the class of its own method. A flag may put another class in its
place, which reads other keys of the same block (`_verify_quantization`, 0.5.23
configs/model_config.py:2000).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from firstlight.accuracy.declared import Family, Statement

# Methods that read nothing about the cache and give attention no place for scales: their
# `get_quant_method` does not know RadixAttention in any of the five versions.
ROOMLESS = frozenset(
    {
        "auto-round",
        "auto-round-int8",
        "awq",
        "awq_marlin",
        "bitsandbytes",
        "blockwise_int8",
        "gptq",
        "gptq_marlin",
        "moe_wna16",
        "mxfp4",
        "w4afp8",
        "w8a8_fp8",
        "w8a8_int8",
    }
)
# What a flag may say without changing anything.
_SAME: Mapping[Family, frozenset[str]] = {
    "modelopt_fp4": frozenset({"modelopt", "modelopt_fp4"}),
    "modelopt_fp8": frozenset({"modelopt", "modelopt_fp8"}),
    "modelopt_mixed": frozenset({"modelopt", "modelopt_mixed"}),
    "modelopt_mxfp8": frozenset({"mxfp8"}),
    "minimax_m3_nvfp4": frozenset({"minimax_m3_nvfp4"}),
}
Taken = Literal["file", "roomless", "unknown"]


def taken(statement: Statement | None, flag: str) -> Taken:
    """Whose class reads the block: that of the file, one that knows of no cache, or one that
    nobody looked at. Without a block, `file` stands for a model as it was trained."""
    wanted = flag.lower()
    if statement is None:
        # These look for a file of their own, or quantise the model on the way in.
        odd = wanted.startswith(("modelopt", "petit")) or wanted == "minimax_m3_nvfp4"
        return "unknown" if odd else "file"
    if wanted in ("", statement.method, *_SAME.get(statement.family, ())):
        return "roomless" if statement.method in ROOMLESS else "file"
    bare = statement.method in ROOMLESS or statement.family == "compressed-tensors"
    return "roomless" if bare and wanted in ROOMLESS else "unknown"
