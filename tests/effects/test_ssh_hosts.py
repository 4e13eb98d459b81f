"""The SSH shell on real hosts: login shells, root, hops, and a cable that is pulled."""

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.shell import AskPassword, Shell
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host
from tests.effects.sshd import make_key, refusal
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

pytestmark = pytest.mark.hosts


@pytest.fixture(autouse=True)
def at_home(ssh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME that knows the hosts and their key."""
    monkeypatch.setenv("HOME", str(ssh_home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ssh_home


def host(test: TestHost, user: str = "zoe", jump: str | None = None) -> Host:
    return Host(name=test.name, address=test.address, user=user, proxy_jump=jump)


def opened(test: TestHost, user: str, ask: AskPassword | None = None) -> Shell:
    return open_shell(host(test, user), {}, ask)


@pytest.fixture
def zoe(gpu01: TestHost) -> Iterator[Shell]:
    """An open shell as the user whose zsh is noisy."""
    shell = opened(gpu01, "zoe")
    yield shell
    shell.close()


@pytest.mark.parametrize("user", ["zoe", "finn", "bob", "root"])
def test_every_login_shell_gives_the_same_answer(gpu01: TestHost, user: str) -> None:
    shell = opened(gpu01, user)
    result = shell.run(Script('id -un; printf "%s\\n" "$@"', ("Loading (FP8): *", "a'b\n$HOME")))
    shell.close()
    assert result.text == f"{user}\nLoading (FP8): *\na'b\n$HOME\n"
    assert result.err == b""


WHO = Script('id -un; printf "%s\\n" "$1" "$LANG"', ("a 'b'",), sudo=True)
AS_ROOT = "root\na 'b'\nC.UTF-8\n"


def test_sudo_without_a_password_asks_nobody(zoe: Shell) -> None:
    assert zoe.run(WHO).text == AS_ROOT
    assert zoe.run(WHO).text == AS_ROOT


def test_sudo_with_a_password_asks_once_and_shows_it_to_no_process_list(gpu01: TestHost) -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "correct horse"

    shell = opened(gpu01, "finn", ask)
    assert shell.run(WHO).text == AS_ROOT
    seen = shell.run(Script("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ", sudo=True))
    assert b"correct horse" not in seen.out + seen.err and b"sudo" in seen.out
    shell.reopen()
    assert shell.run(WHO).text == AS_ROOT
    shell.close()
    assert asked == ["sudo password for finn on gpu01"]


def test_a_wrong_password_is_told_and_no_script_is_taken_for_one(gpu01: TestHost) -> None:
    shell = opened(gpu01, "finn", lambda _: "wrong horse")
    with pytest.raises(HostError, match="the sudo password for finn on gpu01 is wrong"):
        shell.run(WHO)
    shell.close()
    log = fleet.run(gpu01, "journalctl --no-pager --identifier sudo | grep finn | tail -n 1")
    assert "1 incorrect password attempt" in log.stdout


def test_a_password_that_nobody_can_be_asked_for(gpu01: TestHost) -> None:
    shell = opened(gpu01, "finn")
    with pytest.raises(HostError, match="sudo needs a password, and there is no terminal"):
        shell.run(WHO)
    shell.close()


def test_an_account_that_may_not_use_sudo(gpu01: TestHost) -> None:
    fleet.run(gpu01, "echo 'bob:pass word' | chpasswd")
    shell = opened(gpu01, "bob", lambda _: "pass word")
    with pytest.raises(HostError, match=r"sudo refuses bob on gpu01: .*not in the sudoers"):
        shell.run(WHO)
    shell.close()


def test_a_late_script_of_root_is_stopped_too(zoe: Shell) -> None:
    script = Script("sleep 613 & sleep 614", sudo=True)
    with pytest.raises(HostError, match="it was stopped"):
        zoe.run(script, timeout_s=5)
    assert zoe.run(Script("pgrep -f 'sleep 61[34]'")).text == ""


def test_a_job_left_behind_by_root_does_not_hold_us(zoe: Shell) -> None:
    result = zoe.run(Script("sleep 620 & echo $!", sudo=True))
    zoe.run(Script('kill "$1"', (result.text.strip(),), sudo=True))


def test_a_host_behind_a_hop(bastion: TestHost, gpu02: TestHost, tmp_path: Path) -> None:
    hosts = {"bastion": host(bastion)}
    shell = open_shell(host(gpu02, jump="bastion"), hosts)
    assert shell.run(Script("hostname")).text == "gpu02\n"
    data = os.urandom(5_000_000)
    (tmp_path / "f").write_bytes(data)
    target = PurePosixPath("~/a b/f")
    shell.send([ShipFile(tmp_path / "f", target, hashlib.sha256(data).hexdigest())], print)
    seen = shell.run(Script('sha256sum <"$HOME/a b/f"; rm -r "$HOME/a b"'))
    assert seen.text.split()[0] == hashlib.sha256(data).hexdigest()
    shell.close()


def change_key(home: Path, address: str, tmp_path: Path) -> None:
    """Put another key into known_hosts in place of the host's own."""
    known = home / ".ssh" / "known_hosts"
    words = ["ssh-keygen", "-q", "-R", address, "-f", str(known)]
    subprocess.run(words, check=True, capture_output=True)
    public = " ".join(make_key(tmp_path / "wrong").read_text().split()[:2])
    known.write_text(f"{known.read_text()}{address} {public}\n")


def test_a_hop_with_a_wrong_key_is_refused(
    bastion: TestHost, gpu02: TestHost, at_home: Path, tmp_path: Path
) -> None:
    change_key(at_home, bastion.address, tmp_path)
    message = refusal(host(gpu02, jump="bastion"), {"bastion": host(bastion)})
    assert message.startswith(f"bastion ({bastion.address}:22, on the way to gpu02): ")
    assert "host key has CHANGED" in message


def test_a_target_with_a_wrong_key_is_refused_behind_the_hop(
    bastion: TestHost, gpu02: TestHost, at_home: Path, tmp_path: Path
) -> None:
    change_key(at_home, gpu02.address, tmp_path)
    message = refusal(host(gpu02, jump=f"zoe@{bastion.address}"))
    assert message.startswith(f"gpu02 ({gpu02.address}:22 through zoe@{bastion.address}): ")
    assert "host key has CHANGED" in message
    assert f"ssh -p 22 zoe@{bastion.address} ssh-keyscan" in message


def test_a_host_without_a_way_to_it_is_told(gpu02: TestHost, at_home: Path) -> None:
    (at_home / ".ssh" / "config").write_text("Host *\n  ConnectTimeout 3\n")
    message = refusal(host(gpu02))
    assert f"gpu02 ({gpu02.address}:22): " in message
    assert "cannot be reached" in message or "timed out" in message


@pytest.fixture
def cable(gpu01: TestHost) -> Iterator[TestHost]:
    """gpu01, whose cable a test may pull."""
    yield gpu01
    fleet.link_up(gpu01)


def lost_after(shell: Shell, host: TestHost, script: str) -> float:
    """Seconds from a pulled cable to ConnectionLost."""
    pulled: list[float] = []

    def pull() -> None:
        fleet.link_down(host)
        pulled.append(time.monotonic())

    threading.Timer(2, pull).start()
    with pytest.raises(ConnectionLost):
        shell.run(Script(script), timeout_s=300)
    return time.monotonic() - pulled[0]


def test_a_pulled_cable_is_noticed_long_before_the_script_is_late(cable: TestHost) -> None:
    shell = opened(cable, "zoe")
    assert lost_after(shell, cable, "sleep 300") < 60
    fleet.link_up(cable)
    shell.reopen()
    assert shell.run(Script("echo again")).text == "again\n"
    shell.close()


def test_a_pulled_cable_behind_a_hop_is_noticed_too(bastion: TestHost, gpu02: TestHost) -> None:
    shell = open_shell(host(gpu02, jump="bastion"), {"bastion": host(bastion)})
    try:
        assert lost_after(shell, gpu02, "sleep 300") < 60
    finally:
        fleet.link_up(gpu02)
        shell.close()


def test_cut_sessions_are_a_lost_connection(gpu01: TestHost) -> None:
    shell = opened(gpu01, "zoe")
    threading.Timer(1, fleet.kill_sshd_sessions, args=(gpu01,)).start()
    with pytest.raises(ConnectionLost):
        shell.run(Script("sleep 300"), timeout_s=300)
    shell.close()


def test_a_full_disk_of_a_host_is_told_by_path_and_size(zoe: Shell, tmp_path: Path) -> None:
    mounted = Script('mkdir -p "$1" && mount -t tmpfs -o size=1m,mode=777 none "$1"', ("/srv/s",))
    assert zoe.run(Script(mounted.text, mounted.args, sudo=True)).ok
    (tmp_path / "f").write_bytes(b"x" * 2_000_000)
    file = ShipFile(tmp_path / "f", PurePosixPath("/srv/s/f"), "0" * 64)
    with pytest.raises(HostError, match=r"no room in /srv/s: 1.9 MiB needed, 1.0 MiB free"):
        zoe.send([file], print)
    zoe.run(Script("umount /srv/s", sudo=True))
