"""The words of a command line before a verb runs: one that is none is told with the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Flags = Mapping[str, bool]
"""The flags of a verb, such as `--host`; True = a value follows."""


@dataclass(frozen=True)
class Misspelt:
    """A word that is none, what it stands for, those that there are, and what shows them all."""

    word: str
    kind: str
    known: tuple[str, ...]
    shows: str


def wrong_word(argv: Sequence[str], collection: Any) -> str:
    """What to tell where `invoke` was given a verb or a flag that is none; "" where all are some.

    Its own --dry counts as none: nothing of ours heeds it, so a verb would do what it does.
    """
    if not _is_invoke(argv[0]) or not argv[1:] or argv[1].startswith("-"):
        return ""
    from invoke.parser.context import ParserContext
    from invoke.program import Program

    verbs = {
        name: _flags(ParserContext(name, args=one.get_arguments()))
        for name, one in collection.tasks.items()
    }
    own = _flags(Program().initial_context)
    wrong = misspelt(argv[1:], verbs, {name: own[name] for name in own if name != "--dry"})
    if wrong is None:
        return ""
    from firstlight.core.schema import nearest

    near = nearest(wrong.word, wrong.known)
    return f"no {wrong.kind} {wrong.word!r}{near}\n  -> `{wrong.shows}` shows them all"


def misspelt(words: Sequence[str], verbs: Mapping[str, Flags], own: Flags) -> Misspelt | None:
    """The first word that is no verb, no flag of the verb before it, none of `own`, and no value.

    What comes after `--`, or after a short flag, which may take a value, is not looked at.
    """
    flags: dict[str, bool] = {}
    verb, rest = "", iter(words)
    for word in rest:
        flag = word.partition("=")[0]
        if word == "--" or (word.startswith("-") and not word.startswith("--")):
            return None
        if not word.startswith("--"):
            if word not in verbs:
                return Misspelt(word, "verb", tuple(verbs), "invoke --list")
            verb, flags = word, {**own, **verbs[word]}
        elif flag not in flags:
            return Misspelt(flag, f"flag of {verb}", tuple(verbs[verb]), f"invoke {verb} --help")
        elif flags[flag] and "=" not in word and flag != "--help":
            next(rest, None)
    return None


def _flags(context: Any) -> Flags:
    found = {name: bool(one.takes_value) for name, one in context.flags.items()}
    return {**found, **dict.fromkeys(context.inverse_flags, False)}


def _is_invoke(program: str) -> bool:
    *_, folder, name = ("", *program.split("/"))
    return name in ("invoke", "inv") or (folder, name) == ("invoke", "__main__.py")
