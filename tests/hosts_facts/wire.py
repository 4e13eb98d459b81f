"""Answers as the script writes them, for tests of the readers."""

from __future__ import annotations

from collections.abc import Mapping

from firstlight.hosts.answers import Answers, decode
from firstlight.hosts.facts import Facts, parse

# A host without a GPU that answers all that every host answers.
PLAIN: Mapping[str, str] = {
    "os.release": 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n',
    "os.kernel": "6.1.0-40-amd64",
    "os.arch": "x86_64",
    "os.glibc": "glibc 2.36",
    "os.boot_id": "4b7c1df6-2f0f-4d1e-9a62-0c1b8f6f7a11",
    "cpu.usable": "16",
    "cpu.sockets": "1",
    "memory.info": "MemTotal: 65536000 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB",
    "disk.root.path": "/home/ada/.local/share/firstlight",
    "disk.root.near": "/home/ada",
    "disk.root.writable": "yes",
    "disk.root.df": "1000000000000 500000000000 60000000 ext4 /",
    "disk.root.options": "rw,relatime",
    "disk.tmp.path": "/tmp",
    "disk.tmp.near": "/tmp",
    "disk.tmp.writable": "yes",
    "disk.tmp.df": "1000000000000 500000000000 60000000 ext4 /",
    "disk.tmp.options": "rw,relatime",
    "net.listening": "0100007F:1F90\n00000000:0016",
    "user.uid": "1000",
    "user.name": "ada",
    "user.home": "/home/ada",
    "user.shell": "/usr/bin/zsh",
    "user.groups": "ada video",
    "systemd.init": "systemd",
    "systemd.state": "running",
    "systemd.version": "systemd 252 (252.39-1~deb12u1)",
    "systemd.linger": "yes",
    "systemd.runtime": "/run/user/1000",
    "systemd.user": "running\n",
    "sudo": "Sudo version 1.9.13p3\n",
    "sudo.rc": "0",
    "pythons": "3.11.2\tfinal\tcpython\t\t64\tno\tno\t\t/usr/bin/python3.11",
    "tools": "git\t/usr/bin/git\tgit version 2.39.5\ncc\t/usr/bin/cc\tcc (Debian 12.2.0-14) 12.2.0",
    "clock.now": "1796027939.5 UTC +0000",
}


def wire(answers: Mapping[str, str]) -> bytes:
    """The lines that the script prints for these answers."""
    lines = []
    for key, text in {**answers, "end": str(len(answers))}.items():
        raw = text.encode()
        value = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        lines.append(b"@@fact %s %d %s\n" % (key.encode(), len(raw), value))
    return b"".join(lines)


def answers(**values: str) -> Answers:
    """Some answers alone; `__` in a name stands for the dot."""
    return decode(wire({key.replace("__", "."): value for key, value in values.items()}))


def plain(**values: str) -> Facts:
    """The plain host, some answers changed."""
    changed = {key.replace("__", "."): value for key, value in values.items()}
    return parse(wire({**PLAIN, **changed}))


def without(*keys: str) -> Facts:
    """The plain host, some answers missing."""
    return parse(wire({key: value for key, value in PLAIN.items() if key not in keys}))
