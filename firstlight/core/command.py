"""Commands and scripts as values, and the only quoting in the house."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(value: object) -> str:
    """One shell word that every POSIX shell reads back as exactly `str(value)`.

    Raises ValueError for a NUL character, which no argument can carry.
    """
    text = str(value)
    if "\0" in text:
        raise ValueError(f"a shell word cannot hold a NUL character: {text!r}")
    return shlex.quote(text)


def assignments(env: Mapping[str, str]) -> str:
    """`NAME=value` words for one command line; raises ValueError for a bad name."""
    for name in env:
        if not _NAME.match(name):
            raise ValueError(f"not a name for an environment variable: {name!r}")
    return " ".join(f"{name}={quote(value)}" for name, value in env.items())


@dataclass(frozen=True)
class Command:
    """One program with its arguments, its extra environment and its folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: PurePosixPath | None = None

    def line(self) -> str:
        """The command as one line of POSIX shell."""
        words = " ".join(quote(word) for word in self.argv)
        line = f"{assignments(self.env)} {words}" if self.env else words
        return f"(cd {quote(self.cwd)} && {line})" if self.cwd else line


def typed(verb: str, flags: Mapping[str, object]) -> str:
    """A verb as a person types it: text with its value, True alone, what is empty not at all."""
    words = ["invoke", verb]
    for name, value in flags.items():
        if value:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
    return Command(tuple(words)).line()


@dataclass(frozen=True)
class Script:
    """A bash script with its positional arguments and exported environment.

    `text` never holds a value that came from outside: values travel in `args` and `env`.
    `sudo` asks for root on the host; the password, where one is needed, is the shell's matter.
    """

    text: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    sudo: bool = False

    def source(self) -> str:
        """Text for `bash -s` on standard input.

        The body is a function that reads /dev/null, so that no command in it can eat the rest
        of the script, and a script cut short by a lost link never runs at all.
        """
        head = "".join(f"export {assignments({key: value})}\n" for key, value in self.env.items())
        words = " ".join(quote(arg) for arg in self.args)
        body = self.text.rstrip("\n")
        return f'{head}__main() {{\n{body}\n}}\n__main {words} </dev/null\nexit "$?"\n'
