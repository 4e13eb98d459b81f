"""Many files to a host by rsync over OpenSSH, several times as fast as our own channel.

It only saves time: what it brings is checked by whoever asked, and what it does not bring, for
whatever reason, is sent over the channel.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from firstlight.core.command import quote
from firstlight.effects.shell import Progress
from firstlight.effects.ssh.connect import way_to
from firstlight.effects.ssh.route import Hop
from firstlight.hosts.inventory import Host

# Hardware does it at many GB/s; for a machine without, OpenSSH has others after it.
_CIPHER = "^aes128-gcm@openssh.com"
_PLAIN = re.compile(r"[\w.@:%+~/-]+\Z")


def can_rsync() -> bool:
    """True when this machine has rsync and OpenSSH's client."""
    return all(map(shutil.which, ("rsync", "ssh")))


def rsync(
    host: Host,
    hosts: Mapping[str, Host],
    here: Path,
    paths: Sequence[str],
    there: PurePosixPath,
    progress: Progress,
) -> str:
    """Bring `paths` below `here` into the folder `there`; "" when all came, else the reason.

    It is given no password and accepts no host key that known_hosts does not hold.
    """
    hops = way_to(host, hosts)
    words = [word for hop in hops for word in (hop.address, hop.user, hop.identity) if word]
    if not all(_PLAIN.match(word) for word in words):
        return "a word of its inventory entry cannot stand in an ssh_config"
    address = hops[-1].address
    to = f"[{address}]" if ":" in address else address
    with tempfile.TemporaryDirectory(prefix="firstlight-rsync-") as folder:
        config = Path(folder) / "config"
        config.write_text(ssh_config(hops, Path.home() / ".ssh"))
        argv = (
            *("rsync", "--append-verify", "--protect-args", "--times"),
            *("--from0", "--files-from=-", "--info=progress2", "--outbuf=L"),
            *("-e", f"ssh -F {quote(config)}", f"{here}/", f"{to}:{there}/"),
        )
        return _watched(argv, paths, progress)


def ssh_config(hops: Iterable[Hop], person: Path) -> str:
    """The way to a host as OpenSSH reads it; whatever is not said here is the person's to say.

    OpenSSH takes the first value of each setting.
    """
    lines = ["BatchMode yes", "StrictHostKeyChecking yes", f"Ciphers {_CIPHER}"]
    lines += ["Compression no", "ForwardAgent no"]
    before: Hop | None = None
    for hop in hops:
        lines += [f"Host {hop.address}", f"  HostName {hop.address}"]
        lines += [f"  User {hop.user}"] if hop.user else []
        lines += [f"  Port {hop.port}"] if hop.port else []
        lines += [f"  IdentityFile {hop.identity}"] if hop.identity else []
        lines += [f"  ProxyJump {before.address}"] if before else []
        before = hop
    lines.append("Match all")
    # OpenSSH finds ~ by the account, we find it by HOME: where they differ, HOME is meant.
    lines += [f'  Include "{person}/config"', f'  UserKnownHostsFile "{person}/known_hosts"']
    keys = ("id_ed25519", "id_ecdsa", "id_rsa")
    lines += [f'  IdentityFile "{person}/{key}"' for key in keys if (person / key).exists()]
    return "\n".join(lines) + "\n"


def _watched(argv: Sequence[str], paths: Sequence[str], progress: Progress) -> str:
    """Run rsync; its last line is the reason when it does not come to its end."""
    pipe = subprocess.PIPE
    last = ""
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
        assert process.stdin and process.stdout
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as names:
                names.write(b"\0".join(path.encode() for path in paths))
            while piece := os.read(process.stdout.fileno(), 1 << 16):
                lines = piece.decode("utf-8", "replace").replace("\r", "\n").split("\n")
                last = next((line.strip() for line in reversed(lines) if line.strip()), last)
                progress(f"rsync: {last}")
        except BaseException:
            process.terminate()
            raise
    return "" if process.returncode == 0 else last or f"exit status {process.returncode}"
