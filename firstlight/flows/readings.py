"""The model that a verb means: a folder that somebody names, or the profile's own."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from firstlight.accuracy.reading import Reading
from firstlight.effects.console import Console
from firstlight.effects.homes import expanded
from firstlight.effects.shell import Shell
from firstlight.flows.checkpoint import Source, read_folder, read_model
from firstlight.flows.reach import opener, reached
from firstlight.hosts.inventory import Inventory
from firstlight.hosts.survey import Survey


def named(shell: Shell, folder: str) -> Reading:
    """A folder of a host as a person names it: on this machine from where they stand."""
    here = expanded(folder).absolute() if shell.host.is_local else folder
    return read_folder(shell, PurePosixPath(here))


def own(
    shell: Shell, inventory: Inventory, source: Source, seen: Survey, console: Console
) -> Reading:
    """A profile's model, as its host has it, or its hub."""
    with reached(opener(inventory, inventory.hosts["local"], console), console) as here:
        return read_model(shell, here, source, seen.root, os.environ, console.note)
