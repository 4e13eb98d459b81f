"""Showing a host who we are: keys from files first, then the agent's; and what was tried."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.ssh_exception import BadAuthenticationType, SSHException

from firstlight.core.errors import HostError
from firstlight.effects.homes import expanded, home_relative
from firstlight.effects.ssh.known_hosts import fingerprint

DEFAULTS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


@dataclass(frozen=True)
class Account:
    """Whom we want to be, and with which keys; `only` leaves the agent's other keys out.

    `spot` is the host as messages name it, `push` the command that would install a key there.
    """

    spot: str
    user: str
    files: tuple[Path, ...]
    only: bool
    push: str


class Identities:
    """Tries every key once; stands in for Paramiko's own search, which cannot say what it did."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tried: list[str] = []
        self._locked: list[Path] = []

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Log in, or raise HostError with every key and what became of it."""
        agent = paramiko.Agent()
        try:
            for label, key in self._keys(agent):
                if self._try(transport, label, key):
                    return []
        finally:
            agent.close()
        raise self._refused()

    def _keys(self, agent: paramiko.Agent) -> Iterator[tuple[str, paramiko.PKey]]:
        for path in self._account.files:
            key = self._load(path)
            if key:
                yield home_relative(path), key
        public = _public_halves(self._account.files)
        for held in agent.get_keys():
            blob = held.asbytes()
            if not self._account.only or blob in public:
                yield f"the agent's {held.get_name()} {fingerprint(blob)}", held

    def _load(self, path: Path) -> paramiko.PKey | None:
        try:
            return paramiko.PKey.from_path(path)
        except FileNotFoundError:
            self._tried.append(f"{home_relative(path)}: not there")
        except OSError as error:
            self._tried.append(f"{home_relative(path)}: cannot be read ({error.strerror})")
        except (TypeError, paramiko.PasswordRequiredException):
            self._locked.append(path)
            self._tried.append(f"{home_relative(path)}: has a passphrase")
        except (ValueError, SSHException, paramiko.pkey.UnknownKeyType) as error:
            self._tried.append(f"{home_relative(path)}: no private key that we can read ({error})")
        return None

    def _try(self, transport: paramiko.Transport, label: str, key: paramiko.PKey) -> bool:
        try:
            more = transport.auth_publickey(self._account.user, key)
        except BadAuthenticationType as error:
            ways = ", ".join(error.allowed_types)
            raise self._error(f"takes no keys, only: {ways}", "allow publickey there") from None
        except SSHException:
            self._tried.append(f"{label}: refused")
            if not transport.is_active():
                raise self._hung_up() from None
            return False
        if more:
            what = f"takes our key, but wants more: {', '.join(more)}"
            raise self._error(what, "allow this account to log in by its key alone")
        return True

    def _refused(self) -> HostError:
        account = self._account
        if self._locked:
            remedy = f"unlock the key: `ssh-add {home_relative(self._locked[0])}`, then run again"
        else:
            remedy = f"install your key there (`{account.push}`), or name the right user or"
            remedy += " identity in the inventory"
        return self._error(f"does not let {account.user!r} in", remedy)

    def _hung_up(self) -> HostError:
        what = f"hung up on {self._account.user!r} after {len(self._tried)} keys"
        return self._error(what, "name the right key as `identity` of this host in the inventory")

    def _error(self, what: str, remedy: str) -> HostError:
        tried = "; ".join(self._tried) or "no key at all: none in ~/.ssh, no agent"
        return HostError(f"it {what} (tried {tried})", where=self._account.spot, remedy=remedy)


def wanted_files(
    given: str | None, configured: Sequence[str], where: str
) -> tuple[tuple[Path, ...], bool]:
    """Key files to try, and whether they were named for this host; a named one must exist."""
    if given is None:
        files = tuple(expanded(file) for file in configured or DEFAULTS)
        return (files if configured else tuple(filter(_is_file, files))), False
    path = expanded(given)
    if not _is_file(path):
        remedy = "correct `identity` of this host in the inventory, or put the key there"
        raise HostError(f"its identity file {given} does not exist", where=where, remedy=remedy)
    return (path,), True


def _public_halves(files: Sequence[Path]) -> frozenset[bytes]:
    found = set()
    for path in files:
        public = path.with_name(path.name + ".pub")
        # It may be absent, out of our reach, or something else altogether.
        with contextlib.suppress(OSError, ValueError, IndexError):
            found.add(base64.b64decode(public.read_text("utf-8", "replace").split()[1]))
    return frozenset(found)


def _is_file(path: Path) -> bool:
    """False also where we may not even look."""
    try:
        return path.is_file()
    except OSError:
        return False
