"""Test hosts: the two networks of a site, each host's place on them, and pulling its cable.

The outer bridge is on this machine; the inner one is in a namespace of its own, so that only a
host that is on both can reach the hosts that are only there. Neither leads anywhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tests.hosts.call import FleetError, call

Net = Literal["outer", "inner"]


@dataclass(frozen=True)
class Place:
    """A host's number on its networks; the first network is the one that it is known by."""

    number: int
    nets: tuple[Net, ...]


def place(name: str) -> Place:
    """The place of a host by its name: bastion, or gpu01 to gpu99. gpu02 is behind the bastion."""
    if name == "bastion":
        return Place(5, ("outer", "inner"))
    if name == "gpu02":
        return Place(12, ("inner",))
    if name.startswith("gpu") and name[3:].isdecimal() and len(name) == 5:
        return Place(10 + int(name[3:]), ("outer",))
    raise FleetError(f"no test host is called {name!r}; there are bastion and gpu01 to gpu99")


def address(site: int, name: str) -> str:
    """The address that a host is known by."""
    where = place(name)
    return f"{_subnet(site, where.nets[0])}.{where.number}"


def namespace(site: int, name: str) -> str:
    """The network namespace of a host."""
    return f"fl{site}-{name}"


def build(site: int) -> None:
    """Make the site's bridges. Addresses of the inner network are refused here, at once."""
    outer, inner = _bridge(site, "outer"), namespace(site, "inner")
    call("ip", "link", "add", outer, "type", "bridge")
    call("ip", "address", "add", f"{_subnet(site, 'outer')}.1/24", "dev", outer)
    call("ip", "link", "set", outer, "up")
    call("ip", "netns", "add", inner)
    call("ip", "-n", inner, "link", "add", _bridge(site, "inner"), "type", "bridge")
    call("ip", "-n", inner, "link", "set", _bridge(site, "inner"), "up")
    call("ip", "route", "add", "unreachable", f"{_subnet(site, 'inner')}.0/24")


def attach(site: int, name: str) -> None:
    """Make the host's namespace, with one network card for each of its networks."""
    inside = namespace(site, name)
    call("ip", "netns", "add", inside)
    call("ip", "-n", inside, "link", "set", "lo", "up")
    for card, net in enumerate(place(name).nets):
        port, where = port_of(site, name, net), _at(site, net)
        far = ("peer", "name", f"eth{card}", "netns", inside)
        call("ip", *where, "link", "add", port, "type", "veth", *far)
        call("ip", *where, "link", "set", port, "master", _bridge(site, net), "up")
        own = f"{_subnet(site, net)}.{place(name).number}/24"
        call("ip", "-n", inside, "address", "add", own, "dev", f"eth{card}")
        call("ip", "-n", inside, "link", "set", f"eth{card}", "up")


def detach(site: int, name: str) -> None:
    """Remove the host's namespace; its network cards go with it."""
    if namespace(site, name) in _namespaces():
        call("ip", "netns", "delete", namespace(site, name))


def remove(site: int) -> None:
    """Remove the site's bridges, namespaces and route, as far as they exist."""
    for name in _namespaces():
        if name.startswith(f"fl{site}-"):
            call("ip", "netns", "delete", name)
    outer, subnet = _bridge(site, "outer"), f"{_subnet(site, 'inner')}.0/24"
    links = json.loads(call("ip", "-json", "link", "show"))
    if any(link["ifname"] == outer for link in links):
        call("ip", "link", "delete", outer)
    if call("ip", "route", "show", "type", "unreachable", "exact", subnet):
        call("ip", "route", "delete", "unreachable", subnet)


def set_cable(site: int, name: str, state: Literal["up", "down"]) -> None:
    """Plug or pull the host's first cable, at the bridge: the host is told nothing else."""
    net = place(name).nets[0]
    call("ip", *_at(site, net), "link", "set", port_of(site, name, net), state)


def port_of(site: int, name: str, net: Net) -> str:
    """The bridge's end of the host's cable."""
    return f"fl{site}{net[0]}{place(name).number}"


def _bridge(site: int, net: Net) -> str:
    return f"fl{site}{net}"


def _subnet(site: int, net: Net) -> str:
    return f"10.{213 if net == 'outer' else 214}.{site}"


def _at(site: int, net: Net) -> tuple[str, ...]:
    return () if net == "outer" else ("-n", namespace(site, "inner"))


def _namespaces() -> list[str]:
    return [entry["name"] for entry in json.loads(call("ip", "-json", "netns", "list") or "[]")]
