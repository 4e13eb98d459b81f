"""Beside a remote program: a wheel as a zip file, read member by member, whatever it claims.

Nothing is unpacked under a name that the wheel chose, and no member is held in memory.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import hashlib
import io
import lzma
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import IO

from wheel_rules import Fault, WheelName, normal

_CHUNK = 1 << 20
_MOST_BYTES = 64 << 30
_MOST_TEXT = 16 << 20
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_LIBRARY = re.compile(r"\.so(\.\d+)*\Z")
# What zipfile raises for a member whose bytes are not what its header says.
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_BROKEN_TOO = (RuntimeError, ValueError, OverflowError)

Digests = dict[str, tuple[str, int]]


class Unreadable(Exception):
    """Nothing can be said of this wheel, and what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class Broken(Exception):
    """One member that cannot be unpacked."""


@contextlib.contextmanager
def opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel as a zip file; raises Unreadable."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except OSError as error:
        if error.errno == errno.ENOSPC:
            where = tempfile.gettempdir()
            raise Unreadable(f"no space in {where}", "make room, or set TMPDIR") from None
        raise Unreadable(
            f"{error.filename or wheel}: {error.strerror}", "check that path"
        ) from None
    except (*_BROKEN, *_BROKEN_TOO) as error:
        raise Unreadable(f"it is no zip file: {error}", "fetch or build it again") from None


def is_library(name: str) -> bool:
    return bool(_LIBRARY.search(name))


def members(archive: zipfile.ZipFile, faults: list[Fault]) -> list[zipfile.ZipInfo]:
    """The files that are safe to read; what is wrong with the others goes into `faults`."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    if sum(info.file_size for info in files) > _MOST_BYTES:
        what = f"it claims to unpack to more than {_MOST_BYTES >> 30} GiB"
        raise Unreadable(what, "it is damaged or hostile: fetch or build it again")
    for name, count in Counter(info.filename for info in files).items():
        if count > 1:
            faults.append(Fault("archive", name, f"it is in the wheel {count} times"))
        if unsafe := _unsafe(name):
            faults.append(Fault("archive", name, unsafe))
    for info in files:
        if stat.S_ISLNK(info.external_attr >> 16):
            faults.append(Fault("archive", info.filename, "it is a link, which wheels cannot hold"))
    return files


def _unsafe(name: str) -> str:
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name):
        return "its name leads out of the folder where the wheel is installed"
    return "" if name.isprintable() else "its name has characters that cannot be printed"


def copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, sink: IO[bytes] | None) -> str:
    """Read a member to its end, into `sink` where there is one; its digest as RECORD writes it."""
    digest, size = hashlib.sha256(), 0
    try:
        with archive.open(info) as source:
            while piece := source.read(_CHUNK):
                digest.update(piece)
                size += len(piece)
                if sink is not None:
                    sink.write(piece)
    except (*_BROKEN, *_BROKEN_TOO) as error:
        raise Broken(f"it cannot be unpacked: {error}") from None
    if size != info.file_size:
        raise Broken(f"it cannot be unpacked: it has {size} bytes and claims {info.file_size}")
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


@contextlib.contextmanager
def unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[tuple[Path, str]]:
    """A member as a file of ours for as long as it is looked at, and its digest."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if info.file_size > free:
        where, needed = tempfile.gettempdir(), info.file_size >> 20
        what = f"no space in {where}: {info.filename} needs {needed} MiB, {free >> 20} are free"
        raise Unreadable(what, "make room there, or set TMPDIR")
    with tempfile.NamedTemporaryFile(prefix="verify-wheel-") as sink:
        digest = copy(archive, info, sink)
        sink.flush()
        yield Path(sink.name), digest


def text(archive: zipfile.ZipFile, name: str) -> str | None:
    """A text of the wheel, None where there is none; raises Broken."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    if info.file_size > _MOST_TEXT:
        raise Broken(f"it has {info.file_size} bytes, which is absurd")
    sink = io.BytesIO()
    copy(archive, info, sink)
    return sink.getvalue().decode("utf-8", "replace")


def check_record(archive: zipfile.ZipFile, info: str, found: Digests) -> Iterator[Fault]:
    """Whether RECORD lists every file with its sha256 and size, and no other."""
    record = f"{info}/RECORD"
    try:
        lines = text(archive, record)
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(lines or "")) if row}
    except (Broken, csv.Error) as error:
        yield Fault("record", record, str(error))
        return
    if lines is None:
        yield Fault("record", record, "the wheel has none")
        return
    exempt = {f"{info}/{name}" for name in ("RECORD", *_SIGNATURES)}
    for name, (digest, size) in found.items():
        if name not in exempt and (wrong := _unlike(rows.get(name), digest, size)):
            yield Fault("record", name, wrong)
    for name in sorted(set(rows) - set(found) - exempt):
        yield Fault("record", name, "RECORD lists it, and the wheel has no such file")


def _unlike(row: list[str] | None, digest: str, size: int) -> str:
    if row is None:
        return "RECORD does not list it"
    kind, _, listed = (row[0] if row else "").partition("=")
    if kind != "sha256":
        return f"RECORD gives {kind or 'no hash'} where sha256 is asked for"
    if listed != digest:
        return "RECORD gives another sha256: it was changed after the wheel was built"
    return "" if row[1:] in ([str(size)], [""], []) else f"RECORD gives {row[1]} bytes, not {size}"


def check_metadata(archive: zipfile.ZipFile, name: WheelName) -> Iterator[Fault]:
    """Whether METADATA says the name and version that the file name says, and WHEEL its tags."""
    place = f"{name.info}/METADATA"
    head = headers(archive, place)
    if not head:
        yield Fault("metadata", place, "the wheel has none that can be read")
        return
    said = (normal(" ".join(head.get("name", []))), " ".join(head.get("version", [])).lower())
    if said != (normal(name.name), name.version.lower()):
        what = f"it says {said[0]} {said[1]}, the file name {normal(name.name)} {name.version}"
        yield Fault("metadata", place, what)


def headers(archive: zipfile.ZipFile, place: str) -> Mapping[str, list[str]]:
    """The fields of METADATA or WHEEL by name, lower case; empty where it cannot be read."""
    try:
        lines = text(archive, place)
    except Broken:
        return {}
    found: dict[str, list[str]] = {}
    for key, value in HeaderParser().parsestr(lines or "").items():
        found.setdefault(key.lower(), []).append(str(value).strip())
    return found
