"""What tests of whole verbs look with: processes, ports, and the output of a verb that runs."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    """A port of the loopback on which nobody listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def is_open(port: int) -> bool:
    """True while somebody listens on the port."""
    with socket.socket() as one:
        one.settimeout(5)
        return one.connect_ex(("127.0.0.1", port)) == 0


def processes_of(folder: Path) -> dict[int, str]:
    """Every process of this machine that runs out of a folder, with its command line.

    The engine renames its processes, so what they have mapped is looked at too.
    """
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if str(folder) in line or str(folder) in (entry / "maps").read_text():
                    found[int(entry.name)] = line
    return found


def wait_for(is_so: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
    """Look until it is so; fails, and says what was waited for, when time is over."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.3)


class Output:
    """The lines of a verb that runs, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, word: str, timeout_s: float = 600.0) -> str:
        """The next line that has the word; fails when the verb ends or time is over before."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"{word!r} did not come in {timeout_s:.0f} s: {self}"
                ) from None
            assert line is not None, f"ended without {word!r}: {self}"
            self.seen.append(line)
            if word in line:
                return line

    def end(self, timeout_s: float = 600.0) -> tuple[int, str]:
        """Wait for the end; the exit code, and what the verb said to standard error."""
        code = self.process.wait(timeout_s)
        while (line := self._lines.get(timeout=10)) is not None:
            self.seen.append(line)
        assert self.process.stderr
        with self.process.stderr as stream:
            return code, stream.read()

    def stop(self) -> None:
        """Kill the verb if it runs still; for the end of a test."""
        self.process.kill()
        self.process.wait()

    def __str__(self) -> str:
        return f"exit code {self.process.poll()}, output:\n{''.join(self.seen)}"

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(None)
