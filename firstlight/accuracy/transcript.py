"""The accuracy room: a coding session of any length, told by a seeded generator.

Short texts say nothing about late positions. A session is made of turns that differ in names,
figures and order and take up what earlier turns said, as a true one does: a cache that lost
something has to show it here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

_THINGS = (
    *("parser", "cache", "router", "invoice", "session", "scheduler", "exporter", "ledger"),
    *("uploader", "catalogue", "tokenizer", "mailer", "archive", "planner", "gateway", "counter"),
)
_VERBS = (
    *("load", "merge", "render", "validate", "flush", "resolve", "encode", "rebuild"),
    *("collect", "refresh", "split", "rename", "measure", "close"),
)
_NOUNS = (
    *("rows", "headers", "limits", "offsets", "pages", "entries", "keys", "intervals"),
    *("batches", "tickets", "segments", "totals", "names", "paths"),
)
_FAULTS = (
    ("IndexError: list index out of range", "the last one is read although there is none"),
    ("KeyError: '{noun}'", "the key is missing when nothing was configured"),
    ("ValueError: {number} is not in range", "the upper bound was meant to be included"),
    ("AssertionError: {number} != {other}", "the same one is counted twice after a retry"),
    ("TimeoutError: no answer within {number} ms", "the lock is held while the disk is written"),
    ("TypeError: unsupported operand for None", "an empty answer is handed on as it is"),
)
_REQUESTS = (
    "The test for {verb}_{noun} in {path} fails. Find the cause and fix it.",
    "Since yesterday {path} is slow when it has to {verb} the {noun}. What is going on?",
    "Please make {verb}_{noun} in {path} accept {number} {noun} at once, and keep the tests green.",
    "A user says that the {thing} loses {noun} after {number} of them. Look into {path}.",
)


def session(seed: int, characters: int, files: Mapping[str, str]) -> str:
    """A coding session of `characters` characters; a longer one begins with the shorter one.

    `files` are texts by name: now and then some lines of one of them are looked at.
    """
    parts, size = [], 0
    for turn in _turns(random.Random(seed), files):
        parts.append(turn)
        size += len(turn)
        if size >= characters:
            break
    return "".join(parts)[:characters]


def _turns(draw: random.Random, files: Mapping[str, str]) -> Iterator[str]:
    done: list[str] = []
    names = sorted(files)
    while True:
        thing, verb, noun = draw.choice(_THINGS), draw.choice(_VERBS), draw.choice(_NOUNS)
        words = {
            "thing": thing,
            "verb": verb,
            "noun": noun,
            "path": f"src/{thing}/{verb}_{noun}.py",
            "number": draw.randrange(12, 980),
            "other": draw.randrange(12, 980),
            "line": draw.randrange(9, 240),
        }
        yield f"user: {draw.choice(_REQUESTS).format(**words)}\n\n"
        if done and draw.random() < 0.5:
            yield f"assistant: This looks like what we saw in {draw.choice(done)}. I check.\n\n"
        if names and draw.random() < 0.6:
            name = draw.choice(names)
            yield _read(draw, name, files[name].splitlines())
        yield _look(draw, words)
        yield _fix(draw, words)
        done.append(str(words["path"]))


def _read(draw: random.Random, name: str, lines: list[str]) -> str:
    start = draw.randrange(len(lines))
    shown, last = "\n".join(lines[start : start + 12])[:1200], min(start + 12, len(lines))
    head = f"tool: shell\ncommand: sed -n {start + 1},{last}p notes/{name}.txt\noutput:"
    return f"{head}\n{shown}\n\n"


def _look(draw: random.Random, words: dict[str, object]) -> str:
    fault, _ = draw.choice(_FAULTS)
    say = {**words, "fault": fault.format(**words), "passed": draw.randrange(3, 90)}
    return """\
tool: shell
command: python -m pytest -q tests/test_{thing}.py -k {verb}_{noun}
output:
{path}:{line}: in {verb}_{noun}
    for index, one in enumerate({noun}[:{number}]):
E   {fault}
1 failed, {passed} passed

""".format(**say)


def _fix(draw: random.Random, words: dict[str, object]) -> str:
    _, why = draw.choice(_FAULTS)
    say = {**words, "why": why, "passed": draw.randrange(4, 91), "more": draw.randrange(1, 60)}
    return """\
assistant: In line {line} of {path} {why}. I change that one place and run the tests again.

tool: edit
file: {path}
old: |
        return [{verb}(one) for one in {noun}[:{number}]]
new: |
        kept = [one for one in {noun} if one is not None]
        return [{verb}(one) for one in kept[: {number} + {more}]]

tool: shell
command: python -m pytest -q tests/test_{thing}.py
output:
{passed} passed in 0.{more}s

assistant: Done: {verb}_{noun} takes {number} {noun} and {passed} tests pass.

""".format(**say)
