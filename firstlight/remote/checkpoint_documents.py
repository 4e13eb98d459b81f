"""Part of read_checkpoint.py: the small files of a checkpoint, with only the keys that matter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from checkpoint_findings import Findings, Meter, Unreadable, harmless, opened, shown
from json_members import DECODER

LARGEST = 8 << 20
MOST_ITEMS, LONGEST_TEXT, DEEPEST = 512, 2000, 16

# None: all of it. A list of words that a tokenizer adds, or of labels, says nothing here.
KEYS: Mapping[str, tuple[str, ...] | None] = {
    "config.json": None,
    "hf_quant_config.json": None,
    "quantize_config.json": None,
    "quant_config.json": None,
    "generation_config.json": (
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "no_repeat_ngram_size",
        "length_penalty",
        "max_new_tokens",
        "max_length",
    ),
    "tokenizer_config.json": ("auto_map", "tokenizer_class", "model_max_length"),
    "preprocessor_config.json": ("auto_map",),
    "processor_config.json": ("auto_map",),
}
DROPPED = frozenset({"id2label", "label2id"})
TEMPLATES = ("chat_template.jinja", "chat_template.json")


def documents(
    folder: Path, names: Iterable[str], findings: Findings, meter: Meter
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the small files say, by file name, and where a chat template is."""
    there = set(names)
    found: dict[str, Any] = {}
    chat: dict[str, Any] = {}
    for name, keys in KEYS.items():
        if name in there and (value := document(folder, name, findings, meter)) is not None:
            if name == "tokenizer_config.json":
                chat |= _templates(name, value.get("chat_template"))
            chosen = value if keys is None else {key: value[key] for key in keys if key in value}
            found[name] = _cut(chosen, name, findings)
    if "config.json" not in there:
        findings.add("error", "missing-file", "config.json", "it is not there")
    for name in TEMPLATES:
        if name in there:
            chat |= _template_file(folder, name, findings, meter)
    return found, chat


def document(folder: Path, name: str, findings: Findings, meter: Meter) -> dict[str, Any] | None:
    """A file that holds a JSON object; None with a finding for all else."""
    severity = "error" if name == "config.json" else "warning"
    try:
        text = _text(folder, name, meter)
        value = DECODER.decode(text)
    except Unreadable as error:
        findings.add(severity, error.kind, name, str(error))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        findings.add(severity, "not-json", name, f"{error.msg} at {place}")
    except (ValueError, RecursionError) as error:
        findings.add(severity, "not-json", name, str(error))
    else:
        if isinstance(value, dict):
            return value
        findings.add(severity, "not-json", name, "it holds no object, no {...}")
    return None


def _text(folder: Path, name: str, meter: Meter) -> str:
    with opened(folder / name, meter) as file:
        if file.size > LARGEST:
            raise Unreadable("too-large", f"it has {file.size} bytes; at most {LARGEST} are read")
        data = b""
        while piece := file.read(LARGEST):
            data += piece
    return data.decode("utf-8-sig", "surrogateescape")


def _templates(name: str, value: Any) -> dict[str, int]:
    """Where templates are, with their lengths: one text, or a list of named ones."""
    if isinstance(value, str):
        return {name: len(value.strip())}
    if isinstance(value, list):
        named = [one for one in value if isinstance(one, dict)]
        return {
            f"{name}#{shown(str(one.get('name')))}": len(str(one.get("template") or "").strip())
            for one in named[:MOST_ITEMS]
        }
    return {}


def _template_file(folder: Path, name: str, findings: Findings, meter: Meter) -> dict[str, int]:
    if name.endswith(".json"):
        value = document(folder, name, findings, meter) or {}
        return _templates(name, value.get("chat_template"))
    try:
        return {name: len(_text(folder, name, meter).strip())}
    except Unreadable as error:
        findings.add("warning", error.kind, name, str(error))
        return {}


def _cut(value: Any, where: str, findings: Findings, depth: int = 0) -> Any:
    """A value without what nobody needs whole; what was cut is said."""
    if isinstance(value, str):
        return harmless(value[:LONGEST_TEXT])
    if isinstance(value, int | float) and abs(value) > 10**300:
        return None
    if not isinstance(value, dict | list):
        return value
    if len(value) > MOST_ITEMS or depth > DEEPEST:
        findings.add("note", "cut", where, f"of its {len(value)} items not all are read")
    if depth > DEEPEST:
        return None
    if isinstance(value, list):
        return [_cut(one, f"{where}[]", findings, depth + 1) for one in value[:MOST_ITEMS]]
    items = [item for item in value.items() if item[0] not in DROPPED][:MOST_ITEMS]
    return {
        str(_cut(key, where, findings)): _cut(one, f"{where}.{key}", findings, depth + 1)
        for key, one in items
    }
