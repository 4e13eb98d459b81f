"""The words of a command line before a verb runs: one that is none is told with the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Flags = Mapping[str, bool]
"""The flags of a verb, such as `--host`; True = a value follows."""


@dataclass(frozen=True)
class Misspelt:
    """A word that is none, what it stands for, those that there are, and what to do."""

    word: str
    kind: str
    known: tuple[str, ...]
    remedy: str


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
    return f"no {wrong.kind} {wrong.word!r}{near}\n  -> {wrong.remedy}"


def misspelt(words: Sequence[str], verbs: Mapping[str, Flags], own: Flags) -> Misspelt | None:
    """The first word that is no verb, no flag of the verb before it, none of `own`, and no value.

    A flag that takes a value and ends the line is one as well. What comes after `--`, or after a
    short flag, which may take a value, is not looked at.
    """
    flags: dict[str, bool] = {}
    verb, rest = "", iter(words)
    for word in rest:
        flag = word.partition("=")[0]
        if word == "--" or (not word.startswith("--") and word[:2] in own):
            return None
        if not word.startswith("-"):
            if word not in verbs:
                return Misspelt(word, "verb", tuple(verbs), _for_verbs(verb))
            verb, flags = word, {**own, **verbs[word]}
        elif flag not in flags:
            known, shown = tuple(verbs[verb]), f"`invoke {verb} --help` shows them all"
            return Misspelt(flag, f"flag of {verb}", known, shown)
        elif "=" in word and not flags[flag]:
            return Misspelt(word, "value for", (), f"say `{flag}`, without one")
        elif flags[flag] and "=" not in word and flag != "--help" and next(rest, None) is None:
            return Misspelt(flag, "value after", (), f"`invoke {verb} --help` shows what it takes")
    return None


def _for_verbs(before: str) -> str:
    shown = "`invoke --list` shows them all"
    return f"{shown}; `invoke {before} --help`, which flags take words" if before else shown


def _flags(context: Any) -> Flags:
    names = (*context.flags, *context.flags.aliases)
    found = {name: bool(context.flags[name].takes_value) for name in names}
    return {**found, **dict.fromkeys(context.inverse_flags, False)}


def _is_invoke(program: str) -> bool:
    *_, folder, name = ("", *program.split("/"))
    return name in ("invoke", "inv") or (folder, name) == ("invoke", "__main__.py")
