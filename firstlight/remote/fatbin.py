"""Beside a remote program: which GPU targets a fatbin holds, read from its headers alone.

nvcc puts the GPU code of a library into the ELF section `.nv_fatbin`, that of an object for a
later device link into `__nv_relfatbin`. A section is a row of containers, a container a row of
entries, each with its architecture and flags. The flags tell sm_120, sm_120a and sm_120f apart,
which `cuobjdump` does not. Layouts as in nvcc 13.0; offsets and sizes in bytes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

LINKED = ".nv_fatbin"
RELOCATABLE = "__nv_relfatbin"

_MAGIC = struct.pack("<I", 0xBA55ED50)
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ12xI8xQ")  # kind, version, header, payload; architecture; flags
_KINDS = {1: "ptx", 2: "sass", 8: "lto"}
_SUFFIXES = ((0x100000, "a"), (0x200000, "f"))
_COMPRESSION = ((0x8000, "zstd"), (0x2000, "lz4"))
_WORDS = {"sass": "sm", "ptx": "compute"}
_MOST = 1_000_000

_ELF_SECTIONS = struct.Struct("<40xQ10xHH")  # of an ELF64 header: offset, entry size, count
_SECTION_FLAGS = struct.Struct("<8xQ")
_EXECUTABLE = 0x4

Data = bytes | mmap.mmap


class Malformed(Exception):
    """Bytes that are no fatbin, or only the beginning of one."""


@dataclass(frozen=True)
class Entry:
    """One piece of GPU code. `empty`: a cubin without code, as every device link leaves one."""

    kind: str
    target: str
    compression: str
    size: int
    empty: bool = False


def entries(data: Data, begin: int, end: int) -> Iterator[Entry]:
    """Every entry of every container between two offsets; raises Malformed."""
    if not 0 <= begin <= end <= len(data):
        raise Malformed(f"a fatbin from {begin} to {end} in a file of {len(data)} bytes")
    at, seen = _next(data, begin, begin, end), 0
    if at < 0 < end - begin:
        raise Malformed(f"{end - begin} bytes for a fatbin, and none begins there")
    while at >= 0:
        _, _, header, size = _unpacked(_CONTAINER, data, at, end, "container")
        stop = at + header + size
        if header < _CONTAINER.size or stop > end:
            raise Malformed(f"a container at {at} says {size} bytes; {end - at} are left")
        for entry in _in_container(data, at + header, stop):
            yield entry
            seen += 1
        seen += 1
        if seen > _MOST:
            raise Malformed(f"more than {_MOST} entries")
        at = _next(data, stop, begin, end)


def _in_container(data: Data, at: int, stop: int) -> Iterator[Entry]:
    while at < stop:
        kind, _, header, size, architecture, flags = _unpacked(_ENTRY, data, at, stop, "entry")
        if header < _ENTRY.size or at + header + size > stop:
            raise Malformed(f"an entry at {at} says {header} + {size} bytes; {stop - at} are left")
        name = _KINDS.get(kind, f"kind{kind}")
        suffix = _flagged(_SUFFIXES, flags)
        compression = _flagged(_COMPRESSION, flags) or "none"
        empty = name == "sass" and compression == "none" and not _has_code(data, at + header, size)
        target = f"{_WORDS.get(name, name)}_{architecture}{suffix}"
        yield Entry(name, target, compression, size, empty)
        at += header + size


def _has_code(data: Data, at: int, size: int) -> bool:
    """True when a cubin (an ELF file) has a section with instructions."""
    end = at + size
    if data[at : at + 4] != b"\x7fELF":
        raise Malformed(f"the machine code at {at} is no cubin")
    table, step, count = _unpacked(_ELF_SECTIONS, data, at, end, "cubin")
    if count and (step < 16 or table + step * count > size):
        raise Malformed(f"a cubin at {at} is cut short")
    places = range(at + table, at + table + step * count, max(step, 1))
    return any(_SECTION_FLAGS.unpack_from(data, place)[0] & _EXECUTABLE for place in places)


def _next(data: Data, at: int, begin: int, end: int) -> int:
    """Where the next container begins, past any padding; -1 for none."""
    while (at := data.find(_MAGIC, at, end)) >= 0 and (at - begin) % 8:
        at += 1
    return at


def _unpacked(form: struct.Struct, data: Data, at: int, end: int, what: str) -> tuple[int, ...]:
    if at + form.size > end:
        raise Malformed(f"the header of the {what} at {at} is cut short")
    return form.unpack_from(data, at)


def _flagged(names: tuple[tuple[int, str], ...], flags: int) -> str:
    return next((name for flag, name in names if flags & flag), "")
