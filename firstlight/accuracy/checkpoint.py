"""The accuracy room: what a checkpoint declares and holds, ready to be judged.

Everything here comes from the files; what the engine does with it is another layer's matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from firstlight.accuracy.configclasses import filled
from firstlight.accuracy.configkeys import architecture, count, layers, overridden, text_config
from firstlight.accuracy.declared import CONFIG, Quantisation, quantisation
from firstlight.accuracy.layerkinds import layer_kinds
from firstlight.accuracy.reading import Flaw, Group, Reading, as_ranges
from firstlight.accuracy.scales import Scales, is_kv_bias, scales, stack_of
from firstlight.accuracy.values import (
    Object,
    a_count,
    a_number,
    a_text,
    an_object,
    text_part,
    words,
)

# Values that change nothing.
_NEUTRAL: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "no_repeat_ngram_size": 0.0,
    "length_penalty": 1.0,
}
_DRAFT_LAYERS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
# In the engine's order (`CONTEXT_LENGTH_KEYS`).
_POSITIONS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
# Errors that say what is not known here, and not that the files are broken.
_UNREAD = ("config-keys", "other-weights")
_ODD = ("rotary_emb", "inv_freq", "rope", "sinks")


@dataclass(frozen=True)
class Sampling:
    """What generation_config.json sets; `penalties` are those that change answers unasked."""

    values: Mapping[str, JsonValue]
    penalties: Mapping[str, float]


@dataclass(frozen=True)
class Context:
    """How far the model was trained. `positions` is as config.json says it; `rope` the whole
    block of scaling, with its kind and factor read out; `window` is a sliding window;
    `tokenizer_limit` is what the tokenizer says, None for its huge "no limit"."""

    positions: int | None
    rope: Object
    rope_kind: str
    factor: float | None
    original_positions: int | None
    window: int | None
    tokenizer_limit: int | None

    @property
    def limit(self) -> int | None:
        """What the engine derives (`get_context_length`, 0.5.23 hf_transformers/common.py:677):
        the positions, times the factor unless the file says what they were before it."""
        stretched = self.original_positions is None and self.rope_kind != "llama3"
        if self.positions is None or not stretched:
            return self.positions
        return int((self.factor or 1) * self.positions)


@dataclass(frozen=True)
class RemoteCode:
    """Python that the checkpoint brings along. `auto_map` is by file and class; `elsewhere` are
    references to another repository; `missing` are modules that are named and not there."""

    auto_map: Mapping[str, str]
    elsewhere: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """A draft head inside the checkpoint: layers that config.json declares, patterns it holds."""

    declared_layers: int
    groups: tuple[Group, ...]

    @property
    def bytes(self) -> int:
        return sum(group.bytes for group in self.groups)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint.

    `config` is config.json, `text` the language model's keys over it (its part is `text_key`),
    `depth` how many layers that has. `target` and `draft_scales` are the scales of the KV cache.
    `odd` are patterns of tensors that bear on it: biases of keys and values, stored rope, sinks.
    `templates` are the chat templates that are not empty. `flaws` are all findings.
    """

    reading: Reading
    config: Object
    text: Object
    text_key: str
    architectures: tuple[str, ...]
    depth: int | None
    quantisation: Quantisation
    target: Scales
    draft: Draft
    draft_scales: Scales
    odd: tuple[Group, ...]
    sampling: Sampling
    context: Context
    templates: tuple[str, ...]
    remote_code: RemoteCode
    flaws: tuple[Flaw, ...]

    @property
    def broken(self) -> tuple[Flaw, ...]:
        """What is wrong with files that are there, or should be: no engine serves them rightly."""
        return tuple(
            flaw for flaw in self.flaws if flaw.severity == "error" and flaw.kind not in _UNREAD
        )


def describe(reading: Reading, override: object = None) -> Checkpoint:
    """Everything that the later layers ask of a checkpoint; `override` is what the engine lays over
    its config (--json-model-override-args), an object or the text of one."""
    laid = overridden(reading.documents.get(CONFIG, {}), override)
    config = cast("dict[str, JsonValue]", dict(laid))
    if override:
        documents = {**reading.documents, CONFIG: config}
        reading = reading.model_copy(update={"documents": documents})
    text = an_object(text_config(config))
    depth = layers(text)
    declared = quantisation(reading.documents)
    stateful = _stateful(config, text, depth)
    target = scales(reading.groups, reading.scales, "target", depth, stateful)
    draft_scales = scales(reading.groups, reading.scales, "draft", depth)
    draft = _draft(reading, text, depth)
    flaws = (
        *reading.findings,
        *_derived(declared, config, depth, draft),
        *_of_scales(target),
        *_of_scales(draft_scales),
    )
    return Checkpoint(
        reading=reading,
        config=config,
        text=text,
        text_key=text_part(config)[0],
        architectures=words(config.get("architectures")),
        depth=depth,
        quantisation=declared,
        target=target,
        draft=draft,
        draft_scales=draft_scales,
        odd=tuple(group for group in reading.groups if _is_odd(group, depth)),
        sampling=sampling(reading.documents.get("generation_config.json", {})),
        context=context(text, reading.documents.get("tokenizer_config.json", {})),
        templates=tuple(name for name, size in reading.chat_templates.items() if size),
        remote_code=remote_code(reading),
        flaws=flaws,
    )


def sampling(document: Object) -> Sampling:
    """What the file sets, and which penalties of it are not neutral."""
    penalties = {
        key: value
        for key, neutral in _NEUTRAL.items()
        if (value := a_number(document.get(key))) is not None and value != neutral
    }
    return Sampling({k: v for k, v in document.items() if v is not None}, penalties)


def context(text: Object, tokenizer: Object) -> Context:
    """Positions and rope; newer files call the block `rope_parameters`."""
    rope = an_object(text.get("rope_scaling")) or an_object(text.get("rope_parameters"))
    limit = a_count(tokenizer.get("model_max_length"))
    return Context(
        positions=count(text, *_POSITIONS),
        rope=rope,
        rope_kind=a_text(rope.get("rope_type")) or a_text(rope.get("type")) or "default",
        factor=a_number(rope.get("factor")),
        original_positions=a_count(rope.get("original_max_position_embeddings")),
        window=a_count(text.get("sliding_window")),
        tokenizer_limit=limit if limit is not None and limit < 10**9 else None,
    )


def remote_code(reading: Reading) -> RemoteCode:
    """Every class that a file wants from Python beside it, or from another repository."""
    found = {
        f"{file}: {name}": a_text(reference)
        for file, document in reading.documents.items()
        for name, references in an_object(document.get("auto_map")).items()
        for reference in (references if isinstance(references, list) else [references])
        if a_text(reference)
    }
    references = sorted(set(found.values()))
    modules = {f"{one.split('.')[0]}.py" for one in references if "--" not in one}
    missing = tuple(sorted(modules.difference(reading.code)))
    return RemoteCode(found, tuple(one for one in references if "--" in one), missing)


def _draft(reading: Reading, text: Object, depth: int | None) -> Draft:
    def is_draft(group: Group) -> bool:
        layers = group.layer_numbers or {-1}
        return any(stack_of(group.name, layer, depth) == "draft" for layer in layers)

    declared = count(text, *_DRAFT_LAYERS) or 0
    return Draft(declared, tuple(group for group in reading.groups if is_draft(group)))


def _stateful(config: Object, text: Object, depth: int | None) -> frozenset[int]:
    """Layers that keep no rows of tokens, as far as config.json says it."""
    name = architecture(config)
    kinds, _ = layer_kinds(name, filled(name, text))
    # Where a block is several layers, names do not count as kinds do.
    return frozenset(n for n, kind in enumerate(kinds) if kind == "linear" and len(kinds) == depth)


def _is_odd(group: Group, depth: int | None) -> bool:
    if stack_of(group.name, None, depth) == "other":
        return False
    return is_kv_bias(group.name) or any(word in group.name for word in _ODD)


def _derived(
    declared: Quantisation, config: Object, depth: int | None, draft: Draft
) -> Iterator[Flaw]:
    """What only shows when files are held against each other."""
    for line in declared.disagreements:
        yield _flaw("warning", "disagreement", declared.statements[0].file, line)
    if config and not words(config.get("architectures")):
        what = "it has no architectures, so that nothing says which class loads it"
        yield _flaw("error", "config-keys", CONFIG, what)
    if config and depth is None:
        yield _flaw("error", "config-keys", CONFIG, "it does not say how many layers there are")
    if draft.declared_layers and not draft.groups:
        what = f"{draft.declared_layers} draft layers are declared, and no tensor of one is there"
        yield _flaw("warning", "draft", CONFIG, what)
    if draft.groups and not draft.declared_layers:
        what = f"no draft layers are declared, and {draft.groups[0].name} is there"
        yield _flaw("warning", "draft", CONFIG, what)


def _of_scales(found: Scales) -> Iterator[Flaw]:
    """What the engine stops at, or passes over with a line in its log."""
    if found.v_alone:
        what = f"layers {as_ranges(found.v_alone)} have a scale for v and none for k"
        yield _flaw("error", "scales", found.stack, f"{what}, at which the engine stops")
    if found.vectors:
        what = f"{found.vectors[0]} has several numbers, where the engine takes one"
        yield _flaw("error", "scales", found.stack, what)
    if found.unmapped:
        what = (
            f"{found.unmapped[0]} looks like a scale of the cache, and the engine does not load it"
        )
        yield _flaw("warning", "scales", found.stack, what)


def _flaw(severity: str, kind: str, where: str, what: str) -> Flaw:
    return Flaw.model_validate({"severity": severity, "kind": kind, "where": where, "what": what})
