"""What a run brings to this machine goes with the run, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import network, process
from tests.hosts.base import mounts_under
from tests.hosts.call import FleetError, call
from tests.hosts.site import SITES, Site, cgroups, chosen, host_processes, sweep

ROOT = Path(__file__).parents[2]
FORGETFUL = """
import time
from tests.hosts import fleet, site
opened = site.open_site()
fleet.boot(opened, "gpu01")
print(opened.number, flush=True)
time.sleep(600)
"""


def traces(site: Site) -> list[str]:
    """All that this machine still shows of a site."""
    shown = [call("ip", "link"), call("ip", "netns"), call("ip", "route")]
    lines = [line for text in shown for line in text.splitlines()]
    marks = (f"fl{site.number}o", f"fl{site.number}-", f"10.214.{site.number}.0/24")
    found = [line for line in lines if any(mark in line for mark in marks)]
    places = [*mounts_under(site.folder), *cgroups(site, "gpu01"), *site.folder.glob("*")]
    return [*found, *map(str, places)]


@pytest.mark.hosts
def test_the_next_run_clears_what_a_killed_one_left() -> None:
    command = [sys.executable, "-c", FORGETFUL]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        number = int(run.stdout.readline())
        site = Site(number, SITES / str(number))
        (keeper,) = host_processes(site.host_folder("gpu01"))
        sweep()
        assert process.is_alive(keeper), "a site was swept whose owner lives"
        assert len(traces(site)) > 5
        os.kill(run.pid, signal.SIGKILL)
    assert process.is_alive(keeper)
    sweep()
    assert not process.is_alive(keeper)
    assert traces(site) == []


@pytest.mark.hosts
def test_hosts_brought_up_by_hand_live_until_down(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    words = [sys.executable, "-m", "tests.hosts"]
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "one.whl").touch()
    bind = ["--bind", f"{wheels}:/srv/wheels"]
    up = [*words, "up", "gpu07", "--hosts-file", str(inventory), *bind]
    done = subprocess.run(up, cwd=ROOT, capture_output=True, text=True)
    try:
        assert done.returncode == 0, done.stderr
        sweep()
        home = Path(done.stdout.split("HOME=")[1].split()[0])
        assert f"# until: python -m tests.hosts down --site {home.parent.name}\n" in done.stdout
        address = inventory.read_text().split("address: ")[1].split()[0]
        options = ["-F", "none", "-i", f"{home}/.ssh/id_ed25519", "-o", "BatchMode=yes"]
        known = f"UserKnownHostsFile={home}/.ssh/known_hosts"
        target = ["-o", known, f"root@{address}", "ls /srv/wheels; touch /srv/wheels/two"]
        asked = subprocess.run(["ssh", *options, *target], capture_output=True, text=True)
        assert asked.stdout == "one.whl\n", asked.stderr
        assert "Read-only file system" in asked.stderr
    finally:
        down = subprocess.run([*words, "down", "gpu07"], cwd=ROOT, capture_output=True, text=True)
    assert (down.stdout, down.returncode) == ("stopped gpu07\n", 0), down.stderr
    again = subprocess.run([*words, "down", "gpu07"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 3
    assert again.stderr.startswith("not up: gpu07; up: ")


UP = {1: ["bastion", "gpu02"], 4: ["gpu01"], 7: ["gpu01"]}


@pytest.mark.parametrize(
    ("names", "number", "sites"),
    [([], 4, [4]), (["gpu02"], None, [1]), (["gpu02", "bastion"], None, [1]), (["gpu01"], 7, [7])],
)
def test_the_site_that_is_meant_goes_down(
    names: list[str], number: int | None, sites: list[int]
) -> None:
    assert chosen(UP, names, number) == sites
    assert chosen({3: ["gpu01"]}, []) == [3] and chosen({}, []) == []


@pytest.mark.parametrize(
    ("names", "number", "told"),
    [
        ([], None, "which site"),
        (["gpu01"], None, "which site"),
        (["gpu05"], None, "not up: gpu05"),
        (["gpu01"], 1, "not up: gpu01"),
        ([], 9, "not up: site 9"),
    ],
)
def test_hosts_of_others_are_left_up(names: list[str], number: int | None, told: str) -> None:
    with pytest.raises(FleetError, match=told) as caught:
        chosen(UP, names, number)
    assert "--site 1: bastion, gpu02; --site 4: gpu01; --site 7: gpu01" in str(caught.value)


def test_a_recycled_process_id_is_another_process() -> None:
    me = process.identify(os.getpid())
    assert me is not None
    assert process.is_alive(me)
    assert not process.is_alive(process.Process(me.pid, me.started + 1, me.boot))
    assert process.parse(me.line() * 2) == (me, me)


@pytest.mark.parametrize("name", ["gpu1", "gpu001", "gpuxx", "other"])
def test_a_name_without_a_place_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="gpu01 to gpu99"):
        network.place(name)
