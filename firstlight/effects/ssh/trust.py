"""Is this host the one it says it is: unknown, changed and revoked keys are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from firstlight.core.command import Command, quote
from firstlight.core.errors import Untrusted
from firstlight.effects.homes import home_relative
from firstlight.effects.ssh.known_hosts import (
    KnownKey,
    Verdict,
    fingerprint,
    judge,
    name_of,
    of_host,
)


@dataclass(frozen=True)
class Place:
    """One hop as a person finds it; `via` is the hop before it, `towards` the host it leads to."""

    name: str
    address: str
    port: int
    user: str
    via: Place | None = None
    towards: str = ""

    def __str__(self) -> str:
        way = f" through {self.via.name}" if self.via else ""
        aim = f", on the way to {self.towards}" if self.towards else ""
        return f"{self.name} ({self.address}:{self.port}{way}{aim})"

    def command(self, program: str) -> str:
        """`ssh` or the like to this place, as a person would type it."""
        jump = ("-o", f"ProxyJump={self.via.login}") if self.via else ()
        words = (program, *jump, "-p", str(self.port), f"{self.user}@{self.address}")
        return Command(words).line()

    @property
    def login(self) -> str:
        """User, address and port as ProxyJump takes them."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.user}@{address}:{self.port}"


class Strict(paramiko.MissingHostKeyPolicy):
    """Lets a key pass only when known_hosts holds it for this host.

    Paramiko's own look-up is left empty: it knows no @revoked mark and no patterns, and cannot
    say which line spoke against a key.
    """

    def __init__(self, place: Place, keys: Sequence[KnownKey], file: Path, alias: str) -> None:
        self._place, self._file = place, file
        self._name = alias or name_of(place.address, place.port)
        self._keys = of_host(keys, self._name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of key that we can check, so that the host offers one of them."""
        return tuple(dict.fromkeys(key.kind for key in self._keys if not key.revoked))

    def missing_host_key(
        self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey
    ) -> None:
        """Called for every key; raises Untrusted unless it is one of the host's."""
        verdict = judge(self._keys, key.get_name(), key.asbytes())
        if not verdict.trusted:
            raise self._refusal(verdict, key)

    def _refusal(self, verdict: Verdict, key: paramiko.PKey) -> Untrusted:
        offered = f"{key.get_name()} {fingerprint(key.asbytes())}"
        if verdict.old is None:
            what = f"its host key is not known; it offers {offered}"
            return Untrusted(what, where=str(self._place), remedy=self._how_to_add(key))
        spot = f"{home_relative(verdict.old.file)}:{verdict.old.line}"
        if verdict.old.revoked:
            what = f"its host key {offered} is marked as revoked ({spot})"
            remedy = "do not connect; ask the host's administrator which key is right"
            return Untrusted(what, where=str(self._place), remedy=remedy)
        known = f"{verdict.old.kind} {fingerprint(verdict.old.blob)}"
        what = f"its host key has CHANGED: known is {known} ({spot}), offered is {offered}"
        return Untrusted(what, where=str(self._place), remedy=self._how_to_change(verdict.old, key))

    def _how_to_add(self, key: paramiko.PKey) -> str:
        return (
            "see that this fingerprint is the host's own before you trust it:\n"
            f"     on its console:   ssh-keygen -lf {_public_file(key)}\n"
            f"     over the network: {self._scan(key)} | ssh-keygen -lf -\n"
            f"     to trust it:      {self._take(key)}"
        )

    def _how_to_change(self, old: KnownKey, key: paramiko.PKey) -> str:
        return (
            "if nobody reinstalled that host, somebody may be listening in: do not go on.\n"
            f"     compare on its console: ssh-keygen -lf {_public_file(key)}\n"
            f"     forget the old key:     ssh-keygen -R {quote(self._name)}"
            f" -f {home_relative(old.file)}\n"
            f"     trust the new one:      {self._take(key)}"
        )

    def _take(self, key: paramiko.PKey) -> str:
        folder = self._file.parent
        make = "" if folder.exists() else f"mkdir -p -m 700 {home_relative(folder)} && "
        return f"{make}{self._scan(key)} >> {home_relative(self._file)}"

    def _scan(self, key: paramiko.PKey) -> str:
        kind = key.get_name().removeprefix("ssh-").split("-")[0]
        scan = f"ssh-keyscan -t {kind} -p {self._place.port} {quote(self._place.address)}"
        return f"{self._place.via.command('ssh')} {scan}" if self._place.via else scan


def _public_file(key: paramiko.PKey) -> str:
    kind = key.get_name().removeprefix("ssh-").split("-")[0]
    return f"/etc/ssh/ssh_host_{kind}_key.pub"
