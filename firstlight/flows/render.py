"""`invoke render`: the files that a deploy would write to a host, with no secret in them."""

from __future__ import annotations

from pathlib import Path

from firstlight.core.command import typed
from firstlight.core.errors import HostError
from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.flows import recipes, target
from firstlight.flows.facts import ask_facts
from firstlight.flows.orders import all_orders, built_release
from firstlight.flows.reach import look, opener, reached
from firstlight.serve.render import masked, render_launch, render_unit


def run(root: Path, console: Console, *, profile: str = "", host: str = "") -> Report:
    """Render for a host with a release of the profile's stack; flags are checked against it."""
    inventory = catalog.inventory(root)
    goal = inventory.host(host)
    document = recipes.profile(root, recipes.profile_name(inventory, goal, profile))
    with reached(opener(inventory, goal, console), console) as shell:
        seen = look(shell)
        release = built_release(all_orders(root, document.value.stack, seen.root), seen)
        if release is None:
            raise HostError(
                f"stack {document.value.stack} is not built there, so its flags are not known",
                where=goal.name,
                remedy=typed("build", {"host": goal.name, "profile": document.value.name}),
            )
        facts = ask_facts(shell, seen.root)
        made = target.describe(root, shell, document, release, seen, facts)
    files = {"launch.sh": render_launch(made.rendered, target.templates(root))}
    if made.rendered.flavour != "process":
        files["unit"] = render_unit(made.rendered, target.templates(root))
    if document.value.service.secrets:
        files["env"] = masked(dict.fromkeys(document.value.service.secrets, ""))
    home = made.rendered.home
    text = "\n".join(f"# ---- {home / name}\n{content}" for name, content in files.items())
    return Report(text, {"home": str(home), "files": files})
