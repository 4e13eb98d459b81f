"""A real sshd of our own on a loopback port, for tests that need SSH but no second machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firstlight.core.errors import HostError
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host

SSHD = "/usr/sbin/sshd"
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_ed25519
HostKey {folder}/host_ecdsa
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {folder}/authorized_keys
LogLevel VERBOSE
# bash would run this person's own ~/.bashrc for every script, were this not a shell in a shell.
SetEnv SHLVL=2
{extra}
"""


@dataclass(frozen=True)
class Sshd:
    """A running sshd: where it is, and the files that it goes by."""

    folder: Path
    port: int
    pid: int

    def public(self, kind: str = "ed25519") -> str:
        """The host's public key: type and base64."""
        words = (self.folder / f"host_{kind}.pub").read_text().split()
        return f"{words[0]} {words[1]}"

    def known(self, kind: str = "ed25519") -> str:
        """The line of known_hosts that trusts this host."""
        return f"[127.0.0.1]:{self.port} {self.public(kind)}\n"

    def allow(self, public: Path, options: str = "") -> None:
        """Let this one key in, and no other."""
        words = f"{options} {public.read_text()}".strip()
        (self.folder / "authorized_keys").write_text(f"{words}\n")

    def host(self, **changes: Any) -> Host:
        """This sshd as a host of the inventory."""
        return Host(**{"name": "near", "address": "127.0.0.1", "port": self.port, **changes})

    def cut(self) -> None:
        """Kill the processes of all sessions and what runs in them."""
        for pid in _children(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def refusal(host: Host, hosts: dict[str, Host] | None = None) -> str:
    """The message with which a connection to `host` fails."""
    with pytest.raises(HostError) as caught:
        open_shell(host, hosts or {}).close()
    return str(caught.value)


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair; gives back the public half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(f"{path.name}.pub")


@contextlib.contextmanager
def running(folder: Path, extra: str = "") -> Iterator[Sshd]:
    """An sshd with keys of its own, ended on leaving."""
    for kind in ("ed25519", "ecdsa"):
        make_key(folder / f"host_{kind}", kind)
    port = _free_port()
    (folder / "authorized_keys").touch()
    config = folder / "sshd_config"
    config.write_text(CONFIG.format(port=port, folder=folder, extra=extra))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=log)
    server = Sshd(folder, port, process.pid)
    try:
        _wait_for(port, process)
        yield server
    finally:
        server.cut()
        process.terminate()
        process.wait()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    own = [int(word) for word in found.stdout.split()]
    return own + [deeper for child in own for deeper in _children(child)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"sshd ended at once with status {process.returncode}")


def fill_home(home: Path) -> Path:
    """A HOME with one key and an empty known_hosts; gives back the key's public half."""
    public = make_key(home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "known_hosts").touch()
    return public


def needs_sshd() -> None:
    """Skip where there is no sshd to start."""
    if not Path(SSHD).exists() or not shutil.which("ssh-keygen"):
        pytest.skip(f"there is no {SSHD}: install openssh-server")
