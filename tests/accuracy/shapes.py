"""Configs of public models, cut to the keys that decide their KV cache."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

LLAMA_8B: Config = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}
DEEPSEEK_R1: Config = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "v_head_dim": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 1,
}
DEEPSEEK_V32: Config = {
    **DEEPSEEK_R1,
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_head_dim": 128,
    "index_topk": 2048,
}
MIMO_V2: Config = {
    "architectures": ["MiMoV2FlashForCausalLM"],
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "hidden_size": 4096,
    "sliding_window": 128,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [0] * 9 + [1] * 39,
}
GEMMA4_31B: Config = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "hidden_size": 5376,
        "sliding_window": 1024,
        "global_head_dim": 512,
        "num_global_key_value_heads": 4,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
    },
}
GPT_OSS_120B: Config = {
    "architectures": ["GptOssForCausalLM"],
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
QWEN36_27B: Config = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "vision_config": {},
    "text_config": {
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "full_attention_interval": 4,
        "mtp_num_hidden_layers": 1,
        "linear_num_value_heads": 48,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
    },
}
# Qwen3.8-Flash-Next.
QWEN4_EXP: Config = {
    "architectures": ["Qwen4ExpForConditionalGeneration"],
    "vision_config": {},
    "text_config": {
        "num_hidden_layers": 48,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2560,
        "full_attention_interval": 4,
        "mtp_num_hidden_layers": 1,
        "linear_num_value_heads": 48,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 128,
        "indexer_compress_ratio": 4,
        "indexer_budget": 2048,
    },
}
NEMOTRON_NANO: Config = {
    "architectures": ["NemotronHForCausalLM"],
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "ME" * 20 + "M*" * 3 + "***" + "EEE",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_size": 2688,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}
# ibm-granite/granite-4.0-h-micro, the only Granite 4 hybrid of that size of weights.
GRANITE4_MICRO: Config = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "num_hidden_layers": 40,
    "layer_types": (["mamba"] * 9 + ["attention"]) * 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 2048,
    "mamba_n_heads": 64,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
FALCON_H1: Config = {
    "architectures": ["FalconH1ForCausalLM"],
    "num_hidden_layers": 36,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_size": 3072,
    "mamba_n_heads": 24,
    "mamba_d_head": 128,
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}
# One set of sizes that gives K/V, windows and matrices of the boot gf-ling3-tp1 at once.
LING3: Config = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "num_hidden_layers": 24,
    "layer_group_size": 4,
    "num_attention_heads": 16,
    "head_dim": 128,
    "short_conv_kernel_size": 4,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "hidden_size": 2048,
}
KIMI_LINEAR: Config = {
    "architectures": ["KimiLinearForCausalLM"],
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_size": 2304,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 28) if n not in (4, 8, 12, 16, 20, 24, 27)],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
LFM2: Config = {
    "architectures": ["Lfm2ForCausalLM"],
    "num_hidden_layers": 16,
    "layer_types": ["conv"] * 10 + ["full_attention"] * 6,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 2048,
    "conv_L_cache": 3,
}
LLAMA4: Config = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
    },
}
# One ratio for each layer, and one for the draft's.
DSV4_FLASH: Config = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "num_hidden_layers": 43,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "sliding_window": 128,
    "num_nextn_predict_layers": 1,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "max_position_embeddings": 1_048_576,
}
DSV4_PRO: Config = {
    **DSV4_FLASH,
    "num_hidden_layers": 61,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
}
DSV41_FLASH: Config = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "vision_config": {"num_hidden_layers": 32},
    "text_config": {
        **{key: value for key, value in DSV4_FLASH.items() if key != "architectures"},
        "num_hidden_layers": 40,
        "num_nextn_predict_layers": 3,
        "compress_ratios": [0, 0, *[2] * 18, *[1] * 20, 0, 0, 0],
        "kv_source_layer_ids": [2, 8, 14, 20],
    },
}
EVERY = {
    "llama": LLAMA_8B,
    "deepseek-r1": DEEPSEEK_R1,
    "deepseek-v3.2": DEEPSEEK_V32,
    "mimo": MIMO_V2,
    "gemma4": GEMMA4_31B,
    "gpt-oss": GPT_OSS_120B,
    "qwen3.6": QWEN36_27B,
    "nemotron": NEMOTRON_NANO,
    "granite4": GRANITE4_MICRO,
    "falcon-h1": FALCON_H1,
    "ling3": LING3,
    "kimi-linear": KIMI_LINEAR,
    "lfm2": LFM2,
    "llama4": LLAMA4,
}
