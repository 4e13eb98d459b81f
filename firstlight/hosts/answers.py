"""The host's answers off the wire: marked lines of remote/facts.sh to values by key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_LINE = re.compile(rb"@@fact ([a-z0-9_.]{1,64}) ([0-9]{1,9}) (.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANT = {b"n": b"\n", b"r": b"\r"}
_WHOLE = re.compile(r"[0-9]{1,18}")
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})+")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Version = tuple[int, ...]


@dataclass(frozen=True)
class Answers:
    """What a host answered, by key, and what is wrong with the transmission itself."""

    values: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def one(self, key: str) -> str | None:
        """The answer without outer white space; None for no answer and for an empty one."""
        return self.values.get(key, "").strip() or None

    def lines(self, key: str) -> list[str]:
        """The answer's lines that hold something."""
        return [line for line in self.values.get(key, "").splitlines() if line.strip()]

    def words(self, key: str) -> tuple[str, ...]:
        """The answer's words."""
        return tuple(self.values.get(key, "").split())

    def yes(self, key: str) -> bool | None:
        """True for `yes`, False for another answer, None for none."""
        answer = self.one(key)
        return None if answer is None else answer == "yes"


def decode(text: bytes) -> Answers:
    """Read marked lines among whatever a login shell prints; never raises.

    A line whose length is not the announced one is damaged: it is dropped and noted. For a key
    that comes twice the first answer stands.
    """
    values: dict[str, str] = {}
    notes: list[str] = []
    for line in text.split(b"\n"):
        if not (found := _LINE.search(line)):
            continue
        key, announced = found[1].decode("ascii"), int(found[2])
        value = _ESCAPE.sub(lambda m: _MEANT.get(m[1], m[1]), found[3].rstrip(b"\r"))
        if len(value) != announced:
            notes.append(f"the answer to {key!r} arrived damaged")
        else:
            values.setdefault(key, value.decode("utf-8", "replace"))
    if "end" not in values:
        notes.append("the host's answer was cut short")
    return Answers(values, tuple(notes))


def whole(text: str | None) -> int | None:
    """A whole number that stands alone in a text, else None."""
    stripped = (text or "").strip()
    return int(stripped) if _WHOLE.fullmatch(stripped) else None


def unescaped(text: str) -> str:
    """A text without what turns colours and lines on; nvidia-smi writes that to files too."""
    return _TERMINAL.sub("", text)


def version_in(text: str | None) -> str | None:
    """The first thing in a text that looks like a version: numbers with dots between."""
    found = _VERSION.search(text or "")
    return found[0] if found else None


def numbers(version: str | None) -> Version:
    """`2.36` as (2, 36), so that versions compare; () for no version."""
    found = version_in(version)
    return tuple(int(part) for part in found.split(".")) if found else ()


def same(one: str, other: str) -> bool:
    """Equal in every part: a driver's module of 570.124.06 refuses libraries of 570.124.04."""
    return numbers(one) == numbers(other)
