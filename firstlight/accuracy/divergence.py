"""The accuracy room: where two greedy answers to one question part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN = 16


@dataclass(frozen=True)
class Divergence:
    """The first token (from 0) that is another, what came `before` it, and how each goes on."""

    at: int
    before: str
    first: str
    other: str


def divergence(first: Sequence[str], other: Sequence[str]) -> Divergence | None:
    """Where two answers part, or None for equal ones; one that ends earlier goes on with ""."""
    shared = zip(first, other, strict=False)
    ends = min(len(first), len(other))
    at = next((n for n, (a, b) in enumerate(shared) if a != b), ends)
    if at == len(first) == len(other):
        return None
    before = "".join(first[max(0, at - _SHOWN) : at])
    return Divergence(at, before, _piece(first, at), _piece(other, at))


def _piece(tokens: Sequence[str], at: int) -> str:
    return "".join(tokens[at : at + _SHOWN])
