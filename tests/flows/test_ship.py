"""`invoke ship` on real hosts: gpu01 with a noisy shell, gpu02 behind a bastion, tiny stack."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from firstlight.effects import catalog
from firstlight.effects.ssh.rsync import can_rsync, rsync
from tests.flows.tiny import Tiny, make_tiny, make_tiny_lock, refused
from tests.hosts import fleet
from tests.hosts.fleet import TestHost
from tests.hosts.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = "/srv/ship there"
SHIP = ("ship", "--stack", "tiny")
LONG = 600.0


class Fleet:
    """A tiny project on this machine whose inventory has gpu01 and gpu02, which have no index."""

    def __init__(self, tiny: Tiny, hosts: dict[str, TestHost]) -> None:
        self.tiny, self.hosts = tiny, hosts

    def ship(self, *words: str) -> str:
        """What a ship that succeeds prints."""
        done = self.tiny.project.invoke(*SHIP, *words, timeout=LONG)
        assert done.returncode == 0, done
        return done.stdout

    def there(self, host: str, pattern: str) -> list[str]:
        """Paths below the root of a host."""
        command = f"cd '{ROOT}' && ls -d {pattern} 2>/dev/null"
        return fleet.run(self.hosts[host], command, check=False).stdout.split()

    def clear(self, host: str, folders: str = "") -> None:
        """Remove folders below the root of a host, or the root itself."""
        fleet.run(self.hosts[host], f"rm -rf '{ROOT}'/{folders or '*'}")

    def works(self, host: str) -> None:
        """A release is there, whole, with our patch in it."""
        (python,) = self.there(host, "releases/*/venv/bin/python")
        code = "import sglang.launch_server as s; print(s.BUILT)"
        said = fleet.run(self.hosts[host], f"cd '{ROOT}' && {python} -c '{code}'").stdout
        assert said == "with our patch\n"
        assert self.there(host, "*/*.partial") == []


@pytest.fixture(scope="module")
def shop(
    tmp_path_factory: pytest.TempPathFactory,
    pantry: Path,
    site: Site,
    gpu01: TestHost,
    gpu02: TestHost,
    bastion: TestHost,
) -> Iterator[Fleet]:
    tiny = make_tiny(tmp_path_factory.mktemp("ship"), pantry)
    fleet.fill_home(site, tiny.project.home, ["gpu01", "gpu02", "bastion"])
    far = f'root: "{ROOT}", fetch: controller, user:'
    at = {host.name: f"name: {host.name}, address: {host.address}," for host in (gpu01, gpu02)}
    tiny.project.write(
        "inventory/more.yaml",
        "schema: 1\nhosts:\n"
        f"  - {{{at['gpu01']} {far} zoe}}\n"
        f"  - {{{at['gpu02']} {far} bob, proxy_jump: bastion}}\n"
        f"  - {{name: bastion, address: {bastion.address}, user: bob}}\n",
    )
    for host, user in ((gpu01, "zoe"), (gpu02, "bob")):
        fleet.run(host, f"install -d -o {user} '{ROOT}'")
    yield Fleet(tiny, {"gpu01": gpu01, "gpu02": gpu02})
    tiny.end()
    for host in (gpu01, gpu02):
        fleet.run(host, f"rm -rf '{ROOT}'")


@pytest.fixture(scope="module")
def shipped(shop: Fleet) -> str:
    """What the first ship printed: from this machine to both."""
    shop.tiny.project.invoke("build", "--stack", "tiny", timeout=LONG, check=True)
    return shop.ship("--to", "gpu01,gpu02")


def test_what_was_built_here_comes_to_both_and_is_assembled_there(
    shop: Fleet, shipped: str
) -> None:
    for host in ("gpu01", "gpu02"):
        assert f"{host}: send 1 artifact and 1 wheel from local: " in shipped
        assert f"{host}: release tiny-py311-" in shipped
        shop.works(host)
        # It was sent as it was made: nothing was patched or downloaded there.
        assert shop.there(host, "jobs/repack-*") == shop.there(host, "jobs/fetch-*") == []
        (wheel,) = shop.there(host, "wheels/*/*")
        assert Path(wheel).name.startswith("uv-")


@pytest.mark.usefixtures("shipped")
def test_again_sends_nothing(shop: Fleet) -> None:
    said = shop.ship("--to", "gpu01,gpu02")
    assert said.count("it has all that it needs") == 2
    assert said.count("is in place") == 2


@pytest.mark.usefixtures("shipped")
def test_a_plan_is_a_script_and_changes_nothing(shop: Fleet) -> None:
    shop.clear("gpu02", "{releases,store}")
    plan = shop.ship("--to", "gpu02", "--dry-run")
    assert "send 1 artifact from local" in plan and "uv-" not in plan.partition("build: plan")[0]
    assert "put the artifacts in place" in plan and "assemble release tiny-py311-" in plan
    assert "patch sglang" not in plan
    assert shop.there("gpu02", "store/*") == shop.there("gpu02", "releases/*") == []


@pytest.mark.usefixtures("shipped")
def test_from_one_host_to_another_nothing_stays_here(shop: Fleet) -> None:
    shop.clear("gpu02")
    kept = shop.tiny.root.with_name("kept")
    shop.tiny.root.rename(kept)
    try:
        said = shop.ship("--from", "gpu01", "--to", "gpu02")
        assert "gpu02: send 1 artifact and 1 wheel from gpu01, through this machine: " in said
        assert not [path for path in shop.tiny.root.rglob("*") if path.suffix == ".whl"]
    finally:
        shutil.rmtree(shop.tiny.root, ignore_errors=True)
        kept.rename(shop.tiny.root)
    shop.works("gpu02")


@pytest.mark.usefixtures("shipped")
def test_a_damaged_wheel_is_found_before_it_is_sent(shop: Fleet) -> None:
    (wheel,) = shop.there("gpu01", "wheels/*/*")
    shop.clear("gpu02")
    fleet.run(shop.hosts["gpu01"], f"cd '{ROOT}' && cp -p {wheel} /srv/kept && echo x >>{wheel}")
    try:
        done = shop.tiny.project.invoke(*SHIP, "--from", "gpu01", "--to", "gpu02", timeout=LONG)
        message = refused(done, 3)
        assert message.startswith(f"error: gpu01: {wheel} has sha256 ") and "damaged" in message
        assert shop.there("gpu02", "*") == []
    finally:
        fleet.run(shop.hosts["gpu01"], f"cd '{ROOT}' && mv /srv/kept {wheel}")


@pytest.mark.usefixtures("shipped")
def test_one_host_that_fails_does_not_stop_the_other(shop: Fleet) -> None:
    for host in ("gpu01", "gpu02"):
        shop.clear(host)
    # Where a folder cannot be made, nothing can be written.
    fleet.run(shop.hosts["gpu01"], f"echo >'{ROOT}/store'")
    done = shop.tiny.project.invoke(*SHIP, "--to", "gpu01,gpu02", timeout=LONG)
    message = refused(done, 3)
    assert "gpu01: cannot make the folders for our files" in message
    assert "gpu02: release tiny-py311-" in message
    shop.works("gpu02")
    shop.clear("gpu01")
    shop.ship("--from", "gpu02", "--to", "gpu01")
    shop.works("gpu01")


@pytest.mark.usefixtures("shipped")
def test_a_host_that_does_not_fit_is_refused_before_a_byte(shop: Fleet, pantry: Path) -> None:
    shop.clear("gpu02")
    stack, lock = "recipes/stacks/tiny.yaml", "recipes/locks/tiny.lock.yaml"
    before = shop.tiny.project.read(stack), shop.tiny.project.read(lock)
    shop.tiny.project.change(stack, ('glibc: "2.17"', 'glibc: "2.99"'))
    shop.tiny.project.write(lock, make_tiny_lock(shop.tiny.project, pantry))
    try:
        done = shop.tiny.project.invoke(*SHIP, "--to", "gpu01,gpu02", timeout=LONG)
        message = refused(done, 3)
        for host in ("gpu01", "gpu02"):
            assert f"{host}: stack tiny needs glibc 2.99 or newer; the host has 2." in message
        assert shop.there("gpu02", "*") == []
    finally:
        shop.tiny.project.write(stack, before[0])
        shop.tiny.project.write(lock, before[1])


@pytest.mark.skipif(not can_rsync(), reason="there is no rsync on this machine")
def test_rsync_goes_the_same_way_and_says_why_it_cannot(
    shop: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(shop.tiny.project.home))
    hosts = catalog.inventory(shop.tiny.project.root).hosts
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "it's").write_bytes(b"x" * 300_000)
    there = PurePosixPath(ROOT) / "by rsync"
    fleet.run(shop.hosts["gpu02"], f"install -d -o bob '{there}'")
    said: list[str] = []
    assert rsync(hosts["gpu02"], hosts, tmp_path, ["a b/it's"], there, said.append) == ""
    size = fleet.run(shop.hosts["gpu02"], f"stat -c '%U %s' '{there}/a b/it'\"'\"'s'").stdout
    assert size == "bob 300000\n"
    assert any("300,000" in line for line in said)
    # A shell that speaks before every command is not clean enough for rsync.
    assert rsync(hosts["gpu01"], hosts, tmp_path, ["a b/it's"], there, said.append) != ""
