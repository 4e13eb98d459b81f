"""Numbers that a person gives with a flag or in the environment: one reader for all of them."""

from __future__ import annotations

import re

from firstlight.core.words import brief
from firstlight.hosts.inventory import UnknownName

MANY = 1_000_000
# Python takes the digits of all scripts; shells, tools and people who read a plan do not.
_WHOLE = re.compile(r"[0-9]+\Z")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\Z")
_LONGEST = 18


def whole(name: str, text: str, most: int = MANY, what: str = "a whole number") -> int:
    """A whole number from 0 to `most`; raises UnknownName, which calls it `name` and `what`."""
    if not _WHOLE.match(text):
        raise UnknownName(f"{name} takes {what}; got {brief(text)}")
    digits = text.lstrip("0") or "0"
    if len(digits) > _LONGEST or int(digits) > most:
        raise UnknownName(f"{name} takes {what}, {most} at most; got {brief(text)}")
    return int(digits)


def number(name: str, text: str, most: float, what: str) -> float:
    """A number above 0 up to `most`, with or without a decimal point; raises UnknownName."""
    value = float(text) if _NUMBER.match(text) else 0.0
    if not 0 < value <= most:
        raise UnknownName(f"{name} takes {what}; got {brief(text)}")
    return value
