"""The way to a host: which machines the connection passes, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firstlight.core.errors import HostError
from firstlight.hosts.inventory import Host

_HOP = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^]]+)\]|(?P<four>[^:@\[\]]+))(?::(?P<port>[0-9]{1,5}))?\Z"
)


@dataclass(frozen=True)
class Hop:
    """One machine on the way; what is None is the person's ssh_config's to say."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None


Configured = Callable[[str], str]
"""The ProxyJump that ssh_config has for an address; "" for none."""


def route(host: Host, hosts: Mapping[str, Host], configured: Configured) -> tuple[Hop, ...]:
    """All hops in order, the host itself last; raises HostError for a way that leads nowhere."""
    return _way(_hop(host, host.name), hosts, configured, ())


def _way(
    hop: Hop, hosts: Mapping[str, Host], configured: Configured, seen: tuple[str, ...]
) -> tuple[Hop, ...]:
    if hop.name in seen:
        circle = " -> ".join((*seen, hop.name))
        raise _wrong(seen[0], f"its proxy_jump goes round in a circle: {circle}")
    words = _jumps(hop, configured)
    if not words:
        return (hop,)
    first, *others = (_read(word, hosts, seen[0] if seen else hop.name) for word in words)
    # As with `ssh -J a,b`: only the first hop may need hops of its own.
    return (*_way(first, hosts, configured, (*seen, hop.name)), *others, hop)


def _jumps(hop: Hop, configured: Configured) -> tuple[str, ...]:
    text = configured(hop.address) if hop.jump is None else hop.jump
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    # `Host *` with a ProxyJump means the jump host too; nobody is their own way.
    ours = hop.jump is None and any(_same(word, hop.address) for word in words)
    return () if ours or words == ("none",) else words


def _same(word: str, address: str) -> bool:
    match = _HOP.match(word)
    return match is not None and address in (match["four"], match["six"])


def _read(word: str, hosts: Mapping[str, Host], where: str) -> Hop:
    if word in hosts:
        return _hop(hosts[word], where)
    match = _HOP.match(word)
    if not match:
        raise _wrong(where, f"its proxy_jump {word!r} is no inventory name and no address")
    port = int(match["port"]) if match["port"] else None
    return Hop(word, match["four"] or match["six"], match["user"], port)


def _hop(host: Host, where: str) -> Hop:
    if host.address is None:
        raise _wrong(where, f"its proxy_jump {host.name!r} is this machine itself")
    return Hop(host.name, host.address, host.user, host.port, host.identity, host.proxy_jump)


def _wrong(where: str, what: str) -> HostError:
    remedy = "proxy_jump is an inventory name or user@address:port, several separated by commas"
    return HostError(what, where=where, remedy=remedy)
