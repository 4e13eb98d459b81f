"""The citing room: which words of a log's line are no one's error: a user's text, a quotation."""

from __future__ import annotations

import re
from collections.abc import Iterator


def is_request(line: str) -> bool:
    """True for a line of a server's log of requests: it holds what users wrote."""
    return bool(_REQUEST.match(line))


def is_cited(line: str, start: int, end: int) -> bool:
    """True when those characters of a plain line are a user's text, or words that it quotes."""
    return any(first <= start and end <= last for first, last in _spans(line))


def uncited(line: str) -> str:
    """A plain line without what it cites."""
    for first, last in reversed([*_spans(line)]):
        line = line[:first] + line[last:]
    return line


# SGLang's log of requests, as text and as JSON, and those of vLLM.
_REQUEST = re.compile(
    r"(?:Receive|Finish): obj=|Received request\b|Finished? request\b"
    r"|\{.*\"event\": ?\"request\."
)
_USERS = re.compile(
    r"\b(?:text|prompts?|input_text|content)[\"']?(?: ?[:=] ?)\[?[\"']", re.IGNORECASE
)
# What a sentence quotes; a tool's own quotes stand behind a colon or an equals sign. The quotes of
# GNU are no pair: `this'.
_QUOTED = re.compile(
    r"`[^`']+`|(?:(?<=^)|(?<=[\w,] )|(?<=\())(?:\"[^\"]+\"|'[^']+')(?=[\s,.;:)]|$)"
)
# A line that calls something wrong in its own words quotes what was wrong.
_BLAMES = re.compile(
    r"\w*(?:Error|Exception)\b|\b(?:error|fatal|critical)s?\b *:|^\W*(?:error|fatal)\b"
    r"|\b(?:failed|killed|cannot|could not|unable|panicked|due to)\b",
    re.IGNORECASE,
)


def _spans(line: str) -> Iterator[tuple[int, int]]:
    """Where a line cites, in order."""
    if is_request(line):
        yield 0, len(line)
        return
    users = _USERS.search(line)
    own = line[: users.start()] if users else line
    if not _BLAMES.search(_QUOTED.sub("", own)):
        yield from (found.span() for found in _QUOTED.finditer(own))
    if users:
        yield users.start(), len(line)
