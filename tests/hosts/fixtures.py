"""Test hosts as pytest fixtures: gpu01, bastion and gpu02 behind it, a HOME that knows them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.hosts import fleet, needs
from tests.hosts.fleet import TestHost
from tests.hosts.machine import Bind, read_bind
from tests.hosts.site import Site, close_site, open_site

NAMES = ("gpu01", "gpu02", "bastion")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of the harness."""
    parser.addoption(
        "--hosts-bind",
        action="append",
        default=[],
        metavar="SOURCE:TARGET[:rw]",
        help="a folder of this machine that every test host sees, read-only unless :rw",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a host with `hosts`; skip it, with the reason, where none can boot."""
    reason = needs.missing()
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker("hosts")
        if reason is not None and item.get_closest_marker("hosts"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def host_binds(pytestconfig: pytest.Config) -> list[Bind]:
    """The folders that every host of this run sees."""
    return [read_bind(text) for text in pytestconfig.getoption("--hosts-bind")]


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """This run's networks and keys; taken down, with every host, at the end of the run."""
    opened = open_site()
    yield opened
    close_site(opened)


@pytest.fixture(scope="session")
def gpu01(site: Site, host_binds: list[Bind]) -> TestHost:
    """A host with systemd and sshd, reached directly. Users: root, zoe, finn, bob, nolin."""
    return fleet.boot(site, "gpu01", host_binds)


@pytest.fixture(scope="session")
def bastion(site: Site, host_binds: list[Bind]) -> TestHost:
    """A host to jump through: the only one that reaches gpu02."""
    return fleet.boot(site, "bastion", host_binds)


@pytest.fixture(scope="session")
def gpu02(site: Site, host_binds: list[Bind], bastion: TestHost) -> TestHost:
    """A host to which this machine has no way but through the bastion."""
    return fleet.boot(site, "gpu02", host_binds, via=bastion)


@pytest.fixture
def ssh_home(site: Site, tmp_path: Path) -> Path:
    """A HOME whose key every host accepts and whose known_hosts has the right key of each."""
    home = tmp_path / "home"
    fleet.fill_home(site, home, NAMES)
    return home


@pytest.fixture
def gpu01_user(gpu01: TestHost) -> Iterator[str]:
    """A new user of gpu01 for this test alone (bash, no sudo, no linger); gone afterwards."""
    name = f"t{secrets.token_hex(4)}"
    fleet.add_user(gpu01, name)
    yield name
    fleet.remove_user(gpu01, name)


@pytest.fixture
def gpu01_root(gpu01: TestHost) -> Iterator[PurePosixPath]:
    """A new folder on gpu01 that any user may write to, for this test alone; gone afterwards."""
    made = fleet.run(gpu01, "mktemp -d /srv/test.XXXXXX").stdout.strip()
    fleet.run(gpu01, f"chmod 1777 {made}")
    yield PurePosixPath(made)
    fleet.run(gpu01, f"rm -rf {made}")


@pytest.fixture
def holds_memory(gpu01: TestHost) -> None:
    """gpu01, whose systemd may hold units to a ceiling; a container's may not, by itself."""
    if not Path("/sys/fs/cgroup/memory").exists():
        if "memory" not in fleet.run(gpu01, "cat /sys/fs/cgroup/cgroup.controllers").stdout:
            pytest.skip("gpu01 was given no memory controller")
        return
    # The kernel lets root of the host write to its own part of the tree; nspawn hides that.
    fleet.run(gpu01, "mount -o remount,bind,rw /sys/fs/cgroup/memory && systemctl daemon-reexec")
