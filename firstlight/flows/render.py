"""`invoke render`: the files that a deploy would write to a host, with no secret in them."""

from __future__ import annotations

from pathlib import Path

from firstlight.core.report import Report
from firstlight.effects.console import Console
from firstlight.flows import target
from firstlight.flows.facts import ask_facts
from firstlight.serve.render import masked, render_launch, render_unit


def run(root: Path, console: Console, *, profile: str = "", host: str = "") -> Report:
    """Render for a host with a release of the profile's stack; flags are checked against it."""
    with target.case(root, console, profile, host) as case:
        made = target.describe(case, ask_facts(case.shell, case.seen.root))
    files = {"launch.sh": render_launch(made.rendered, target.templates(root))}
    if made.rendered.flavour != "process":
        files["unit"] = render_unit(made.rendered, target.templates(root))
    if secrets := made.rendered.profile.service.secrets:
        files["env"] = masked(dict.fromkeys(secrets, ""))
    home = made.rendered.home
    text = "\n".join(f"# ---- {home / name}\n{content}" for name, content in files.items())
    return Report(text, {"home": str(home), "files": files})
