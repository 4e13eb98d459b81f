"""Test hosts: one run's own corner of this machine (a number, a folder, keys), and who owns it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import network, process
from tests.hosts.base import clear_tree, locked
from tests.hosts.call import FleetError, call
from tests.hosts.process import Process

SITES = Path("/var/lib/firstlight-tests")


@dataclass(frozen=True)
class Site:
    """A number that no other living run has; addresses and the names of interfaces derive from it.

    A site belongs to the processes in its file `owner`. When all of them have ended, the next
    run takes the site down: nothing of a killed run is left for long.
    """

    number: int
    folder: Path

    @property
    def identity(self) -> Path:
        """The private key that every user of every host of the site accepts."""
        return self.folder / "id_ed25519"

    def host_folder(self, name: str) -> Path:
        """Where one host's tree, console log and process are."""
        return self.folder / "hosts" / name

    def host_names(self) -> list[str]:
        """The hosts that have been booted and not stopped."""
        return sorted(path.name for path in (self.folder / "hosts").glob("*"))


def open_site() -> Site:
    """A site owned by this process, with its key and its networks."""
    SITES.mkdir(parents=True, exist_ok=True)
    with locked(SITES / "lock"):
        sweep()
        site = _claim()
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(site.identity))
    network.build(site.number)
    return site


def _claim() -> Site:
    number = next((n for n in range(1, 255) if not (SITES / str(n)).exists()), None)
    if number is None:
        raise FleetError(f"all 254 sites in {SITES} are taken; stop other test runs")
    site = Site(number, SITES / str(number))
    site.folder.mkdir(mode=0o700)
    take(site)
    return site


def take(site: Site) -> None:
    """Make this process the site's owner."""
    _own(site, [os.getpid()])


def keep(site: Site, pids: Iterable[int]) -> None:
    """Give the site to these processes of its own: it now outlives this one."""
    (site.folder / "kept").touch()
    _own(site, pids)


def kept_sites() -> list[Site]:
    """The sites that live until somebody takes them down by hand."""
    return [site for site in sites() if (site.folder / "kept").exists()]


def chosen(
    up: Mapping[int, Sequence[str]], names: Sequence[str], number: int | None = None
) -> list[int]:
    """Which of the sites that are up are meant, by their hosts or by their number.

    Others may have theirs up: raises FleetError where it is not plain which is meant.
    """
    shown = "; ".join(f"--site {n}: {', '.join(up[n])}" for n in sorted(up)) or "none"
    asked = [n for n in sorted(up) if number in (None, n)]
    known = {name for n in asked for name in up[n]}
    missing = sorted(set(names) - known) or ([f"site {number}"] if number and not asked else [])
    if missing:
        raise FleetError(f"not up: {', '.join(missing)}; up: {shown}")
    meant = {name: [n for n in asked if name in up[n]] for name in names} or {"": asked}
    if any(len(sites) > 1 for sites in meant.values()):
        raise FleetError(f"which site? up: {shown}")
    return sorted({n for sites in meant.values() for n in sites})


def _own(site: Site, pids: Iterable[int]) -> None:
    found = [process.identify(pid) for pid in pids]
    text = "".join(one.line() for one in found if one is not None)
    partial = site.folder / "owner.partial"
    partial.write_text(text)
    partial.rename(site.folder / "owner")


def sites() -> list[Site]:
    """Every site of this machine, of the living and of the dead."""
    return [Site(int(path.name), path) for path in SITES.glob("[0-9]*")]


def sweep() -> None:
    """Take down the sites whose owners have all ended."""
    for site in sites():
        owner = site.folder / "owner"
        owners = process.parse(owner.read_text()) if owner.exists() else ()
        if not any(map(process.is_alive, owners)):
            close_site(site)


def close_site(site: Site) -> None:
    """Stop the site's hosts and remove all that the site brought to this machine."""
    for name in site.host_names():
        stop_host(site, name)
    network.remove(site.number)
    clear_tree(site.folder)


def stop_host(site: Site, name: str) -> None:
    """Shut one host down in order, and take its tree and its place on the network away."""
    folder = site.host_folder(name)
    for keeper in host_processes(folder):
        below = [process.identify(pid) for pid in process.children(keeper.pid)]
        process.end(keeper)
        for container in filter(None, below):
            process.end(container)
    network.detach(site.number, name)
    for cgroup in cgroups(site, name):
        call("find", str(cgroup), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
    clear_tree(folder)


def host_processes(folder: Path) -> tuple[Process, ...]:
    """What keeps the host in this folder up; none before its boot."""
    file = folder / "process"
    return process.parse(file.read_text()) if file.exists() else ()


def cgroups(site: Site, name: str) -> list[Path]:
    """The host's own control groups that exist, wherever in their trees whoever made them stood."""
    leaf = _leaf(site, name)
    return [found for _, root in _trees() for found in root.glob(f"**/{leaf}")]


def cgroup_places(site: Site, name: str) -> list[Path]:
    """Where the host's control groups belong: the v2 tree, v1's trees of systemd and of memory.

    Memory is counted below our own group, so that what bounds us bounds our hosts too.
    """
    return [
        (root / _own_path("memory") if controller == "memory" else root) / _leaf(site, name)
        for controller, root in _trees()
    ]


def _leaf(site: Site, name: str) -> str:
    return f"firstlight-tests-{site.number}-{name}"


def _trees() -> list[tuple[str, Path]]:
    """The trees of control groups that hosts get a place in: what they are for, where they are."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [(options.split(","), kind, Path(place)) for _, place, kind, options, *_ in mounts]
    v2 = [("", place) for _, kind, place in found if kind == "cgroup2"]
    v1 = [
        (controller, place)
        for options, kind, place in found
        for controller in ("name=systemd", "memory")
        if kind == "cgroup" and controller in options
    ]
    return v2 + v1


def _own_path(controller: str) -> str:
    """This process's group in the v1 tree of a controller, from the tree's root on."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = (line.split(":", 2) for line in lines)
    path = next((path for _, names, path in groups if controller in names.split(",")), "/")
    return path.lstrip("/")
