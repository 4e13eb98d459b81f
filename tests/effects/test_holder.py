"""Whether a holder is gone: known of processes of this machine alone."""

from __future__ import annotations

import os
import subprocess

from firstlight.effects import holder


def of(pid: int, ticks: str = "") -> str:
    """The mark that a process of this machine has."""
    machine, _, _, rest = holder.mark().split("-")
    return f"{machine}-{pid}-{ticks or holder._ticks(pid)}-{rest}"


def test_a_mark_is_new_each_time_and_of_one_process() -> None:
    first, second = holder.mark(), holder.mark()
    assert first != second and holder.is_one(first, second)
    assert not holder.is_gone(first)


def test_who_has_ended_is_gone_and_a_reused_number_is_not_taken_for_it() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        mark = of(child.pid)
        assert not holder.is_gone(mark) and not holder.is_one(mark, holder.mark())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # Not collected yet: a zombie.
        assert holder.is_gone(mark)
    assert holder.is_gone(mark)
    assert holder.is_gone(of(os.getpid(), "1"))


def test_of_another_machine_nothing_is_known() -> None:
    for mark in (f"0123456789ab{of(1)[12:]}", "", "x", f"{of(1)[:12]}-a-b-c", "r-1@\n"):
        assert not holder.is_gone(mark)
