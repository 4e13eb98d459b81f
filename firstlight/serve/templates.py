"""The templates room: a text with places for values, each made safe for the file's language.

The template engine itself quotes every `{{ value }}`, so that a template cannot forget to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING

from firstlight.core.command import quote
from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import nearest

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = "templates"
Word = Callable[[object], str]


class Ready(str):
    """Text that is safe for its place already."""

    __slots__ = ()


def fill(name: str, templates: Mapping[str, str], values: Mapping[str, object]) -> str:
    """A template with its values; a name ending in .sh.j2 is a shell script, else a unit.

    `templates` holds the texts by name. Raises ConfigError with the template's file and line for
    a template that is missing or broken, or that names a value it was not given.
    """
    from jinja2 import Template, TemplateError, TemplateSyntaxError

    file = f"{FOLDER}/{name}"
    if name not in templates:
        message = f"there is no such template{nearest(name, templates)}"
        raise ConfigError([Fault(file, 0, 0, message)])
    environment = _environment(quote if name.endswith(".sh.j2") else systemd_word)
    try:
        code = environment.compile(templates[name], name, file)
        template = Template.from_code(environment, code, environment.make_globals(None))
        return template.render(values)
    except TemplateSyntaxError as error:
        message = f"not a template: {error.message}"
        raise ConfigError([Fault(file, error.lineno, 1, message)]) from None
    except (TemplateError, ValueError) as error:
        line = _line(error.__traceback__, file)
        raise ConfigError([Fault(file, line, 1, _reason(str(error), values))]) from None


def systemd_word(value: object) -> str:
    """One word of a systemd command line; see systemd.service(5), COMMAND LINES."""
    text = str(value)
    if "\0" in text:
        raise ValueError(f"a unit cannot hold a NUL character: {text!r}")
    if re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_./:=@,+-]*", text):
        return text
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(char, escaped)
    return '"' + re.sub(r"[\x01-\x1f\x7f]", _hex_escape, text) + '"'


def systemd_path(path: PurePath) -> str:
    """A path where systemd reads the rest of the line as it is, without quotes."""
    text = str(path)
    if re.search(r"[\x00-\x1f\x7f]|[\\\s]\Z", text):
        raise ValueError(f"a unit cannot hold this path: {text!r}")
    return text.replace("%", "%%")


def _hex_escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


@cache
def _environment(word: Word) -> Environment:
    from jinja2 import Environment, StrictUndefined

    return Environment(
        undefined=StrictUndefined,
        finalize=lambda value: _safe(value, word),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _safe(value: object, word: Word) -> str:
    if isinstance(value, Ready):
        return value
    if isinstance(value, tuple):
        return " ".join(word(part) for part in value)
    # The text of an undefined value raises; it must not be taken for an empty word.
    text = str(value)
    if not isinstance(value, str | int | PurePath):
        raise ValueError(f"a template cannot show a value of type {type(value).__name__}")
    return word(text)


def _line(trace: TracebackType | None, file: str) -> int:
    """The template's own line, which the template engine puts into the traceback."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _reason(message: str, values: Mapping[str, object]) -> str:
    undefined = re.match(r"'(\w+)' is undefined", message)
    return message + (nearest(undefined[1], values) if undefined else "")
