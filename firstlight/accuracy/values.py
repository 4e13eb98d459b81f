"""The accuracy room: values out of somebody's JSON, where any of them may be of another kind."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

Object = Mapping[str, JsonValue]

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
