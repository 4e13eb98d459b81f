"""`invoke facts`: what a host is, asked with one script."""

from __future__ import annotations

import time
from pathlib import Path, PurePosixPath

from firstlight.core.command import Script
from firstlight.core.report import Report
from firstlight.effects import catalog, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows.reach import opener, reached
from firstlight.hosts import doctor, facts
from firstlight.hosts.facttable import findings_text, text


def run(root: Path, console: Console, *, host: str = "") -> Report:
    """Ask a host what it is, and say what of it will be trouble."""
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    with reached(opener(inventory, target, console), console) as shell:
        found = ask_facts(shell, target.root)
    trouble = doctor.findings(found, time.time())
    data = {"host": target.name, **facts.to_json(found)}
    data["findings"] = [vars(finding) for finding in trouble]
    return Report("\n".join(filter(None, [text(found), findings_text(trouble)])), data)


def ask_facts(shell: Shell, root: str | PurePosixPath) -> facts.Facts:
    """All facts of a host: one round trip."""
    script = Script(library.program("facts.sh"), args=(str(root),))
    return facts.parse(shell.run(script, timeout_s=90).out)
