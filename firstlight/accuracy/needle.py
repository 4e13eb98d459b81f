"""The accuracy room: a fact laid at some depth of a long text, and asked for at its end."""

from __future__ import annotations

import random
from dataclasses import dataclass

DEPTHS = (0.1, 0.5, 0.9)
_PLACES = ("lighthouse", "observatory", "granary", "foundry", "library", "boathouse", "mill")
_SIDES = ("northern", "eastern", "southern", "western", "upper", "lower", "old")
TOKENS = 16
"""Enough for a code of five digits, however a tokenizer splits it."""


@dataclass(frozen=True)
class Needle:
    """A text to be continued, and the code that must come."""

    prompt: str
    code: str


def needle(text: str, depth: float, seed: int) -> Needle:
    """`text` with a fact laid at `depth` (0 begin, 1 end) of it, between two of its lines, and a
    last sentence that only the fact completes."""
    draw = random.Random(seed)
    code = str(draw.randrange(10_000, 100_000))
    what = f"The access code of the {draw.choice(_SIDES)} {draw.choice(_PLACES)} is"
    at = _line_break(text, round(len(text) * depth))
    laid = f"{text[:at]}\n{what} {code}.\n\n{text[at:]}"
    return Needle(f"{laid.rstrip()}\n\nI was asked for one code. {what}", code)


def found(needle: Needle, said: str) -> bool:
    """The first number of what the server went on with is the code."""
    digits = "".join(one if one.isdigit() else " " for one in said).split()
    return bool(digits) and digits[0] == needle.code


def _line_break(text: str, at: int) -> int:
    after = text.find("\n\n", at)
    return len(text) if after < 0 else after + 1
