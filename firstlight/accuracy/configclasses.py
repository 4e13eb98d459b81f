"""The accuracy room: what a model class's own configuration has where the file leaves it out.

The engine asks the configuration and not the file (0.5.23 configs/hy_v4.py, configs/glm5_next.py;
transformers 5.19 configuration_glm_moe_dsa.py, configuration_deepseek_v32.py). A key that is there
and null stays null. The file of a multimodal model may leave out of its `text_config` whatever is
as usual: Gemma 3 of 12 B names no head dim, which is 256 and not hidden size by heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstlight.accuracy.configkeys import Config, count, layers

_INDEX = {"index_topk": 2048, "index_head_dim": 128}
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "DeepseekV32ForCausalLM": _INDEX,
    "GlmMoeDsaForCausalLM": _INDEX,
    # Every fourth layer finds its own top k, unless `indexer_types` lists them.
    "HYV4ForCausalLM": {
        **_INDEX,
        "index_topk_freq": 4,
        "num_nextn_predict_layers": 1,
        "learnable_sink": True,
    },
    "Glm5NextForConditionalGeneration": {"qk_rope_head_dim": 0, "num_nextn_predict_layers": 1},
}
_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
# The same by `model_type`, which transformers 4.57 and 5.12 have alike: layers, hidden size, heads,
# heads of K and V, head dim; 0 where there is no number of its own.
_SHAPES: Mapping[str, tuple[int, int, int, int, int]] = {
    "gemma": (28, 3072, 16, 16, 256),
    "gemma2": (26, 2304, 8, 4, 256),
    "gemma3_text": (26, 2304, 8, 4, 256),
    "gemma3n_text": (35, 2048, 8, 2, 256),
    "gpt_oss": (36, 2880, 64, 8, 64),
    "llama": (32, 4096, 32, 0, 0),
    "llama4_text": (48, 5120, 40, 8, 128),
    "mistral": (32, 4096, 32, 8, 0),
    "mixtral": (32, 4096, 32, 8, 0),
    "qwen2": (32, 4096, 32, 32, 0),
    "qwen3": (32, 4096, 32, 32, 128),
    "qwen3_5_text": (32, 4096, 16, 4, 256),
    "qwen3_next": (48, 2048, 16, 2, 256),
    "qwen3_vl_text": (32, 4096, 32, 32, 128),
}
# The head dim alone, for facts that have no `model_type`.
_HEAD_DIMS: Mapping[str, int] = {
    "EmbeddingGemmaModel": 256,
    "Gemma2ForCausalLM": 256,
    "Gemma2ForSequenceClassification": 256,
    "Gemma3ForCausalLM": 256,
    "Gemma3ForConditionalGeneration": 256,
    "Gemma3TextModel": 256,
    "Gemma3nForCausalLM": 256,
    "Gemma3nForConditionalGeneration": 256,
    "GemmaForCausalLM": 256,
    "GptOssForCausalLM": 64,
    "Llama4ForConditionalGeneration": 128,
    "NemotronHForCausalLM": 128,
    "Qwen3ForCausalLM": 128,
    "Qwen3NextForCausalLM": 256,
    "Qwen3_5ForConditionalGeneration": 256,
    "Qwen3_5MoeForConditionalGeneration": 256,
}
# Of the classes with a sparse index, those whose configuration has a default of `index_topk`, and
# those whose configuration has learnable sinks.
INDEXED_ALWAYS = frozenset(name for name, keys in _DEFAULTS.items() if "index_topk" in keys)
SINKS_ALWAYS = frozenset(name for name, keys in _DEFAULTS.items() if keys.get("learnable_sink"))


def filled(name: str, text: Config) -> Config:
    """The keys of the language model, with what its class has where it has none."""
    whole = {**_shape(name, text), **_DEFAULTS.get(name, {}), **text}
    if name == "Spark2_5ForCausalLM":
        return _spark(whole)
    return _glm5_next(whole) if name == "Glm5NextForConditionalGeneration" else whole


def _shape(name: str, text: Config) -> dict[str, object]:
    dim = _HEAD_DIMS.get(name)
    sizes = _SHAPES.get(str(text.get("model_type")), (0, 0, 0, 0, dim or 0))
    # A dim under another name is no dim that was left out.
    named = any(text.get(key) is not None for key in ("attention_head_dim", "kv_channels"))
    pairs = zip(_SHAPE, sizes, strict=True)
    return {key: n for key, n in pairs if n and not (named and key == "head_dim")}


def _spark(text: Config) -> Config:
    """Every fourth of its layers sees all tokens (0.5.23 configs/spark2_5.py:40)."""
    if text.get("layer_types") is not None:
        return text
    kinds = ("full" if n % 4 == 3 else "sliding" for n in range(layers(text) or 0))
    return {**text, "layer_types": [f"{kind}_attention" for kind in kinds]}


def _glm5_next(text: Config) -> Config:
    """Its layers count from 0; those of Kimi Linear, which has the same keys, count from 1."""
    given = text.get("linear_attn_config")
    linear = dict(given) if isinstance(given, Mapping) else _linear(text)
    numbers = linear.pop("kda_layers", ())
    if not isinstance(numbers, Sequence) or isinstance(numbers, str):
        return text
    kinds = ["linear" if n in numbers else "full" for n in range(layers(text) or 0)]
    named = [f"{kind}_attention" for kind in kinds]
    return {**text, "linear_attn_config": linear, "layer_types": named}


def _linear(text: Config) -> dict[str, object]:
    total, listed = layers(text) or 0, text.get("layer_types")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        linear = [n for n, kind in enumerate(listed) if kind == "linear_attention"]
    else:
        linear = [n for n in range(total) if n % 4 != 3]
    return {
        "kda_layers": linear,
        "num_heads": count(text, "linear_num_heads") or 64,
        "head_dim": count(text, "linear_head_dim") or 128,
        "short_conv_kernel_size": count(text, "linear_conv_kernel_dim") or 4,
    }
