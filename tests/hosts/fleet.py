"""Test hosts: what a test does with one. Boot, reboot, stop, pull the cable, cut the sessions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.hosts import machine, network
from tests.hosts.call import FleetError
from tests.hosts.machine import Bind
from tests.hosts.site import Site, stop_host

CUT_SESSIONS = """
set -eu
listener=$(systemctl show --property MainPID --value ssh.service)
sessions=$(pgrep --delimiter , --parent "$listener" sshd) || exit 0
kill -KILL ${sessions//,/ } $(pgrep --parent "$sessions" sshd || :)
"""


@dataclass(frozen=True)
class TestHost:
    """A booted host: how to reach it by SSH, and how the harness reaches it without."""

    __test__: ClassVar[bool] = False

    site: Site
    name: str
    address: str
    identity: Path
    known_hosts: str
    pid: int
    via: TestHost | None = None
    port: int = 22


def boot(
    site: Site, name: str, binds: Sequence[Bind] = (), via: TestHost | None = None
) -> TestHost:
    """A new host of the site, booted; `via` is the host that one must jump through to reach it."""
    folder = site.host_folder(name)
    if folder.exists():
        raise FleetError(f"{name} is booted already, in {folder}")
    try:
        root = machine.make_tree(site, name)
        network.attach(site.number, name)
        pid = machine.start(site, name, root, binds)
        machine.wait_booted(pid, folder / "console.log")
    except BaseException:
        stop_host(site, name)
        raise
    address = network.address(site.number, name)
    return TestHost(site, name, address, site.identity, known_hosts(site, [name]), pid, via)


def stop(host: TestHost) -> None:
    """Shut the host down and throw its tree away."""
    stop_host(host.site, host.name)


def reboot(host: TestHost) -> None:
    """Reboot the host, as `reboot` typed on it does; returns when it is up again."""
    before = machine.boot_id(host.pid)
    run(host, "systemctl reboot", check=False)
    machine.wait_booted(host.pid, _console(host), other_than=before)


def run(
    host: TestHost, command: str, user: str = "root", stdin: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a bash command on the host without SSH; for setting up, and with the cable pulled."""
    done = machine.enter(host.pid, command, user, stdin)
    if check and done.returncode != 0:
        words = f"exit status {done.returncode} on {host.name} of: {command}"
        raise FleetError(f"{words}\n{done.stdout}{done.stderr}")
    return done


def ssh(host: TestHost, command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
    """Run a command through OpenSSH's own client, strict about host keys, in the login shell."""
    with open_ssh(host, command, user) as session:
        out, err = session.communicate(timeout=120)
    return subprocess.CompletedProcess(session.args, session.returncode, out, err)


def open_ssh(host: TestHost, command: str, user: str = "root") -> subprocess.Popen[str]:
    """The same, begun and not waited for."""
    target = f"{user}@{host.address}"
    argv = ["ssh", *_options(host), *_jump(host), "-p", str(host.port), target, command]
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=none, stdout=pipe, stderr=pipe, encoding="utf-8")


def _options(host: TestHost) -> list[str]:
    file = host.site.folder / f"known_hosts.{host.name}"
    file.write_text(host.known_hosts)
    words = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={file}", "BatchMode=yes"]
    options = [part for word in (*words, "IdentitiesOnly=yes") for part in ("-o", word)]
    return ["-F", "none", "-i", str(host.identity), *options]


def _jump(host: TestHost) -> list[str]:
    if host.via is None:
        return []
    gateway = ["ssh", *_options(host.via), "-W", "%h:%p", f"root@{host.via.address}"]
    return ["-o", f"ProxyCommand={' '.join(gateway)}"]


def link_down(host: TestHost) -> None:
    """Pull the host's cable: packets vanish, and neither end is told."""
    network.set_cable(host.site.number, host.name, "down")


def link_up(host: TestHost) -> None:
    """Plug the host's cable in again."""
    network.set_cable(host.site.number, host.name, "up")


def kill_sshd_sessions(host: TestHost) -> None:
    """Cut every SSH connection of the host at once; what ran through them is left to itself."""
    run(host, CUT_SESSIONS)


def add_user(host: TestHost, name: str, shell: str = "/bin/bash", linger: bool = False) -> None:
    """A new user on the host, let in by the site's key; without sudo."""
    run(host, f"useradd --create-home --shell {shell} {name}")
    run(
        host,
        f"install -d -m 700 -o {name} -g {name} /home/{name}/.ssh && "
        f"install -m 600 -o {name} -g {name} /root/.ssh/authorized_keys /home/{name}/.ssh/",
    )
    if linger:
        run(host, f"loginctl enable-linger {name}")


def remove_user(host: TestHost, name: str) -> None:
    """Take a user away, with all that still runs in its name and its home folder."""
    run(host, f"loginctl disable-linger {name}; loginctl terminate-user {name}", check=False)
    run(host, f"pkill -KILL -u {name}; while pgrep -u {name}; do sleep 0.1; done", check=False)
    run(host, f"userdel --remove {name}")


def known_hosts(site: Site, names: Iterable[str]) -> str:
    """The lines of known_hosts for these hosts, booted or not."""
    lines = [
        f"{network.address(site.number, name)} {' '.join(key.read_text().split()[:2])}\n"
        for name in names
        for key in sorted(machine.host_keys(site, name).glob("*.pub"))
    ]
    return "".join(lines)


def fill_home(site: Site, home: Path, names: Iterable[str]) -> None:
    """Make a home folder from which these hosts can be reached, strictly."""
    keys = home / ".ssh"
    keys.mkdir(mode=0o700, parents=True)
    for suffix in ("", ".pub"):
        shutil.copy(site.identity.with_suffix(suffix), keys / f"id_ed25519{suffix}")
    (keys / "id_ed25519").chmod(0o600)
    (keys / "known_hosts").write_text(known_hosts(site, names))


def inventory(hosts: Iterable[TestHost], user: str = "zoe") -> str:
    """An inventory file in which these hosts can be named, with the hops that they need."""
    lines = ["schema: 1", "hosts:"]
    for host in hosts:
        lines += [f"  - name: {host.name}", f"    address: {host.address}"]
        lines += [f"    user: {user}", f"    identity: {host.identity}"]
        lines += [f"    proxy_jump: {host.via.name}"] if host.via else []
    return "\n".join(lines) + "\n"


def _console(host: TestHost) -> Path:
    return host.site.host_folder(host.name) / "console.log"
