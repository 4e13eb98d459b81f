"""Opening the way to a host, and the first look at what of ours is there."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects import library
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from firstlight.hosts import survey
from firstlight.hosts.inventory import Host, Inventory


def opener(inventory: Inventory, host: Host, console: Console) -> Callable[[], Shell]:
    """How to open (and open again) the way to a host; a sudo password is asked for once."""
    asked: dict[str, str] = {}

    def password(prompt: str) -> str:
        if prompt not in asked:
            console.settle()
            try:
                asked[prompt] = getpass.getpass(f"{prompt}: ")
            except EOFError:
                raise HostError("no password was given", where=host.name) from None
        return asked[prompt]

    ask = password if console.is_terminal else None
    return lambda: open_shell(host, inventory.hosts, ask)


@contextlib.contextmanager
def reached(open_way: Callable[[], Shell], console: Console) -> Iterator[Shell]:
    """An open shell, closed at the end; --debug shows what it cost."""
    shell = open_way()
    try:
        yield shell
    finally:
        shell.close()
        name = shell.host.name
        console.debug(f"{name}: {shell.connections} connection(s), {shell.scripts} script(s)")


def look(shell: Shell) -> survey.Survey:
    """What of ours is on the host: one script."""
    script = Script(library.program("survey.sh"), args=(shell.host.root,))
    return survey.parse(shell.run(script, timeout_s=60).text, shell.host.name)


def read_remote(shell: Shell, path: PurePosixPath) -> str:
    """A small text file of the host; raises HostError when it cannot be read."""
    result = shell.run(Script('cat -- "$1"', args=(str(path),)))
    if not result.ok:
        raise HostError(f"cannot read {path}: {result.error_text.strip()}", where=shell.host.name)
    return result.text
