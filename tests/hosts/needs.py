"""Test hosts: what this machine lacks to boot them, in words for a skipped test."""

from __future__ import annotations

import os
import shutil

PROGRAMS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Each program that the harness calls, and the package that brings it."""


def missing() -> str | None:
    """Why no host can be booted here, or None."""
    if os.geteuid() != 0:
        return "test hosts need root; run the tests as root"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if not lacking:
        return None
    packages = sorted({PROGRAMS[program] for program in lacking})
    return (
        f"test hosts need {', '.join(lacking)}; run .ci/packages, or install {' '.join(packages)}"
    )
