"""How a person reaches a host of the inventory by `ssh` itself: the words of its command line."""

from __future__ import annotations

from collections.abc import Mapping

from firstlight.core.command import Command
from firstlight.effects.ssh.route import Hop, route
from firstlight.hosts.inventory import Host


def dial(host: Host, hosts: Mapping[str, Host]) -> tuple[str, ...]:
    """What comes after `ssh`, the address last; what the inventory leaves out is ssh_config's.
    Nothing for this machine.

    Raises HostError for a `proxy_jump` that leads nowhere.
    """
    if host.is_local:
        return ()
    # Without what ssh_config has for an address: `ssh` reads that itself.
    return _words(host.proxy_jump, route(host, hosts, lambda _address: ""))


def _words(jump: str | None, hops: tuple[Hop, ...]) -> tuple[str, ...]:
    *before, last = hops
    words = [*_through(jump, tuple(before))]
    words += ["-p", str(last.port)] if last.port else []
    words += ["-i", last.identity] if last.identity else []
    return (*words, _at(last, last.address))


def _through(jump: str | None, before: tuple[Hop, ...]) -> tuple[str, ...]:
    if not before:
        # `none` says that a way of ssh_config is not to be taken.
        return ("-J", jump) if jump == "none" else ()
    if any(hop.identity for hop in before):
        # -J would not show the gateway that key. Each % belongs to the ssh that is furthest out.
        inner = (word.replace("%", "%%") for word in _words(None, before))
        way = Command(("exec", "ssh", "-W", "%h:%p", *inner)).line()
        return ("-o", f"ProxyCommand={way}")
    return ("-J", ",".join(map(_jump, before)))


def _jump(hop: Hop) -> str:
    address = f"[{hop.address}]" if ":" in hop.address else hop.address
    return _at(hop, f"{address}:{hop.port}" if hop.port else address)


def _at(hop: Hop, address: str) -> str:
    return f"{hop.user}@{address}" if hop.user else address
