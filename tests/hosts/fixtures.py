"""Test hosts as pytest fixtures: gpu01, bastion and gpu02 behind it, a HOME that knows them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.hosts import fleet, needs
from tests.hosts.fleet import TestHost
from tests.hosts.machine import Bind
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
    return [parse_bind(text) for text in pytestconfig.getoption("--hosts-bind")]


def parse_bind(text: str) -> Bind:
    """`SOURCE:TARGET`, read-only, or `SOURCE:TARGET:rw`."""
    source, target, *rest = text.split(":")
    if rest not in ([], ["rw"], ["ro"]) or not target.startswith("/"):
        raise ValueError(f"a bind is SOURCE:TARGET or SOURCE:TARGET:rw; got {text!r}")
    return Bind(Path(source).resolve(), target, writable=rest == ["rw"])


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
    fill_home(site, home)
    return home


def fill_home(site: Site, home: Path) -> None:
    """Make a home folder from which the site's hosts can be reached, strictly."""
    keys = home / ".ssh"
    keys.mkdir(mode=0o700, parents=True)
    for suffix in ("", ".pub"):
        shutil.copy(site.identity.with_suffix(suffix), keys / f"id_ed25519{suffix}")
    (keys / "id_ed25519").chmod(0o600)
    (keys / "known_hosts").write_text(fleet.known_hosts(site, NAMES))


@pytest.fixture
def gpu01_user(gpu01: TestHost, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new user of gpu01 for this test alone (bash, no sudo, no linger); gone afterwards."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"
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
