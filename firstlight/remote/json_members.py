"""Part of read_checkpoint.py: a large JSON object read member by member, a piece in memory.

A header of 100 MB must not become a gigabyte of Python objects, and one that somebody made to
hurt must not either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

PIECE = 1 << 18
FIRST_SPAN = 1 << 12
# One member may be this long: the free text of `__metadata__` is the longest that is real.
LONGEST = 4 << 20
_SPACE = re.compile(rb"[ \t\r\n]*")


class NotJson(Exception):
    """What is wrong with the text."""


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("an object has one key twice")
    return found


DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_pairs)


class Members:
    """Text that comes by `read(count)`, which gives b"" at its end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held, self._at = b"", 0
        # Up to here members are read one by one.
        self._stuck = -1

    def _more(self) -> bool:
        piece = self._read(PIECE)
        if piece:
            self._stuck = max(self._stuck - self._at, -1)
            self._held, self._at = self._held[self._at :] + piece, 0
        return bool(piece)

    def _left(self) -> int:
        return len(self._held) - self._at

    def peek(self) -> bytes:
        """The next byte that is no space, or b"" at the end."""
        while True:
            space = _SPACE.match(self._held, self._at)
            self._at = space.end() if space else self._at
            if self._left():
                return self._held[self._at : self._at + 1]
            if not self._more():
                return b""

    def take(self, wanted: bytes) -> bytes:
        """Take one of the bytes that are wanted here."""
        found = self.peek()
        if not found or found not in wanted:
            got = repr(found.decode("latin-1")) if found else "its end"
            signs = " or ".join(chr(one) for one in wanted)
            raise NotJson(f"{signs} is expected where {got} stands")
        self._at += 1
        return found

    def many(self, sign: bytes, quotes: int) -> dict[str, Any]:
        """Members that are in memory, up to the last `sign` (`},` or `",`), read at one go.

        None where that is not the end of a member, or where a name is there twice: each member
        has as many quotes (less those that are escaped) as it should. They are read one by one.
        """
        while self._left() < PIECE and self._more():
            pass
        cut = self._held.rfind(sign, self._at)
        if cut <= self._stuck:
            return {}
        text = self._held[self._at : cut + 1]
        try:
            found = json.loads(b"{%b}" % text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            found = {}
        if not found or text.count(b'"') != quotes * len(found):
            self._stuck = cut
            return {}
        self._at = cut + 2
        return dict(found)

    def value(self, longest: int = LONGEST) -> Any:
        """The next value, whatever it is, if it is not longer than that many bytes."""
        self.peek()
        span = min(FIRST_SPAN, longest)
        while True:
            while self._left() < span and self._more():
                pass
            piece = self._held[self._at : self._at + span]
            text = piece.decode("utf-8", "surrogateescape")
            last = len(piece) < span or span == longest
            try:
                value, end = DECODER.raw_decode(text)
            except RecursionError:
                raise NotJson("it is nested too deeply") from None
            except ValueError as error:
                if last:
                    raise NotJson(_words(error, len(piece) == longest)) from None
            else:
                # A number that ends with the span may go on behind it.
                if end < len(text) or last:
                    self._at += len(text[:end].encode("utf-8", "surrogateescape"))
                    return value
            span = min(span * 8, longest)

    def key(self) -> str:
        """The name of the next member, and its colon."""
        found = self.value(1 << 16)
        if not isinstance(found, str):
            raise NotJson(f"a name is expected where {str(found)[:40]!r} stands")
        self.take(b":")
        return found

    def end(self) -> None:
        """Nothing but spaces may follow."""
        if found := self.peek():
            raise NotJson(f"{found.decode('latin-1')!r} follows its end")


def _words(error: ValueError, cut: bool) -> str:
    if cut:
        return "a member has no end, or is longer than any real one"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def members(text: Members, sign: bytes, quotes: int) -> Iterator[dict[str, Any]]:
    """An object's members, many at a time; a name that is there twice comes twice."""
    text.take(b"{")
    if text.peek() == b"}":
        text.take(b"}")
        return
    while True:
        # The first one by itself: it is often metadata, unlike all that follow.
        yield {text.key(): text.value()}
        if text.take(b",}") == b"}":
            return
        while some := text.many(sign, quotes):
            yield some


def tensors(text: Members) -> Iterator[dict[str, Any]]:
    """The members of a safetensors header; a tensor has 10 quotes."""
    yield from members(text, b"},", 10)
    text.end()


def pairs(text: Members) -> Iterator[dict[str, Any]]:
    """Shards by name of tensor, as an index has them; what else is in it is passed over."""
    text.take(b"{")
    more = text.peek() != b"}"
    while more:
        if text.key() == "weight_map" and text.peek() == b"{":
            yield from members(text, b'",', 4)
        else:
            text.value()
        more = text.take(b",}") == b","
    text.end()
