"""The SSH room: the one door to other machines; nobody else imports fabric or paramiko.

Both are imported when a connection is made, so that a verb without one starts quickly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from firstlight.core.errors import HostError
from firstlight.effects.local import LocalShell
from firstlight.effects.shell import AskPassword, Shell
from firstlight.hosts.inventory import Host


def open_shell(
    host: Host, hosts: Mapping[str, Host], ask_password: AskPassword | None = None
) -> Shell:
    """An open shell on `host`; `hosts` are those that a `proxy_jump` may name.

    `ask_password` is called at most once, when sudo there wants a password. Raises HostError
    with the reason when the host cannot be reached or does not let us in.
    """
    if host.is_local:
        _require_nameable(host)
        return LocalShell(host, ask_password)
    from firstlight.effects.ssh.shell import SshShell

    return SshShell(host, hosts, ask_password)


def _require_nameable(host: Host) -> None:
    """Raise HostError where this session's locale has no bytes for the root's name."""
    try:
        os.fsencode(host.root)
    except UnicodeEncodeError:
        raise HostError(
            f"the locale of this session ({sys.getfilesystemencoding()}) cannot name the folder "
            f"{host.root!a}",
            where=host.name,
            remedy="set LC_ALL=C.UTF-8 and run it again",
        ) from None
