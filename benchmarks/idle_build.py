"""What `invoke build --host` costs when there is nothing to build: connections and round trips.

The project's inventory is copied with the host's address exchanged for that of a link on this
machine (slow_link.py). Known hosts are those of the person, with this host's keys under the
link's address as well: the check of the key is what it always is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.slow_link import SlowLink, slow_link
from firstlight.effects import catalog
from firstlight.effects.ssh.known_hosts import name_of, of_host, read
from firstlight.hosts.inventory import Host

PROJECT = Path(__file__).parent.parent
# Long against the noise of a busy machine, short against the patience of an SSH connection.
DELAY_S = 1.0
_COUNTS = re.compile(r"debug: .*: (\d+) connection\(s\), (\d+) script\(s\)")
# What the verb would do before its first script, and no more.
_CONNECT = """\
import sys
from pathlib import Path
from firstlight.effects import catalog
from firstlight.effects.ssh import open_shell
hosts = catalog.inventory(Path(sys.argv[1])).hosts
open_shell(hosts[sys.argv[2]], hosts).close()
"""


@dataclass(frozen=True)
class Idle:
    """Connections at the socket, round trips beyond the connection, and the words for both."""

    connections: int
    round_trips: float
    note: str
    told: str


def idle_build(invoke: str, project: Path, name: str, rounds: int) -> Idle:
    """Measure it, interleaved: with and without the delay, the verb and a bare connection."""
    host = catalog.inventory(project.resolve()).host(name)
    if host.is_local or host.proxy_jump:
        sys.exit(f"{name}: only a host that is reached directly over SSH can be measured")
    seen, build = [invoke, "build", "--host", name], [invoke, "build", "--host", name, "--debug"]
    with tempfile.TemporaryDirectory(prefix="idle-build-") as folder:
        home = Path(folder)
        with slow_link(host.address or "", host.port or 22) as link:
            copy_project(project.resolve(), home, host, link)
            require_idle(_run([*seen, "--dry-run"], home), name)
            connect = [sys.executable, "-c", _CONNECT, str(home / "project"), name]
            whole, alone, connections = _measure(build, connect, home, link, rounds)
        counted = _COUNTS.search(_run(build, home))
    assert counted
    note = f"--debug says {counted[1]} connection(s), {counted[2]} script(s)"
    told = f"by delay: {whole:.2f} in all, {alone:.2f} of them for the bare connection"
    return Idle(connections, whole - alone, note, told)


def require_idle(text: str, name: str) -> None:
    if "# nothing to do" not in text:
        sys.exit(f"{name}: the stack is not built there as it is locked now:\n{text[:500]}")


def copy_project(project: Path, home: Path, host: Host, link: SlowLink) -> None:
    """A project and a home in which the host is reached through the link."""
    copy = home / "project"
    (copy / "inventory").mkdir(parents=True)
    shutil.copy(project / "tasks.py", copy)
    for part in ("recipes", "templates", "patches"):
        (copy / part).symlink_to((project / part).resolve())
    entry = host.model_dump(mode="json", exclude_none=True)
    entry |= {"address": "127.0.0.1", "port": link.port}
    defaults = catalog.inventory(project)
    data = {"schema": 1, "defaults": {"profile": defaults.default_profile}, "hosts": [entry]}
    (copy / "inventory" / "hosts.yaml").write_text(yaml.safe_dump(data))
    _trust(home / ".ssh", host, link)


def _trust(folder: Path, host: Host, link: SlowLink) -> None:
    mine = Path.home() / ".ssh"
    folder.mkdir(mode=0o700)
    for path in mine.iterdir() if mine.is_dir() else ():
        (folder / path.name).symlink_to(path)
    known = of_host(read([mine / "known_hosts"]), name_of(host.address or "", host.port or 22))
    names = name_of("127.0.0.1", link.port)
    lines = [f"{names} {key.kind} {b64encode(key.blob).decode()}\n" for key in known]
    (folder / "known_hosts").unlink(missing_ok=True)
    (folder / "known_hosts").write_text("".join(lines))


def _measure(
    build: list[str], connect: list[str], home: Path, link: SlowLink, rounds: int
) -> tuple[float, float, int]:
    """Round trips of the verb and of a bare connection, and the most connections of one verb."""
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    most = 0
    for _ in range(rounds):
        for name, argv in (("build", build), ("connect", connect)):
            for delay in (0.0, DELAY_S):
                before, begin = link.connections, time.monotonic()
                link.delay_s = delay
                _run(argv, home)
                found[name, delay].append(time.monotonic() - begin)
                most = max(most, link.connections - before)
    link.delay_s = 0.0
    whole, alone = (_trips(found, name) for name in ("build", "connect"))
    return whole, alone, most


def _trips(found: dict[tuple[str, float], list[float]], name: str) -> float:
    """What else the machine does only adds time, so the shortest of each kind is compared."""
    return (min(found[name, DELAY_S]) - min(found[name, 0.0])) / (2 * DELAY_S)


def _run(argv: list[str], home: Path) -> str:
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(argv, cwd=home / "project", env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(argv[:4])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
