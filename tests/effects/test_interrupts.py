"""Ctrl-C waits for what must not be broken off, and is not lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from firstlight.effects.interrupts import undisturbed


def press_ctrl_c() -> None:
    """SIGINT to ourselves, and time for Python to see it."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def test_ctrl_c_waits_for_the_end_of_what_must_not_be_disturbed() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        press_ctrl_c()
        done.append("whole")
    assert done == ["whole"]


def test_a_second_one_does_not_wait() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        press_ctrl_c()
        done.append("one")
        press_ctrl_c()
        done.append("two")
    assert done == ["one"]


def test_one_that_comes_beside_an_error_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), undisturbed():
        press_ctrl_c()
        raise ValueError("ours")


def test_the_way_in_which_ctrl_c_was_handled_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="ours"), undisturbed():
        raise ValueError("ours")
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
