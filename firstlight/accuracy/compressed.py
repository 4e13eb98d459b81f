"""The accuracy room: from the config of a DeepSeek-V4 to what its layers keep, compressed.

Each layer keeps the rows of a short window. Most keep compressed rows of all tokens beside it: one
row for 4 or 128 tokens, and in DeepSeek-V4.1 for 1 or 2, where only the layers that are a source
have rows (0.5.23 configs/model_config.py:1425, configs/deepseek_v41.py, and
`collect_sources_by_ratio`, mem_cache/deepseek_v4_memory_pool.py:101).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstlight.accuracy.classes import COMPRESSED
from firstlight.accuracy.configkeys import Config, absent, count, layers, multimodal
from firstlight.accuracy.geometry import Compressed, Geometry, Layer, Unknown
from firstlight.accuracy.kvrules import since

# The engine takes both names of a file for one class (0.5.23 configs/deepseek_v41.py:38).
_V41_SINCE = COMPRESSED["DeepseekV41ForCausalLM"]
_RATIOS, _V41_RATIOS = (0, 4, 128), (0, 1, 2, 4, 128)
# The only row that the pool has a layout for (0.5.23 deepseek_v4_memory_pool.py:321).
_NOPE, _ROPE = 448, 64
_INDEX_DIM = 128
_NEEDED = {
    "head_dim": ("head_dim",),
    "rope_dim": ("qk_rope_head_dim",),
    "window": ("sliding_window", "window_size"),
}


def described(name: str, config: Config, text: Config, version: str) -> Geometry | Unknown:
    """What a model of class `name` keeps; `text` is its language model's config, in which the keys
    of the file around it lie as well."""
    if missing := tuple(_missing(name, text, version)):
        return Unknown(name, missing)
    total, ratios = layers(text) or 0, _numbers(text, "compress_ratios") or ()
    nextn = count(text, "num_nextn_predict_layers", least=0)
    low = tuple(_numbers(text, "kv_source_layer_ids") or ())
    index = count(text, "index_head_dim") or _INDEX_DIM
    return Geometry(
        name=name,
        kind="compressed (DeepSeek-V4.1)" if _is_v41(name, text) else "compressed (DeepSeek-V4)",
        layers=(Layer(),) * total,
        draft=(Layer(),) * (nextn or 0),
        nextn=nextn,
        window=count(text, *_NEEDED["window"]) or 0,
        multimodal=multimodal(config),
        context=count(text, "max_position_embeddings"),
        compressed=Compressed(ratios, low, _NOPE, _ROPE, index, _is_v41(name, text)),
    )


def _is_v41(name: str, text: Config) -> bool:
    return name.startswith("DeepseekV41") or str(text.get("model_type")).startswith("deepseek_v41")


def _missing(name: str, text: Config, version: str) -> Iterator[str]:
    v41 = _is_v41(name, text)
    first = _V41_SINCE if v41 else COMPRESSED[name]
    if not since(version, first):
        yield f"the pools of DeepSeek-V4{'.1' if v41 else ''}: {version} has none, {first} has"
    yield from absent(text, **_NEEDED)
    total, ratios = layers(text), _numbers(text, "compress_ratios")
    if total is None:
        yield "number of layers: num_hidden_layers is not given"
    elif ratios is None or len(ratios) < total:
        yield f"how far each of {total} layers compresses: compress_ratios does not list them"
    elif strange := sorted({*ratios} - {*(_V41_RATIOS if v41 else _RATIOS)}):
        yield f"what a layer keeps that compresses {', '.join(map(str, strange))} tokens to one"
    else:
        yield from _missing_sources(text, ratios[:total])
    head, rope = count(text, "head_dim"), count(text, "qk_rope_head_dim")
    if head and rope and (head - rope, rope) != (_NOPE, _ROPE):
        yield f"rows of {head - rope} + {rope} values: the pool has a layout of 448 + 64 alone"


def _missing_sources(text: Config, ratios: Sequence[int]) -> Iterator[str]:
    """A layer of ratio 1 or 2 reads the rows of a source of its ratio, itself or before it."""
    sources = _numbers(text, "kv_source_layer_ids") or ()
    for number, ratio in enumerate(ratios):
        before = (ratios[source] for source in sources if source <= number)
        if ratio in (1, 2) and ratio not in before:
            yield f"the source of layer {number}: kv_source_layer_ids lists none before it"
            return
    if not any(ratios):
        yield "rows of all tokens: no layer compresses"


def _numbers(text: Config, name: str) -> tuple[int, ...] | None:
    """A list of whole numbers, 0 or more; None where it is none."""
    listed = text.get(name)
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        return None
    found = tuple(n for n in listed if isinstance(n, int) and not isinstance(n, bool) and n >= 0)
    return found if len(found) == len(listed) else None
