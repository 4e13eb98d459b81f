"""Making a connection: every hop with the person's ssh_config, strict about host keys."""

from __future__ import annotations

import logging
import random
import re
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize, SSHException

from firstlight.core.errors import HostError
from firstlight.effects.homes import expanded
from firstlight.effects.ssh.identity import Account, Identities, wanted_files
from firstlight.effects.ssh.known_hosts import read
from firstlight.effects.ssh.route import Hop, route
from firstlight.effects.ssh.troubles import explain, is_crowded
from firstlight.effects.ssh.trust import Place, Strict
from firstlight.hosts.inventory import Host

_CONNECT_S = 10
_DEAD_S = 20
_TRIES = 5
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"

# Else Python prints Paramiko's own tracebacks for errors that we report ourselves.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def connect(host: Host, hosts: Mapping[str, Host]) -> Connection:
    """An open connection to `host`; raises HostError with cause, place and remedy."""
    config = _ssh_config(host.name)
    hops = _hops(config, host, hosts)
    connection, place = None, None
    try:
        for hop in hops:
            towards = "" if hop is hops[-1] else host.name
            connection, place = _leg(hop, config, connection, place, towards)
            _open(connection, place)
    except BaseException:
        disconnect(connection)
        raise
    return connection


def way_to(host: Host, hosts: Mapping[str, Host]) -> tuple[Hop, ...]:
    """The hops to a host, as its inventory entry and the person's ssh_config have them."""
    return _hops(_ssh_config(host.name), host, hosts)


def _hops(config: Config, host: Host, hosts: Mapping[str, Host]) -> tuple[Hop, ...]:
    return route(host, hosts, lambda address: _look_up(config, address).get("proxyjump", ""))


def disconnect(connection: Connection | None) -> None:
    """Close a connection and every hop before it."""
    while isinstance(connection, Connection):
        # Not connection.close(): it does nothing for a connection that died.
        connection.client.close()
        connection = connection.gateway


def _ssh_config(where: str) -> Config:
    # lazy: a fabric.yaml somewhere must not change what we do; ssh_config may.
    config = Config(lazy=True)
    try:
        config.load_ssh_config()
    except (ConfigParseError, OSError, ValueError) as error:
        raise _bad_config(where, error) from None
    return config


def _look_up(config: Config, address: str) -> Mapping[str, str]:
    try:
        found: Mapping[str, str] = config.base_ssh_config.lookup(address)
    except (ConfigParseError, CouldNotCanonicalize) as error:
        raise _bad_config(address, error) from None
    return found


def _bad_config(where: str, error: Exception) -> HostError:
    what = f"your ssh_config cannot be used: {error}"
    return HostError(what, where=where, remedy="correct ~/.ssh/config or /etc/ssh/ssh_config")


def _leg(
    hop: Hop, config: Config, gateway: Connection | None, via: Place | None, towards: str
) -> tuple[Connection, Place]:
    """One hop's connection, not yet open, as its inventory entry and the ssh_config have it."""
    settings = _look_up(config, hop.address)
    connection = _connection(hop, config, gateway, settings)
    place = Place(hop.name, connection.host, connection.port, connection.user, via, towards)
    trust = _trust(place, settings)
    connection.client.set_missing_host_key_policy(trust)
    connection.connect_kwargs = {
        "auth_strategy": Identities(_account(hop, place, settings)),
        "transport_factory": partial(_transport, trust.kinds),
        "banner_timeout": 15,
        "auth_timeout": 20,
        "channel_timeout": 20,
    }
    return connection, place


def _connection(
    hop: Hop, config: Config, gateway: Connection | None, settings: Mapping[str, Any]
) -> Connection:
    try:
        return Connection(
            hop.address,
            user=hop.user,
            port=hop.port,
            config=config,
            gateway=gateway or settings.get("proxycommand") or False,
            connect_timeout=int(settings.get("connecttimeout", _CONNECT_S)),
            forward_agent=False,
        )
    except ValueError as error:  # a Port or a ConnectTimeout that is no number
        raise _bad_config(hop.name, error) from None


def _trust(place: Place, settings: Mapping[str, Any]) -> Strict:
    ours = _files(settings.get("userknownhostsfile", _USER_FILES))
    files = (*ours, *_files(settings.get("globalknownhostsfile", _GLOBAL_FILES)))
    to_add = ours[0] if ours else _files(_USER_FILES)[0]
    try:
        keys = read(files)
    except OSError as error:
        what = f"cannot read {error.filename}: {error.strerror}"
        raise HostError(what, where=str(place), remedy="make that file readable for you") from None
    return Strict(place, keys, to_add, settings.get("hostkeyalias", ""))


def _files(text: str) -> tuple[Path, ...]:
    whole = expanded(text)
    if whole.is_file():
        return (whole,)  # Paramiko has taken the quotes off a name with spaces
    words = (quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', text))
    return tuple(expanded(word) for word in words if word != "none")


def _account(hop: Hop, place: Place, settings: Mapping[str, Any]) -> Account:
    configured = settings.get("identityfile", [])
    files, named = wanted_files(hop.identity, configured, str(place))
    only = named or settings.get("identitiesonly", "no") == "yes"
    return Account(str(place), place.user, files, only, place.command("ssh-copy-id"))


def _transport(kinds: tuple[str, ...], sock: Any, **options: Any) -> paramiko.Transport:
    """Paramiko's transport, tuned, and asking first for the kinds of host key that we can check."""
    _tune(sock)
    transport = paramiko.Transport(sock, **options)
    security = transport.get_security_options()
    rsa = ("rsa-sha2-512", "rsa-sha2-256")
    wanted = [name for kind in kinds for name in (rsa if kind == "ssh-rsa" else (kind,))]
    first = [name for name in wanted if name in security.key_types]
    security.key_types = (*first, *(n for n in security.key_types if n not in first))
    return transport


def _tune(sock: Any) -> None:
    if not isinstance(sock, socket.socket):
        return  # a channel of the hop before, whose socket is tuned, or a ProxyCommand
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_S * 1000)


def _open(connection: Connection, place: Place) -> None:
    """Open one hop; a crowded sshd is asked again, a little later each time."""
    started = time.monotonic()
    for attempt in range(_TRIES):
        try:
            connection.open()
            return
        except (SSHException, OSError, EOFError, UnicodeError) as error:
            connection.client.close()
            late = time.monotonic() - started > _CONNECT_S
            if not is_crowded(error) or late or attempt == _TRIES - 1:
                raise explain(error, place) from error
            time.sleep(random.uniform(0.2, 0.6) * (attempt + 1))
