"""The accuracy room: which model class keeps which kind of KV cache, as the engine has it (data).

Read from the class lists of SGLang 0.4.6 to 0.5.23 (`configs/model_config.py`, `models/*.py`).
A class that is in no table here is unknown: its attention is asked for, not guessed.
"""

from __future__ import annotations

from firstlight.accuracy.kvrules import since

# Every layer keeps K and V of its own heads in one pool; also where the model slides a window
# over some layers, since the engine keeps whole rows for those too (Gemma 2 and 3, Cohere 2).
_PLAIN = """
AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM
BailingMMNativeForConditionalGeneration BailingMoEForCausalLM BailingMoeForCausalLM
BailingMoeV2ForCausalLM BertForSequenceClassification BertModel ChatGLMForCausalLM ChatGLMModel
Cohere2ForCausalLM Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration CohereForCausalLM
Contriever Cosmos3ForConditionalGeneration DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM
DeepseekOCRForCausalLM DotsOCRForCausalLM EmbeddingGemmaModel Ernie4_5_ForCausalLM
Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM ExaoneForCausalLM
ExaoneMoEForCausalLM ExaoneMoeForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM
Gemma2ForCausalLM Gemma2ForSequenceClassification Gemma3ForCausalLM Gemma3ForConditionalGeneration
Gemma3TextModel Gemma3nForCausalLM Gemma3nForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM
Glm4MoeForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration GraniteForCausalLM
GraniteMoeForCausalLM GraniteMoeSharedForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM
HYV3ForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM IQuestCoderForCausalLM
IQuestLoopCoderForCausalLM InternLM2ForCausalLM InternLM2ForRewardModel InternLM3ForCausalLM
InternS1ForConditionalGeneration InternS1ProForConditionalGeneration InternVLChatModel
K2HorizonForCausalLM LLaDA2MoeModelLM LightOnOCRForConditionalGeneration Llama4ForCausalLM
LlamaEmbeddingModel LlamaForCausalLM LlamaForClassification LlamaForSequenceClassification
LlamaForSequenceClassificationWithNormal_Weights LlavaForConditionalGeneration LlavaLlamaForCausalLM
LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
LocateAnythingForConditionalGeneration MiDashengLMModel MiMoForCausalLM MiMoV2ASRForCausalLM
MiniCPMForCausalLM MiniCPMO MiniCPMV MiniMaxM2ForCausalLM Ministral3ForCausalLM
Mistral3ForConditionalGeneration MistralForCausalLM MistralModel MixtralForCausalLM
MultiModalityCausalLM NVILAForConditionalGeneration NVILALiteForConditionalGeneration
NanbeigeForCausalLM NanbeigeForSequenceClassification OPTForCausalLM Olmo2ForCausalLM
OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM POINTSV15ChatModel
PaddleOCRVLForConditionalGeneration PersimmonForCausalLM Phi3ForCausalLM Phi3SmallForCausalLM
Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM QWenLMHeadModel QuantMixtralForCausalLM
Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2ForRewardModel
Qwen2ForSequenceClassification Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3ForCausalLM
Qwen3ForRewardModel Qwen3ForSequenceClassification Qwen3Model Qwen3MoeForCausalLM
Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
Qwen3VLMoeForConditionalGeneration SDARForCausalLM SDARMoeForCausalLM Sarashina2VisionForCausalLM
SarvamMoEForCausalLM SolarForCausalLM StableLmForCausalLM Starcoder2ForCausalLM
Step3VLForConditionalGeneration StepVLForConditionalGeneration TeleFLMForCausalLM
TorchNativeLlamaForCausalLM TorchNativePhi3ForCausalLM TransformersForCausalLM
TransformersMoEForCausalLM TransformersMultiModalForCausalLM TransformersMultiModalMoEForCausalLM
VILAForConditionalGeneration VoxtralForConditionalGeneration XLMRobertaForSequenceClassification
XLMRobertaModel XllmForCausalLM XverseForCausalLM XverseMoEForCausalLM XverseMoeForCausalLM
YiVLForCausalLM
"""

# One row of rank and rope for all heads (MLA).
_LATENT = """
BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekVL2ForCausalLM
DotsVLMForCausalLM GigaChat35ForCausalLM Glm4MoeLiteForCausalLM Glm5NextForConditionalGeneration
GlmMoeDsaForCausalLM HYV4ForCausalLM KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration
KimiK3LinearForCausalLM KimiLinearForCausalLM KimiVLForConditionalGeneration LongcatFlashForCausalLM
MiniCPM3ForCausalLM MistralLarge3ForCausalLM PixtralForConditionalGeneration SarvamMLAForCausalLM
"""

# The ones whose `index_topk` switches the sparse index (DSA) on, by the first version read in which
# it does (`is_deepseek_nsa`, 0.5.3 to 0.5.12; `is_deepseek_dsa`, 0.5.16, 0.5.23 model_config:191).
INDEXED: dict[str, str] = {
    "DeepseekV3ForCausalLM": "0.5.3",
    "DeepseekV32ForCausalLM": "0.5.3",
    "MistralLarge3ForCausalLM": "0.5.7",
    "PixtralForConditionalGeneration": "0.5.7",
    "GlmMoeDsaForCausalLM": "0.5.9",
    "LongcatFlashForCausalLM": "0.5.16",
    "Dots3NoteForCausalLM": "0.5.20",
    "Glm5NextForConditionalGeneration": "0.5.20",
    "HYV4ForCausalLM": "0.5.20",
}

# Two pools, one for the layers that slide; since which version (`is_hybrid_swa_model`, 0.5.9:1320,
# 0.5.23:2651; before 0.5.8 `is_hybrid_model` and a flag of its own for Llama 4).
TWO_POOLS: dict[str, str] = {
    "MiMoV2FlashForCausalLM": "0.5.7",
    "GptOssForCausalLM": "0.5.8",
    "Llama4ForConditionalGeneration": "0.5.8",
    "Step3p5ForCausalLM": "0.5.9",
    "Gemma4ForCausalLM": "0.5.11",
    "Gemma4ForConditionalGeneration": "0.5.11",
    "MiMoV2ForCausalLM": "0.5.11",
    "LagunaForCausalLM": "0.5.12",
    "Gemma4UnifiedForConditionalGeneration": "0.5.13",
    "Step3p7ForConditionalGeneration": "0.5.13",
    "UnlimitedOCRForCausalLM": "0.5.15",
    "MellumForCausalLM": "0.5.16",
    "MuseGlimmerForCausalLM": "0.5.18",
    "MuseGlimmerForConditionalGeneration": "0.5.18",
    "GraniteMoeSWAForCausalLM": "0.5.19",
    "GraniteSWAForCausalLM": "0.5.19",
    "Spark2_5ForCausalLM": "0.5.19",
    "DiffusionGemmaForBlockDiffusion": "0.5.21",
    "IQuestQ1ForCausalLM": "0.5.21",
    "EmbeddingGemma2Model": "0.5.22",
    "BeamForCausalLM": "0.5.23",
    "MuseSparkForConditionalGeneration": "0.5.23",
}

# Of those, the ones that are older than their two pools; the others came with them.
ONE_POOL_FIRST: dict[str, str] = {
    "Llama4ForConditionalGeneration": "0.4.5",
    "GptOssForCausalLM": "0.5.1",
}

# Some layers keep a state of fixed size for each request, instead of or beside K and V.
_STATEFUL = """
BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
FalconH1ForCausalLM GigaChat35ForCausalLM Glm5NextForConditionalGeneration
GraniteMoeHybridForCausalLM InternS2MobiusForConditionalGeneration
InternS2PreviewForConditionalGeneration KimiK3ForConditionalGeneration KimiK3LinearForCausalLM
KimiLinearForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration
MiniCPMSALAForCausalLM MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 Qwen3NextForCausalLM Qwen3_5ForCausalLM
Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
Qwen4ExpForConditionalGeneration
"""

# Known to the engine, and not to this arithmetic: what would have to be read first.
NOT_MODELLED: dict[str, str] = {
    "MiniMaxM3SparseForCausalLM": "the index pool of MiniMax-M3's sparse layers",
    "MiniMaxM3SparseForConditionalGeneration": "the index pool of MiniMax-M3's sparse layers",
    "Dots3NoteForCausalLM": "the two latent pools of Dots3",
    "InklingForConditionalGeneration": "the states of Inkling's convolutions",
    "JetNemotronForCausalLM": "the state of JetNemotron's blocks",
    "JetVLMForConditionalGeneration": "the state of JetNemotron's blocks",
    "MllamaForConditionalGeneration": "the rows of Mllama's cross attention",
    "MossVLForConditionalGeneration": "the rows of Moss-VL's cross attention",
    "WhisperForConditionalGeneration": "the rows of Whisper's encoder",
    "ZayaForCausalLM": "the state of Zaya's convolutions",
    "HrmTextForCausalLM": "the rows of each cycle of an HRM",
    "FalconMambaForCausalLM": "states alone, without rows of tokens",
    "Mamba2ForCausalLM": "states alone, without rows of tokens",
    "MambaForCausalLM": "states alone, without rows of tokens",
}

# Where the engine takes the checkpoint itself for the draft's path when none is given, from 0.5.14
# on, when a path first prices a draft (0.5.14 arg_groups/speculative_hook.py:290-305).
_OWN_PATH = """
BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM DeepseekV32ForCausalLM
DeepseekV3ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM HYV3ForCausalLM
MistralLarge3ForCausalLM PixtralForConditionalGeneration Qwen4ExpForConditionalGeneration
"""

# Compressed pools, of which `compressed` reads the config and `kvdsv4` the sizes; since when.
COMPRESSED: dict[str, str] = {
    "DeepseekV4ForCausalLM": "0.5.12",
    "DeepseekV41ForCausalLM": "0.5.21",
}

# Blocks that hold more than one attention layer each; of those that are run in loops, the key that
# says how often (0.5.23 configs/model_config.py:1582).
LAYERS_PER_BLOCK: dict[str, int] = {"LongcatFlashForCausalLM": 2}
LOOPS: dict[str, str] = {
    "IQuestLoopCoderForCausalLM": "loop_num",
    "NanbeigeForCausalLM": "num_loops",
}

# Latent only where the config has a rank: before Mistral Large 3 a Pixtral had heads.
BY_RANK = frozenset({"PixtralForConditionalGeneration"})

PLAIN = frozenset(_PLAIN.split())
LATENT = frozenset(_LATENT.split())
STATEFUL = frozenset(_STATEFUL.split())
OWN_PATH = frozenset(_OWN_PATH.split())

# The pool has rows for every layer, whatever the config calls its kind.
EVERY_LAYER = (PLAIN | LATENT) - STATEFUL - TWO_POOLS.keys()

KNOWN = PLAIN | LATENT | STATEFUL | TWO_POOLS.keys() | COMPRESSED.keys() | NOT_MODELLED.keys()


def indexed_in(version: str) -> frozenset[str]:
    """Classes that `index_topk` makes DSA in that version."""
    return frozenset(name for name, first in INDEXED.items() if since(version, first))


def has_one_pool(name: str, version: str) -> bool:
    """Whether that version has the class, and keeps its layers that slide beside the others."""
    return name in ONE_POOL_FIRST and not since(version, TWO_POOLS[name])
