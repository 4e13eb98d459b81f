"""Part of read_checkpoint.py: the headers of safetensors files, and the few numbers behind them.

A file is 8 bytes of length, that many bytes of JSON, then the data of its tensors without a gap.
What is checked here is what the safetensors library checks when it opens a file, and that no name
is there twice. Only scales of the KV cache are read out of the data.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import inf, isfinite, isnan, prod
from operator import itemgetter, sub
from pathlib import Path
from typing import Any

from checkpoint_findings import File, Findings, Meter, Unreadable, opened, plain, shown
from json_members import Members, NotJson, tensors
from number_formats import BITS, numbers
from tensor_groups import Groups, Kind, layer_of

# The safetensors library refuses longer ones.
LONGEST_HEADER = 100_000_000
MOST_TENSORS = 1_000_000
MOST_HEADERS = 512 << 20
MOST_SCALES, MOST_KINDS, MOST_ODD = 4096, 4096, 100
# Their products can still be printed.
LARGEST_NUMBER, MOST_DIMENSIONS = 10**18, 64
# A scale has one number, or one for each head.
LARGEST_SCALE = 4096
SHOWN_VALUES = 16


class Enough(Exception):
    """The checkpoint is larger than any real one; reading it stops."""


@dataclass
class Seen:
    """What has been read of a checkpoint so far.

    `places` has for each tensor the number of the shard that the index names, or ~number once it
    was found there. A name is kept as its hash, which Python salts anew each time: nobody can
    prepare two that meet, and it is much smaller than the name.
    """

    findings: Findings
    meter: Meter
    files: list[str] = field(default_factory=list)
    has_index: bool = False
    places: dict[int, int] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    scales: list[dict[str, Any]] = field(default_factory=list)
    shards: list[dict[str, Any]] = field(default_factory=list)
    tensors: int = 0
    header_bytes: int = 0


def read_shard(folder: Path, number: int, seen: Seen) -> None:
    """Read one shard's header into what was seen; what is wrong with it is a finding."""
    name, before = seen.files[number], seen.tensors
    shard = {"file": shown(name), "bytes": 0, "header": 0, "tensors": 0, "whole": False}
    seen.shards.append(shard)
    if Path(name).name != name:
        seen.findings.add("error", "index", name, "the index names it, and it is no file's name")
        return
    if not name.isprintable():
        # What is read of it is told by its name.
        seen.findings.add("error", "file-name", name, "its name cannot be printed")
        return
    try:
        with opened(folder / name, seen.meter) as file:
            shard["bytes"] = file.size
            shard["header"] = length = header_length(file)
            _read_header(file, length, Shard(name, number, seen))
            shard["whole"] = True
    except Unreadable as error:
        seen.findings.add("error", error.kind, name, str(error))
    finally:
        shard["tensors"] = seen.tensors - before


def header_length(file: File) -> int:
    """The length of the JSON; raises Unreadable for one that cannot be."""
    head = file.read(8)
    if len(head) < 8:
        raise Unreadable("truncated", f"it has {file.size} bytes, less than any safetensors file")
    length = int.from_bytes(head, "little")
    if length > file.size - 8:
        what = f"its header would be {length} bytes long, and the file has {file.size}"
        raise Unreadable("header-length", what)
    if length > LONGEST_HEADER:
        what = f"its header is {length} bytes long; the engine refuses more than {LONGEST_HEADER}"
        raise Unreadable("header-length", what)
    return length


def limited(file: File, length: int) -> Callable[[int], bytes]:
    """Reads to the header's end and not a byte further."""
    left = length

    def read(count: int) -> bytes:
        nonlocal left
        data = file.read(min(count, left))
        left -= len(data)
        return data

    return read


def _read_header(file: File, length: int, shard: Shard) -> None:
    shard.seen.header_bytes += length
    if shard.seen.header_bytes > MOST_HEADERS:
        raise Enough(f"its headers are longer than {MOST_HEADERS >> 20} MiB together")
    try:
        for some in tensors(Members(limited(file, length))):
            shard.add(some)
    except NotJson as error:
        raise Unreadable("header-json", f"its header is no JSON: {error}") from None
    shard.close(file.size - 8 - length)
    for scale in shard.scales:
        shard.seen.scales.append(with_values(scale, file, 8 + length, shard.seen.findings))


Columns = tuple[Sequence[str], Sequence[Kind], Sequence[int], Sequence[int]]
_FIELDS = itemgetter("dtype", "shape", "data_offsets")


def columns(some: dict[str, Any]) -> Columns:
    """Names, kinds, begins and ends of tensors; raises an error where one of them is none."""
    dtypes, shapes, offsets = zip(*map(_FIELDS, some.values()), strict=True)
    begins, ends = zip(*offsets, strict=True)
    kinds = list(zip(dtypes, map(tuple, shapes), strict=True))
    counts = [count for _, shape in set(kinds) for count in shape]
    if set(map(type, (*begins, *ends, *counts))) != {int}:
        raise TypeError("a count that is no whole number")
    if min(*begins, *ends, *counts) < 0 or max(*ends, *counts, 0) >= LARGEST_NUMBER:
        raise ValueError("a count that cannot be")
    if max(len(shape) for _, shape in set(kinds)) > MOST_DIMENSIONS:
        raise ValueError("a shape that cannot be")
    if set(map(type, dtypes)) != {str} or set(map(len, some.values())) != {3}:
        raise TypeError("a key that does not belong there")
    return list(some), kinds, begins, ends


class Shard:
    """One shard while its header is read; `begins` and `ends` are stretches without a gap."""

    def __init__(self, name: str, number: int, seen: Seen) -> None:
        self.name, self.number, self.seen = name, number, seen
        self.sizes: dict[Kind, int] = {}
        self.begins, self.ends = array("q", [0]), array("q", [0])
        self.scales: list[dict[str, Any]] = []
        self.odd = 0

    def add(self, some: dict[str, Any]) -> None:
        """Count members in: all at one go where they are what they should be."""
        try:
            names, kinds, begins, ends = columns(some)
        except (KeyError, TypeError, ValueError, AttributeError):
            if len(some) > 1:
                for name, value in some.items():
                    self.add({name: value})
            else:
                self._other(*some.popitem())
            return
        self.seen.tensors += len(names)
        if self.seen.tensors > MOST_TENSORS:
            raise Enough(f"it has more than {MOST_TENSORS} tensors")
        lengths = list(map(sub, ends, begins))
        self._measure(names, kinds, lengths)
        self._stretch(begins, ends, min(lengths) >= 0)
        self._place(names)
        for number, role in self.seen.groups.add(names, kinds, lengths):
            self._scale(names[number], role, kinds[number][0], begins[number], lengths[number])

    def _measure(self, names: Sequence[str], kinds: Sequence[Kind], lengths: list[int]) -> None:
        """Whether each has the bytes that its dtype and shape need; -1 where nobody knows."""
        if len(self.sizes) > MOST_KINDS:
            self.sizes.clear()
        for kind in set(kinds).difference(self.sizes):
            if kind[0] not in BITS:
                what = f"{self.name} has tensors of dtype {shown(kind[0])}, which is not known here"
                self._wrong("dtype", "", what, "warning")
            self.sizes[kind] = prod(kind[1]) * BITS[kind[0]] // 8 if kind[0] in BITS else -1
        needed = list(map(self.sizes.__getitem__, kinds))
        if needed != lengths:
            for name, kind, need, length in zip(names, kinds, needed, lengths, strict=True):
                if need not in (length, -1):
                    what = f"{kind[0]} {plain(list(kind[1]))} needs {need} bytes and has {length}"
                    self._wrong("offsets", name, what)

    def _stretch(self, begins: Sequence[int], ends: Sequence[int], forward: bool) -> None:
        """Join tensors that follow each other, as they nearly always do."""
        if forward and begins[0] == self.ends[-1] and begins[1:] == ends[:-1]:
            self.ends[-1] = ends[-1]
            return
        for begin, end in zip(begins, ends, strict=True):
            if self.ends[-1] == begin <= end:
                self.ends[-1] = end
            else:
                self.begins.append(begin)
                self.ends.append(end)

    def _place(self, names: Sequence[str]) -> None:
        """Whether each is where the index says, and nowhere else."""
        places, expected = self.seen.places, self.number if self.seen.has_index else None
        hashes = list(map(hash, names))
        said = list(map(places.get, hashes))
        places.update(zip(hashes, repeat(~self.number)))
        if said.count(expected) != len(said):
            for name, number in zip(names, said, strict=True):
                if number != expected:
                    self._misplaced(name, number)

    def _misplaced(self, name: str, said: int | None) -> None:
        if said is None:
            self._wrong("not-in-index", name, "the index does not name it", "warning")
        elif said < 0:
            self._wrong("duplicate", name, f"it is in {self.seen.files[~said]} as well")
            if said == ~self.number:
                self._is_odd("many of its tensors are there twice")
        else:
            self._wrong("index", name, f"the index says that it is in {self.seen.files[said]}")

    def _scale(self, name: str, role: tuple[str, str], dtype: str, begin: int, length: int) -> None:
        if len(self.seen.scales) + len(self.scales) < MOST_SCALES:
            named = {"name": shown(name), "file": self.name, "role": role[0], "form": role[1]}
            placed = {"layer": layer_of(name), "dtype": shown(dtype), "at": begin}
            self.scales.append({**named, **placed, "bytes": length})

    def _other(self, name: str, value: Any) -> None:
        """A member that is no tensor."""
        if name == "__metadata__":
            return
        self._wrong("header-json", name, f"it is no description of a tensor: {plain(value)}")
        self._is_odd("many of its members describe no tensor")

    def _is_odd(self, what: str) -> None:
        """A header with very many faults is not read to its end: it can be made to take minutes."""
        self.odd += 1
        if self.odd > MOST_ODD:
            raise Unreadable("header-json", what)

    def close(self, size: int) -> None:
        """Whether the tensors cover the data, each byte once, as the library wants it."""
        if self.odd:
            # Bytes of what is no tensor would be called bytes of nobody.
            return
        at = 0
        stretches = zip(self.begins, self.ends, strict=True)
        for begin, end in sorted(stretches):
            if begin != at:
                words = "belong to two tensors" if begin < at else "belong to no tensor"
                self._wrong("offsets", "", f"bytes {min(begin, at)} to {max(begin, at)} {words}")
            at = max(at, end)
        if at > size:
            what = f"its tensors need {at} bytes, the file holds {size} of them: it is cut short"
            self._wrong("truncated", "", what)
        elif at < size:
            self._wrong("offsets", "", f"{size - at} bytes follow its last tensor")

    def _wrong(self, kind: str, name: str, what: str, severity: str = "error") -> None:
        where = f"{self.name}: {shown(name)}" if name else self.name
        self.seen.findings.add(severity, kind, where, what)


def with_values(scale: dict[str, Any], file: File, data: int, findings: Findings) -> dict[str, Any]:
    """A scale with its numbers, and its place counted from the file's begin."""
    at, size = data + scale["at"], scale["bytes"]
    where, values = f"{scale['file']}: {scale['name']}", None
    if 0 <= size <= LARGEST_SCALE:
        read = file.read_at(at, size)
        values = numbers(scale["dtype"], read) if len(read) == size else None
    if not values:
        what = f"{size} bytes of {scale['dtype']} are no scale that can be read"
        findings.add("warning", "scale-value", where, what)
    elif any(map(isnan, values)):
        findings.add("error", "scale-value", where, "it is NaN, at which the engine stops")
    elif max(values) == inf:
        findings.add("error", "scale-value", where, "it is infinite, and the engine takes it so")
    elif min(values) <= 0:
        what = "it is not above 0, so that the engine takes it for absent"
        findings.add("warning", "scale-value", where, what)
    return {**scale, "at": at, "count": len(values or ()), **_summary(values or [])}


def _summary(values: list[float]) -> dict[str, Any]:
    """The first values; how many are exactly 1; the least and the most. None stands for NaN."""
    finite = [one for one in values if isfinite(one)]
    return {
        "values": [one if isfinite(one) else None for one in values[:SHOWN_VALUES]],
        "ones": sum(one == 1.0 for one in values),
        "least": min(finite, default=None),
        "most": max(finite, default=None),
    }
