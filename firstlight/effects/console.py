"""The person's terminal: lines that stay, and one line that lives while a step runs."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol, TextIO

from firstlight.core.errors import FirstlightError
from firstlight.core.words import harmless, span
from firstlight.effects.interrupts import undisturbed

# Where output is no terminal, a moving line is shown at most this often, in seconds; and one that
# does not change again after so long, for whoever waits must see that something waits with them.
_QUIET_S = 10.0
_SILENT_S = 60.0


class _Live(Protocol):
    """The part of rich's Status that is used here."""

    def start(self) -> None: ...

    def update(self, status: str) -> None: ...

    def stop(self) -> None: ...


def nowhere() -> TextIO:
    """A stream that takes everything and keeps nothing."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _is_left(stream: TextIO) -> bool:
    """True when the stream is a pipe whose reader is gone."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return False
    looked = select.poll()
    # What was not asked for is told all the same: POLLERR.
    looked.register(number, 0)
    return any(told & select.POLLERR for _, told in looked.poll(0))


# A linker's command is thousands of characters long, and tells nobody more than its beginning.
_LONGEST = 200


def _flat(text: str) -> str:
    """A text on one line, and no longer than a person reads."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class Console:
    """`say` keeps a line, `note` replaces the moving one; all of it goes to one stream, and nothing
    of it moves a terminal but what is written here (`plain` hands a log on as it is).

    A reader who leaves does not break off what is being done: `say` and `note` then write to
    nobody. Only `plain`, which exists to be read, raises BrokenPipeError.
    """

    # The verb with its flags as the person gave them; "" where nobody typed one.
    typed: str = ""

    def __init__(self, stream: TextIO | None = None, debug: bool = False) -> None:
        # A program that was started without standard output has None there.
        self._stream = stream or sys.stdout or nowhere()
        self._debug = debug
        self._live: _Live | None = None
        self._noted_at = 0.0
        self._noted: tuple[str, ...] = ()
        self._first_noted_at = 0.0

    @property
    def is_terminal(self) -> bool:
        """True when a person can be asked something."""
        return self._stream.isatty() and sys.stdin is not None and sys.stdin.isatty()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.settle()
        self._write(f"{harmless(text)}\n")

    def plain(self, text: str) -> None:
        """Print text as it is; raises BrokenPipeError when nobody reads it any more.

        Without text it only looks, so that a reader's leaving is not noticed with the next line.
        """
        if not text and not _is_left(self._stream):
            return
        self.settle()
        try:
            if not text:
                raise BrokenPipeError
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FirstlightError(f"cannot write to standard output: {error.strerror}") from None

    def debug(self, text: str) -> None:
        """Print a line that only --debug shows."""
        if self._debug:
            self.say(f"debug: {text}")

    def note(self, *texts: str, watched_s: float | None = None) -> None:
        """Show what goes on right now, a line for each thing; call it also when nothing changed.

        Where output is no terminal, lines that do not change are repeated once a minute with
        `watched_s`, how long all this has been going on; else how long the lines have been so.
        """
        lines = tuple(map(_flat, texts))
        if self._stream.isatty() and os.environ.get("TERM") != "dumb":
            if any(lines):
                self._moving(lines)
        else:
            self._plainly(lines, watched_s)

    def _plainly(self, lines: tuple[str, ...], watched_s: float | None) -> None:
        now, quiet = time.monotonic(), time.monotonic() - self._noted_at
        news = [line for line in lines if line not in self._noted]
        if news and quiet >= _QUIET_S:
            self._noted, self._noted_at, self._first_noted_at = lines, now, now
            self._write("".join(f"  ... {line}\n" for line in news))
        elif quiet >= _SILENT_S and (lines or watched_s is not None):
            self._noted_at = now
            since = now - self._first_noted_at if watched_s is None else watched_s
            told = lines or ("nothing said yet",)
            self._write("".join(f"  ... {line} ({span(since)} so far)\n" for line in told))

    def settle(self) -> None:
        """Take the moving line away."""
        if self._live is not None:
            with undisturbed():
                self._live.stop()
                self._live = None

    def ask(self, question: str) -> str:
        """One answer of the person, "" when there is none to ask."""
        self.settle()
        if not self.is_terminal:
            return ""
        self._write(question)
        return sys.stdin.readline().strip()

    def __enter__(self) -> Console:
        self._noted_at = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.settle()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._stream = nowhere()

    def _moving(self, lines: tuple[str, ...]) -> None:
        # Imported late: rich costs more than `invoke --list` may take in all.
        from rich.console import Console as Rich
        from rich.markup import escape

        rich = Rich(file=self._stream)
        text = "\n  ".join(escape(line[: max(rich.width - 6, 20)]) for line in lines)
        with undisturbed():
            if self._live is None:
                self._live = rich.status(text)
                self._live.start()
            self._live.update(text)
