"""The error tree: what went wrong, where, what to do, and the exit code that says so.

FirstlightError            1
├── ConfigError            2   a file that people wrote is wrong; carries every fault
│   └── PolicyError        5   a profile asks for what its own policy rules out
├── HostError              3   a host cannot be reached, refuses, or lacks something
│   ├── ConnectionLost     3   the link broke; what ran on the host may still run
│   └── Untrusted          3   a host shows a key that known_hosts does not vouch for
├── StepError              4   a step of a plan failed on a host
├── ProofError             5   the server runs but is not what was asked for
└── Detached             130   the person stopped watching; the host goes on
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong at one place of one file; line and column count from 1, 0 = whole file."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class FirstlightError(Exception):
    """Anything a person can be told in one message; `where` and `remedy` may be empty."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.remedy = what, where, remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  -> {self.remedy}" if self.remedy else head


class ConfigError(FirstlightError):
    """Files that people wrote do not hold together; every fault is listed at once."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault], *, remedy: str = "") -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(str(fault) for fault in self.faults), remedy=remedy)


class PolicyError(ConfigError):
    """A profile whose only fault is that it asks for what its own policy rules out."""

    exit_code = 5


class HostError(FirstlightError):
    """A host cannot be reached, refuses us, or lacks what the plan needs."""

    exit_code = 3


class ConnectionLost(HostError):
    """The link to a host broke; nothing is known of the command that was running."""


class Untrusted(HostError):
    """A host shows a key that nobody vouches for: asking it again is no remedy."""


class StepError(FirstlightError):
    """A step of a plan failed; `log` holds the lines that say why.

    `file` is the whole log on that host, where nothing in it has said yet what to do.
    """

    exit_code = 4

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", log: str = "", file: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.log, self.file = log, file

    def __str__(self) -> str:
        quoted = "\n".join(f"  | {line}" for line in self.log.splitlines())
        return f"{super().__str__()}\n{quoted}" if quoted else super().__str__()


class ProofError(FirstlightError):
    """Something works, but what it gives is not what was asked for."""

    exit_code = 5


class Detached(FirstlightError):
    """The person stopped watching; what runs on the host goes on."""

    exit_code = 130
