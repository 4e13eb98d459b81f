"""`invoke smoke`: prove a running server again."""

from __future__ import annotations

import os
from pathlib import Path

from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.flows import prove, recipes, server
from firstlight.flows.reach import look, opener, reached


def run(root: Path, console: Console, *, profile: str = "", host: str = "") -> Report:
    """Ask the profile's questions and compare the server's figures; exit code 5 unless all pass."""
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    wanted = recipes.profile(root, recipes.profile_name(inventory, target, profile)).value
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        found = server.require_running(shell, seen, wanted.name)
        log = server.start_log(shell, server.service(found, seen.root))
        key = prove.api_key(wanted, os.environ)
        proof = prove.prove(shell, found, wanted, log, console, key)
    data = prove.to_json(proof, wanted)
    return Report(prove.text(data), data, 0 if data["outcome"] == "pass" else 5)
