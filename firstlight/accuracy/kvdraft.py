"""The accuracy room: how long a draft is where a launch names one and no length, as the engine has
it (data).

Read in every minor release from 0.4.5 to 0.5.12 and in 0.5.16, 0.5.20 and 0.5.23
(`auto_choose_speculative_params`: 0.4.5 server_args.py:1313, 0.5.6:4525, 0.5.9:5741, 0.5.12:7929;
arg_groups/speculative_hook.py of 0.5.16:762, 0.5.23:1430).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.accuracy.kvrules import since


@dataclass(frozen=True)
class Length:
    """Steps, branches of each, and tokens that are verified at once."""

    steps: int
    branches: int
    tokens: int


SHORT, LONG = Length(3, 1, 4), Length(5, 4, 8)

# Classes that have the long one in every version.
ALWAYS_LONG = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})
# From this version on all others have the short one, and before it those that have it already.
_SHORT_FOR_ALL = "0.5.8"
SHORT_SINCE: dict[str, str] = {
    "DeepseekV2ForCausalLM": "0.4.7",
    "DeepseekV3ForCausalLM": "0.4.7",
    "GptOssForCausalLM": "0.5.1",
    "BailingMoeForCausalLM": "0.5.3",
    "BailingMoeV2ForCausalLM": "0.5.3",
    "DeepseekV32ForCausalLM": "0.5.3",
    "Glm4MoeForCausalLM": "0.5.7",
    "MiMoV2FlashForCausalLM": "0.5.7",
    "MistralLarge3ForCausalLM": "0.5.7",
    "PixtralForConditionalGeneration": "0.5.7",
}
# Drafts that are no chain or tree of a model's steps, which have their own: n-grams (0.5.9
# server_args.py, 0.5.23 arg_groups/speculative_hook.py:1314), blocks (:414), and one more than
# DSPARK's (:817, DEFAULT_DSPARK_GAMMA). Where the draft's own config names a block, that counts.
_OWN = {
    "NGRAM": Length(1, 1, 12),
    "DFLASH": Length(1, 1, 16),
    "DSPARK": Length(1, 1, 8),
}


def usual(algorithm: str, name: str, version: str) -> Length:
    """What the engine takes for a model of class `name` when nothing is given."""
    if own := _OWN.get(algorithm):
        return own
    if algorithm == "STANDALONE":
        return SHORT
    if name in ALWAYS_LONG:
        return LONG
    return SHORT if since(version, SHORT_SINCE.get(name, _SHORT_FOR_ALL)) else LONG
