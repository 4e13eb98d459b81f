"""`invoke deploy`: start a profile on a release, prove it, then make it the current one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from firstlight.core.command import typed
from firstlight.core.errors import Detached
from firstlight.core.plan import Plan, Ship, Step, preview
from firstlight.core.report import Report
from firstlight.effects import execute
from firstlight.effects.console import Console
from firstlight.flows import programs, server, target
from firstlight.flows.closing import closing
from firstlight.flows.dial import dial
from firstlight.flows.failures import known
from firstlight.flows.launching import Launching
from firstlight.flows.target import Case
from firstlight.flows.undo import undo, undo_after
from firstlight.serve.deploy import (
    STARTING,
    audit_step,
    file_steps,
    proof_steps,
    record_step,
    start_steps,
)
from firstlight.serve.manifest import Manifest, smoke_digest
from firstlight.serve.profile import HubModel, Profile
from firstlight.serve.render import missing_secrets, take_secrets


def run(
    root: Path, console: Console, *, profile: str = "", host: str = "", dry_run: bool = False
) -> Report:
    """Deploy a profile; one that runs already, unchanged and proved, is left alone."""
    with target.case(root, console, profile, host) as case:
        return deploy(case, dry_run)


def deploy(case: Case, dry_run: bool) -> Report:
    """Deploy on a host that was looked at; the report's data holds the manifest and the proof."""
    profile, host = case.profile, case.host
    there = in_place(case)
    if there is not None:
        done = f"deployment {there.id} of {profile.name} runs and is proved"
        proof = case.seen.deployments[profile.name].proof
        plan = Plan("deploy", host.name, done=(done,))
        text = f"{host.name}: {done}\n\n{closing(case, there.model_dump(), proof)}"
        return Report(preview(plan) if dry_run else text, _data(there, proof, changed=False))
    goal = target.choose(case, dry_run)
    if dry_run:
        plan = _plan(case, goal, _stand_ins(profile, case.console))
        way = dial(case.host, case.inventory.hosts)
        return Report(preview(plan, way), _data(goal.target.manifest, {}, changed=False))
    plan = _plan(case, goal, {} if goal.running else take_secrets(profile, os.environ))
    for line in plan.done:
        case.console.say(f"in place: {line}")
    launching = Launching(case, goal, known(case.root, "serve"))
    _execute(plan, launching)
    made, told = goal.target.manifest, launching.told
    text = f"{host.name}: {profile.name} is served\n\n{closing(case, made.model_dump(), told)}"
    return Report(text, _data(made, told, changed=True))


def in_place(case: Case) -> Manifest | None:
    """The current deployment, when it is what the profile asks for, runs, and was proved."""
    profile, shell, seen = case.profile, case.shell, case.seen
    found = seen.deployments.get(profile.name)
    if found is None or not found.manifest or found.proof.get("outcome") != "pass":
        return None
    manifest = server.require_current(seen, profile.name, shell.host.name)
    launcher = manifest.launcher
    today = target.expected_id(case.root, case.host, profile, case.release, launcher)
    if manifest.id != today or found.proof.get("smoke") != smoke_digest(profile):
        return None
    state = server.state(shell, server.service(manifest, seen.root))
    running = state.condition == "running"
    return manifest if running and server.healthy(shell, manifest.port).ok else None


def _stand_ins(profile: Profile, console: Console) -> dict[str, str]:
    """What a plan that is only shown holds in place of secrets, set here or not."""
    lacking = missing_secrets(profile, os.environ)
    if lacking:
        console.say(f"# a deploy will need {', '.join(lacking)}, not set in this environment")
    given = (name for name in profile.service.secrets if name in lacking or os.environ.get(name))
    return dict.fromkeys(given, "")


def _plan(case: Case, goal: target.Goal, secrets: Mapping[str, str]) -> Plan:
    profile, host = case.profile, case.host.name
    sent = Ship(tuple(programs.shipped(goal.root).values()))
    steps = [Step("programs", "send the programs", sent)]
    # A hub tells of its files before they are downloaded; other models have to be there.
    if isinstance(profile.model, HubModel):
        steps += [audit_step(profile.name, host), *goal.model_steps]
    else:
        steps += [*goal.model_steps, audit_step(profile.name, host)]
    if goal.running:
        steps.append(record_step(goal.target))
    else:
        steps += file_steps(goal.target, target.templates(case.root), secrets)
        steps += start_steps(goal.target, goal.old, goal.linger_for)
    steps += proof_steps(goal.target)
    done = [f"release {goal.target.manifest.release}", *goal.done]
    return Plan("deploy", host, tuple(steps), tuple(done))


def _execute(plan: Plan, launching: Launching) -> None:
    """Run the plan; whatever goes wrong after the start, the server that ran before comes back."""
    goal, console = launching.goal, launching.case.console
    done: list[execute.Outcome] = []
    try:
        execute.execute(plan, goal.sites, console, launching.watches, done)
    except KeyboardInterrupt:
        if not _has_started(plan, goal, done):
            raise
        if not goal.running and all(outcome.step != "start" for outcome in done):
            # The old server is stopped and the new one is not started: nobody means that.
            undo(launching.case, goal)
            raise
        raise _interrupted(launching.case, goal) from None
    except Exception as error:
        if _has_started(plan, goal, done):
            undo_after(error, launching.case, goal)
        raise


def _has_started(plan: Plan, goal: target.Goal, done: list[execute.Outcome]) -> bool:
    """True when there is a server to be undone: ours, or one of a deploy that was left early.

    A step that was begun may have done half of it. The current server was proved once; a new
    question that it fails is no reason to stop it.
    """
    left_early = goal.running and not goal.is_current
    return left_early or any(step.id in STARTING for step in plan.steps[: len(done) + 1])


def _interrupted(case: Case, goal: target.Goal) -> Detached:
    host, profile, console = case.host.name, case.profile.name, case.console
    console.say(f"the server of {profile} goes on starting on {host}")
    if console.ask("  stop it there? [y/N] ").lower().startswith("y"):
        undo(case, goal)
        return Detached("stopped the new server", where=host)
    again = f"`{typed('deploy', {'profile': profile, 'host': host})}` watches it again"
    return Detached("left the new server as it is", where=host, remedy=again)


def _data(manifest: Manifest, proof: object, changed: bool) -> dict[str, object]:
    return {"deployment": manifest.model_dump(mode="json"), "proof": proof, "changed": changed}
