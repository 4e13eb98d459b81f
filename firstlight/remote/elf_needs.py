"""Beside a remote program: what an ELF library is, what it needs of others, what it gives them.

    PYTHONPATH=pyelftools-*.whl

pyelftools reads the structure; the symbol table, of which torch has hundreds of thousands of
entries, is read here. Files are mapped, never loaded.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, cast

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import Section as ElfSection

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_VERSION_IS_WEAK = 0x2
_MOST_SECTIONS = 1 << 16
# The largest library that is known (1.1 GB, thousands of kernels) takes two seconds.
_PATIENCE_S = 120


class Damaged(Exception):
    """A file that is no ELF library, or a broken one."""


@dataclass(frozen=True)
class Section:
    """A part of the file, by its offset and size in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Library:
    """What the dynamic linker reads of a library; symbols as they are in the file, mangled.

    `undefined` leaves weak ones out; `requires` are (library, version) that must be there, like
    (libc.so.6, GLIBC_2.34); `defines` the versions that it has itself.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    requires: tuple[tuple[str, str], ...]
    defines: frozenset[str]
    undefined: frozenset[bytes]
    sections: tuple[Section, ...]

    def newest(self, prefix: str) -> str:
        """The highest version asked for of `GLIBC` or `GLIBCXX`, like "2.34"; "" for none."""
        pattern = re.compile(rf"{prefix}_(\d+(?:\.\d+)*)")
        found = [m[1] for _, version in self.requires if (m := pattern.fullmatch(version))]
        return max(found, key=numbers, default="")


def numbers(version: str) -> tuple[int, ...]:
    """`2.34` as numbers that can be compared."""
    return tuple(int(part) for part in version.split("."))


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file, read as they are looked at; raises Damaged for an empty one."""
    with path.open("rb") as stream:
        if not path.stat().st_size:
            raise Damaged("it is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def read(data: mmap.mmap) -> Library:
    """A library; raises Damaged for anything that cannot be read as one."""
    with _guarded():
        elf = _opened(data)
        sections = list(elf.iter_sections())
        if not sections:
            raise Damaged("it has no section headers, so what it holds cannot be read")
        _check_bounds(sections, len(data))
        tags = [tag for segment in _dynamic(elf) for tag in segment.iter_tags()]
        strings = {
            key: tuple(getattr(tag, key) for tag in tags if hasattr(tag, key))
            for key in ("needed", "soname", "rpath", "runpath")
        }
        paths = (*strings["rpath"], *strings["runpath"])
        return Library(
            machine=_MACHINES.get(str(elf["e_machine"]), str(elf["e_machine"])),
            soname="".join(strings["soname"][:1]),
            needed=strings["needed"],
            rpath=tuple(folder for text in paths for folder in text.split(":") if folder),
            requires=tuple(sorted(set(_requires(sections)))),
            defines=frozenset(_defines(sections)),
            undefined=frozenset(_undefined(data, elf)),
            sections=tuple(Section(s.name, s["sh_offset"], _size(s)) for s in sections),
        )


def provided(data: mmap.mmap, wanted: frozenset[bytes]) -> frozenset[bytes]:
    """Which of the wanted symbols a library defines for others."""
    with _guarded():
        found = _symbols(data, _opened(data))
        return frozenset(name for name, _, defined in found if defined and name in wanted)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Damaged for whatever a parser does with broken bytes: any exception, or no end."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Damaged(f"it cannot be read within {_PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    left = signal.alarm(_PATIENCE_S)
    try:
        yield
    except (Damaged, OSError):
        raise
    except Exception as error:
        # pyelftools checks little: a wrong offset ends as any of a dozen exceptions.
        raise Damaged(f"it is truncated or damaged ({error or type(error).__name__})") from error
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.alarm(left)


def _opened(data: mmap.mmap) -> ELFFile:
    if data[:4] != b"\x7fELF":
        raise Damaged("it is no ELF file")
    elf = ELFFile(cast(IO[bytes], data))
    if elf.elfclass != 64 or not elf.little_endian:
        raise Damaged("it is no 64-bit little-endian ELF file")
    if elf.num_sections() > _MOST_SECTIONS or elf.num_segments() > _MOST_SECTIONS:
        raise Damaged("it is damaged: its header counts more sections than there can be")
    return elf


def _dynamic(elf: ELFFile) -> Iterator[DynamicSegment]:
    return (segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment))


def _check_bounds(sections: list[ElfSection], size: int) -> None:
    for section in sections:
        if section["sh_offset"] + _size(section) > size:
            raise Damaged(f"it is truncated: section {section.name} ends beyond the file's end")


def _size(section: ElfSection) -> int:
    return 0 if section["sh_type"] in ("SHT_NOBITS", "SHT_NULL") else int(section["sh_size"])


def _requires(sections: list[ElfSection]) -> Iterator[tuple[str, str]]:
    for section in sections:
        if isinstance(section, GNUVerNeedSection):
            for file, versions in section.iter_versions():
                for version in versions:
                    if not version["vna_flags"] & _VERSION_IS_WEAK:
                        yield str(file.name), str(version.name)


def _defines(sections: list[ElfSection]) -> Iterator[str]:
    for section in sections:
        if isinstance(section, GNUVerDefSection):
            for _, names in section.iter_versions():
                yield str(next(iter(names)).name)


def _undefined(data: mmap.mmap, elf: ELFFile) -> Iterator[bytes]:
    found = _symbols(data, elf)
    return (name for name, binding, defined in found if not defined and binding != _WEAK)


def _symbols(data: mmap.mmap, elf: ELFFile) -> Iterator[tuple[bytes, int, bool]]:
    """Name, binding and "defined here" of every dynamic symbol that is not local."""
    for section in elf.iter_sections(type="SHT_DYNSYM"):
        _check_bounds([section], len(data))
        table = elf.get_section(section["sh_link"])
        names = data[table["sh_offset"] : table["sh_offset"] + table["sh_size"]]
        begin, count = section["sh_offset"], section["sh_size"] // _SYMBOL.size
        rows = data[begin : begin + count * _SYMBOL.size]
        for at, info, _, place, _, _ in _SYMBOL.iter_unpack(rows):
            if info >> 4 in (_GLOBAL, _WEAK, _UNIQUE):
                yield names[at : names.index(b"\0", at)], info >> 4, place != 0
