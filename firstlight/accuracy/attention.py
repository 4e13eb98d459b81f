"""The accuracy room: from a config.json to what each layer keeps, or to the facts that lack.

    describe(json.loads(text), version) -> Geometry | Unknown

Known are the kinds that SGLang sizes (facts: §3.2 and §3.3 of its interface, the class lists in
`classes`): MHA/GQA with separate key and value dims, MLA, DSA, two pools for sliding windows,
GDN, Mamba 2, KDA, short convolutions, and the next-token head. A class in no table, a kind of layer
that is not known, or an absent key gives `Unknown` with a line for each. Never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firstlight.accuracy.classes import (
    BY_RANK,
    COMPRESSED,
    KNOWN,
    LATENT,
    NOT_MODELLED,
    STATEFUL,
    TWO_POOLS,
    has_one_pool,
    indexed_in,
)
from firstlight.accuracy.compressed import described
from firstlight.accuracy.configclasses import filled
from firstlight.accuracy.configkeys import (
    Config,
    absent,
    architecture,
    count,
    multimodal,
    section,
    text_config,
)
from firstlight.accuracy.geometry import Geometry, Heads, Latent, Layer, Unknown
from firstlight.accuracy.kvrules import NEWEST
from firstlight.accuracy.layerkinds import Kinds, indexed, layer_kinds
from firstlight.accuracy.states import STATE_FORMS, StateForm, state_form

# In this order the engine looks for the number of KV heads (`get_total_num_kv_heads`).
_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads")
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
# Qwen4-Exp's index beside K and V (QSA; 0.5.23 layers/attention/qsa/config.py).
_KEY_INDEX = {
    "index_dim": ("indexer_head_dim",),
    "tokens_of_one_index_key": ("indexer_compress_ratio",),
}


def describe(
    config: Config, version: str = NEWEST, *, one_pool: bool = False
) -> Geometry | Unknown:
    """What a model keeps for a token and for a request. `config` is its config.json, parsed.

    `version` is the engine's; `one_pool`: this launch keeps the layers that slide beside the others
    (kvwindow.in_one_pool). A mapping without `architectures` is read by its form alone; that is for
    facts from elsewhere, a checkpoint has the key.
    """
    name = architecture(config)
    text = filled(name, text_config(config))
    if name in NOT_MODELLED:
        return Unknown(name, (f"{NOT_MODELLED[name]}: not modelled here",))
    if name in COMPRESSED:
        return described(name, config, text, version)
    kinds, lack = layer_kinds(name, text, version, one_pool)
    index = _has_index(name, text, version)
    missing = tuple(_missing(name, text, kinds, lack, index))
    if missing:
        return Unknown(name, missing)
    full = _latent(name, text, index) if _is_latent(name, text) else _heads(name, text)
    made = _geometry(name, text, kinds, full)
    split = "sliding" in kinds or (not one_pool and has_one_pool(name, version))
    first = TWO_POOLS.get(name, "") if split else ""
    return replace(made, two_pools_since=first, multimodal=multimodal(config))


def _missing(name: str, text: Config, kinds: Kinds, lack: str, index: bool) -> Iterator[str]:
    if name and name not in KNOWN:
        yield f"what attention {name} has: the class is in no table of this project"
    if not name and text.get("compress_ratios"):
        yield "the compressed pools that `compress_ratios` speaks of: not modelled here"
    if lack:
        yield lack
    if kinds and not {"full", "sliding", "both"} & {*kinds}:
        yield "a layer that keeps rows of tokens: a model of states alone is not sized here"
    if "full" in kinds or "both" in kinds or not kinds:
        yield from _missing_rows(name, text, index)
    if "sliding" in kinds:
        yield from _missing_rows("", _without_rank(text), index=False)
    if "linear" in kinds or "both" in kinds:
        yield from _missing_state(text)


def _without_rank(text: Config) -> Config:
    return {key: value for key, value in text.items() if key != "kv_lora_rank"}


def _missing_state(text: Config) -> Iterator[str]:
    form = state_form(text)
    if form is None:
        known = ", ".join(form.kind for form in STATE_FORMS)
        yield f"the state of the linear-attention layers: no keys of a kind known ({known})"
        return
    lacks = absent(text, **form.needed)
    yield from lacks
    state = form.read(text)
    if not lacks and not (state.heads and state.head_dim and state.kernel):
        yield f"the sizes of the {state.kind} state (`{form.sign}` does not hold them)"


def _missing_rows(name: str, text: Config, index: bool) -> Iterator[str]:
    if _is_latent(name, text):
        yield from absent(text, latent_rank=("kv_lora_rank",))
        if count(text, "qk_rope_head_dim", least=0) is None and not text.get("use_mla_nope"):
            yield "rope dim of the latent row: qk_rope_head_dim is not given"
        if index:
            yield from absent(text, index_dim=("index_head_dim",))
        return
    if _has_key_index(name, text):
        yield from absent(text, **_KEY_INDEX)
    yield from absent(text, attention_heads=(*_QUERY_HEADS, *_KV_HEADS))
    if len(_by_blocks(text)) > 1:
        yield "heads of K and V: the blocks of `block_configs` have different numbers"
    if count(text, *_HEAD_DIM) is None:
        yield from absent(text, head_dim=(*_HIDDEN, *_HEAD_DIM))
        if count(text, *_HIDDEN) is not None:
            yield from absent(text, attention_heads_for_head_dim=_QUERY_HEADS)
            if not _head_dim(text):
                yield "head dim: hidden_size is smaller than num_attention_heads"


def _is_latent(name: str, text: Config) -> bool:
    if name and name not in LATENT:
        return False
    if name in BY_RANK and text.get("kv_lora_rank") is None:
        return False
    return (bool(name) or text.get("kv_lora_rank") is not None) and text.get("use_mla") is not False


def _has_index(name: str, text: Config, version: str) -> bool:
    if name:
        return name in indexed_in(version) and text.get("index_topk") is not None
    return text.get("index_head_dim") is not None


def _latent(name: str, text: Config, indexed: bool) -> Latent:
    nope = name.startswith("BailingMoeV3") and bool(text.get("use_mla_nope"))
    rope = 0 if nope else count(text, "qk_rope_head_dim", least=0) or 0
    index = count(text, "index_head_dim") or 0 if indexed else 0
    rank = count(text, "kv_lora_rank") or 0
    return Latent(rank, rope, index, count(text, "index_kpool") or 1)


def _head_dim(text: Config) -> int:
    dim = count(text, *_HEAD_DIM)
    return dim or (count(text, *_HIDDEN) or 0) // (count(text, *_QUERY_HEADS) or 1)


def _kv_heads(text: Config) -> int:
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    if grouped := _by_blocks(text):
        return (count(text, *_QUERY_HEADS) or 0) // grouped.pop()
    own = count(section(text, "attn_config"), "kv_n_heads")
    return own or count(text, *_KV_HEADS) or count(text, *_QUERY_HEADS) or 0


def _by_blocks(text: Config) -> set[int]:
    """Query heads that share one of K and V, by the blocks of a DeciLM that hold attention."""
    blocks = text.get("block_configs")
    listed = blocks if isinstance(blocks, Sequence) and not isinstance(blocks, str) else ()
    parts = (section(b, "attention") for b in listed if isinstance(b, Mapping))
    sizes = (count(part, "n_heads_in_group") for part in parts if not part.get("no_op"))
    return {size for size in sizes if size}


def _has_key_index(name: str, text: Config) -> bool:
    return name == "Qwen4ExpForConditionalGeneration" and text.get("indexer_n_heads") is not None


def _heads(name: str, text: Config) -> Heads:
    """K and V of a layer with rows of every token; Gemma 4 has other heads there (`global_`)."""
    heads, dim = _kv_heads(text), _head_dim(text)
    if not name or name in TWO_POOLS:
        heads = count(text, "num_global_key_value_heads") or heads
        dim = count(text, "global_head_dim") or dim
    v_dim = dim if "global_head_dim" in text else count(text, "v_head_dim") or dim
    if not _has_key_index(name, text):
        return Heads(heads, dim, v_dim)
    index, pool = (count(text, *names) or 1 for names in _KEY_INDEX.values())
    return Heads(heads, dim, v_dim, index, pool)


def _sliding_heads(text: Config) -> Heads:
    """K and V of a layer with a window (`get_swa_num_kv_heads`; v follows the window's own k)."""
    other = section(text, "attention_other_setting")
    heads = count(text, "swa_num_key_value_heads") or count(other, "num_attention_groups")
    dim = count(text, "swa_head_dim") or _head_dim(text)
    return Heads(heads or _kv_heads(text), dim, count(text, "swa_v_head_dim") or dim)


def _geometry(name: str, text: Config, kinds: Kinds, full: Heads | Latent) -> Geometry:
    form = state_form(text) if {"linear", "both"} & {*kinds} else None
    made = tuple(_layers(text, kinds, full, form))
    nextn = count(text, "num_nextn_predict_layers", least=0)
    heads = nextn or count(text, "mtp_num_hidden_layers", "num_mtp_layers") or 0
    return Geometry(
        name=name,
        kind=_kind(full, made),
        layers=made,
        draft=(Layer(full),) * heads,
        nextn=nextn,
        window=count(text, "sliding_window", "sliding_window_size", "attention_chunk_size") or 0,
        context=count(text, "max_position_embeddings", "seq_length", "n_positions"),
        notes=tuple(_notes(name, text, full)),
    )


def _layers(
    text: Config, kinds: Kinds, full: Heads | Latent, form: StateForm | None
) -> Iterator[Layer]:
    state = form.read(text) if form else None
    sliding = _sliding_heads(text) if "sliding" in kinds else None
    for number, kind in enumerate(kinds):
        if kind == "sliding":
            yield Layer(sliding, sliding=True)
        else:
            yield Layer(
                full if kind in ("full", "both") else None,
                state=state if kind in ("linear", "both") else None,
                indexed=indexed(text, number),
            )


def _kind(full: Heads | Latent, made: tuple[Layer, ...]) -> str:
    rows = "MHA/GQA + index (QSA)" if full.index_dim else "MHA/GQA"
    if isinstance(full, Latent):
        rows = "MLA + index (DSA)" if full.index_dim else "MLA"
    if state := next((layer.state for layer in made if layer.state), None):
        return f"{rows} + {state.kind}"
    return f"{rows}, two pools" if any(layer.sliding for layer in made) else rows


def _notes(name: str, text: Config, full: Heads | Latent) -> Iterator[str]:
    if (
        isinstance(full, Heads)
        and full.kv_heads == count(text, *_QUERY_HEADS)
        and not count(text, *_KV_HEADS)
    ):
        yield "the config names no KV heads: as many as attention heads, as the engine takes it"
    if count(text, "num_kv_shared_layers"):
        yield "layers that share K and V are priced with rows of their own, as the engine does"
    if name in STATEFUL and text.get("mamba_ssm_dtype") is None:
        yield "the config names no mamba_ssm_dtype: float32, the engine's default"
    if isinstance(full, Heads) and full.index_dim:
        yield f"{name} has pages of 64 tokens, whatever is asked for; name page_size"
    if isinstance(full, Latent) and full.index_dim and text.get("learnable_sink"):
        yield f"{name} has learnable sinks: the engine takes a cache of 16 bits alone"
