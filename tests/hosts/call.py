"""Test hosts: runs a program of this machine and, when it fails, says what it printed."""

from __future__ import annotations

import subprocess


class FleetError(RuntimeError):
    """A test host could not be made, reached or stopped."""


def call(*argv: str, stdin: str = "", timeout_s: float = 900.0) -> str:
    """The program's output; raises FleetError with the tail of it for any exit status but 0."""
    done = subprocess.run(
        argv,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
    )
    if done.returncode != 0:
        raise FleetError(
            f"{argv[0]} gave exit status {done.returncode}: {argv}\n{done.stdout[-2000:]}"
        )
    return done.stdout
