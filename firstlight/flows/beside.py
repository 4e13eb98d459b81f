"""One story told for several hosts at once: side by side, each line with its host before it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from firstlight.core.errors import Detached, FirstlightError
from firstlight.effects.console import Console

T = TypeVar("T")


class _Stage:
    """What several hosts say on one console; every host keeps its own moving lines."""

    def __init__(self, console: Console) -> None:
        self.console, self.lock = console, threading.Lock()
        self.interrupted = threading.Event()
        self.moving: dict[str, tuple[str, ...]] = {}

    def note(self, name: str, lines: tuple[str, ...], watched_s: float | None) -> None:
        """Show the moving lines of all; those of one host have changed."""
        with self.lock:
            self.moving[name] = lines
            shown = [line for lines in self.moving.values() for line in lines]
            self.console.note(*shown, watched_s=watched_s)

    def leave(self, name: str) -> None:
        """A host has nothing more to say."""
        with self.lock:
            self.moving.pop(name, None)


class Voice(Console):
    """The console of one host among several: its name stands before each of its lines.

    A Ctrl-C reaches the main thread alone; here it comes with the next thing that is said, once.
    """

    def __init__(self, name: str, stage: _Stage) -> None:
        super().__init__()
        self._name, self._stage, self._heard = name, stage, False
        self.typed = stage.console.typed

    @property
    def is_terminal(self) -> bool:
        """Several cannot ask one person at once."""
        return False

    def say(self, text: str) -> None:
        """Print lines that stay."""
        self._hear()
        with self._stage.lock:
            self._stage.console.say("\n".join(map(self._named, text.split("\n"))))

    def note(self, *texts: str, watched_s: float | None = None) -> None:
        """Show what goes on right now, beside what goes on on the others."""
        self._hear()
        self._stage.note(self._name, tuple(map(self._named, texts)), watched_s)

    def debug(self, text: str) -> None:
        """Print a line that only --debug shows."""
        with self._stage.lock:
            self._stage.console.debug(self._named(text))

    def plain(self, text: str) -> None:
        """Print text as it is."""
        with self._stage.lock:
            self._stage.console.plain(text)

    def settle(self) -> None:
        """The moving lines are the others' as well."""

    def _named(self, line: str) -> str:
        return line if line.startswith(f"{self._name}: ") else f"{self._name}: {line}"

    def _hear(self) -> None:
        if self._stage.interrupted.is_set() and not self._heard:
            self._heard = True
            raise KeyboardInterrupt


def beside(
    stories: Mapping[str, Callable[[Console], T]], console: Console
) -> dict[str, T | FirstlightError]:
    """Tell every story at once; for each what it gave, or the error that it ended with.

    One that fails does not end the others. Ctrl-C is passed on to all of them, and each leaves as
    it would alone: what runs detached goes on.
    """
    stage = _Stage(console)
    with ThreadPoolExecutor(max(1, len(stories))) as pool:
        told = {
            name: pool.submit(_tell, story, Voice(name, stage), name, stage)
            for name, story in stories.items()
        }
        try:
            return _results(told)
        except KeyboardInterrupt:
            stage.interrupted.set()
            return _results(told)


def _results(
    told: Mapping[str, Future[T | FirstlightError]],
) -> dict[str, T | FirstlightError]:
    return {name: future.result() for name, future in told.items()}


def _tell(
    story: Callable[[Console], T], voice: Voice, name: str, stage: _Stage
) -> T | FirstlightError:
    try:
        return story(voice)
    except FirstlightError as error:
        return error
    except KeyboardInterrupt:
        return Detached("interrupted", where=name)
    finally:
        stage.leave(name)
