"""The accuracy room: which model class shows its quantisation, and which loads scales (data).

`--kv-cache-dtype auto` becomes FP8 only where the loaded top-level object has `quant_config`
(facts §2.3). Found by reading `models/*.py` of five versions: an assignment to `self.quant_config`
in the entry class or in a class it derives from. A class in no table here is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Classes whose object has `quant_config`, by the first version read in which it has.
SHOWS: Mapping[str, frozenset[str]] = {
    "0.5.9": _named(
        """
AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM BailingMoEForCausalLM
BailingMoeForCausalLM BailingMoeForCausalLMNextN BailingMoeV2ForCausalLM
BailingMoeV2_5ForCausalLM ChatGLMModel Cohere2ForCausalLM CohereForCausalLM DbrxForCausalLM
DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
DeepseekV3ForCausalLMNextN Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM
ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoEForCausalLMMTP FalconH1ForCausalLM
GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM Gemma2ForCausalLM
Gemma2ForSequenceClassification Gemma3ForCausalLM Gemma3ForConditionalGeneration
Gemma3nForCausalLM Gemma3nForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM
Glm4MoeForCausalLM Glm4MoeForCausalLMNextN Glm4MoeLiteForCausalLM
Glm4vMoeForConditionalGeneration GlmMoeDsaForCausalLM GlmOcrForConditionalGenerationNextN
GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM
Grok1ForCausalLM Grok1ModelForCausalLM IQuestCoderForCausalLM IQuestLoopCoderForCausalLM
InternLM2ForCausalLM InternLM2ForRewardModel InternLM3ForCausalLM
InternS1ForConditionalGeneration InternVLChatModel JetNemotronForCausalLM
KimiK25ForConditionalGeneration KimiLinearForCausalLM KimiVLForConditionalGeneration
LLaDA2MoeModelLM Lfm2ForCausalLM Lfm2MoeForCausalLM Llama4ForCausalLM
Llama4ForConditionalGeneration LlamaForCausalLM LlamaForCausalLMEagle LlamaForCausalLMEagle3
LlamaForClassification LlamaForSequenceClassification
LlamaForSequenceClassificationWithNormal_Weights LongcatFlashForCausalLM
LongcatFlashForCausalLMNextN MiDashengLMModel MiMoForCausalLM MiMoMTP MiMoV2FlashForCausalLM
MiMoV2MTP MiniCPM3ForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM Ministral3ForCausalLM
MistralForCausalLM MistralLarge3ForCausalLM MistralLarge3ForCausalLMEagle MixtralForCausalLM
MllamaForConditionalGeneration NemotronHForCausalLM NemotronHForCausalLMMTP OPTForCausalLM
OlmoeForCausalLM OrionForCausalLM POINTSV15ChatModel PaddleOCRVLForConditionalGeneration
PersimmonForCausalLM Phi3ForCausalLM Phi3SmallForCausalLM PhiForCausalLM PhiMoEForCausalLM
QuantMixtralForCausalLM Qwen2ForCausalLM Qwen2ForCausalLMEagle Qwen2ForRewardModel
Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3ForRewardModel Qwen3ForSequenceClassification
Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3NextForCausalLMMTP Qwen3_5ForCausalLMMTP
SDARForCausalLM SDARMoeForCausalLM SolarForCausalLM StableLmForCausalLM
Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p5MTP TeleFLMForCausalLM
TorchNativeLlamaForCausalLM TorchNativePhi3ForCausalLM TransformersForCausalLM XverseForCausalLM
XverseMoeForCausalLM
"""
    ),
    "0.5.12": _named(
        """
DeepseekV4ForCausalLM DeepseekV4ForCausalLMNextN Eagle3DeepseekV2ForCausalLM
Gemma4AssistantForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration HYV3ForCausalLM
HYV3ForCausalLMNextN InternS1ProForConditionalGeneration InternS2PreviewForConditionalGeneration
Lfm2VlForConditionalGeneration MiMoV2ForCausalLM MistralForCausalLMEagle
MossVLForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration SarvamMLAForCausalLM
SarvamMoEForCausalLM TransformersEmbeddingModel TransformersForSequenceClassification
TransformersMoEEmbeddingModel TransformersMoEForCausalLM TransformersMoEForSequenceClassification
TransformersMultiModalEmbeddingModel TransformersMultiModalForCausalLM
TransformersMultiModalForSequenceClassification TransformersMultiModalMoEEmbeddingModel
TransformersMultiModalMoEForCausalLM TransformersMultiModalMoEForSequenceClassification
"""
    ),
    "0.5.16": _named(
        """
Cohere2MoeForCausalLM DeepseekV4ForCausalLMDSpark Gemma4UnifiedAssistantForCausalLM
Gemma4UnifiedForConditionalGeneration Glm4MoeLiteForCausalLMNextN GlmMoeDsaForCausalLMNextN
HrmTextForCausalLM InklingForConditionalGeneration LocateAnythingForConditionalGeneration
MellumForCausalLM MiMoV2ASRForCausalLM MiniMaxM3SparseForCausalLM
MiniMaxM3SparseForConditionalGeneration NemotronHPuzzleForCausalLM Qwen3MoeForCausalLMMTP
ZayaForCausalLM
"""
    ),
    "0.5.20": _named(
        """
BailingMoeV3ForCausalLM Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration
EmbeddingGemmaModel FalconMambaForCausalLM Glm5NextForConditionalGeneration
Glm5NextForConditionalGenerationNextN GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM
GraniteSWAForCausalLM HYV4ForCausalLM HYV4ForCausalLMNextN InternS2MobiusForConditionalGeneration
K2HorizonForCausalLM KimiK3ForConditionalGeneration KimiK3LinearForCausalLM Mamba2ForCausalLM
MambaForCausalLM MiniCPMSALAForCausalLM MuseGlimmerForCausalLM
MuseGlimmerForConditionalGeneration NanbeigeForCausalLM NanbeigeForSequenceClassification
Qwen2ForSequenceClassification Qwen3Model Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM
Qwen4ExpForCausalLMMTP Qwen4ExpForConditionalGeneration Spark2_5ForCausalLM XllmForCausalLM
"""
    ),
    "0.5.23": _named(
        """
BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration
BailingMoeV3VLForConditionalGeneration DiffusionGemmaForBlockDiffusion ExaoneMoeForCausalLM
GigaChat35ForCausalLM GigaChat35ForCausalLMNextN IQuestQ1ForCausalLM IQuestQ1MTP
MuseSparkForConditionalGeneration
"""
    ),
}

# Classes whose object has none, by the first version read in which they are; SHOWS wins.
HIDES: Mapping[str, frozenset[str]] = {
    "0.5.9": _named(
        """
BertForSequenceClassification BertModel CLIPModel Contriever DeciLMForCausalLM
DeepseekOCRForCausalLM DeepseekVL2ForCausalLM DotsOCRForCausalLM DotsVLMForCausalLM
Ernie4_5_MoeForCausalLMMTP Ernie4_5_VLMoeForConditionalGeneration Glm4vForConditionalGeneration
GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration HunYuanDenseV1ForCausalLM
HunYuanMoEV1ForCausalLM InternS1ProForConditionalGeneration JetVLMForConditionalGeneration
LightOnOCRForConditionalGeneration LlamaEmbeddingModel LlavaForConditionalGeneration
LlavaLlamaForCausalLM LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
MindSporeForCausalLM MiniCPMO MiniCPMV Mistral3ForConditionalGeneration MistralModel
MultiModalityCausalLM NVILAForConditionalGeneration NVILALiteForConditionalGeneration
NemotronH_Nano_VL_V2 Olmo2ForCausalLM OlmoForCausalLM Phi4MMForCausalLM
PixtralForConditionalGeneration PixtralVisionModel QWenLMHeadModel
Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration
Qwen2_5_VLForConditionalGeneration Qwen3OmniMoeForConditionalGeneration
Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Sarashina2VisionForCausalLM
Starcoder2ForCausalLM StepVLForConditionalGeneration XLMRobertaForSequenceClassification
XLMRobertaModel YiVLForCausalLM
"""
    ),
    "0.5.12": _named(
        """
DFlashDraftModel LagunaForCausalLM MiniCPMV4_6ForConditionalGeneration
NemotronH_Nano_Omni_Reasoning_V3 Qwen3ASRForConditionalGeneration VoxtralForConditionalGeneration
WhisperForConditionalGeneration
"""
    ),
    "0.5.16": _named(
        """
Cohere2VisionForConditionalGeneration DFlashLagunaForCausalLM GlmImageForConditionalGeneration
InklingForConditionalGenerationMTP Qwen3DSparkModel Step3p7ForConditionalGeneration
UnlimitedOCRForCausalLM
"""
    ),
    "0.5.20": _named(
        """
DFlash2DraftModel DSparkDraftModel Lfm2BidirectionalModel Lfm2DSparkDraftModel LingDSparkModel
MuseGlimmerAssistantModel NemotronH_Omni_Reasoning_V3
"""
    ),
    "0.5.23": _named(
        """
BeamForCausalLM DFlash2BeamDraftModel DSparkMiniMaxDraftModel EmbeddingGemma2Model
LiLiCorrDraftModel MiniCPMV4_7ForConditionalGeneration MiniMaxDFlash2DraftModel
"""
    ),
}

# Attention is built with the quantisation, and names of scales are mapped onto it.
# By the first version read; a class whose attention is made in another file is not here.
LOADS: Mapping[str, frozenset[str]] = {
    "0.5.9": _named(
        """
ApertusForCausalLM ArceeForCausalLM Cohere2ForCausalLM CohereForCausalLM DbrxForCausalLM
DeciLMForCausalLM Exaone4ForCausalLM GPTJForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
Gemma3ForConditionalGeneration IQuestCoderForCausalLM InternLM3ForCausalLM LlamaForCausalLM
LlamaForClassification LlamaForSequenceClassification MiniMaxM2ForCausalLM Ministral3ForCausalLM
MistralForCausalLM NemotronHForCausalLM NemotronH_Nano_VL_V2 Phi3ForCausalLM PhiMoEForCausalLM
Qwen3NextForCausalLM TeleFLMForCausalLM
"""
    ),
    "0.5.12": _named(
        """
Gemma4ForCausalLM Gemma4ForConditionalGeneration NemotronH_Nano_Omni_Reasoning_V3
"""
    ),
    "0.5.16": _named(
        """
MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration NemotronHPuzzleForCausalLM
"""
    ),
    "0.5.20": _named(
        """
MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NemotronH_Omni_Reasoning_V3
Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
"""
    ),
}

# Attention is built without it: scales of the checkpoint are passed over; LOADS wins.
DROPS: Mapping[str, frozenset[str]] = {
    "0.5.9": _named(
        """
BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM ExaoneMoEForCausalLM
FalconH1ForCausalLM Glm4MoeForCausalLM GptOssForCausalLM HunYuanDenseV1ForCausalLM
HunYuanMoEV1ForCausalLM LLaDA2MoeModelLM Lfm2ForCausalLM Lfm2MoeForCausalLM Llama4ForCausalLM
Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3_5ForConditionalGeneration
Qwen3_5MoeForConditionalGeneration SDARForCausalLM SDARMoeForCausalLM Step3p5ForCausalLM
"""
    ),
    "0.5.12": _named(
        """
HYV3ForCausalLM Lfm2VlForConditionalGeneration SarvamMoEForCausalLM
"""
    ),
    "0.5.16": _named(
        """
MellumForCausalLM Step3p7ForConditionalGeneration
"""
    ),
    "0.5.23": _named(
        """
BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration BeamForCausalLM
ExaoneMoeForCausalLM MuseSparkForConditionalGeneration
"""
    ),
}

# Spellings of scales that a class takes, by the first version read; one of LOADS that is not in it
# takes all four. Where names of projections are fused before scales are mapped, `k_proj.k_scale` is
# no name any more: the engine stops at it, or passes it over. Others have a map of their own.
_ALL = _named("legacy modelopt plain quark")
_ATTACHED = {"0.5.9": _named("legacy plain")}
_BOTH = {"0.5.9": _named("modelopt plain")}
SPELLINGS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "Cohere2ForCausalLM": _ATTACHED,
    "CohereForCausalLM": _ATTACHED,
    "GPTJForCausalLM": _ATTACHED,
    "Gemma2ForCausalLM": _ATTACHED,
    "Gemma3ForCausalLM": {**_ATTACHED, "0.5.16": _ALL},
    "Gemma3ForConditionalGeneration": {**_ATTACHED, "0.5.16": _ALL},
    "MiniMaxM2ForCausalLM": {**_ATTACHED, "0.5.12": _named("legacy modelopt plain")},
    "MiniMaxM3SparseForCausalLM": _ATTACHED,
    "MiniMaxM3SparseForConditionalGeneration": _ATTACHED,
    "MuseGlimmerForCausalLM": _BOTH,
    "MuseGlimmerForConditionalGeneration": _BOTH,
    "PhiMoEForCausalLM": _ATTACHED,
    "Qwen3NextForCausalLM": {"0.5.9": _named("modelopt")},
    "Qwen3_5ForConditionalGeneration": _BOTH,
    "Qwen3_5MoeForConditionalGeneration": _BOTH,
}
# Classes that take a name as it is where it is a parameter's, before any map.
AS_THEY_ARE = _named(
    """
NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 Qwen3NextForCausalLM
Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
"""
)
