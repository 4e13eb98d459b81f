"""The needles room: the plain texts that a line must hold before a pattern can match it.

Hundreds of patterns on each line of a large log would take hours; one look at its plain text
tells the few lines, and the few patterns, that are worth trying.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SHORTEST = 4
"""What is shorter would be in too many lines to spare any."""
# Escaped characters are carried as private ones, so that they are not taken for operators.
_SAFE = 0xE000
_GROUP = 0xE800
_INNERMOST = re.compile(
    r"\((?P<kind>\?(?:P<\w+>|[:=!]|<[=!]|[a-z]+(?=\))))?(?P<inside>[^()]*)\)(?P<maybe>[*?{])?"
)


def needles(pattern: str) -> tuple[str, ...]:
    """Plain texts in lower case of which every line that matches holds one; () = none is known.

    Groups are read from the inside out; what may be absent counts for nothing.
    """
    text = re.sub(r"\\([^\w\s])", lambda escaped: chr(_SAFE + ord(escaped[1])), pattern)
    text = re.sub(r"\\\w|\[\^?\]?[^\]]*\]", "\0", text)
    groups: dict[str, tuple[str, ...]] = {}

    def closed(found: re.Match[str]) -> str:
        name = chr(_GROUP + len(groups))
        counts = found["kind"] in (None, "?:") or found["kind"].startswith("?P<")
        certain = counts and not found["maybe"]
        groups[name] = _choices(found["inside"], groups) if certain else ()
        return name

    more = 1
    while more:
        text, more = _INNERMOST.subn(closed, text)
    return _choices(text, groups)


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds whether a line holds one of many texts, by their common beginnings."""
    known = sorted(set(texts))
    return re.compile(_tree(known) if known else r"(?!)")


def _tree(texts: Iterable[str]) -> str:
    branches: dict[str, list[str]] = {}
    for text in texts:
        if not text:
            return ""
        branches.setdefault(text[0], []).append(text[1:])
    choices = [re.escape(char) + _tree(rest) for char, rest in branches.items()]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"


def _choices(text: str, groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    found: list[str] = []
    for choice in re.sub(r"[^\0|](?:[*?]|\{[^}]*\})", "\0", text).split("|"):
        runs = re.findall("[^\\0.^$*+?{}\ue800-\uefff]+", choice)
        offers: list[tuple[str, ...]] = [("".join(map(_unsafe, run)).lower(),) for run in runs]
        offers += [groups[char] for char in choice if char in groups]
        best = max(offers, key=lambda texts: min(map(len, texts), default=0), default=())
        if min(map(len, best), default=0) < SHORTEST:
            return ()
        found += best
    return tuple(found)


def _unsafe(char: str) -> str:
    return chr(ord(char) - _SAFE) if _SAFE <= ord(char) < _SAFE + 128 else char
