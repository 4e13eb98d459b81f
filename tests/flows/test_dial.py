"""The `ssh` line that a person is told, as ssh itself reads it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from firstlight.core.command import Command
from firstlight.core.errors import HostError
from firstlight.core.schema import Document
from firstlight.effects.console import Console
from firstlight.effects.local import LocalShell
from firstlight.flows.closing import closing
from firstlight.flows.dial import dial
from firstlight.flows.target import Case
from firstlight.hosts.inventory import Host, Inventory
from firstlight.hosts.survey import Survey
from firstlight.serve.profile import Profile

GATE = Host(name="gate", address="10.0.0.1", user="guard", port=2201)
KEYED = GATE.model_copy(update={"name": "keyed", "identity": "/k/gate 100%"})
INNER = Host(name="inner", address="10.0.0.2", user="in", proxy_jump="keyed")
HOSTS = {host.name: host for host in (GATE, KEYED, INNER)}
MANIFEST = {"bind": "127.0.0.1", "port": 30001, "served_model_name": "m", "profile": "p"}


def gpu(**more: object) -> Host:
    return Host.model_validate({"name": "gpu", "address": "10.0.0.9", **more})


def line(host: Host) -> str:
    return Command(("ssh", *dial(host, HOSTS))).line()


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """What ssh makes of such a line, by the names of its settings."""
    if not shutil.which("ssh"):
        pytest.skip("no ssh client here")
    empty = tmp_path / "config"
    empty.write_text("")

    def settings(told: str) -> dict[str, str]:
        _, *words = shlex.split(told)
        asked = ["ssh", "-G", "-F", str(empty), *words]
        done = subprocess.run(asked, capture_output=True, encoding="utf-8", check=True)
        return dict(one.split(" ", 1) for one in done.stdout.splitlines() if " " in one)

    return settings


def test_what_the_inventory_gives_is_told_and_nothing_else(
    read: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    assert line(gpu()) == "ssh 10.0.0.9"
    key = tmp_path / "the key"
    key.touch()
    full = line(gpu(user="zoe", port=2222, identity=str(key), proxy_jump="gate"))
    assert full == f"ssh -J guard@10.0.0.1:2201 -p 2222 -i '{key}' zoe@10.0.0.9"
    found = read(full)
    assert (found["user"], found["port"], found["hostname"]) == ("zoe", "2222", "10.0.0.9")
    assert found["identityfile"] == str(key)
    assert found["proxyjump"] == "guard@[10.0.0.1]:2201"


@pytest.mark.parametrize(
    ("jump", "told"),
    [
        ("ann@far.example:2022", "-J ann@far.example:2022"),
        ("gate, far.example", "-J guard@10.0.0.1:2201,far.example"),
        ("zoe@[fe80::1]:24", "-J 'zoe@[fe80::1]:24'"),
        ("none", "-J none"),
    ],
)
def test_a_way_is_told_by_addresses(jump: str, told: str) -> None:
    assert line(gpu(proxy_jump=jump)) == f"ssh {told} 10.0.0.9"


def test_a_gateway_with_a_key_of_its_own_is_shown_that_key(
    read: Callable[[str], dict[str, str]],
) -> None:
    way = read(line(gpu(proxy_jump="keyed")))["proxycommand"]
    inner = "-p 2201 -i '/k/gate 100%%' guard@10.0.0.1"
    assert way == f"exec ssh -W %h:%p {inner}"
    # ssh takes the outer signs away, and the ssh in between finds its own.
    nested = read(line(gpu(proxy_jump="inner")))["proxycommand"]
    for sign, meant in (("%%", "\0"), ("%h:%p", "10.0.0.9:22"), ("\0", "%")):
        nested = nested.replace(sign, meant)
    assert read(nested.removeprefix("exec "))["proxycommand"] == way


def test_a_way_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(HostError, match="no inventory name and no address"):
        line(gpu(proxy_jump="a b@c:d"))


def test_the_closing_text_tells_how_to_reach_a_host_that_the_inventory_describes() -> None:
    host = gpu(user="zoe", port=2222, proxy_jump="gate")
    case = Case(
        root=Path(),
        console=Console(),
        shell=LocalShell(host),
        inventory=Inventory({**HOSTS, "gpu": host}),
        document=cast("Document[Profile]", None),
        release="",
        seen=cast(Survey, None),
    )
    proof = {"outcome": "pass", "questions": [], "kv_dtype": "x", "kv_tokens": 1}
    told = closing(case, MANIFEST, proof)
    jump = "-J guard@10.0.0.1:2201 -p 2222 zoe@10.0.0.9"
    assert f"\n            ssh -L 30001:127.0.0.1:30001 {jump}\n" in told


def test_this_machine_needs_no_way() -> None:
    assert dial(Host(name="local"), {}) == ()
