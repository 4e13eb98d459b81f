"""Every way in which a connection can fail has its own message, with place and remedy."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.core.command import Script
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host
from tests.effects.sshd import Sshd, make_key, needs_sshd, refusal, running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def agent(*keys: Path) -> Iterator[dict[str, str]]:
    """An ssh-agent that holds some keys, ended on leaving."""
    said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    words = dict(word.split("=") for word in said.replace("\n", "").split(";") if "=" in word)
    env = {name.strip(): value for name, value in words.items()}
    try:
        for key in keys:
            full = {**os.environ, **env, "SSH_ASKPASS": "/bin/true", "DISPLAY": ""}
            subprocess.run(["ssh-add", "-q", key], env=full, check=True, stdin=subprocess.DEVNULL)
        yield env
    finally:
        os.kill(int(env["SSH_AGENT_PID"]), 15)


def answers(host: Host, hosts: dict[str, Host] | None = None) -> bool:
    shell = open_shell(host, hosts or {})
    result = shell.run(Script("echo yes"))
    shell.close()
    return result.text == "yes\n"


def test_a_wrong_port_is_refused(sshd: Sshd) -> None:
    port = free_port()
    message = refusal(sshd.host(port=port))
    assert message.startswith(f"near (127.0.0.1:{port}): it refuses connections on port {port}")
    assert "is sshd running there" in message


@pytest.mark.usefixtures("home")
def test_a_name_that_does_not_resolve() -> None:
    message = refusal(Host(name="far", address="no-such-host.invalid"))
    assert "the name 'no-such-host.invalid' does not resolve" in message
    assert "correct `address` in the inventory" in message


def test_a_silent_host_times_out(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  ConnectTimeout 1\n")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        # The queue of one is full, so that the next one is left without an answer.
        with socket.create_connection(("127.0.0.1", port)):
            message = refusal(Host(name="mute", address="127.0.0.1", port=port))
    assert "mute (127.0.0.1" in message and "timed out" in message


@pytest.mark.usefixtures("home")
def test_something_that_is_no_sshd() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        message = refusal(Host(name="web", address="127.0.0.1", port=server.getsockname()[1]))
        server.shutdown(socket.SHUT_RDWR)
    assert "hangs up before it speaks SSH" in message
    assert "MaxStartups" in message


def test_a_crowded_sshd_is_asked_again(tmp_path: Path, home: Path) -> None:
    needs_sshd()
    with running(tmp_path / "crowded", "MaxStartups 1:100:1\nLoginGraceTime 1") as server:
        server.allow(home / ".ssh" / "id_ed25519.pub")
        (home / ".ssh" / "known_hosts").write_text(server.known())
        # Holds the one place until the grace time is over.
        with socket.create_connection(("127.0.0.1", server.port)):
            assert answers(server.host())


def test_a_refused_key_names_user_and_keys(sshd: Sshd, tmp_path: Path) -> None:
    sshd.allow(make_key(tmp_path / "another"))
    message = refusal(sshd.host(user="root"))
    assert "it does not let 'root' in (tried ~/.ssh/id_ed25519: refused)" in message
    assert f"`ssh-copy-id -p {sshd.port} root@127.0.0.1`" in message


def test_no_key_at_all(sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    assert "no key at all: none in ~/.ssh, no agent" in refusal(sshd.host())


@pytest.mark.usefixtures("home")
def test_a_missing_identity_file_is_told_before_connecting() -> None:
    message = refusal(Host(name="far", address="127.0.0.1", port=1, identity="~/.ssh/id_far"))
    assert "its identity file ~/.ssh/id_far does not exist" in message


def test_a_key_with_a_passphrase_wants_the_agent(sshd: Sshd, home: Path) -> None:
    make_key(home / ".ssh" / "locked", passphrase="secret words")
    message = refusal(sshd.host(identity="~/.ssh/locked"))
    assert "~/.ssh/locked: has a passphrase" in message
    assert "`ssh-add ~/.ssh/locked`" in message


@pytest.mark.parametrize("content", ["", "no key\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n"])
def test_a_file_that_is_no_key(sshd: Sshd, home: Path, content: str) -> None:
    (home / ".ssh" / "odd").write_text(content)
    message = refusal(sshd.host(identity="~/.ssh/odd"))
    assert "~/.ssh/odd: no private key that we can read" in message


def test_a_home_of_nobody_is_a_file_that_does_not_exist(home: Path) -> None:
    message = refusal(Host(name="far", address="127.0.0.1", port=1, identity="~no.such.user/key"))
    assert "its identity file ~no.such.user/key does not exist" in message
    (home / ".ssh/config").write_text("Host *\n  UserKnownHostsFile ~no.such.user/known\n")
    assert "refuses connections" in refusal(Host(name="far", address="127.0.0.1", port=1))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("address", ["gpu..01", "g" * 64 + ".example"])
def test_a_name_that_none_can_be(address: str) -> None:
    assert f"the name {address!r} does not resolve" in refusal(Host(name="far", address=address))


def test_a_folder_where_a_key_should_be_is_said_among_what_was_tried(
    sshd: Sshd, home: Path
) -> None:
    (home / ".ssh/keys.pub").mkdir(parents=True)
    (home / ".ssh/keys").mkdir()
    (home / ".ssh/config").write_text("Host *\n  IdentityFile ~/.ssh/keys\n")
    assert "~/.ssh/keys: cannot be read (Is a directory)" in refusal(sshd.host())


def test_the_agent_s_key_is_used(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd.allow(make_key(tmp_path / "held"))
    with agent(tmp_path / "held") as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        assert answers(sshd.host())


def test_a_named_identity_keeps_the_agent_s_other_keys_out(
    sshd: Sshd, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [tmp_path / f"key{n}" for n in range(8)]
    for name in names:
        make_key(name)
    with agent(*names) as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        (home / ".ssh" / "id_ed25519").rename(home / ".ssh" / "mine")
        assert "hung up on" in refusal(sshd.host())
        assert answers(sshd.host(identity="~/.ssh/mine"))


def test_a_locked_identity_is_taken_from_the_agent(
    sshd: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = home / ".ssh" / "locked"
    sshd.allow(make_key(locked))
    with agent(locked) as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        words = ["ssh-keygen", "-q", "-p", "-N", "secret words", "-f", str(locked)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        assert answers(sshd.host(identity=str(locked)))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_every_kind_of_key(sshd: Sshd, home: Path, kind: str) -> None:
    sshd.allow(make_key(home / ".ssh" / f"my_{kind}", kind))
    assert answers(sshd.host(identity=f"~/.ssh/my_{kind}"))


def test_ssh_config_gives_name_port_and_key(sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "id_ed25519").rename(home / ".ssh" / "mine")
    lines = [
        "Host box",
        "  HostName 127.0.0.1",
        f"  Port {sshd.port}",
        "  IdentityFile ~/.ssh/mine",
    ]
    (home / ".ssh" / "config").write_text("\n".join(lines))
    assert answers(Host(name="gpu07", address="box"))


@pytest.mark.parametrize("line", ["Port", "ConnectTimeout soon", "Match who"])
def test_a_broken_ssh_config_is_told(sshd: Sshd, home: Path, line: str) -> None:
    (home / ".ssh" / "config").write_text(f"Host *\n  {line}\n")
    assert "your ssh_config cannot be used" in refusal(sshd.host())


def test_a_hop_by_name_and_a_chain(sshd: Sshd) -> None:
    hosts = {"gate": sshd.host(name="gate")}
    assert answers(sshd.host(proxy_jump="gate"), hosts)
    assert answers(sshd.host(proxy_jump=f"gate, root@127.0.0.1:{sshd.port}"), hosts)


def test_a_hop_of_ssh_config(sshd: Sshd, home: Path) -> None:
    lines = ["Host box", "  HostName 127.0.0.1", f"  ProxyJump 127.0.0.1:{sshd.port}"]
    (home / ".ssh" / "config").write_text("\n".join(lines))
    assert answers(Host(name="box", address="box", port=sshd.port))


def test_a_hop_that_fails_is_named(sshd: Sshd) -> None:
    port = free_port()
    message = refusal(sshd.host(proxy_jump="gate"), {"gate": sshd.host(name="gate", port=port)})
    assert message.startswith(f"gate (127.0.0.1:{port}, on the way to near): it refuses")


def test_a_target_that_the_hop_cannot_reach(sshd: Sshd) -> None:
    port = free_port()
    hosts = {"gate": sshd.host(name="gate")}
    message = refusal(sshd.host(port=port, proxy_jump="gate"), hosts)
    assert message.startswith(f"near (127.0.0.1:{port} through gate): gate cannot reach it")


def test_an_unknown_key_behind_a_hop_is_scanned_from_the_hop(sshd: Sshd, tmp_path: Path) -> None:
    with running(tmp_path / "inner") as inner:
        hosts = {"gate": sshd.host(name="gate", user="root")}
        message = refusal(inner.host(name="inner", proxy_jump="gate"), hosts)
    assert "its host key is not known" in message
    scan = f"ssh -p {sshd.port} root@127.0.0.1 ssh-keyscan -t ed25519 -p {inner.port} 127.0.0.1"
    assert scan in message


def test_paramiko_is_imported_for_a_connection_only() -> None:
    code = "import sys, firstlight.effects.ssh as s; print('paramiko' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
