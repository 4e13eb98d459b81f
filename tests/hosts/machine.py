"""Test hosts: makes one host's tree over the base tree, boots it, enters it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import network, process
from tests.hosts.base import base_tree
from tests.hosts.call import FleetError, call
from tests.hosts.site import Site, cgroup_places

KEEP_BOOTED = Path(__file__).with_name("keep_booted.sh")
# A shutdown may wait 90 s for what does not end, and the boot comes after that.
BOOT_S = 240.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Bind:
    """A folder of this machine that a host sees; read-only unless said otherwise."""

    source: Path
    target: str
    writable: bool = False

    def argument(self) -> str:
        """The option of systemd-nspawn; a colon in a path would end it there."""
        if ":" in f"{self.source}{self.target}":
            raise FleetError(f"no colon may be in a bound path: {self.source}, {self.target}")
        return f"--bind{'' if self.writable else '-ro'}={self.source}:{self.target}"


def read_bind(text: str) -> Bind:
    """`SOURCE:TARGET`, read-only, or `SOURCE:TARGET:rw`."""
    source, target, *rest = text.split(":")
    if rest not in ([], ["rw"], ["ro"]) or not target.startswith("/"):
        raise FleetError(f"a bind is SOURCE:TARGET or SOURCE:TARGET:rw; got {text!r}")
    return Bind(Path(source).resolve(), target, writable=rest == ["rw"])


def make_tree(site: Site, name: str) -> Path:
    """The host's root folder, mounted: the base tree below, the host's own changes above."""
    folder = site.host_folder(name)
    upper, work, root = (folder / part for part in ("upper", "work", "root"))
    for part in (upper, work, root):
        part.mkdir(parents=True)
    layers = f"lowerdir={base_tree()},upperdir={upper},workdir={work}"
    call("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
    etc = root / "etc"
    (etc / "hostname").write_text(f"{name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    (etc / "resolv.conf").write_text("")
    (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    for key in host_keys(site, name).iterdir():
        shutil.copy(key, etc / "ssh" / key.name)
    for home in (root / "root", *(root / "home").iterdir()):
        authorize(site, home)
    return root


def authorize(site: Site, home: Path) -> None:
    """Let the site's key into the account of this home folder."""
    owner = home.stat()
    keys = home / ".ssh"
    keys.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(site.identity.with_suffix(".pub"), keys / "authorized_keys")
    (keys / "authorized_keys").chmod(0o600)
    for path in (keys, keys / "authorized_keys"):
        os.chown(path, owner.st_uid, owner.st_gid)


def host_keys(site: Site, name: str) -> Path:
    """The folder of the host's own keys; made when first asked for, so known before it boots."""
    folder = site.folder / "keys" / name / "etc" / "ssh"
    if not folder.exists():
        folder.mkdir(parents=True)
        call("ssh-keygen", "-q", "-A", "-f", str(site.folder / "keys" / name))
    return folder


def start(site: Site, name: str, root: Path, binds: Sequence[Bind]) -> int:
    """Boot the tree; returns the id of the process that keeps it up, without waiting."""
    groups = cgroup_places(site, name)
    for group in groups:
        group.mkdir(exist_ok=True)
    keeper = ["/bin/bash", str(KEEP_BOOTED), *map(str, groups), "--"]
    argv = [*keeper, *_nspawn(site, name, root, binds)]
    log = str(site.host_folder(name) / "console.log")
    pid = os.posix_spawnp(
        argv[0],
        argv,
        # A model on the host's /tmp belongs on the disk, not into memory.
        {**os.environ, "SYSTEMD_NSPAWN_TMPFS_TMP": "0"},
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    found = process.identify(pid)
    (site.host_folder(name) / "process").write_text(found.line() if found else "")
    return pid


def _nspawn(site: Site, name: str, root: Path, binds: Sequence[Bind]) -> list[str]:
    inside = network.namespace(site.number, name)
    return [
        "systemd-nspawn",
        "--quiet",
        f"--directory={root}",
        "--boot",
        "--register=no",
        "--keep-unit",
        f"--machine={inside}",
        f"--hostname={name}",
        f"--network-namespace-path=/run/netns/{inside}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        *(bind.argument() for bind in binds),
    ]


def leader(pid: int) -> int | None:
    """The host's process 1, as this machine numbers it; None while the host is down."""
    grandchildren = [one for child in process.children(pid) for one in process.children(child)]
    return next(filter(_is_first, grandchildren), None)


def _is_first(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return any(
        line.startswith("NSpid:") and line.split()[-1] == "1" for line in status.splitlines()
    )


def enter(
    pid: int, command: str, user: str = "root", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a bash command inside the host, past its network and its sshd."""
    first = leader(pid)
    if first is None:
        raise FleetError("the host is down")
    environment = ("env", "-i", f"PATH={PATH}", f"USER={user}", "LANG=C.UTF-8")
    home = "/root" if user == "root" else f"/home/{user}"
    become = () if user == "root" else ("runuser", "-u", user, "--")
    shell = ("bash", "-c", command)
    return subprocess.run(
        ["nsenter", f"--target={first}", "--all", *become, *environment, f"HOME={home}", *shell],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=600,
    )


def wait_booted(pid: int, log: Path, other_than: str = "") -> str:
    """The state of the host once its boot is over, and not that of the boot `other_than`."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline and process.identify(pid) is not None:
        if leader(pid) is not None and boot_id(pid) not in ("", other_than):
            state = enter(pid, "systemctl is-system-running --wait").stdout.strip()
            if state in ("running", "degraded"):
                return state
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise FleetError(f"the host did not boot within {BOOT_S:.0f} s; the end of {log}:\n{tail}")


def boot_id(pid: int) -> str:
    """The name of the host's present boot; empty while it is between two.

    Read from outside: what enters a host that shuts down is stopped with the rest of it, and a
    stopped nsenter never collects its child, which the shutdown then waits for.
    """
    first = leader(pid)
    if first is None:
        return ""
    try:
        return Path(f"/proc/{first}/root/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
