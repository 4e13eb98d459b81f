"""`invoke stop`: stop a profile's server on a host."""

from __future__ import annotations

from pathlib import Path

from firstlight.core.plan import Plan, preview
from firstlight.core.report import Report
from firstlight.effects import catalog, execute
from firstlight.effects.console import Console
from firstlight.flows import programs, recipes, server
from firstlight.flows.dial import dial
from firstlight.flows.reach import look, opener, reached
from firstlight.serve import trial
from firstlight.serve.deploy import stop_step


def run(
    root: Path, console: Console, *, profile: str = "", host: str = "", dry_run: bool = False
) -> Report:
    """Stop the server; one that is stopped already is said to be."""
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    name = recipes.profile_name(inventory, target, profile)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        server.require_named(root, seen, name)
        found = server.last_started(shell, seen, name)
        service = server.service(found, seen.root)
        state = server.state(shell, service)
        over = not state.may_run
        # A unit that ended by itself would still come back with its host.
        settled = state.condition == "missing" or (over and service.launcher == "process")
        done = (f"the server of {name} is stopped",) if over else ()
        steps = () if settled else (stop_step(service),)
        if trial.trial_name(name) in seen.deployments:
            folder = seen.root / "deployments" / trial.trial_name(name)
            steps = (trial.forget_step(folder), *steps)
        plan = Plan("stop", target.name, steps, done)
        data = {"profile": name, "deployment": found.id, "stopped": not over}
        if dry_run:
            return Report(preview(plan, dial(target, inventory.hosts)), data)
        site = execute.Site(shell, seen.root, programs.supervisor(seen.root))
        execute.execute(plan, {"host": site}, console)
    return Report(f"{target.name}: the server of {name} is stopped", data)
