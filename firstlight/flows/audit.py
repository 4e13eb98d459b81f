"""`invoke audit`: whether a profile's KV cache would be quietly wrong, said before the launch."""

from __future__ import annotations

from pathlib import Path

from firstlight.accuracy import audittext
from firstlight.accuracy.audit import Audit, audit
from firstlight.accuracy.checkpoint import Checkpoint, describe
from firstlight.accuracy.reading import Reading
from firstlight.core.errors import ConfigError, ProofError
from firstlight.core.report import Report
from firstlight.core.schema import Document
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import gate, readings, recipes
from firstlight.flows.checkpoint import there
from firstlight.flows.facts import ask_facts
from firstlight.flows.gate import Engine
from firstlight.flows.orders import all_orders, built_release
from firstlight.flows.reach import look, opener, reached, read_remote
from firstlight.hosts.inventory import Host, Inventory
from firstlight.hosts.survey import Survey
from firstlight.serve.capabilities import read_capabilities
from firstlight.serve.limits import check_limits
from firstlight.serve.profile import Profile


def run(
    root: Path,
    console: Console,
    *,
    profile: str = "",
    host: str = "",
    stack: str = "",
    model: str = "",
) -> Report:
    """Audit a profile, or a folder of the host alone; exit code 5 where the profile's own choice
    is against its policy, with the line to change."""
    inventory = catalog.inventory(root)
    goal = inventory.host(host)
    # A folder alone is nobody's choice; its engine is that of --stack, or of the usual profile.
    judged = bool(profile) or not model
    document = _profile(root, inventory, goal, profile) if judged or not stack else None
    wanted = document.value if document and judged else None
    with reached(opener(inventory, goal, console), console) as shell:
        seen = look(shell)
        engine = _engine(root, shell, seen, stack or (document.value.stack if document else ""))
        reading = _reading(shell, inventory, wanted, model, seen, console)
        # One without a card may have a processor that matters.
        named = wanted is not None and wanted.match.sm is not None
        facts = None if named else ask_facts(shell, seen.root)
        asked = gate.asked(wanted, engine, facts)
        found = describe(reading, asked.flag(gate.OVERRIDE))
        ask = gate.probed(shell, asked, engine, found, console)
    if document is None or wanted is None:
        return _unjudged(found, audit(found, ask))
    return _judged(document, gate.held(document, found, ask))


def _profile(root: Path, inventory: Inventory, goal: Host, wanted: str) -> Document[Profile]:
    """The profile as it is written: what its policy says of its own value is judged here. Raises
    ConfigError for a value that no engine takes."""
    name = recipes.profile_name(inventory, goal, wanted)
    document = catalog.find(root, recipes.PROFILES, name, Profile)
    if faults := check_limits(document):
        raise ConfigError(faults)
    return document


def _engine(root: Path, shell: Shell, seen: Survey, stack: str) -> Engine:
    """What a release on the host says of itself, or else the recipe of the stack."""
    version, patches = recipes.engine(root, stack), recipes.patches_of(root, stack)
    try:
        release = built_release(all_orders(root, stack, seen.root), seen)
    except ConfigError:
        # A stack that is not locked yet is built nowhere; `check` says what it lacks.
        release = None
    if release is None:
        return Engine(version, patches=patches)
    home = seen.root / "releases" / release
    file = home / "capabilities.json"
    found = read_capabilities(read_remote(shell, file), f"{shell.host.name}:{file}")
    return Engine(found.version, found, home, patches)


def _reading(
    shell: Shell,
    inventory: Inventory,
    profile: Profile | None,
    model: str,
    seen: Survey,
    console: Console,
) -> Reading:
    if model or profile is None:
        found = readings.named(shell, model)
    else:
        found = readings.own(shell, inventory, profile.model, seen, console)
    return there(found, shell.host.name, "deploy it first, or name a folder with --model")


def _unjudged(found: Checkpoint, made: Audit) -> Report:
    """A folder alone: the table, and no choice to be held against a policy."""
    data = audittext.to_json(made, found) | {"own": None, "policy": None, "within": None}
    return Report(audittext.text(made, found, judged=False), data)


def _judged(document: Document[Profile], judged: gate.Judged) -> Report:
    found, made, fault = judged.found, judged.made, judged.fault
    text = audittext.text(made, found, document.value.policy.reason or "")
    data = {"profile": document.value.name, **audittext.to_json(made, found)}
    if fault is None:
        return Report(text, data)
    data["line"] = vars(fault)
    return Report(f"{text}\n\nrefused: {fault}", data, ProofError.exit_code)
