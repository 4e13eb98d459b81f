"""Remote program: are two wheels the same bytes, and if not, which member and ELF section differ.

    PYTHONPATH=pyelftools-*.whl compare_wheels.py A.whl B.whl

Prints JSON: `equal`, the sha256 of both, and for wheels that differ each member with what differs
(missing, mtime, mode, zip, content), the sections of its ELF file, and the likely cause in words.
Exit status: 0 equal, 1 different, 2 they cannot be compared.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16
_EXCERPT = 24
# What of a member's zip entry is compared beside its time and mode.
_ZIP_FIELDS = ("compress_type", "compress_size", "create_system", "flag_bits", "extra", "comment")

EPOCH = "set SOURCE_DATE_EPOCH, so that every member gets that time"
UMASK = "the umask or the owner of the build: set one umask for both"
ZIPPED = "packed by another zip program or zlib: pack both with one Python"
ORDER = "members come in the order in which the folder was listed: pack them sorted"
RECORD = "RECORD holds the hashes of the other members: it follows them"
ONLY_ONE = "one build made a file that the other did not: see its log"
TMPXFT = "nvcc's temporary names (tmpxft_<pid>) in the symbol table: strip (LDFLAGS=-Wl,-s)"
SYMBOLS = "symbols or debug information, which name where it was built: strip (LDFLAGS=-Wl,-s)"
BUILD_PATH = (
    "nvcc and __FILE__ put the absolute build path into the code: build both at one fixed path"
)
BUILD_ID = "the build id digests all the rest: it follows"
FOLLOWS = "offsets in the headers follow the sizes of the sections"

_SYMBOL_SECTIONS = (".strtab", ".symtab", ".shstrtab", ".debug", ".gnu_debug")
_PATH_SECTIONS = (".nv_fatbin", ".rodata", ".nvFatBinSegment")


class Fault(Exception):
    """Two files that cannot be compared, and what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True)
class Section:
    """A part of two ELF files that differs; `size` in bytes, `offset` from the part's begin."""

    name: str
    size: tuple[int, int]
    offset: int
    shown: tuple[str, str]
    cause: str


@dataclass(frozen=True)
class Difference:
    """A member that differs, and in what; `sections` is None where it is no pair of ELF files."""

    member: str
    differs: tuple[str, ...]
    cause: str
    size: tuple[int, int] | None = None
    offset: int | None = None
    shown: tuple[str, str] | None = None
    sections: tuple[Section, ...] | None = None


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def first_difference(one: bytes, two: bytes) -> int | None:
    """The first offset at which two byte strings differ; one that is longer differs at its end."""
    for start in range(0, min(len(one), len(two)), _CHUNK):
        left, right = one[start : start + _CHUNK], two[start : start + _CHUNK]
        if left == right:
            continue
        near = (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
        return start + next(near, min(len(left), len(right)))
    return None if len(one) == len(two) else min(len(one), len(two))


def excerpt(data: bytes, offset: int) -> str:
    """The printable text around an offset, from the last byte before it that is none."""
    piece = data[max(0, offset - _EXCERPT) : offset]
    begin = max((n + 1 for n, byte in enumerate(piece) if not 32 <= byte < 127), default=0)
    after = data[offset : offset + 2 * _EXCERPT]
    end = next((n for n, byte in enumerate(after) if not 32 <= byte < 127), len(after))
    return (piece[begin:] + after[:end]).decode("ascii")


def pair(one: bytes, two: bytes, offset: int) -> tuple[str, str]:
    return excerpt(one, offset), excerpt(two, offset)


def sections(data: bytes) -> dict[str, bytes]:
    """The bytes of each section of an ELF file that has some; a name met again gets a number."""
    from elftools.elf.elffile import ELFFile

    found: dict[str, bytes] = {}
    met: Counter[str] = Counter()
    for section in ELFFile(io.BytesIO(data)).iter_sections():
        if section["sh_type"] in ("SHT_NULL", "SHT_NOBITS"):
            continue
        met[section.name] += 1
        again = f" ({met[section.name]})" if met[section.name] > 1 else ""
        begin = section["sh_offset"]
        found[section.name + again] = data[begin : begin + section["sh_size"]]
    return found


def compare_elf(one: bytes, two: bytes) -> tuple[Section, ...] | None:
    """The sections that differ; when none does, the headers do. None for damaged ELF files."""
    from elftools.common.exceptions import ELFError

    try:
        left, right = sections(one), sections(two)
    except ELFError:
        return None
    found = []
    for name in (*left, *(name for name in right if name not in left)):
        a, b = left.get(name, b""), right.get(name, b"")
        offset = first_difference(a, b)
        if offset is not None:
            cause = section_cause(name, a, b)
            found.append(Section(name, (len(a), len(b)), offset, pair(a, b, offset), cause))
    if not found:
        offset = first_difference(one, two) or 0
        found.append(Section("headers", (len(one), len(two)), offset, ("", ""), FOLLOWS))
    return tuple(found)


def section_cause(name: str, one: bytes, two: bytes) -> str:
    if name.startswith(_SYMBOL_SECTIONS):
        return TMPXFT if b"tmpxft_" in one and b"tmpxft_" in two else SYMBOLS
    if name == ".note.gnu.build-id":
        return BUILD_ID
    return BUILD_PATH if name.startswith(_PATH_SECTIONS) else ""


def elf_cause(found: tuple[Section, ...]) -> str:
    """What explains most: the path changes symbols too, so that it is named before them.

    A build id that differs alone was made of what has been stripped since: paths again.
    """
    causes = {section.cause for section in found}
    if causes == {BUILD_ID}:
        return BUILD_PATH
    return next((cause for cause in (BUILD_PATH, TMPXFT, SYMBOLS, FOLLOWS) if cause in causes), "")


def compare_content(name: str, one: bytes, two: bytes) -> dict[str, Any]:
    """What of a member's bytes differs: {} for nothing."""
    offset = first_difference(one, two)
    if offset is None:
        return {}
    found: dict[str, Any] = {"size": (len(one), len(two)), "offset": offset}
    found |= {"shown": pair(one, two, offset), "cause": ""}
    if one[:4] == two[:4] == b"\x7fELF":
        found["sections"] = parts = compare_elf(one, two)
        found["cause"] = elf_cause(parts or ())
    elif name.endswith(".dist-info/RECORD"):
        found["cause"] = RECORD if sorted(one.split()) != sorted(two.split()) else ORDER
    return found


def compare_member(one: zipfile.ZipFile, two: zipfile.ZipFile, name: str) -> Difference | None:
    a, b = one.getinfo(name), two.getinfo(name)
    content = compare_content(name, one.read(a), two.read(b))
    differs = {
        "content": bool(content),
        "mtime": a.date_time != b.date_time,
        "mode": a.external_attr != b.external_attr,
    }
    if not content:
        differs["zip"] = any(getattr(a, key) != getattr(b, key) for key in _ZIP_FIELDS)
    words = tuple(word for word, is_so in differs.items() if is_so)
    if not words:
        return None
    plain = {"content": "", "mtime": EPOCH, "mode": UMASK, "zip": ZIPPED}
    cause = content.pop("cause", "") or next(filter(None, map(plain.__getitem__, words)), "")
    return Difference(name, words, cause, **content)


def differences(one: zipfile.ZipFile, two: zipfile.ZipFile) -> Iterator[Difference]:
    """Every member that differs, in the order of the first wheel; then what only one has."""
    left, right = dict.fromkeys(one.namelist()), dict.fromkeys(two.namelist())
    for name in left:
        if name in right:
            found = compare_member(one, two, name)
            if found is not None:
                yield found
    for name in left | right:
        if name not in left or name not in right:
            where = "missing in b" if name in left else "missing in a"
            yield Difference(name, (where,), ONLY_ONE)
    ours = [name for name in left if name in right]
    theirs = [name for name in right if name in left]
    yield from order(ours, theirs)


def order(ours: list[str], theirs: list[str]) -> Iterator[Difference]:
    """The first member that stands at another place among those that both wheels have."""
    for a, b in zip(ours, theirs, strict=True):
        if a != b:
            yield Difference(a, ("order",), ORDER, shown=(a, b))
            return


def compare(one: Path, two: Path) -> dict[str, Any]:
    """Everything that is printed."""
    digests = sha256(one), sha256(two)
    if digests[0] == digests[1]:
        return {"equal": True, "sha256": digests[0]}
    with zipfile.ZipFile(one) as a, zipfile.ZipFile(two) as b:
        found = [asdict(difference) for difference in differences(a, b)]
    return {"equal": False, "sha256": digests, "differences": found}


def main(argv: list[str]) -> int:
    try:
        if len(argv) != 2:
            raise Fault("two wheels are compared", "give A.whl B.whl")
        try:
            told = compare(Path(argv[0]), Path(argv[1]))
        except ModuleNotFoundError:
            what = "an ELF file differs, and pyelftools is not there to read it"
            raise Fault(what, "put the wheel of pyelftools on PYTHONPATH") from None
        except zipfile.BadZipFile as bad:
            raise Fault(f"{' or '.join(argv)} is no wheel: {bad}", "build it again") from None
        except OSError as bad:
            raise Fault(f"{bad.filename}: {bad.strerror}", "check that path") from None
    except Fault as fault:
        print(f"error: {fault}\nfix: {fault.fix}", file=sys.stderr)
        return 2
    print(json.dumps(told, indent=2))
    return 0 if told["equal"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
