"""Part of remote programs: who is asked to end clears up first, however often it is asked."""

from __future__ import annotations

import signal


def clear_up_when_ended() -> None:
    """Have SIGTERM leave as an exit does, through every `finally`, with status 143."""
    signal.signal(signal.SIGTERM, _ended)


def _ended(_signal: int, _frame: object) -> None:
    # Asked once more while it clears away, as a cancelled job is, it would leave the rest.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(143)
