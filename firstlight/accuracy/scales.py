"""The accuracy room: which layers keep a KV cache, and whether scales for it were calibrated.

The engine takes a scale above 0; where v has none, k's is used for both; where k has none and v
has one, it stops; where none is there, 1.0 is used, silently (0.5.23 kv_cache.py:51). Missing in
some layers is worse than missing in all: the layers then disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy.reading import Group, ScaleTensor

Stack = Literal["target", "draft", "other"]
State = Literal["absent", "partial", "ones", "calibrated", "unknown"]

# No model has more; a config that says so is broken or hostile.
MOST_LAYERS = 4096
# Keys and values that are computed for the cache, of attention of any make.
_KV = re.compile(
    r"\.(?:[kv]_proj|qkv_proj|kv_proj|kv_a_proj_with_mqa|kv_b_proj|fused_qkv_a_proj_with_mqa"
    r"|w[kv]|wqkv|wkv|wkv_a|wkv_b|Wqkv|query_key_value|qkv|c_attn|attn_qkv)(?:\.|$)"
)
# Attention without a cache of tokens, and towers that are no language model.
_NOT_KV = re.compile(r"\.(?:indexer|linear_attn|cross_attn|encoder_attn)\.")
_TOWER = re.compile(r"(?:^|\.)\w*(?:visual|vision|audio|image|speech|talker|code2wav|merger)\w*\.")
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle|draft|medusa)\w*\.", re.IGNORECASE)
_STACK = re.compile(r"^(?:\w+\.)*?(?:layers|h|blocks)\.(?:\*|[0-9]+)\.")


@dataclass(frozen=True)
class Scales:
    """Scales of one stack.

    `layers` keep a cache, `k` and `v` have each layer's value (the largest, where there is one
    for each head). `missing` has neither, `one_sided` has one of the two, `ones` has exactly 1.0
    in all it has. `forms` are the spellings; `unmapped` are names that mean nothing to the
    engine; `vectors` have more than one number, where the engine keeps one.
    """

    stack: Stack
    state: State
    layers: frozenset[int]
    k: Mapping[int, float]
    v: Mapping[int, float]
    missing: frozenset[int]
    one_sided: frozenset[int]
    ones: frozenset[int]
    forms: tuple[str, ...]
    unmapped: tuple[str, ...]
    vectors: tuple[str, ...]

    @property
    def span(self) -> tuple[float, float] | None:
        """The least and the largest value."""
        values = [*self.k.values(), *self.v.values()]
        return (min(values), max(values)) if values else None

    @property
    def v_alone(self) -> frozenset[int]:
        """Layers at which the engine stops: v has a scale and k has none."""
        return frozenset(self.v.keys() - self.k.keys())


def stack_of(name: str, layer: int | None, depth: int | None) -> Stack:
    """Whose tensor it is; `depth` is how many layers the language model has.

    A layer behind the last one is a draft's, as DeepSeek and GLM keep theirs.
    """
    if _TOWER.search(name):
        return "other"
    if _DRAFT.search(name):
        return "draft"
    if depth and layer is not None and layer >= depth and _STACK.match(name):
        return "draft"
    return "target"


def kv_layers(groups: Iterable[Group], stack: Stack, depth: int | None) -> frozenset[int]:
    """The layers of a stack that keep keys and values."""
    return frozenset(
        layer
        for group in groups
        if _KV.search(group.name) and not _NOT_KV.search(group.name)
        for layer in group.layer_numbers
        if stack_of(group.name, layer, depth) == stack
    )


def is_kv_bias(name: str) -> bool:
    """A bias of keys or values, which moves the range that a scale must cover."""
    return name.endswith(".bias") and bool(_KV.search(name)) and not _NOT_KV.search(name)


def scales(
    groups: Iterable[Group],
    tensors: Iterable[ScaleTensor],
    stack: Stack,
    depth: int | None,
    stateful: frozenset[int] = frozenset(),
) -> Scales:
    """The scales of one stack, layer by layer.

    `stateful` layers keep a state and no rows, though some have projections of the same names.
    Where projections have names that are not known here, every other layer counts: else a scale
    for one layer alone would be one for all.
    """
    ours = [one for one in tensors if stack_of(one.name, one.layer, depth) == stack]
    mapped = [one for one in ours if one.form != "unknown" and one.layer is not None]
    k, v = _values(mapped, "k"), _values(mapped, "v")
    kept = kv_layers(groups, stack, depth)
    if stack == "target" and not kept and (k or v):
        kept = frozenset(range(min(depth or 0, MOST_LAYERS)))
    layers = (kept - stateful) | k.keys() | v.keys()
    missing = frozenset(n for n in layers if n not in k and n not in v)
    ones = frozenset(n for n in layers - missing if {k.get(n, 1.0), v.get(n, 1.0)} == {1.0})
    return Scales(
        stack=stack,
        state=_state(layers, missing, ones),
        layers=layers,
        k=k,
        v=v,
        missing=missing,
        one_sided=frozenset(n for n in layers - missing if (n in k) != (n in v)),
        ones=ones,
        forms=tuple(sorted({one.form for one in mapped})),
        unmapped=tuple(one.name for one in ours if one not in mapped),
        vectors=tuple(one.name for one in mapped if one.count > 1),
    )


def _values(tensors: Iterable[ScaleTensor], role: str) -> dict[int, float]:
    """A layer's value; what is not above 0 the engine takes for absent."""
    return {
        one.layer: one.most
        for one in tensors
        if one.layer is not None and role in one.role and one.most and one.most > 0
    }


def _state(layers: frozenset[int], missing: frozenset[int], ones: frozenset[int]) -> State:
    if not layers:
        return "unknown"
    if missing == layers:
        return "absent"
    if missing:
        return "partial"
    return "ones" if ones == layers else "calibrated"
