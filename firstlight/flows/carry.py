"""Carrying files from a host to others: rsync where it can, our own channel otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import cast

from firstlight.build.shipping import Parcel, accept_script
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError, HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.console import Console
from firstlight.effects.shell import Progress, Shell
from firstlight.hosts.inventory import Host

_READY = 'mkdir -p -- "$1" && command -v rsync >/dev/null'

Carry = Callable[[Progress], None]


def carry_all(
    jobs: Mapping[str, Carry], shells: Sequence[Shell], console: Console
) -> dict[str, FirstlightError]:
    """Do all of it side by side; the error of each host for which it failed.

    One that fails does not end the others. Ctrl-C ends every transfer; what has come by then, the
    next one goes on with.
    """
    lock = threading.Lock()

    def one(name: str, carry: Carry) -> FirstlightError | None:
        def note(text: str) -> None:
            with lock:
                console.note(f"{name}: {text}")

        try:
            carry(note)
        except FirstlightError as error:
            return error
        return None

    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        try:
            ends = zip(jobs, pool.map(one, jobs, jobs.values()), strict=True)
            return {name: error for name, error in ends if error is not None}
        except BaseException:
            for shell in shells:
                shell.close()
            raise


def relayed(
    origin: Shell, parcels: Sequence[Parcel], root: PurePosixPath
) -> Callable[[Shell, Sequence[ShipFile], Progress], None]:
    """How files of that host come to another: through this machine, which keeps none of them."""
    from firstlight.effects.ssh.relay import Feeding, Relay, relay

    source = Relay(origin, {str(root / parcel.path): parcel.bytes for parcel in parcels})

    def carry(target: Shell, files: Sequence[ShipFile], progress: Progress) -> None:
        relay(source, cast(Feeding, target), files, progress, target.host.name)

    return carry


def sent(
    target: Shell,
    hosts: Mapping[str, Host],
    ways: tuple[PurePosixPath, PurePosixPath],
    parcels: Sequence[Parcel],
    files: Sequence[ShipFile],
    progress: Progress,
) -> None:
    """Bring files of this machine to a host: rsync first, our own channel what it left.

    `ways` are our root and the folder there into which rsync brings the parcels.
    """
    from firstlight.effects.ssh.rsync import can_rsync, rsync

    root, incoming = ways
    if can_rsync() and target.run(Script(_READY, (str(incoming),))).ok:
        paths = [parcel.path for parcel in parcels]
        reason = rsync(target.host, hosts, Path(root), paths, incoming, progress)
        _accept(target, accept_script(incoming, parcels, files))
        if reason:
            progress(f"going on without rsync: {reason}")
    target.send(files, progress)
    # Kept until now, so that a ship that was cut off goes on with what had come by rsync.
    target.run(Script('rm -rf -- "$1"', (str(incoming),)))


def _accept(target: Shell, script: Script) -> None:
    """Put in place, each checked, what rsync brought."""
    result = target.run(script, 900)
    if not result.ok:
        raise HostError(
            f"cannot put in place what rsync brought: {result.error_text.strip()}",
            where=target.host.name,
            remedy="see who owns its store and its wheels, and how full the disk is",
        )
