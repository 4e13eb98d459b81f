"""The accuracy room: which layer of a model is of which kind, in all the ways configs say it.

Kinds: `full` rows of every token, `sliding` rows of a window, `linear` a state and no rows,
`both` rows and a state, `none` neither. Each reader below is the engine's own reading of one form
(`configs/*.py` of SGLang 0.5.9 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from firstlight.accuracy.classes import (
    EVERY_LAYER,
    LAYERS_PER_BLOCK,
    LOOPS,
    TWO_POOLS,
    has_one_pool,
)
from firstlight.accuracy.configkeys import Config, count, layers, section, words
from firstlight.accuracy.kvrules import NEWEST

Kinds = tuple[str, ...]

_NAMES = {
    "full_attention": "full",
    "attention": "full",
    "attn": "full",
    "deepseek_sparse_attention": "full",
    "qwen_sparse_attention": "full",
    "indexed_attention": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "sliding",
    "swa": "sliding",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "kda": "linear",
    "conv": "linear",
    "short_conv": "linear",
    "minicpm4": "full",
    "lightning": "linear",
    "lightning-attn": "linear",
    "moe": "none",
    "mlp": "none",
}
_PATTERN = {"M": "linear", "*": "full", "-": "none", "E": "none"}
# Keys of layers that are no plain attention: where one of these stands, some form must say which.
_OF_OTHERS = (
    "linear_num_value_heads",
    "linear_attn_config",
    "mamba_num_heads",
    "mamba_n_heads",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "conv_L_cache",
    "attn_layer_period",
    "lightning_head_dim",
    "rwkv_head_dim",
)


def layer_kinds(
    name: str, text: Config, version: str = NEWEST, one_pool: bool = False
) -> tuple[Kinds, str]:
    """The kind of each layer, or no kinds and what is missing. `text` is the language model's;
    `one_pool`: layers that slide lie beside the others whatever the version does."""
    found = _listed(text) or _patterned(text)
    # A pattern of letters is itself the number of layers; a list may go on, for a draft head.
    total = len(found) if _lettered(text) else layers(text)
    found = found[:total]
    if not found and total is not None:
        found = _counted(name, text, total)
    strange = sorted({*found} - {*_NAMES.values(), "both"})
    if strange and name in EVERY_LAYER:
        found = tuple("full" if kind in strange else kind for kind in found)
    elif strange:
        return (), f"what a layer of kind {', '.join(strange)} keeps"
    if not found or (total is not None and len(found) < total):
        return (), _lack(text, total, len(found))
    return _in_pools(name, found, one_pool or has_one_pool(name, version)), ""


def _lack(text: Config, total: int | None, found: int) -> str:
    if total is None:
        return "number of layers: num_hidden_layers is not given"
    if found:
        return f"the kind of each layer: {found} are listed, the model has {total}"
    named = [key for key in _OF_OTHERS if text.get(key) is not None]
    return f"which layers hold attention ({', '.join(named)} says that not all do)"


def _listed(text: Config) -> Kinds:
    for key in ("layer_types", "layers_block_type", "mixer_types"):
        if listed := words(text, key):
            return tuple(_NAMES.get(word, word) for word in listed)
    return ()


def _lettered(text: Config) -> bool:
    return isinstance(text.get("hybrid_override_pattern"), str)


def _patterned(text: Config) -> Kinds:
    if _lettered(text):
        return tuple(_PATTERN.get(a, a) for a in str(text["hybrid_override_pattern"]))
    slides = text.get("hybrid_layer_pattern")
    if isinstance(slides, Sequence) and not isinstance(slides, str):
        return tuple({"0": "full", "1": "sliding"}.get(str(s), str(s)) for s in slides)
    return ()


def _counted(name: str, text: Config, total: int) -> Kinds:
    numbers = range(1, total + 1)
    if name.startswith("Llama4"):
        return tuple("sliding" if n % 4 else "full" for n in numbers)
    if name.startswith("FalconH1"):
        return ("both",) * total
    if count(text, "linear_num_value_heads") and (every := count(text, "full_attention_interval")):
        return tuple("linear" if n % every else "full" for n in numbers)
    if kda := section(text, "linear_attn_config"):
        linear = kda.get("kda_layers")
        if isinstance(linear, Sequence) and not isinstance(linear, str):
            return tuple("linear" if n in linear else "full" for n in numbers)
    full = text.get("full_attention_layers")  # from 0
    if isinstance(full, Sequence) and not isinstance(full, str):
        return tuple("full" if n - 1 in full else "linear" for n in numbers)
    if "layer_group_size" in text:
        return _grouped(text, total)
    if any(text.get(key) is not None for key in _OF_OTHERS):
        return ()
    return ("full",) * (total * _times(name, text))


def _times(name: str, text: Config) -> int:
    """Attention layers that one block has, or becomes by being run in a loop."""
    loops = count(text, LOOPS[name]) if name in LOOPS else None
    return loops or LAYERS_PER_BLOCK.get(name, 1)


def _grouped(text: Config, total: int) -> Kinds:
    group = text["layer_group_size"]
    if isinstance(group, Sequence) and not isinstance(group, str):
        return tuple("linear" if linear == 1 else "full" for linear in group)
    every = count(text, "layer_group_size")
    return tuple("linear" if n % every else "full" for n in range(1, total + 1)) if every else ()


def _in_pools(name: str, kinds: Kinds, one_pool: bool) -> Kinds:
    """A layer that slides has a pool of its own only in classes that the engine splits."""
    if one_pool or (name and name not in TWO_POOLS):
        return tuple("full" if kind == "sliding" else kind for kind in kinds)
    return kinds


def indexed(text: Config, number: int) -> bool:
    """Whether DSA layer `number` (from 0) finds its own top k, and so keeps index keys.

    The others use those of an earlier layer (`dsa_layer_skips_topk`, 0.5.23 model_config:488).
    """
    if types := words(text, "indexer_types"):
        return not (number < len(types) and types[number] == "shared")
    if (every := count(text, "cli_factor") or 1) > 1:
        return number % every == 0
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str) or words(text, "index_topk_pattern"):
        marks = pattern if isinstance(pattern, str) else words(text, "index_topk_pattern")
        return not (number < len(marks) and marks[number] == "S")
    every = count(text, "index_topk_freq") or 1
    offset = count(text, "index_skip_topk_offset") or 2
    return max(number - offset + 1, 0) % every == 0
