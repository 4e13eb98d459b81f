"""The account on the host: who we are, what systemd allows us, and how we become root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from firstlight.hosts.answers import Answers, whole

SudoKind = Literal["root", "passwordless", "password", "none", "unknown"]

# (words of sudo or sudo-rs, what they mean); the first that fits counts.
_SUDO_WORDS: tuple[tuple[str, SudoKind], ...] = (
    (r"not asked:", "unknown"),
    (r"no new privileges|setuid|effective uid is not 0|must be owned by uid 0", "none"),
    (r"not in the sudoers file|may not run sudo|not allowed to|can't do that", "none"),
    (r"password is required|terminal is required|no tty present|must have a tty", "password"),
    (r"(?:interactive )?authentication (?:is )?required|askpass", "password"),
)
_LISTED_FREE = re.compile(r"^\s*\((?:ALL|root)\b[^)]*\)\s*NOPASSWD:\s*(?:\w+:\s*)*ALL\s*$", re.M)
_MANAGER_STATES = ("initializing", "starting", "running", "degraded")


@dataclass(frozen=True)
class User:
    """The user that we are on the host."""

    uid: int | None = None
    name: str | None = None
    shell: PurePosixPath | None = None
    home: PurePosixPath | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Systemd:
    """systemd as this user finds it. `is_init`: it is PID 1. States are systemd's own words.

    Without `linger` the user's manager, and all that it runs, ends with the last session.
    """

    is_init: bool | None = None
    state: str | None = None
    version: int | None = None
    linger: bool | None = None
    runtime_dir: PurePosixPath | None = None
    user_manager: str | None = None
    kill_user_processes: bool | None = None

    @property
    def system_usable(self) -> bool:
        """True when the system's manager takes orders."""
        return bool(self.is_init) and self.state in _MANAGER_STATES

    @property
    def user_usable(self) -> bool:
        """True when the user's own manager answers."""
        return self.user_manager in _MANAGER_STATES


@dataclass(frozen=True)
class Sudo:
    """How to become root. `unknown` comes with the reason, in sudo's words or ours.

    `password`: sudo wants one first; most releases tell only then whether the user may at all.
    """

    kind: SudoKind = "unknown"
    reason: str = ""


def read_user(answers: Answers) -> User:
    """The user, from id and the password database."""
    shell, home = answers.one("user.shell"), answers.one("user.home")
    return User(
        uid=whole(answers.one("user.uid")),
        name=answers.one("user.name"),
        shell=PurePosixPath(shell) if shell else None,
        home=PurePosixPath(home) if home else None,
        groups=answers.words("user.groups"),
    )


def read_systemd(answers: Answers) -> Systemd:
    """systemd; a host that has none gives is_init False and no more."""
    init, runtime = answers.one("systemd.init"), answers.one("systemd.runtime")
    manager = answers.one("systemd.user")
    words = answers.words("systemd.version")
    kills = answers.one("systemd.kill_user")
    return Systemd(
        is_init=None if init is None else init == "systemd",
        state=answers.one("systemd.state"),
        version=whole(words[1]) if len(words) > 1 else None,
        linger=answers.yes("systemd.linger"),
        runtime_dir=PurePosixPath(runtime) if runtime else None,
        user_manager=manager.split()[-1] if manager else None,
        kill_user_processes=None if kills is None else kills.endswith("=yes"),
    )


def read_sudo(answers: Answers) -> Sudo:
    """How this user becomes root, from `sudo -n` (its listing where a try would send mail)."""
    if answers.one("user.uid") == "0":
        return Sudo("root")
    text, rc = answers.values.get("sudo"), whole(answers.one("sudo.rc"))
    if text is None:
        return Sudo("unknown", "sudo gave no answer")
    if rc == 127:
        return Sudo("none", "sudo is not installed")
    said = " ".join(line.strip() for line in text.splitlines()[1:] if line.strip())[:300]
    for pattern, kind in _SUDO_WORDS:
        if re.search(pattern, said, re.IGNORECASE):
            return Sudo(kind, said)
    if rc == 0:
        listed = "may run the following" in text
        return Sudo("passwordless" if not listed or _LISTED_FREE.search(text) else "password")
    return Sudo("unknown", said or f"sudo ended with status {rc}")
