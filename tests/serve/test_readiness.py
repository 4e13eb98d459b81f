"""Verdicts on a starting server: waiting, ready, stalled, dead, and why."""

import pytest

from firstlight.serve import serverlog
from firstlight.serve.readiness import (
    GpuUse,
    Limits,
    Moment,
    Process,
    gpu_full,
    judge,
    phase_text,
    port_taken,
)
from firstlight.serve.serverlog import ServerLog, begin, feed
from tests.serve.logs import CRASH, READY, V0523, V059
from tests.serve.rules import RULES


def read(text: str) -> ServerLog:
    return serverlog.read(text, RULES)


UP = Process("running")
LIMITS = Limits(start_s=600, stall_s=120)


def test_only_the_health_check_makes_ready() -> None:
    log = read(V0523 + READY)
    assert judge(Moment(log, UP, (0, 503), 30, 1), LIMITS).state == "waiting"
    ready = judge(Moment(log, UP, (0, 503, 200), 31.04, 1), LIMITS)
    assert (ready.state, ready.text) == ("ready", "ready after 31.0 s")
    assert judge(Moment(log, UP, (200, 503), 32, 1), LIMITS).state == "waiting"


def test_another_servers_health_does_not_hide_a_death() -> None:
    log = read(
        "[10:00:00] ERROR: [Errno 98] error while attempting to bind: address already in use"
    )
    verdict = judge(Moment(log, Process("failed", 1), (200,), 40, 0), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "port taken")
    assert verdict.line == 1 and "service" not in verdict.evidence


def test_a_server_that_lost_its_port_is_not_ready_whatever_it_says() -> None:
    """As seen on a real server: it warmed up against the other one, and called itself ready."""
    lost = (
        "[2026-11-30 08:00:07] ERROR:    [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 30000): address already in use\n"
    )
    verdict = judge(Moment(read(V0523 + lost + READY), UP, (200, 200), 40, 0), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "port taken")
    assert "[Errno 98]" in verdict.evidence


def test_waiting_shows_phase_steps_time_and_the_last_words() -> None:
    log = feed(read(V059), "\rCapturing batches:  66%|## | 2/3 [00:01<00:00, 1.9it/s]")
    text = phase_text(Moment(log, UP, (), 83, 1))
    assert text.startswith("graph capture 2/3, 1 min 23 s | Capturing batches")
    assert len(phase_text(Moment(read("x" * 900), UP), width=60)) == 60
    assert phase_text(Moment(ServerLog(), UP)) == "starting, 0.0 s"
    waiting = phase_text(Moment(read(V0523 + READY), UP))
    assert waiting.startswith("waiting for the health check")


@pytest.mark.parametrize(
    ("text", "phase", "remedy"),
    [
        ("hello\n", "starting", "driver"),
        ("Load weight begin.\n", "loading weights", "disk"),
        (V059, "graph capture", "CUDA graphs off"),
        (V0523, "warm-up", "first batch"),
        (V0523 + READY, "waiting for the health check", "health check does not"),
    ],
)
def test_a_stall_names_its_phase_and_a_remedy_for_it(text: str, phase: str, remedy: str) -> None:
    verdict = judge(Moment(read(text), UP, (503,), 300, 121), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "stalled")
    assert phase in verdict.text and "2 min 01 s" in verdict.text
    assert remedy in verdict.remedy


def test_a_log_that_moves_for_too_long_is_late_not_stalled() -> None:
    verdict = judge(Moment(read(V059), UP, (), 601, 1), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "timeout")
    assert "not ready within 10 min 00 s" in verdict.text


def test_a_death_gives_the_logs_cause() -> None:
    log = read(V0523 + CRASH.format(error="ModuleNotFoundError: No module named 'gguf'"))
    verdict = judge(Moment(log, Process("exited", -9), (0,), 12, 0), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "died")
    assert verdict.evidence == "ModuleNotFoundError: No module named 'gguf'"
    assert (
        verdict.text
        == "the server died after 12.0 s (while warming up): the Python module gguf is missing"
    )
    assert "lock" in verdict.remedy
    served = read(V0523 + READY + CRASH.format(error="KeyError: 'x'"))
    assert "(while serving)" in judge(Moment(served, Process("failed", 1)), LIMITS).text


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ],
)
def test_a_full_gpu_is_told_from_other_deaths(line: str) -> None:
    log = read(V0523 + CRASH.format(error=line))
    assert judge(Moment(log, Process("failed", 1)), LIMITS).kind == "gpu full"


@pytest.mark.parametrize(
    ("rc", "said"),
    [
        (-9, "killed without a word"),
        (137, "killed without a word"),
        (-11, "SIGSEGV"),
        (132, "SIGILL"),
        (3, "exit status 3"),
        (None, "no reason given"),
    ],
)
def test_a_silent_death_is_read_from_the_exit_status(rc: int | None, said: str) -> None:
    verdict = judge(Moment(read(V059), Process("exited", rc), (), 50), LIMITS)
    assert said in verdict.text and "while capturing graphs" in verdict.text
    assert verdict.remedy and verdict.evidence


def test_a_server_that_was_stopped_while_it_started_did_not_crash() -> None:
    log = read(V0523 + "[2026-11-30 08:00:06] SIGTERM received. signum=15 frame=None.\nKilled\n")
    verdict = judge(Moment(log, Process("exited", 143), (), 30, 0), LIMITS)
    assert verdict.text.endswith("(while warming up): it was asked to end")
    assert "deploy it again" in verdict.remedy


def test_a_server_that_was_stopped_before_it_could_say_so_did_not_crash() -> None:
    log = read("[2026-11-30 08:00:01] importing\nfirstlight: asked to stop\n")
    verdict = judge(Moment(log, Process("exited", 143), (), 10, 0), LIMITS)
    assert verdict.text == "the server died after 10.0 s (while starting): it was asked to end"
    assert verdict.remedy.startswith("somebody, or something on that host, stopped it")


def test_a_host_that_was_rebooted_is_told() -> None:
    process = Process("exited", None, "the host was rebooted")
    verdict = judge(Moment(read(V0523), process, (), 30, 0), LIMITS)
    assert verdict.text.endswith("(while warming up): the host was rebooted")


def test_a_restart_is_a_death() -> None:
    verdict = judge(Moment(read(V0523), Process("restarting"), (200,)), LIMITS)
    assert (verdict.state, verdict.kind) == ("failed", "died")
    assert "started again" in verdict.text


def test_the_last_words_of_a_dying_server_are_waited_for() -> None:
    log = feed(begin(RULES), CRASH.format(error="KeyError: 'x'").partition("KeyError")[0])
    assert judge(Moment(log, UP, (), 5, 0.5), LIMITS).state == "waiting"
    whole = read(CRASH.format(error="KeyError: 'x'"))
    verdict = judge(Moment(whole, UP, (), 8, 3), LIMITS)
    assert (verdict.kind, verdict.evidence) == ("died", "KeyError: 'x'")


def test_a_port_is_checked_before_the_launch() -> None:
    stop = "invoke stop --profile a --host gpu01"
    taken = port_taken(30000, "the server of profile a", stop)
    assert (taken.kind, taken.text) == (
        "port taken",
        "port 30000 is taken by the server of profile a",
    )
    assert taken.remedy == f"stop it (`{stop}`), or give service.port another number"
    unseen = port_taken(30000, "", "")
    assert "may not see" in unseen.text
    assert unseen.remedy == "stop it, or give service.port another number"


def test_an_answer_that_comes_too_early_is_another_servers() -> None:
    """A port that was free may be taken while the weights are loaded."""
    loading = Moment(read(V059), UP, (200,), 30, 1)
    assert judge(loading, LIMITS).state == "waiting"
    unread = Moment(read("nothing that is known\n"), UP, (200,), 30, 1)
    assert judge(unread, LIMITS).state == "ready"


def test_gpus_are_checked_before_the_launch() -> None:
    free, full = GpuUse(0, 96.0, 95.0), GpuUse(1, 96.0, 10.0, ("python (pid 5)", "Xorg (pid 6)"))
    assert gpu_full([free], 0.9) is None
    verdict = gpu_full([free, full], 0.9)
    assert verdict is not None and verdict.kind == "gpu full"
    assert verdict.text == ("GPU 1 has 10.0 of 96.0 GiB free, held by python (pid 5), Xorg (pid 6)")
