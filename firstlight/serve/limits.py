"""The limits room: values of a profile that no engine takes, whatever its version.

What one release takes, `arguments` holds against its own argparse. What stands here holds for all
of them, so that `invoke check` can say it where no release is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from pydantic import JsonValue

from firstlight.accuracy.values import a_number, human_count
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place
from firstlight.serve.profile import Profile

_PARALLEL = ("tp", "dp", "pp", "ep")
_LONG = ("tensor", "data", "pipeline", "expert")
# The least whole number that a flag may have; -1 switches chunks off.
_LEAST: Mapping[str, int] = {
    **dict.fromkeys((*_PARALLEL, *(f"{name}_size" for name in _PARALLEL)), 1),
    **dict.fromkeys((f"{name}_parallel_size" for name in _LONG), 1),
    **dict.fromkeys(("attn_dp_size", "attn_cp_size", "dcp_size", "nnodes", "page_size"), 1),
    **dict.fromkeys(("context_length", "max_total_tokens", "max_prefill_tokens"), 1),
    **dict.fromkeys(("max_running_requests", "max_mamba_cache_size"), 1),
    "speculative_num_draft_tokens": 1,
    "node_rank": 0,
    "chunked_prefill_size": -1,
}
# Shares lie above 0, and not above this; at 1 the fraction would leave nothing to compute with.
_MOST: Mapping[str, float] = {
    "mem_fraction_static": 1.0,
    "swa_full_tokens_ratio": 1.0,
    "mamba_full_memory_ratio": inf,
}
_BELOW = ("mem_fraction_static",)
_KV = "kv_cache_dtype"


def check_limits(document: Document[Profile]) -> list[Fault]:
    """A fault for every value of args and extra_args that is beyond all engines."""
    given = [(("args", key), key, value) for key, value in document.value.args.items()]
    return [
        document.fault(place, f"{name} is {_shown(value)}; expected {wanted}")
        for place, name, value in [*given, *_words(document.value.extra_args)]
        if not (value is None or value is False) and (wanted := _wanted(name, value))
    ]


def _words(words: tuple[str, ...]) -> Iterator[tuple[Place, str, JsonValue]]:
    """Flags with one value among words of a command line, and where they stand."""
    for index, (word, after) in enumerate(zip(words, (*words[1:], "--"), strict=False)):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and (equals or not after.startswith("--")):
            given = value if equals else after
            yield ("extra_args", index), flag[2:].replace("-", "_"), given


def _wanted(name: str, value: JsonValue) -> str:
    """What is expected of a flag where the number is not that, "" where it may be: what is no
    number at all is for the flag's own type to say."""
    if name == _KV:
        return "" if isinstance(value, str) else "one value in one word, such as bf16"
    if name in _LEAST and (count := human_count(value)) is not None and count < _LEAST[name]:
        return f"a whole number, {_LEAST[name]} or more"
    if name in _MOST and (share := _number(value)) is not None and not _is_share(name, share):
        return _share(name)
    return ""


def _number(value: JsonValue) -> float | None:
    try:
        return float(value) if isinstance(value, str) else a_number(value)
    except ValueError:
        return None


def _is_share(name: str, share: float) -> bool:
    most = _MOST[name]
    return 0 < share < inf and (share < most if name in _BELOW else share <= most)


def _share(name: str) -> str:
    if _MOST[name] == inf:
        return "a number above 0"
    return f"a number above 0 and {'below' if name in _BELOW else 'not above'} 1"


def _shown(value: JsonValue) -> str:
    return repr(value) if isinstance(value, str) else str(value).lower()
