"""Hosts that cannot be reached or do not let us in: which, why, and what to type."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import yaml

from tests.effects.sshd import Sshd, fill_home, make_key, needs_sshd, running
from tests.flows.project import INVOKE
from tests.flows.tiny import Tiny, make_tiny, make_tiny_lock, refused
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

CLOSED = "/srv/closed/root"


@pytest.fixture(scope="module")
def one_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd on a loopback port."""
    needs_sshd()
    with running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def far(tiny: Tiny, one_sshd: Sshd) -> Tiny:
    """A tiny project whose default host `near` is reached by SSH, and lets us in."""
    one_sshd.allow(fill_home(tiny.project.home))
    (tiny.project.home / ".ssh/known_hosts").write_text(one_sshd.known())
    set_host(tiny, address="127.0.0.1", port=one_sshd.port, root=str(tiny.root))
    return tiny


def set_host(tiny: Tiny, **entry: object) -> None:
    """Make `near` the only host beside this machine, and the default."""
    defaults = {"host": "near", "profile": "tiny"}
    local = yaml.safe_load(tiny.project.read("inventory/hosts.yaml"))["hosts"][0]
    env = local["env"]
    data = {"schema": 1, "defaults": defaults, "hosts": [{"name": "near", "env": env, **entry}]}
    tiny.project.write("inventory/hosts.yaml", yaml.safe_dump(data))


def fails(tiny: Tiny, *verbs: str) -> str:
    """The message with which each of the verbs ends; nothing is made on the host."""
    messages = {refused(tiny.project.invoke(verb), 3) for verb in verbs}
    assert not tiny.root.exists()
    (message,) = messages
    return message


def test_the_host_of_these_tests_lets_us_in(far: Tiny) -> None:
    assert "release  none" in far.project.invoke("status", check=True).stdout


def test_a_name_that_does_not_resolve(far: Tiny) -> None:
    set_host(far, address="no-such-host.invalid")
    message = fails(far, "build", "status")
    assert "near (no-such-host.invalid:22): the name 'no-such-host.invalid' does not" in message
    assert "-> correct `address` in the inventory" in message


def test_a_port_that_refuses(far: Tiny) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        set_host(far, address="127.0.0.1", port=port)
        message = fails(far, "build", "deploy")
    assert f"near (127.0.0.1:{port}): it refuses connections on port {port}" in message
    assert "-> is sshd running there, and is that its port?" in message


def test_a_port_that_speaks_something_else(far: Tiny) -> None:
    class Web(socketserver.BaseRequestHandler):
        """Somebody who does not speak SSH."""

        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        set_host(far, address="127.0.0.1", port=port)
        message = fails(far, "facts")
        server.shutdown()
    assert f"near (127.0.0.1:{port}): something answers, but it hangs up" in message
    assert "-> is that the port of an sshd?" in message


@pytest.mark.slow
def test_a_host_that_does_not_answer(far: Tiny) -> None:
    """A listener whose queue is full takes no connection: what a firewall that drops looks like."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for visitor in (first, second):
            visitor.setblocking(False)
            visitor.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        set_host(far, address="127.0.0.1", port=port)
        message = fails(far, "build")
    assert f"near (127.0.0.1:{port}): no answer: the connection timed out" in message
    assert "-> is it up, and does a firewall let us?" in message


def test_a_key_that_is_not_accepted(far: Tiny, one_sshd: Sshd, tmp_path: Path) -> None:
    one_sshd.allow(make_key(tmp_path / "another"))
    message = fails(far, "build", "up")
    assert "does not let " in message and "id_ed25519: refused" in message
    assert "ssh-copy-id" in message


def test_a_host_key_that_is_not_known(far: Tiny, one_sshd: Sshd) -> None:
    (far.project.home / ".ssh/known_hosts").write_text("")
    message = fails(far, "build", "facts")
    assert "its host key is not known; it offers ssh-ed25519 SHA256:" in message
    assert f"ssh-keyscan -t ed25519 -p {one_sshd.port} 127.0.0.1 | ssh-keygen -lf -" in message
    assert (far.project.home / ".ssh/known_hosts").read_text() == ""


def test_a_host_key_that_has_changed(far: Tiny, one_sshd: Sshd, tmp_path: Path) -> None:
    words = make_key(tmp_path / "old").read_text().split()
    line = f"[127.0.0.1]:{one_sshd.port} {words[0]} {words[1]}\n"
    (far.project.home / ".ssh/known_hosts").write_text(line)
    message = fails(far, "build", "deploy")
    assert "its host key has CHANGED" in message
    assert f"ssh-keygen -R '[127.0.0.1]:{one_sshd.port}'" in message
    assert (far.project.home / ".ssh/known_hosts").read_text() == line


def test_a_jump_through_nobody(far: Tiny) -> None:
    set_host(far, address="127.0.0.1", proxy_jump="bastoin")
    message = refused(far.project.invoke("build"), 3)
    assert "bastoin" in message


@pytest.mark.parametrize("verb", ["facts", "status", "smoke", "logs", "render"])
def test_json_is_never_half_an_answer(far: Tiny, verb: str) -> None:
    set_host(far, address="no-such-host.invalid")
    done = far.project.invoke(verb, "--json")
    assert refused(done, 3) and done.stdout == ""


@pytest.fixture
def on_gpu01(tmp_path: Path, pantry: Path, gpu01: TestHost) -> Tiny:
    """A tiny project whose host `near` is gpu01; its root folder is one that only root may make."""
    tiny = make_tiny(tmp_path, pantry)
    fleet.fill_home(gpu01.site, tiny.project.home, ["gpu01"])
    set_host(tiny, address=gpu01.address, user="finn", root=CLOSED, fetch="controller")
    return tiny


def left(gpu01: TestHost) -> bool:
    """True when the root folder was made all the same."""
    return fleet.run(gpu01, f"ls {CLOSED}", check=False).returncode == 0


def test_a_wrong_sudo_password(on_gpu01: Tiny, gpu01: TestHost) -> None:
    child = pexpect.spawn(
        str(INVOKE),
        ["build"],
        cwd=str(on_gpu01.project.root),
        env={**on_gpu01.project.environ(), "TERM": "dumb", "COLUMNS": "200"},
        encoding="utf-8",
        timeout=60,
    )
    child.expect("sudo password for finn on near: ")
    child.sendline("not it")
    child.expect(pexpect.EOF)
    child.close()
    said = child.before or ""
    assert child.exitstatus == 3, said
    assert "error: near: the sudo password for finn on near is wrong" in said
    assert "-> run the command again and type the password of that account" in said
    assert "Traceback" not in said and "not it" not in said
    assert not left(gpu01)


def test_a_sudo_password_that_nobody_can_type(on_gpu01: Tiny, gpu01: TestHost) -> None:
    done = on_gpu01.project.invoke("build")
    message = refused(done, 3)
    assert "near: sudo needs a password, and there is no terminal to ask for it" in message
    assert f"make {CLOSED}, as root" in done.stdout
    assert not left(gpu01)


def test_a_host_without_the_python_of_the_stack(on_gpu01: Tiny, gpu01: TestHost) -> None:
    project = on_gpu01.project
    set_host(on_gpu01, address=gpu01.address, user="bob")
    said = project.invoke("facts", check=True).stdout
    series = next(name for name in ("3.13", "3.12", "3.11") if f" {name}." not in said)
    project.change("recipes/stacks/tiny.yaml", ('["3.11", "3.12", "3.13"]', f'["{series}"]'))
    project.write("recipes/locks/tiny.lock.yaml", make_tiny_lock(project, on_gpu01.pantry))
    message = refused(project.invoke("build"), 3)
    assert f"near: no Python that a release can use: needed is CPython {series}; found: " in message
    assert "on the host" in message.partition("-> ")[2]
    assert fleet.run(gpu01, "ls /home/bob/.local/share", check=False).returncode != 0
