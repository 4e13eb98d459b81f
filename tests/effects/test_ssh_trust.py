"""Host keys: unknown, changed and revoked ones are refused, with words that help."""

import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import HostError, Untrusted
from firstlight.effects.ssh import open_shell
from tests.effects.sshd import Sshd, make_key, refusal


def shown(sshd: Sshd, kind: str = "ed25519") -> str:
    """The fingerprint as OpenSSH shows it."""
    words = ["ssh-keygen", "-lf", str(sshd.folder / f"host_{kind}.pub")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]


def greets(sshd: Sshd) -> bool:
    shell = open_shell(sshd.host(), {})
    result = shell.run(Script("echo hello"))
    shell.close()
    return result.text == "hello\n"


def known_hosts(home: Path) -> Path:
    return home / ".ssh" / "known_hosts"


def test_an_unknown_key_is_refused_with_its_fingerprint_and_the_commands(
    sshd: Sshd, home: Path
) -> None:
    known_hosts(home).unlink()
    message = refusal(sshd.host())
    scan = f"ssh-keyscan -t ed25519 -p {sshd.port} 127.0.0.1"
    assert message.startswith(f"near (127.0.0.1:{sshd.port}): its host key is not known")
    assert f"ssh-ed25519 {shown(sshd)}" in message
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in message
    assert f"{scan} | ssh-keygen -lf -" in message
    assert f"{scan} >> ~/.ssh/known_hosts" in message
    assert not known_hosts(home).exists()


def test_the_advice_makes_the_folder_where_there_is_none(sshd: Sshd, home: Path) -> None:
    sshd_host = sshd.host()
    known_hosts(home).unlink()
    assert "mkdir" not in refusal(sshd_host)
    shutil.rmtree(home / ".ssh")
    line = next(line for line in refusal(sshd_host).splitlines() if ">>" in line)
    command = line.partition(":")[2].strip()
    assert command.startswith("mkdir -p -m 700 ~/.ssh && ssh-keyscan ")
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert known_hosts(home).parent.stat().st_mode & 0o777 == 0o700
    assert known_hosts(home).read_text()


def test_a_key_that_nobody_vouches_for_is_told_from_a_host_that_is_down(
    sshd: Sshd, home: Path
) -> None:
    known_hosts(home).write_text("")
    with pytest.raises(Untrusted):
        open_shell(sshd.host(), {}).close()
    with pytest.raises(HostError) as caught:
        open_shell(sshd.host(port=1), {}).close()
    assert not isinstance(caught.value, Untrusted)


def test_the_command_of_the_message_makes_the_host_known(sshd: Sshd, home: Path) -> None:
    known_hosts(home).write_text("")
    line = next(line for line in refusal(sshd.host()).splitlines() if ">>" in line)
    command = line.partition(":")[2]
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert greets(sshd)


def test_a_changed_key_is_refused_with_both_fingerprints_and_the_line(
    sshd: Sshd, home: Path, tmp_path: Path
) -> None:
    old = " ".join(make_key(tmp_path / "old").read_text().split()[:2])
    known_hosts(home).write_text(f"# mine\n[127.0.0.1]:{sshd.port} {old}\n")
    message = refusal(sshd.host())
    assert "host key has CHANGED" in message
    assert "(~/.ssh/known_hosts:2)" in message
    assert f"offered is ssh-ed25519 {shown(sshd)}" in message
    assert message.count("SHA256:") == 2
    remove = next(line for line in message.splitlines() if "ssh-keygen -R" in line)
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f ~/.ssh/known_hosts" in remove
    subprocess.run(["bash", "-c", remove.partition(":")[2]], check=True, capture_output=True)
    assert "is not known" in refusal(sshd.host())


def test_a_revoked_key_is_refused_even_when_it_is_known_too(sshd: Sshd, home: Path) -> None:
    known_hosts(home).write_text(f"{sshd.known()}@revoked * {sshd.public()}\n")
    assert "is marked as revoked (~/.ssh/known_hosts:2)" in refusal(sshd.host())


def test_a_hashed_known_hosts_is_understood(sshd: Sshd, home: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known_hosts(home)], capture_output=True)
    assert "127.0.0.1" not in known_hosts(home).read_text()
    assert greets(sshd)


def test_the_host_is_asked_for_the_kind_of_key_that_we_know(sshd: Sshd, home: Path) -> None:
    known_hosts(home).write_text(sshd.known("ecdsa"))
    assert greets(sshd)


def test_ssh_config_says_where_known_hosts_is(sshd: Sshd, home: Path) -> None:
    known_hosts(home).rename(home / "other hosts")
    config = home / ".ssh" / "config"
    config.write_text('Host 127.*\n  UserKnownHostsFile "~/other hosts"\n')
    assert greets(sshd)
    config.write_text("Host 127.*\n  UserKnownHostsFile ~/nowhere\n")
    assert ">> ~/nowhere" in refusal(sshd.host())


def test_a_host_key_alias_is_looked_up_as_such(sshd: Sshd, home: Path) -> None:
    known_hosts(home).write_text(f"tunnel {sshd.public()}\n")
    (home / ".ssh" / "config").write_text("Host 127.*\n  HostKeyAlias tunnel\n")
    assert greets(sshd)


def test_strict_host_key_checking_cannot_be_switched_off(sshd: Sshd, home: Path) -> None:
    known_hosts(home).unlink()
    config = "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    (home / ".ssh" / "config").write_text(config)
    assert "is not known" in refusal(sshd.host())
