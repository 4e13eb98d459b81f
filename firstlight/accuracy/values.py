"""The accuracy room: values out of somebody's JSON, where any of them may be of another kind."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

Object = Mapping[str, JsonValue]

# As the engine reads counts: 16384, 25.6k or 1M (powers of 1000), 16Ki (powers of 1024).
_COUNT = re.compile(r"([-+]?[0-9]+)|([0-9]+(?:\.[0-9]+)?)([kMGT])|([0-9]+)([KMGT])i")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
# Nothing that is counted here comes to as much.
_DIGITS = 18

# Where the engine looks for the language model's part of a configuration.
_TEXT_PARTS = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("thinker_config", "text_config"),
)


def an_object(value: object) -> Object:
    """The object itself, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def a_text(value: object) -> str:
    """The text itself, or an empty one."""
    return value if isinstance(value, str) else ""


def a_number(value: object) -> float | None:
    """A number that is no truth value."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def a_count(value: object) -> int | None:
    """A whole number that is no truth value."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def human_count(value: object) -> int | None:
    """A whole number as the engine reads it from a flag: 16384, "16384", "16k", "16Ki"."""
    if (given := a_count(value)) is not None:
        return given
    found = _COUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or len(found[0]) > _DIGITS:
        return None
    if found[1]:
        return int(found[1])
    if found[2]:
        return round(float(found[2]) * 1000.0 ** _POWERS[found[3]])
    return int(found[4]) << 10 * _POWERS[found[5]]


def words(value: object) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def text_part(config: Object) -> tuple[str, Object]:
    """The language model's part of config.json and the key it is under, "" for the whole file."""
    for path in _TEXT_PARTS:
        part = config
        for key in path:
            part = an_object(part.get(key))
        if part:
            return ".".join(path), part
    return "", config
