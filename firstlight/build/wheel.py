"""The build room: what a wheel is, by its name, its hash, and the hosts that it fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import AfterValidator, Field

from firstlight.core.schema import Model

# The manylinux names that came before PEP 600, by the glibc that they stand for.
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_OLDEST_GLIBC_MINOR = 5


# A lock names most files once for each CPython, and each is looked at several times.
_parsed = cache(parse_wheel_filename)


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{text!r} is no sha256; it has 64 digits 0-9, a-f")
    return text


def _file_name(text: str) -> str:
    try:
        _parsed(text)
    except InvalidWheelFilename:
        raise ValueError(f"{text!r} is no name of a wheel") from None
    return text


Sha256 = Annotated[str, AfterValidator(_sha256)]
FileName = Annotated[str, AfterValidator(_file_name)]


class Wheel(Model):
    """One wheel of a lock; `size` in bytes, `index` the name of an index of the stack.

    No index means the index that the host's own pip is set up for.
    """

    name: str
    version: str
    file: FileName
    sha256: Sha256
    size: int | None = Field(default=None, ge=1)
    index: str | None = None


def says(file: str, name: str, version: str) -> bool:
    """True when a wheel's file name says that name and that version."""
    found_name, found_version, _, _ = _parsed(file)
    return found_name == canonicalize_name(name) and found_version == Version(version)


def fits(file: str, python: str, arch: str, glibc: str) -> bool:
    """True when a wheel can be installed for that CPython on such a host."""
    return not _parsed(file)[3].isdisjoint(_supported(python, arch, glibc))


@cache
def _supported(python: str, arch: str, glibc: str) -> frozenset[Tag]:
    return frozenset(supported(python, arch, glibc))


def supported(python: str, arch: str, glibc: str) -> tuple[Tag, ...]:
    """What CPython `python` ("3.11") takes on Linux with that glibc, the best tag first."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    platforms = tuple(_platforms(arch, glibc))
    # Every list is given, so that nothing is asked of the interpreter that runs us.
    own = cpython_tags((major, minor), abis=[interpreter], platforms=platforms)
    return (*own, *compatible_tags((major, minor), interpreter, platforms))


def _platforms(arch: str, glibc: str) -> Iterator[str]:
    newest = int(glibc.split(".")[1])
    for minor in range(newest, _OLDEST_GLIBC_MINOR - 1, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_{arch}"
    yield f"linux_{arch}"
