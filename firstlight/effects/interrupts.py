"""Ctrl-C, held back while something runs that must not be broken off in the middle."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits for the end of this; a second one does not.

    A library that is broken off between taking a lock and giving it back waits for itself for
    ever, and a moving line that is half taken away cannot be taken away again. Only the main
    thread is ever broken off, so in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def heard(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1 and callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        # A second one has had its say.
        if len(came) == 1 and callable(before):
            before(signal.SIGINT, None)
