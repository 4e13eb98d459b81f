"""The whole chain of `invoke up`, and at its end what the person wanted: an answer."""

from __future__ import annotations

from pathlib import Path

from firstlight.core.command import typed
from firstlight.core.report import Report
from firstlight.effects import catalog, memory
from firstlight.effects.console import Console
from firstlight.flows import quick, recipes
from firstlight.flows.build import build
from firstlight.flows.deploy import deploy
from firstlight.flows.orders import Wish
from firstlight.flows.reach import look, opener, reached
from firstlight.flows.target import Case


def run(
    root: Path, console: Console, *, host: str = "", profile: str = "", dry_run: bool = False
) -> Report:
    """Build, deploy and prove a profile; what is in place is left alone."""
    seen_files = memory.fingerprint(root)
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    document = recipes.profile(root, recipes.profile_name(inventory, target, profile))
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        wish = Wish(document.value.stack)
        built = build(root, console, shell, inventory, wish, seen, dry_run)
        release = built.data["release"]
        if dry_run and release not in seen.releases:
            name = document.value.name
            show = typed("deploy", {"profile": name, "host": target.name, "dry_run": True})
            deployed = f"# deploy follows: `{show}` shows it once this is built\n"
            return Report(built.text + deployed, built.data)
        console.say(built.text)
        seen = look(shell) if built.data["built"] else seen
        case = Case(root, console, shell, inventory, document, release, seen)
        served = deploy(case, dry_run)
    report = Report(served.text, {**built.data, **served.data})
    if target.is_local and not dry_run:
        kept = quick.memory_of(report, seen.root, target.env)
        memory.remember(root, ("up", host, profile), seen_files, kept)
    return report
