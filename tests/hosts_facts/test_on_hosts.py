"""The script over SSH on a real host: its systemd and sudo, shells that speak, few tools."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.effects.ssh import open_shell
from firstlight.hosts.doctor import findings
from firstlight.hosts.facts import Facts, parse, python_for
from firstlight.hosts.inventory import Host
from firstlight.hosts.pythons import Python
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

PROGRAM = Path(__file__).parents[2] / "firstlight/remote/facts.sh"


@pytest.fixture(autouse=True)
def home(ssh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A HOME that knows the hosts."""
    monkeypatch.setenv("HOME", str(ssh_home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def ask(host: TestHost, user: str, root: str = "~/.local/share/firstlight") -> Facts:
    target = Host(name=host.name, address=host.address, user=user, identity=str(host.identity))
    with contextlib.closing(open_shell(target, {})) as shell:
        return parse(shell.run(Script(PROGRAM.read_text(), (root,)), timeout_s=90).out)


def test_a_user_with_zsh_and_free_sudo(gpu01: TestHost) -> None:
    found = ask(gpu01, "zoe")
    assert found.notes == ()
    assert (found.user.name, found.user.shell) == ("zoe", PurePosixPath("/usr/bin/zsh"))
    assert found.sudo.kind == "passwordless"
    assert (found.system.id, found.system.version) == ("debian", "12")
    assert found.disk_root.path == PurePosixPath("/home/zoe/.local/share/firstlight")
    assert found.disk_root.near is not None and found.disk_root.near.is_relative_to("/home/zoe")
    assert found.taken(22)


def test_a_user_with_fish_and_a_password(gpu01: TestHost) -> None:
    found = ask(gpu01, "finn")
    assert found.sudo.kind == "password", found.sudo
    assert found.user.shell == PurePosixPath("/usr/bin/fish")


def test_a_user_without_sudo_and_without_linger(gpu01: TestHost) -> None:
    found = ask(gpu01, "nolin")
    assert found.sudo.kind in ("none", "password"), found.sudo
    assert found.systemd.linger is False
    assert any("nolin does not linger" in f.what for f in findings(found))


def test_a_user_that_lingers_and_the_system_manager(gpu01: TestHost) -> None:
    found = ask(gpu01, "bob").systemd
    assert found.is_init and found.system_usable and found.version == 252
    assert found.linger and found.user_usable
    assert found.runtime_dir is not None and found.runtime_dir.is_relative_to("/run/user")


def test_root_on_a_minimal_host(gpu01: TestHost) -> None:
    found = ask(gpu01, "root", "/srv/firstlight")
    assert found.sudo.kind == "root" and found.notes == ()
    boot = fleet.run(gpu01, "cat /proc/sys/kernel/random/boot_id").stdout.strip()
    assert found.system.boot_id == boot
    python = python_for(found, ["3.10", "3.11"])
    assert isinstance(python, Python) and python.path == PurePosixPath("/usr/bin/python3.11")
    assert found.tool("nvidia-ctk") is None and found.gpus == () and found.driver.problems == ()


def test_clocks_of_one_machine_agree(gpu01: TestHost) -> None:
    found = ask(gpu01, "root")
    assert not [f for f in findings(found, time.time()) if "clock" in f.what]


def test_a_sudo_that_would_mail_is_not_asked(gpu01: TestHost, gpu01_user: str) -> None:
    mailbox = "/var/tmp/mailbox"
    mailer = f"#!/bin/sh\ncat >>{mailbox}\n"
    fleet.run(gpu01, "install -m 755 /dev/stdin /usr/sbin/sendmail", stdin=mailer)
    try:
        found = ask(gpu01, gpu01_user)
        assert found.sudo.kind == "unknown" and "mail" in found.sudo.reason
        assert fleet.run(gpu01, f"test -e {mailbox}", check=False).returncode == 1
    finally:
        fleet.run(gpu01, f"rm -f /usr/sbin/sendmail {mailbox}")


def test_the_script_leaves_nothing_behind(gpu01: TestHost, gpu01_user: str) -> None:
    look = f"find /home/{gpu01_user} /tmp /var/tmp -newer /var/tmp/before | sort"
    fleet.run(gpu01, "touch /var/tmp/before")
    ask(gpu01, gpu01_user)
    after = fleet.run(gpu01, look).stdout.split()
    fleet.run(gpu01, "rm /var/tmp/before")
    assert [path for path in after if path not in ("/var/tmp", "/tmp")] == []
