"""A model as the engine writes them, to be read and never run."""

from typing import Any

from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.model_loader.weight_utils import maybe_remap_kv_scale_name


class LlamaAttention:
    def __init__(self, quant_config: Any = None) -> None:
        self.attn = RadixAttention(9, 64, quant_config=quant_config)


class LlamaForCausalLM:
    def __init__(self, config: Any, quant_config: Any = None) -> None:
        self.config, self.quant_config = config, quant_config
        self.layers = [LlamaAttention(quant_config)]

    def load_weights(self, weights: Any) -> Any:
        return [maybe_remap_kv_scale_name(name, {}) for name, _ in weights]


EntryClass = LlamaForCausalLM
