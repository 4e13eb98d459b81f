"""The accuracy room: what a config.json says, read with care: it is data of strangers.

A value that is absent, null, or no number where a count must be, is missing. Nothing here has a
default of its own; where the engine has one, the place that uses it says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

Config = Mapping[str, object]

# Where multimodal checkpoints keep the language model, outermost first.
INNER = ("thinker_config", "text_config", "llm_config", "language_config", "language_model")
_SENSES = ("vision_config", "audio_config", "vision_tower", "visual", "vision", "video_config")
# Objects that are no parts: the engine puts one in place of the other.
_WHOLE = ("quantization_config", "compression_config")
# No model has more; a config that says so is broken or hostile.
_MOST_LAYERS = 4096
_MOST = 1 << 24


def text_config(config: Config) -> dict[str, object]:
    """The keys of the language model: a text sub-config's own, over those around it."""
    merged = dict(config)
    for name in INNER:
        inner = merged.get(name)
        if isinstance(inner, Mapping):
            keys = text_config(inner) if name == "thinker_config" else dict(inner)
            merged = {**merged, **{k: v for k, v in keys.items() if k != "architectures"}}
    return merged


def architecture(config: Config) -> str:
    """The class that the checkpoint names first, "" where it names none."""
    names = config.get("architectures")
    if isinstance(names, Sequence) and not isinstance(names, str) and names:
        return names[0] if isinstance(names[0], str) else ""
    return ""


def multimodal(config: Config) -> bool:
    """Whether the checkpoint sees or hears: it describes a tower for that."""
    return any(isinstance(config.get(name), Mapping) for name in _SENSES) or (
        isinstance(inner := config.get("thinker_config"), Mapping) and multimodal(inner)
    )


def count(config: Config, *names: str, least: int = 1) -> int | None:
    """The first of these keys that holds a whole number, `least` or more."""
    for name in names:
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if least <= value <= _MOST:
            return value
    return None


def layers(config: Config) -> int | None:
    """How many layers the model has."""
    found = count(config, "num_hidden_layers", "num_layers", "n_layer", "n_layers")
    return found if found is not None and found <= _MOST_LAYERS else None


def words(config: Config, name: str) -> tuple[str, ...]:
    """A list of words, as config.json has one for each layer; () where it is none."""
    value = config.get(name)
    if isinstance(value, str) or not isinstance(value, Sequence):
        return ()
    return tuple(str(word) for word in value)


def section(config: Config, name: str) -> Config:
    """A mapping inside the config, empty where there is none."""
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def overridden(config: Config, override: object) -> Config:
    """The config under --json-model-override-args, an object or the text of one; what it says of a
    part is laid over that part, and a quantisation is put in place of the other (0.5.23
    hf_transformers/config.py:405)."""
    if isinstance(override, str):
        with suppress(ValueError, RecursionError):
            override = json.loads(override)
    if not isinstance(override, Mapping):
        return config
    parts = {
        key: {**section(config, key), **value}
        for key, value in override.items()
        if isinstance(value, Mapping) and key not in _WHOLE
    }
    return {**config, **override, **parts}


def absent(config: Config, **needed: Sequence[str]) -> tuple[str, ...]:
    """A line for each of `needed` that none of its keys gives."""
    lines = []
    for what, names in needed.items():
        if count(config, *names) is None:
            told = f"{config[names[0]]!r} is no count" if config.get(names[0]) else "is not given"
            lines.append(f"{what.replace('_', ' ')}: {' or '.join(names)} {told}")
    return tuple(lines)
