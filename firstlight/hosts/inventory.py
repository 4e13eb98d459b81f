"""What a host is: a name, a way to reach it, and the folder where everything of ours lives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from firstlight.core.command import assignments
from firstlight.core.errors import ConfigError, Fault, FirstlightError
from firstlight.core.schema import Document, Model, nearest

DEFAULT_ROOT = "~/.local/share/firstlight"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Host(Model):
    """One host of the inventory; `local` (or no address) is this machine and needs no SSH.

    What is left out is taken from the person's ssh_config. `proxy_jump` is an inventory name or
    `user@address:port`, several separated by commas. `fetch` says who downloads: the host, the
    controller, or (auto) the host when it turns out to have a way out. `profile` is what verbs
    mean on this host when they are given none.
    """

    name: str = Field(pattern=NAME)
    address: str | None = Field(default=None, min_length=1)
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    identity: str | None = None
    proxy_jump: str | None = None
    root: str = DEFAULT_ROOT
    fetch: Literal["auto", "host", "controller"] = "auto"
    profile: str | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """True when this host is the machine that runs us."""
        return self.address is None

    @field_validator("env")
    @classmethod
    def _exportable(cls, env: Mapping[str, str]) -> Mapping[str, str]:
        assignments(env)
        return env

    @field_validator("address", "user", "identity", "proxy_jump", "root")
    @classmethod
    def _one_word(cls, text: str | None) -> str | None:
        """Each becomes a word of some command line, or a line of some answer."""
        if text is not None and (not text.isprintable() or text.startswith("-")):
            raise ValueError(f"it must be printable and not begin with '-'; got {text!r}")
        return text

    @model_validator(mode="after")
    def _reachable(self) -> Host:
        if self.address is None and self.name != "local":
            raise ValueError(f"host {self.name!r} needs an address; only 'local' has none")
        if not self.root.startswith(("/", "~/")):
            raise ValueError(f"root must start with / or ~/; got {self.root!r}")
        return self


class Defaults(Model):
    """The host and the profile that verbs mean when they are given none."""

    host: str | None = None
    profile: str | None = None


class InventoryFile(Model):
    """One file of inventory/: some hosts, and perhaps the defaults.

    `mirrors` says for prefixes of urls (git repositories, archives, indexes of packages) which
    prefix, or which folder of the machine that fetches, is asked instead; the longest counts.
    """

    schema_: Literal[1] = Field(alias="schema")
    defaults: Defaults = Defaults()
    mirrors: Mapping[str, str] = Field(default_factory=dict)
    hosts: tuple[Host, ...] = ()


@dataclasses.dataclass(frozen=True)
class Inventory:
    """All hosts by name, and what verbs mean by default."""

    hosts: Mapping[str, Host]
    default_host: str = "local"
    default_profile: str | None = None
    mirrors: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def host(self, name: str) -> Host:
        """The host of that name, the default one for ""; raises FirstlightError for none."""
        wanted = name or self.default_host
        if wanted not in self.hosts:
            raise UnknownName(f"no host {wanted!r} in the inventory{nearest(wanted, self.hosts)}")
        return self.hosts[wanted]


class UnknownName(FirstlightError):
    """A person named something that is not there."""

    exit_code = 2


def merge(files: Iterable[Document[InventoryFile]]) -> Inventory:
    """One inventory of all files; raises ConfigError for whatever is said twice."""
    documents = tuple(files)
    hosts = {host.name: host for file in documents for host in file.value.hosts}
    hosts.setdefault("local", Host(name="local"))
    defaults = [(file, file.value.defaults) for file in documents]
    faults = [*_repeated(documents), *_bad_defaults(documents, hosts)]
    if faults:
        raise ConfigError(faults)
    named = [value.host for _, value in defaults if value.host]
    profiles = [value.profile for _, value in defaults if value.profile]
    mirrors = {prefix: to for file in documents for prefix, to in file.value.mirrors.items()}
    return Inventory(hosts, next(iter(named), "local"), next(iter(profiles), None), mirrors)


def _repeated(files: tuple[Document[InventoryFile], ...]) -> Iterator[Fault]:
    seen: set[str] = set()
    for file in files:
        for index, host in enumerate(file.value.hosts):
            if host.name in seen:
                place = ("hosts", index, "name")
                yield file.fault(place, f"host {host.name!r} is given twice")
            seen.add(host.name)


def _bad_defaults(
    files: tuple[Document[InventoryFile], ...], hosts: Mapping[str, Host]
) -> Iterator[Fault]:
    given: set[str] = set()
    for file in files:
        for key, value in file.value.defaults.model_dump(exclude_none=True).items():
            if key in given:
                yield file.fault(("defaults", key), f"the default {key} is given twice")
            elif key == "host" and value not in hosts:
                near = nearest(value, hosts)
                yield file.fault(("defaults", key), f"no host {value!r} in the inventory{near}")
            given.add(key)
