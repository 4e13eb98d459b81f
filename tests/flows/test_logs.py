"""The end of a log that comes in pieces, whole lines at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.effects.shell import Result
from firstlight.flows.logs import last_lines
from firstlight.hosts.inventory import Host
from firstlight.serve.launch import Deployment
from tests.flows.test_flows_fake import FakeShell

HOST = Host(name="gpu01", address="192.0.2.1")
SERVER = Deployment("small", PurePosixPath("/d/a1"), PurePosixPath("/lib"), "process")
SAID = "one\ntwo é\r 5%\r10%\n\nthree\nfo".encode()


def saying(text: bytes, piece: int) -> Callable[[Script], Result]:
    """A host whose server said this, of which it gives so many bytes at a time."""

    def answer(script: Script) -> Result:
        at = int(script.args[8].rpartition(":")[2] or 0)
        part = text[at : at + piece]
        return Result(0, f"@state process\n@log file f {at} {len(part)}\n".encode() + part)

    return answer


@pytest.mark.parametrize("piece", [1, 4, 1000])
@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, []),
        (1, ["three"]),
        (3, ["two é\r 5%\r10%", "", "three"]),
        (9, ["one", "two é\r 5%\r10%", "", "three"]),
    ],
)
def test_the_last_lines_of_a_log(piece: int, count: int, told: list[str]) -> None:
    shell = FakeShell(HOST, saying(SAID, piece))
    lines, rest, offset = last_lines(shell, SERVER, count)
    assert [line.decode() for line in lines] == told
    assert (rest, offset) == (b"fo", f"f:{len(SAID)}")


def test_a_log_that_says_nothing_has_no_line() -> None:
    assert last_lines(FakeShell(HOST, saying(b"", 9)), SERVER, 5) == ([], b"", "")
