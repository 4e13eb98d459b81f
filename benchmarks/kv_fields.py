"""Whether the fields of a row are what the arithmetic reads, for rows of strangers.

A field that is absent or null is not published, and one that is not listed is not read. What is
there and is of another kind is said, and the row is not scored: half of a row would look like all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

Published = Mapping[str, Any]

_MOST = 1e15
# More layers of one kind than any model has.
_MOST_LAYERS = 4096

_WHOLE = frozenset(
    {
        *("tp", "dp", "pp", "attn_tp", "page_size"),
        *("tokens", "swa_tokens", "draft_tokens", "mamba_slots"),
        *("max_total_tokens_arg", "max_running_requests", "context_len"),
    }
)
_NUMBERS = frozenset(
    {
        *("k_gib", "v_gib", "kv_gib", "swa_k_gib", "swa_v_gib", "swa_full_tokens_ratio"),
        *("draft_k_gib", "draft_v_gib", "draft_kv_gib", "mamba_conv_gib", "mamba_ssm_gib"),
        *("avail_before_load_gib", "avail_after_load_gib", "weights_gib", "avail_after_pool_gib"),
        *("avail_after_draft_load_gib", "mem_fraction_static"),
    }
)
_KINDS: Mapping[str, tuple[type, str]] = {
    "config": (dict, "object"),
    "calc": (dict, "object"),
    "log_figures": (list, "list"),
    **dict.fromkeys(("model_class", "draft_model_class", "launch_command", "note"), (str, "text")),
}
_COUNTS = ("layer_types_count", "hybrid_override_pattern", "hybrid_layer_pattern")


def straightened(published: Published) -> dict[str, Any]:
    """The row with whole numbers as such where they were written as 8.0."""
    return {key: _whole(value) if key in _WHOLE else value for key, value in published.items()}


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def faults(published: Published) -> tuple[str, ...]:
    """A line for each field that is of another kind than the arithmetic reads."""
    return tuple(_faults(published))


def _faults(published: Published) -> Iterator[str]:
    for key, value in published.items():
        if value is not None and (wanted := _wanted(key, value)):
            yield f"{key} is {_short(value)}, no {wanted}"
    if isinstance(config := published.get("config"), Mapping):
        yield from _miscounted(config)


def _wanted(key: str, value: object) -> str:
    """What should be there in place of this value, "" where it may be."""
    if key in _WHOLE:
        return "" if isinstance(value, int) and _finite(value) else "whole number"
    if key in _NUMBERS:
        return "" if _finite(value) else "number"
    kind, word = _KINDS.get(key, (object, ""))
    return "" if isinstance(value, kind) else word


def _miscounted(config: Published) -> Iterator[str]:
    for key in _COUNTS:
        if isinstance(counts := config.get(key), Mapping):
            for kind, n in counts.items():
                if key == "hybrid_layer_pattern" and kind not in ("0", "1"):
                    yield f"{key} has a kind {_short(kind)}, neither 0 nor 1"
                elif isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= _MOST_LAYERS:
                    yield f"{key} of {_short(kind)} is {_short(n)}, no count of layers"


def _finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _MOST and not math.isnan(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
