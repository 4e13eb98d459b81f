"""The arguments room: a profile held against what the engine accepts, fault by fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from firstlight.accuracy.values import human_count
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place, nearest
from firstlight.serve.capabilities import Capabilities, Flag, key_of, word_of
from firstlight.serve.profile import Profile

_SHOWN = 8


def check_args(document: Document[Profile], capabilities: Capabilities) -> list[Fault]:
    """Every argument of a profile that the engine would refuse, or take for something else."""
    uses = list(_uses(document.value, capabilities))
    found = [finding for use in uses for finding in _faults_of(use, capabilities)]
    found += _repeated(uses, capabilities)
    return [document.fault(place, message) for place, message in found]


@dataclass(frozen=True)
class _Use:
    """One flag as a profile gives it, in args (as data) or in extra_args (as words)."""

    option: str
    name: str
    value: JsonValue
    place: Place
    name_place: Place

    @property
    def is_text(self) -> bool:
        return self.place[0] == "extra_args"

    def spell(self, option: str) -> str:
        """Another flag, written as this place of the profile writes flags."""
        return option if self.is_text else key_of(option)


Finding = tuple[Place, str]


def _uses(profile: Profile, capabilities: Capabilities) -> Iterator[_Use]:
    for key, value in profile.args.items():
        option = capabilities.keys.get(key, f"--{key.replace('_', '-')}")
        yield _Use(option, key, value, ("args", key), ("args", key, "<key>"))
    yield from _words(profile.extra_args)


def _words(words: tuple[str, ...]) -> Iterator[_Use]:
    index = 0
    while index < len(words):
        start, (option, equals, value) = index, words[index].partition("=")
        index += 1
        values: list[JsonValue] = [value] if equals else []
        while not equals and index < len(words) and not words[index].startswith("--"):
            values.append(words[index])
            index += 1
        place: Place = ("extra_args", start)
        # A single value is checked as one; none at all is a bare flag.
        given = values[0] if len(values) == 1 else (values or True)
        yield _Use(option, option, given, place, place)


def _repeated(uses: list[_Use], capabilities: Capabilities) -> Iterator[Finding]:
    """The engine would take the last of two, whatever its spelling."""
    given: dict[str, str] = {}
    for use in uses:
        primary = _owner(use.option, capabilities)
        left_out = use.value is None or use.value is False
        if primary is None or left_out or capabilities.flags[primary].is_repeated:
            continue
        if primary in given:
            yield use.name_place, f"{use.name} repeats {given[primary]}; give it once"
        given[primary] = use.name


def _faults_of(use: _Use, capabilities: Capabilities) -> Iterator[Finding]:
    if not use.option.startswith("--"):
        yield use.place, f"{use.name!r} follows no flag; a flag starts with --"
        return
    if use.option not in capabilities.options:
        yield use.name_place, _unknown(use, capabilities)
    primary = _owner(use.option, capabilities)
    if primary is None:
        return
    flag = capabilities.flags[primary]
    if flag.deprecated:
        yield use.name_place, _deprecated(use, flag, capabilities)
        return
    for inner, message in _value_faults(use, flag):
        yield (*use.place, *inner), f"{use.name} {message}"
    if use.value is False and not use.is_text:
        yield from _unsaid(use, flag)


def _owner(option: str, capabilities: Capabilities) -> str | None:
    """The flag that the engine takes an option for, abbreviated or not; None where it refuses."""
    if option in capabilities.options or not capabilities.abbreviations:
        return capabilities.options.get(option)
    owners = {capabilities.options[name] for name in _longer(option, capabilities)}
    return owners.pop() if len(owners) == 1 else None


def _unknown(use: _Use, capabilities: Capabilities) -> str:
    full = _longer(use.option, capabilities) if capabilities.abbreviations else []
    names = [use.spell(option) for option in full]
    owners = {capabilities.options[option] for option in full}
    if len(owners) == 1:
        return f"{use.name} is an abbreviation; write {names[0]}"
    if owners:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        shown = ", ".join(names[:_SHOWN])
        return f"{use.name} is ambiguous in {capabilities.title}: {shown}{more}; write one in full"
    known = (use.spell(option) for option in capabilities.options)
    return f"{capabilities.title} has no {use.name!r}{nearest(use.name, known)}"


def _longer(option: str, capabilities: Capabilities) -> list[str]:
    return sorted(name for name in capabilities.options if name.startswith(option))


def _deprecated(use: _Use, flag: Flag, capabilities: Capabilities) -> str:
    head = f"{use.name} is deprecated in {capabilities.title}"
    if flag.new_flag is None:
        return f"{head}, and nothing takes its place; leave it out"
    plain = re.fullmatch(r"--[A-Za-z0-9-]+", flag.new_flag)
    return f"{head}; write {use.spell(flag.new_flag) if plain else flag.new_flag} instead"


def _unsaid(use: _Use, flag: Flag) -> Iterator[Finding]:
    """A flag with a `--no-` twin that is on, or undecided, without being mentioned."""
    twin = next((alias for alias in flag.aliases if alias.startswith("--no-")), None)
    if twin and use.option != twin and flag.default is not False:
        message = f"{use.name}: false only leaves the flag out, and the engine's default is"
        yield use.place, f"{message} {word_of(flag.default)}; write {key_of(twin)}: true"


def _value_faults(use: _Use, flag: Flag) -> Iterator[Finding]:
    value = use.value
    if value is None or value is False:
        return
    if flag.is_bare:
        if value is not True:
            yield (), f"takes no value; {'leave it out' if use.is_text else 'write true or false'}"
    elif value is True:
        if flag.nargs not in ("?", "*"):
            yield (), "needs a value"
    elif flag.takes_json and not (use.is_text and isinstance(value, list)):
        if isinstance(value, str) and not _is_json(value):
            yield (), "expects JSON; write it as keys and values, or as a list"
    elif isinstance(value, list):
        yield from _list_faults(use, flag, value)
    else:
        yield from (((), message) for message in _word_faults(value, flag, use.is_text))


def _list_faults(use: _Use, flag: Flag, values: list[JsonValue]) -> Iterator[Finding]:
    if not flag.takes_several:
        yield (), f"takes one value; got {len(values)}"
        return
    if not values and flag.nargs != "*":
        yield (), "needs at least one value; got an empty list"
    for index, value in enumerate(values):
        place: Place = () if use.is_text else (index,)
        yield from ((place, message) for message in _word_faults(value, flag, use.is_text))
        if not flag.is_repeated and isinstance(value, str) and value.startswith("-"):
            yield place, f"cannot take {value!r} in a list: the engine would read it as a flag"


def _word_faults(value: JsonValue, flag: Flag, is_text: bool) -> Iterator[str]:
    wrong = _wrong_text(str(value), flag) if is_text else _wrong_type(value, flag)
    if wrong:
        yield f"{wrong}; got {word_of(value) if not isinstance(value, str) else repr(value)}"
    elif flag.choices is not None and word_of(value) not in _choices(flag.choices):
        choices = _choices(flag.choices)
        yield f"is {word_of(value)!r}, which is no choice of the engine{_hint(value, choices)}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _choices(choices: Iterable[str | int | float | bool | None]) -> list[str]:
    return [word_of(choice) for choice in choices]


def _hint(value: JsonValue, choices: list[str]) -> str:
    return nearest(word_of(value), choices) or f"; known: {', '.join(choices)}"


def _wrong_type(value: JsonValue, flag: Flag) -> str | None:
    """What the flag expects, when this is not it; a type that we do not know takes anything."""
    match flag.type:
        case "int" if not isinstance(value, int) or isinstance(value, bool):
            return "expects a whole number"
        case "float" if not isinstance(value, int | float) or isinstance(value, bool):
            return "expects a number"
        case "human_readable_int":
            return None if type(value) is int else _wrong_text(str(value), flag)
        case "str" | "nullable_str" | None if isinstance(value, bool | int | float):
            return "expects text, in quotes"
    return None


def _wrong_text(word: str, flag: Flag) -> str | None:
    match flag.type:
        case "int" if not re.fullmatch(r"[-+]?\d+", word):
            return "expects a whole number"
        case "float" if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word):
            return "expects a number"
        case "human_readable_int" if word.startswith("-") or human_count(word) is None:
            return "expects a size such as 16384, 16k or 16Ki"
    return None
