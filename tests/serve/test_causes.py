"""Which line of a log is the cause of a death, and what a person is told to do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.serve.causes import NEEDED, Search, look
from firstlight.serve.serverlog import begin, cause, feed, read
from tests.serve.logs import CRASH, READY, V0523, V059
from tests.serve.rules import RULES, TABLE


def kind(text: str) -> str | None:
    found = cause(read(text, RULES))
    return found.kind if found else None


CRASHES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "gpu-memory",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": "pool-size",
    "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied.": "gpu-busy",
    "RuntimeError: CUDA error: no kernel image is available for execution": "no-kernel-image",
    "ValueError: TllmGenFmhaRunner: Unsupported architecture": "unsupported-architecture",
    "RuntimeError: No CUDA GPUs are available": "driver",
    "ValueError: CPU FP8 KV cache requires Intel AMX support.": "kv-dtype",
    "ValueError: --kv-cache-dtype fp8_e5m2 is not supported on CPU.": "kv-dtype",
    "ModuleNotFoundError: No module named 'torchvision'": "missing-module",
    "ImportError: /r/x.so: undefined symbol: _ZN3c10": "torch-abi",
    "ImportError: libcudart.so.13: cannot open shared object file": "cuda-library",
    "ValueError: Model architectures ['Foo'] are not supported for now.": "model-unsupported",
    "RuntimeError: Cannot find any model weights with `/m`": "model-missing",
    "OSError: [Errno 28] No space left on device": "disk",
    "safetensors_rust.SafetensorError: Error while deserializing": "weights-damaged",
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1": "communication",
    "ValueError: Warning: the context_length (9) is greater than the derived": "context-length",
    "KeyError: 'lm_head.weight'": "weights-unknown",
    "KeyError: 'lm_head'": "exception",
}


@pytest.mark.parametrize(("error", "expected"), CRASHES.items(), ids=CRASHES.values())
def test_the_first_traceback_wins_over_all_that_follows(error: str, expected: str) -> None:
    text = V0523 + CRASH.format(error=error)
    found = cause(read(text, RULES))
    assert found is not None
    assert (found.kind, found.text) == (expected, error)
    assert text.splitlines()[found.line - 1] == error
    assert found.fix


TRACE = "Traceback (most recent call last):\n  File 'a'\n"
DURING = f"\nDuring handling of the above exception, another exception occurred:\n\n{TRACE}"
DIRECT = f"\nThe above exception was the direct cause of the following exception:\n\n{TRACE}"
LACKS = "PackageNotFoundError: No package metadata was found for flashinfer_python\n"
CHAINS = {
    "known amid unknown": (f"StopIteration\n{DURING}{LACKS}{DURING}Exception: no\n", LACKS),
    "the last of unknown ones": (f"KeyError: 1\n{DURING}OddError: 2\n", "OddError: 2"),
    "of a direct cause the cause": (f"OddError: 1\n{DIRECT}KeyError: 2\n", "OddError: 1"),
    "a cause, then another": (f"OddError: 1\n{DIRECT}KeyError: 2\n{DURING}Odd: 3\n", "Odd: 3"),
    "a known one after a cause": (f"OddError: 1\n{DIRECT}{LACKS}", LACKS),
    "a traceback of its own": (f"OddError: 1\n{TRACE}KeyError: 2\n", "OddError: 1"),
    "a chain after another error": (f"Odd: 1\n{TRACE}A: 2\n{DURING}B: 3\n", "Odd: 1"),
}


@pytest.mark.parametrize("start", ["", f"{V0523}[08:00:06] Scheduler hit an exception: "])
@pytest.mark.parametrize(("chain", "expected"), CHAINS.values(), ids=list(CHAINS))
def test_of_a_chain_a_known_exception_wins_then_the_last(
    start: str, chain: str, expected: str
) -> None:
    found = cause(read(f"{start}{TRACE}{chain}", RULES))
    assert found is not None and found.text == expected.strip()


LINES = {
    "sglang: error: argument --kv-cache-dtype: invalid choice: 'f16'": "argument",
    "usage: sglang serve [-h] [--watchdog-timeout WATCHDOG_TIMEOUT]\n"
    "                    [--killed-address-already-in-use ERROR]\n"
    "sglang serve: error: unrecognized arguments: --port 1": "argument",
    "launch_server.py: error: unrecognized arguments: --nope": "argument",
    "[2026-11-30 08:00:01] ERROR:    [Errno 98] error while attempting to bind on address "
    "('127.0.0.1', 30000): address already in use": "port",
    "[10:00:01 TP0] max_total_tokens=9 is larger than the profiled value -56.": "pool-size",
    "Fatal Python error: Segmentation fault": "crash",
    "/r/launch.sh: line 7:  4242 Killed                  python -m sglang": "killed",
    "a.service: A process of this unit has been killed by the OOM killer.": "host-memory",
    "/r/launch.sh: line 7: /r/venv/bin/python: No such file or directory": "error",
}


@pytest.mark.parametrize(("line", "expected"), LINES.items(), ids=LINES.values())
def test_a_single_line_tells(line: str, expected: str) -> None:
    assert kind(f"{line}\n") == expected


def test_positive_budgets_and_optional_imports_are_no_cause() -> None:
    assert kind("max_total_tokens=9 is larger than the profiled value 8. Use it.\n") is None
    assert kind(V0523) is None
    assert kind("/x.py:1: UserWarning: CUDA out of memory is what this text says\n") is None


def test_an_error_that_the_server_survived_is_no_cause() -> None:
    benign = "Traceback (most recent call last):\n  File 'x'\nKeyError: 'a'\n"
    assert kind(f"[10:00:00] ERROR: a cache is cold\n{benign}{V0523}Killed\n") == "killed"
    crash = CRASH.format(error="KeyError: 'a'")
    assert kind(crash + READY) is None


def test_a_crash_of_another_rank_outlives_the_first_ranks_progress() -> None:
    crash = CRASH.format(error="torch.OutOfMemoryError: CUDA out of memory.")
    assert kind(V059 + crash + "[10:00:30 TP0] Capture cuda graph begin.\n") == "gpu-memory"


def test_a_kill_is_said_only_when_nothing_else_was() -> None:
    assert kind(V0523 + "Killed\n") == "killed"
    assert kind(V0523 + "ERROR: something odd\nKilled\n") == "killed"
    assert (
        kind(V0523 + "[10:00:00] ERROR: something odd\nReceived sigquit from a child process\n")
        == "error"
    )
    assert kind(V0523 + "Received sigquit from a child process\n") == "child"


def test_an_unknown_failure_shows_its_first_error_line() -> None:
    found = cause(read("all well\nfrobnicate failed: code 7\nfrobnicate failed: code 8\n", RULES))
    assert found is not None
    assert (found.kind, found.line, found.text) == ("error", 2, "frobnicate failed: code 7")
    assert found.fix == "no known failure; the log around this line says more"


def test_evidence_is_kept_short() -> None:
    found = cause(read("ERROR " + "x" * 5000 + "\n", RULES))
    assert found is not None and len(found.text) == 400


def test_without_rules_nothing_is_known_and_errors_are_told() -> None:
    found = cause(read(V0523 + CRASH.format(error="torch.OutOfMemoryError: CUDA out of memory.")))
    assert found is not None and found.kind == "exception"


def test_the_rules_that_a_start_is_judged_by_are_for_servers() -> None:
    assert set(NEEDED) <= {rule.id for rule in TABLE.rules if rule.where != "build"}


def test_a_lost_port_is_remembered_by_a_server_that_calls_itself_ready() -> None:
    lost = (
        "[10:00:07] ERROR:    [Errno 98] error while attempting to bind: address already in use\n"
    )
    assert kind(V0523 + lost + READY) == "port"


AT = "[2026-11-30 08:01:00"
REQUEST = "Traceback (most recent call last):\n  File 'a'\nValueError: no such adapter\n"
ANNOUNCED = (
    f"{AT} TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File 'b'\n"
)
SIGQUIT = f"{AT}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
CRASHED = f"{AT}] Subprocess scheduler_0 (pid=7) crashed with exit code %s. Triggering SIGQUIT\n"
DEAD = (
    f"{AT}] Rank 0 scheduler is dead. Please check if there are relevant logs.\n"
    f"{AT}] Exit code: %s\n"
    "Traceback (most recent call last):\n  File 'e'\n    raise\nEOFError\n"
)
PEER = "RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.0.0.2]:7\n\n"
DOG = f"{AT} TP0] %s watchdog timeout (self.watchdog_timeout=300, self.soft=%s)\n"
NCCL = (
    "[rank1]:[E909 08:45:30.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=1) ran for 600022 milliseconds before timing out.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "Fatal Python error: Aborted\n"
)
ENDS = {
    "killed, told by its watchdog": (CRASHED % -9 + SIGQUIT, "killed", 1),
    "killed, told by its parent, which then fails itself": (DEAD % -9, "killed", 2),
    "killed, while another rank misses it": (ANNOUNCED + PEER + DEAD % -9, "killed", 6),
    "a rank misses another, and no more is known": (ANNOUNCED + PEER + SIGQUIT, "peer-gone", 3),
    "native code": (CRASHED % -11 + SIGQUIT, "native-crash", 1),
    "only that it died": (DEAD % -3, "child", 1),
    "a hang": (DOG % ("Scheduler", False) + SIGQUIT, "hang", 1),
    "a collective that never ends": (NCCL + CRASHED % -6, "collective-timeout", 1),
    "after a request that failed": (
        f"{REQUEST}{ANNOUNCED}torch.OutOfMemoryError: CUDA out of memory.\n{SIGQUIT}",
        "gpu-memory",
        6,
    ),
    "of what no rule knows, after a request": (
        REQUEST + ANNOUNCED + "KeyError: 1\n",
        "exception",
        6,
    ),
    "two ranks in each other's words": (
        f"{ANNOUNCED}{AT} TP1] Note: x\n{AT}] INFO:     127.0.0.1\n  File 'c'\n"
        "RuntimeError: RMSNorm failed with error code no kernel image is available\n",
        "no-kernel-image",
        6,
    ),
    "a soft watchdog and a request for /error": (
        DOG % ("TokenizerManager", True) + f'{AT}] INFO:     127.0.0.1 - "GET /error" 404\n',
        None,
        0,
    ),
}


@pytest.mark.parametrize(("end", "expected", "line"), ENDS.values(), ids=list(ENDS))
def test_how_a_server_that_served_ends(end: str, expected: str | None, line: int) -> None:
    served = V0523 + READY
    found = cause(read(served + end, RULES))
    assert (found.kind if found else None) == expected
    assert found is None or found.line == served.count("\n") + line


STOPPED = (
    f"{AT}] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n"
    f"{CRASHED % -15}{SIGQUIT}{CRASHED % -9}Killed\n"
)


def test_a_server_that_was_asked_to_end_needs_no_cause() -> None:
    log = read(V0523 + READY + REQUEST + STOPPED, RULES)
    assert log.stopping and cause(log) is None
    again = read(V0523 + READY + STOPPED + V0523, RULES)
    assert (again.stopping, again.boots, cause(again)) == (False, 2, None)
    assert (
        kind(V0523 + "Traceback (most recent call last):\n  File 'a'\nKeyboardInterrupt\n") is None
    )
    oom = "a.service: A process of this unit has been killed by the OOM killer.\n"
    assert kind(V0523 + STOPPED + oom) == "host-memory"


@settings(deadline=None)
@given(st.lists(st.text(), max_size=8))
def test_any_lines_are_survived(lines: list[str]) -> None:
    search = Search(RULES)
    for number, line in enumerate(lines, 1):
        search = look(search, number, line)
    assert search.best is None or search.best.text
    feed(begin(RULES), "\n".join(lines))
