"""The way to a host: inventory names, addresses, chains, circles."""

import pytest

from firstlight.core.errors import HostError
from firstlight.effects.ssh.route import route
from firstlight.hosts.inventory import Host


def names(host: Host, hosts: dict[str, Host] | None = None, **configured: str) -> list[str]:
    return [hop.name for hop in route(host, hosts or {}, lambda a: configured.get(a, ""))]


def host(name: str, jump: str | None = None) -> Host:
    return Host(name=name, address=f"{name}.lab", proxy_jump=jump)


def test_a_host_without_hops_is_its_own_way() -> None:
    assert names(host("gpu01")) == ["gpu01"]


def test_a_hop_by_inventory_name_brings_its_own_settings_and_hops() -> None:
    hosts = {"gate": host("gate", "door"), "door": host("door")}
    assert names(host("gpu01", "gate"), hosts) == ["door", "gate", "gpu01"]


@pytest.mark.parametrize(
    ("text", "user", "address", "port"),
    [
        ("gate", None, "gate", None),
        ("ml@gate:2222", "ml", "gate", 2222),
        ("10.0.0.1:22", None, "10.0.0.1", 22),
        ("ml@[fe80::1]:22", "ml", "fe80::1", 22),
    ],
)
def test_a_hop_by_address(text: str, user: str | None, address: str, port: int | None) -> None:
    hop = route(host("gpu01", text), {}, lambda _: "")[0]
    assert (hop.user, hop.address, hop.port) == (user, address, port)


def test_a_chain_is_passed_from_left_to_right() -> None:
    assert names(host("gpu01", "a, b@x:1")) == ["a", "b@x:1", "gpu01"]


def test_ssh_config_may_say_the_way() -> None:
    configured = {"gpu01.lab": "gate", "gate": "door"}
    assert names(host("gpu01"), None, **configured) == ["door", "gate", "gpu01"]
    assert names(host("gpu01", "none"), None, **configured) == ["gpu01"]


def test_a_jump_host_that_ssh_config_sends_through_itself_is_reached_directly() -> None:
    hops = route(host("gpu01"), {}, lambda _: "ml@gate:22")
    assert [hop.address for hop in hops] == ["gate", "gpu01.lab"]


@pytest.mark.parametrize(
    ("jump", "words"),
    [
        ("gpu01", "goes round in a circle: gpu01 -> gpu01"),
        ("gate", "goes round in a circle: gpu01 -> gate -> gpu01"),
        ("local", "'local' is this machine itself"),
        ("a b:c", "'a b:c' is no inventory name and no address"),
        ("fe80::1", "'fe80::1' is no inventory name and no address"),
    ],
)
def test_a_way_that_leads_nowhere_says_so(jump: str, words: str) -> None:
    target = host("gpu01", jump)
    hosts = {"gpu01": target, "gate": host("gate", "gpu01"), "local": Host(name="local")}
    with pytest.raises(HostError) as caught:
        names(target, hosts)
    assert words in str(caught.value)
    assert str(caught.value).startswith("gpu01: ")
    assert "user@address:port" in caught.value.remedy
