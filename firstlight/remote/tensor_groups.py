"""Part of read_checkpoint.py: 150,000 names of tensors as a few hundred patterns with counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_findings import shown

MOST_GROUPS = 2000
# Many names are looked at in one text, one a line.
_NUMBER = re.compile(r"\.[0-9]+(?![^.\n])")
# No model has ten thousand layers; what says so must not fill the memory.
# The first way of two is the fast one, for names without a digit before that number.
_LAYER = re.compile(r"(?m)^(?:(?:[^0-9\n]*|.*?)\.([0-9]{1,4})(?![^.\n]))?")

# Names of scales of the KV cache that the engine maps to its own, and which of them is which
# (`maybe_remap_kv_scale_name`, 0.5.23 weight_utils.py:1779). A plain name gets `.attn` before its
# end, so that what stands at a projection, a cache or that very module comes to no parameter.
_ROLES = (
    ("modelopt", re.compile(r"\.(?:self_attn|mixer)\.(k|v)_proj\.\1_scale$")),
    ("quark", re.compile(r"\.(k|v)_proj\.output_scale$")),
    ("legacy", re.compile(r"\.(kv)_scale$")),
    (
        "plain",
        re.compile(
            r"(?<!_proj)(?<!self_attn\.attn)(?<!\.attn_m[hq]a)(?<!_cache)(?<!\.w[kv])"
            r"\.(k|v)_scale$"
        ),
    ),
)
# Names that look like such scales to a person, and mean nothing to the engine.
_ALIKE = re.compile(
    r"\.(?P<role>kv|k|v)_(?:cache_)?(?:scale|scaling_factor|zero_point|scale_inv)$"
    r"|\.(?P<which>k|v)_bmm_quantizer\b"
    r"|\.(?P<fake>k|v)_fake_quantizer\.qscale_act$"
    r"|\.(?:kv_cache|k_cache|v_cache)_?\w*scale\w*$"
)


def role_of(pattern: str) -> tuple[str, str] | None:
    """Which scale of the KV cache (k, v, kv) a name is, and by which spelling; None for others."""
    if not any(word in pattern for word in ("scal", "quantizer", "zero_point")):
        return None
    for form, spelling in _ROLES:
        if found := spelling.search(pattern):
            return found[1], form
    if found := _ALIKE.search(pattern):
        return found["role"] or found["which"] or found["fake"] or "kv", "unknown"
    return None


@dataclass
class Group:
    """Tensors whose names differ in numbers alone, of one dtype and one shape."""

    role: tuple[str, str] | None
    count: int = 0
    size: int = 0
    layers: set[int] = field(default_factory=set)


Kind = tuple[str, tuple[int, ...]]
OTHERS = ("*", ("*", ()))


@dataclass
class Groups:
    """What was seen so far."""

    found: dict[tuple[str, Kind], Group] = field(default_factory=dict)

    def add(
        self, names: Sequence[str], kinds: Sequence[Kind], sizes: Sequence[int]
    ) -> list[tuple[int, tuple[str, str]]]:
        """Count tensors in; gives the numbers of those that are scales, and what they scale.

        All names are changed in one text, which is many times faster than one after the other.
        """
        text = "\n".join(names)
        if text.count("\n") >= len(names):
            text = "\n".join(name.replace("\n", " ") for name in names)
        patterns = _NUMBER.sub(".*", text).split("\n")
        scales = {}
        seen = Counter(zip(patterns, kinds, _LAYER.findall(text), sizes, strict=True))
        for (pattern, kind, layer, size), count in seen.items():
            group = self._group((pattern, kind))
            group.count += count
            group.size += count * size
            if layer:
                group.layers.add(int(layer))
            if group.role:
                scales[pattern] = group.role
        if not scales:
            return []
        return [(n, scales[pattern]) for n, pattern in enumerate(patterns) if pattern in scales]

    def _group(self, key: tuple[str, Kind]) -> Group:
        if group := self.found.get(key):
            return group
        role = role_of(key[0])
        # A scale is told by itself as well; its group must not be lost among the others.
        if len(self.found) >= MOST_GROUPS * (2 if role else 1):
            return self.found.setdefault(OTHERS, Group(None))
        return self.found.setdefault(key, Group(role))

    def listed(self) -> list[dict[str, Any]]:
        return [
            {
                "name": shown(pattern),
                "dtype": shown(dtype),
                "shape": list(shape),
                "count": group.count,
                "bytes": group.size,
                "layers": ranges(group.layers),
            }
            for (pattern, (dtype, shape)), group in sorted(self.found.items())
        ]


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def layer_of(name: str) -> int | None:
    """The first number in a name."""
    found = _LAYER.match(name)
    return int(found[1]) if found and found[1] else None
