"""systemd as a user finds it, and the ways to root."""

from pathlib import PurePosixPath

import pytest

from firstlight.hosts.account import Sudo, read_sudo
from tests.hosts_facts.wire import answers, plain

MODERN = "Sudo version 1.9.17p2\n"
LISTING = MODERN + "User ada may run the following commands on gpu01:\n    {}\n"


@pytest.mark.parametrize(
    ("text", "rc", "kind"),
    [
        ("Sudo version 1.9.13p3\n", "0", "passwordless"),
        ("Sudo version 1.9.13p3\nsudo: a password is required\n", "1", "password"),
        (
            "Sudo version 1.9.5\nsudo: a terminal is required to read the password; either use"
            " the -S option to read from standard input or configure an askpass helper\n",
            *("1", "password"),
        ),
        (
            "Sudo version 1.8\nsudo: no tty present and no askpass program specified\n",
            "1",
            "password",
        ),
        ("Sudo version 1.8\nsudo: sorry, you must have a tty to run sudo\n", "1", "password"),
        ("sudo-rs 0.2.8\nsudo: interactive authentication is required\n", "1", "password"),
        ("sudo-rs 0.2.8\nsudo: I'm sorry ada. I'm afraid I can't do that\n", "1", "none"),
        ("Sudo version 1.9\nada is not in the sudoers file.\n", "1", "none"),
        ("Sudo version 1.9\nSorry, user ada may not run sudo on gpu01.\n", "1", "none"),
        ('Sudo version 1.9\nsudo: The "no new privileges" flag is set\n', "1", "none"),
        (
            "Sudo version 1.9\nsudo: effective uid is not 0, is sudo installed setuid root?\n",
            "1",
            "none",
        ),
        ("Sudo version 1.9\nnot asked: sudo would mail the administrator\n", "0", "unknown"),
        ("Sudo version 1.9\n", "124", "unknown"),
        ("Sudo version 1.9\nsudo: something of tomorrow\n", "1", "unknown"),
        ("", "127", "none"),
        (LISTING.format("(ALL : ALL) NOPASSWD: ALL"), "0", "passwordless"),
        (LISTING.format("(root) NOPASSWD: SETENV: ALL"), "0", "passwordless"),
        (LISTING.format("(ALL) ALL"), "0", "password"),
        (LISTING.format("(root) NOPASSWD: /usr/bin/apt"), "0", "password"),
        (MODERN + "sudo: a password is required\n", "1", "password"),
    ],
)
def test_words_of_sudo(text: str, rc: str, kind: str) -> None:
    found = read_sudo(answers(user__uid="1000", sudo=text, sudo__rc=rc))
    assert found.kind == kind
    assert found.reason or kind == "passwordless" or (kind, rc) == ("password", "0")


def test_root_needs_no_sudo() -> None:
    assert read_sudo(answers(user__uid="0")) == Sudo("root")


def test_no_answer_is_unknown_and_says_so() -> None:
    assert read_sudo(answers(user__uid="1000")) == Sudo("unknown", "sudo gave no answer")


def test_user() -> None:
    user = plain().user
    assert (user.uid, user.name, user.shell) == (1000, "ada", PurePosixPath("/usr/bin/zsh"))
    assert user.groups == ("ada", "video")


def test_systemd_of_a_healthy_host() -> None:
    systemd = plain(systemd__kill_user="KillUserProcesses=no").systemd
    assert systemd.is_init and systemd.system_usable and systemd.user_usable and systemd.linger
    assert systemd.version == 252 and systemd.kill_user_processes is False


@pytest.mark.parametrize(
    ("init", "state", "usable"),
    [
        ("systemd", "degraded", True),
        ("systemd", "starting", True),
        ("systemd", "maintenance", False),
        ("systemd", "stopping", False),
        ("process_api", "offline", False),
        ("bash", "running", False),
    ],
)
def test_whether_the_system_manager_takes_orders(init: str, state: str, usable: bool) -> None:
    found = plain(systemd__init=init, systemd__state=state).systemd
    assert found.system_usable is usable


@pytest.mark.parametrize("said", ["offline\n", "Failed to connect to bus: No medium found", ""])
def test_a_user_manager_that_does_not_answer(said: str) -> None:
    assert not plain(systemd__user=said).systemd.user_usable
