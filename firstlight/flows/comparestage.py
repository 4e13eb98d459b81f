"""What a comparison finds on a host, and the plans it makes of that: one launch after another."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from firstlight.core.command import typed
from firstlight.core.errors import HostError
from firstlight.core.plan import Plan, Ship, Step
from firstlight.effects.execute import Site
from firstlight.effects.shell import Shell
from firstlight.flows import gate, programs, server, target
from firstlight.flows.facts import ask_facts
from firstlight.flows.reach import read_remote
from firstlight.flows.target import Case
from firstlight.hosts.facts import Facts
from firstlight.hosts.inventory import UnknownName
from firstlight.hosts.survey import Survey
from firstlight.serve import launch, trial
from firstlight.serve.capabilities import Capabilities
from firstlight.serve.deploy import Target, back_steps, file_steps, start_steps, stop_step
from firstlight.serve.manifest import home_of, read_manifest
from firstlight.serve.profile import Profile
from firstlight.serve.render import missing_secrets, take_secrets

_FLAG = "--kv-cache-dtype"
VERB = "compare"


@dataclass(frozen=True)
class Stage:
    """The host with all that is to be launched there: `own` is the profile's server that runs now,
    or was stopped by a comparison that did not come to its end."""

    shell: Shell
    sites: Mapping[str, Site]
    own: launch.Deployment | None
    before: tuple[Step, ...]
    done: tuple[str, ...]
    linger_for: str | None
    templates: Mapping[str, str]
    secrets: Mapping[str, str]


def targets(case: Case, wanted: tuple[str, ...]) -> dict[str, Target]:
    """What would be launched for each precision; raises UnknownName for one that is no choice, or
    with which the audit says that the engine does not start."""
    facts = ask_facts(case.shell, case.seen.root)
    usual = target.describe(case, facts)
    _require_choices(usual.rendered.capabilities, case.release, wanted)
    _require_starts(case, usual, facts, wanted)
    documents = {kv: trial.variant(case.document, kv) for kv in wanted}
    return {
        kv: target.describe(replace(case, document=document), facts)
        for kv, document in documents.items()
    }


def site(case: Case) -> Site:
    """Where the steps on the host run."""
    return Site(case.shell, case.seen.root, programs.supervisor(case.seen.root))


def left_over(case: Case) -> Plan:
    """The plan that stops the server of a comparison that did not come to its end, if one runs."""
    shell, seen, profile = case.shell, case.seen, case.profile.name
    found, steps = seen.deployments.get(trial.trial_name(profile)), []
    if found is not None and found.started:
        service = server.service(server.last_started(shell, seen, found.profile), seen.root)
        steps = [stop_step(service)] if server.state(shell, service).may_run else []
    return Plan(VERB, shell.host.name, tuple(steps))


def set_up(case: Case, dry_run: bool, launches: bool = True) -> Stage:
    """Look at what runs; raises HostError where the profile could not be launched at all. Where
    nothing is to be launched, a server that runs need not make room."""
    goal = target.choose(case, dry_run)
    runs = goal.target.service if goal.running else goal.old
    own = runs or _stopped(case.shell, case.seen, case.profile.name)
    if runs is not None and launches and not dry_run:
        said = f"the server of {case.profile.name} that runs there is stopped for this"
        case.console.say(f"{said}, and started again at the end")
    models = (line for line in goal.done if line.startswith("model"))
    return Stage(
        shell=case.shell,
        sites=goal.sites,
        own=own if launches or runs is None else None,
        before=(_ship(goal), *goal.model_steps),
        done=(f"release {case.release}", *models),
        linger_for=goal.linger_for,
        templates=target.templates(case.root),
        secrets=_secrets(case.profile, dry_run),
    )


def first_plan(stage: Stage, any_: Target, kept: tuple[str, ...]) -> Plan:
    """Before the first launch: the programs, the model, and the profile's own server stopped."""
    folder, steps = any_.rendered.home.parent, list(stage.before)
    if stage.own is not None:
        steps += [trial.note_step(folder, stage.own.home.name), stop_step(stage.own)]
    return _plan(stage, steps, (*stage.done, *kept))


def launch_plan(stage: Stage, one: Target) -> Plan:
    """One precision: its files, its server, its figures."""
    steps = [*file_steps(one, stage.templates, stage.secrets)]
    steps += start_steps(one, None, stage.linger_for)
    return _plan(stage, [*steps, trial.ready_step(one), trial.score_step(one)])


def end_plan(stage: Stage, one: Target) -> Plan:
    """The end of one precision, however it went."""
    return _plan(stage, [stop_step(one.service)])


def last_plan(stage: Stage, any_: Target) -> Plan:
    """The end of all: the profile's own server again, and nothing of the comparison."""
    back = [] if stage.own is None else [*back_steps(stage.own)]
    return _plan(stage, [*back, trial.clear_step(any_.service)])


def _plan(stage: Stage, steps: list[Step], done: tuple[str, ...] = ()) -> Plan:
    return Plan(VERB, stage.shell.host.name, tuple(steps), done)


def _ship(goal: target.Goal) -> Step:
    sent = Ship(tuple(programs.shipped(goal.root).values()))
    return Step("programs", "send the programs", sent)


def _secrets(profile: Profile, dry_run: bool) -> dict[str, str]:
    """A plan that is only shown holds names in place of secrets, set here or not."""
    if not dry_run:
        return take_secrets(profile, os.environ)
    lacking = missing_secrets(profile, os.environ)
    given = (name for name in profile.service.secrets if name in lacking or os.environ.get(name))
    return dict.fromkeys(given, "")


def _stopped(shell: Shell, seen: Survey, profile: str) -> launch.Deployment | None:
    """The profile's server that such a comparison had stopped: it is to come back as well."""
    folder = seen.root / "deployments" / trial.trial_name(profile)
    if trial.trial_name(profile) not in seen.deployments:
        return None
    try:
        id_ = read_remote(shell, trial.note_path(folder)).strip()
        text = read_remote(shell, home_of(seen.root, profile, id_) / "manifest.json")
    except HostError:
        return None
    return server.service(read_manifest(json.loads(text), shell.host.name), seen.root)


def _require_choices(found: Capabilities | None, release: str, wanted: tuple[str, ...]) -> None:
    flag = found.flags.get(_FLAG) if found else None
    choices = [str(choice) for choice in flag.choices or ()] if flag else []
    odd = [kv for kv in wanted if kv not in choices]
    if choices and odd:
        raise UnknownName(
            f"{_FLAG} has no value {', '.join(odd)} in release {release}",
            remedy=f"it takes {', '.join(choices)}",
        )


def _require_starts(case: Case, usual: Target, facts: Facts, wanted: tuple[str, ...]) -> None:
    """Raise UnknownName for what the engine refuses, before a server that runs makes room."""
    odd = gate.refused(case, gate.engine_of(case, usual), facts, wanted)
    if odd:
        audit = typed("audit", {"profile": case.profile.name, "host": case.host.name})
        raise UnknownName(
            "; ".join(f"the engine refuses {_FLAG} {kv} here: {why}" for kv, why in odd.items()),
            remedy=f"name others with --kv; `{audit}` shows every value and why",
        )
