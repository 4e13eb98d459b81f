"""Python interpreters of a host, and which of them a release is made with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.hosts.answers import Answers, numbers
from firstlight.hosts.finding import Finding
from firstlight.hosts.machine import System

OLDEST = (3, 9)
_RELEASE = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,5})")
# Newest CPython last, as the system's own packages offer them: (id, first part of the version).
_PACKAGED = {
    ("debian", "11"): ("3.9",),
    ("debian", "12"): ("3.11",),
    ("debian", "13"): ("3.13",),
    ("ubuntu", "20"): ("3.8", "3.9"),
    ("ubuntu", "22"): ("3.10", "3.11"),
    ("ubuntu", "24"): ("3.12",),
    ("ubuntu", "25"): ("3.13",),
    ("ubuntu", "26"): ("3.14",),
    ("el", "8"): ("3.9", "3.11", "3.12"),
    ("el", "9"): ("3.9", "3.11", "3.12"),
    ("el", "10"): ("3.12",),
    ("fedora", "41"): ("3.9", "3.10", "3.11", "3.12", "3.13"),
    ("fedora", "42"): ("3.9", "3.10", "3.11", "3.12", "3.13"),
    ("fedora", "43"): ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14"),
    ("fedora", "44"): ("3.10", "3.11", "3.12", "3.13", "3.14"),
}


@dataclass(frozen=True)
class Python:
    """One interpreter by its real path. `venv_ok`: its own venv module can make one with pip.

    `lacks` names standard modules that it was built without. `headers`: Python.h is there, which
    building extensions needs.
    """

    version: str
    path: PurePosixPath
    implementation: str = "cpython"
    venv_ok: bool = True
    headers: bool = False
    final: bool = True
    free_threaded: bool = False
    debug: bool = False
    bits: int = 64
    lacks: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """`3.12` of `3.12.7`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def faults(self) -> tuple[str, ...]:
        """Why no release can be made with it, whatever its version."""
        checks = (
            (self.implementation != "cpython", f"is {self.implementation}"),
            (self.free_threaded, "is free-threaded"),
            (self.debug, "is a debug build"),
            (self.bits != 64, f"has {self.bits} bits"),
            (not self.final, "is a pre-release"),
            (bool(self.lacks), f"lacks {', '.join(self.lacks)}"),
        )
        return tuple(why for wrong, why in checks if wrong)


def read_pythons(answers: Answers) -> tuple[Python, ...]:
    """Interpreters from 3.9 on, newest first; of equal ones the system's own first."""
    rows = (line.split("\t") for line in answers.lines("pythons"))
    found = {python.path: python for row in rows if (python := _python(row))}
    return tuple(sorted(found.values(), key=_order))


def _python(row: Sequence[str]) -> Python | None:
    if len(row) != 9 or not _RELEASE.fullmatch(row[0]) or numbers(row[0]) < OLDEST:
        return None
    version, level, implementation, flags, bits, venv, headers, lacks, path = row
    return Python(
        version=version,
        path=PurePosixPath(path),
        implementation=implementation,
        venv_ok=venv == "yes",
        headers=headers == "yes",
        final=level == "final",
        free_threaded="t" in flags,
        debug="d" in flags,
        bits=32 if bits == "32" else 64,
        lacks=tuple(filter(None, lacks.split(","))),
    )


def _order(python: Python) -> tuple[tuple[int, ...], bool, str]:
    newest_first = tuple(-part for part in numbers(python.version))
    return newest_first, not str(python.path).startswith("/usr/"), str(python.path)


def choose(pythons: Sequence[Python], system: System, supported: Sequence[str]) -> Python | Finding:
    """The newest interpreter of a supported series that a release can be made with.

    A venv is made without ensurepip, so only the interpreter itself matters. When there is none:
    a finding with what was found, what is needed, and how to get it.
    """
    fit = [p for p in pythons if p.series in supported and not p.faults]
    if fit:
        return min(fit, key=_order)
    found = "; ".join(_describe(python) for python in pythons) or "none from 3.9 on"
    needed = f"no Python that a release can use: needed is CPython {_either(supported)}"
    return Finding("error", f"{needed}; found: {found}", how_to_get(system, supported))


def _describe(python: Python) -> str:
    faults = f", but it {' and '.join(python.faults)}" if python.faults else ""
    return f"{python.version} at {python.path}{faults}"


def _either(supported: Sequence[str]) -> str:
    series = sorted(supported, key=numbers)
    return " or ".join(filter(None, (", ".join(series[:-1]), *series[-1:])))


def how_to_get(system: System, supported: Sequence[str]) -> str:
    """The line that installs a supported series, from the system's packages where they have one."""
    uv = f"uv python install {max(supported, key=numbers, default='3.12')}"
    major = (system.version or "").partition(".")[0]
    is_el = system.family == "fedora" and system.id != "fedora"
    offered = _PACKAGED.get(("el" if is_el else system.id or "", major), ())
    packaged = [series for series in offered if series in supported]
    if not packaged:
        return f"run `{uv}` on the host (as the same user)"
    if system.family == "debian":
        line = f"sudo apt-get install -y python{packaged[-1]} python{packaged[-1]}-venv"
    else:
        line = f"sudo dnf install -y python{packaged[-1]}"
    return f"run `{line}` on the host, or without root `{uv}`"
