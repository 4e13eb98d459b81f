"""What a host is: a name, a way to reach it, and the folder where everything of ours lives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, model_validator

from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import Document, Model, nearest

DEFAULT_ROOT = "~/.local/share/firstlight"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Host(Model):
    """One host of the inventory; `local` (or no address) is this machine and needs no SSH.

    What is left out is taken from the person's ssh_config. `proxy_jump` is an inventory name or
    `user@address:port`, several separated by commas. `fetch` says who downloads: the host, the
    controller, or (auto) the host when it turns out to have a way out.
    """

    name: str = Field(pattern=NAME)
    address: str | None = None
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    identity: str | None = None
    proxy_jump: str | None = None
    root: str = DEFAULT_ROOT
    fetch: Literal["auto", "host", "controller"] = "auto"
    labels: Mapping[str, str] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """True when this host is the machine that runs us."""
        return self.address is None

    @model_validator(mode="after")
    def _reachable(self) -> Host:
        if self.address is None and self.name != "local":
            raise ValueError(f"host {self.name!r} needs an address; only 'local' has none")
        if not self.root.startswith(("/", "~/")):
            raise ValueError(f"root must start with / or ~/; got {self.root!r}")
        return self


class InventoryFile(Model):
    """One file of inventory/: some hosts, and perhaps the one that verbs mean by default."""

    schema_: Literal[1] = Field(alias="schema")
    default: str | None = None
    hosts: tuple[Host, ...] = ()


def merge(files: Iterable[Document[InventoryFile]]) -> tuple[dict[str, Host], str]:
    """All hosts by name, and the default one's name; raises ConfigError for a name used twice."""
    hosts: dict[str, Host] = {}
    defaults: list[tuple[str, Fault]] = []
    faults: list[Fault] = []
    for file in files:
        for index, host in enumerate(file.value.hosts):
            if host.name in hosts:
                message = f"host {host.name!r} is given twice"
                faults.append(file.fault(("hosts", index, "name"), message))
            hosts[host.name] = host
        if file.value.default is not None:
            defaults.append((file.value.default, file.fault(("default",), "")))
    hosts.setdefault("local", Host(name="local"))
    for wanted, place in defaults:
        if len(defaults) > 1:
            faults.append(
                dataclasses.replace(place, message="the default host is given more than once")
            )
        elif wanted not in hosts:
            message = f"default host {wanted!r} is not in the inventory{nearest(wanted, hosts)}"
            faults.append(dataclasses.replace(place, message=message))
    if faults:
        raise ConfigError(faults)
    return hosts, defaults[0][0] if defaults else "local"
