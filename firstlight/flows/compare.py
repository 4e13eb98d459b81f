"""`invoke compare`: what each KV precision really costs, measured one launch after another."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from firstlight.accuracy import comparetext
from firstlight.accuracy.comparejson import to_json
from firstlight.accuracy.comparison import Comparison, Refusal, compare, of_one_length
from firstlight.accuracy.scores import Measured
from firstlight.accuracy.suite import Suite
from firstlight.build.failures import Rules
from firstlight.core.command import typed
from firstlight.core.errors import HostError, ProofError, StepError
from firstlight.core.plan import Plan, preview
from firstlight.core.report import Report
from firstlight.core.words import listed, span
from firstlight.effects import catalog, execute, library
from firstlight.effects.console import Console
from firstlight.effects.interrupts import undisturbed
from firstlight.effects.shell import Shell
from firstlight.flows import comparekeep, comparescore, comparestage, prove, server, target, watch
from firstlight.flows.comparekeep import Keeping
from firstlight.flows.comparescore import Precision
from firstlight.flows.comparestage import Stage
from firstlight.flows.dial import dial
from firstlight.flows.failures import known
from firstlight.flows.target import Case
from firstlight.hosts.inventory import UnknownName
from firstlight.serve import trial
from firstlight.serve.deploy import Target
from firstlight.serve.readiness import Limits
from firstlight.serve.serverlog import ServerLog, cause, read

_USUAL = "bf16,fp8_e4m3"
_LOG_BYTES = 4 << 20
_LEFT = "# a comparison was left: once its server is stopped, --dry-run shows the rest of the plan"


@dataclass
class _Work:
    """What is to be done, and how far it is: figures by precision, kept ones among them."""

    console: Console
    host: str
    keeping: Keeping
    suite: Suite
    rules: Rules
    targets: dict[str, Target]
    keys: dict[str, str]
    measured: dict[str, Measured] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """The precisions that must be launched."""
        return [kv for kv in self.targets if kv not in self.measured]


def run(
    root: Path,
    console: Console,
    *,
    profile: str = "",
    host: str = "",
    kv: str = "",
    dry_run: bool = False,
) -> Report:
    """Measure each precision of `kv` (`a,b,...`) and hold it against the first.

    Exit code 4 when the engine refused one of them, 5 when one gave a figure that is none.
    """
    again = typed("compare", {"profile": profile, "host": host, "kv": _USUAL})
    wanted = _wanted(kv or _USUAL, again)
    with target.case(root, console, profile, host) as case:
        work = _work(case, comparestage.targets(case, wanted))
        if dry_run:
            return Report(_shown(case, work))
        if work.missing or trial.trial_name(case.profile.name) in case.seen.deployments:
            with work.keeping.alone(work.host):
                left, site = comparestage.left_over(case), comparestage.site(case)
                execute.execute(left, {"host": site}, console)
                stage = comparestage.set_up(case, dry_run=False, launches=bool(work.missing))
                _launch_all(stage, work)
    return _report(case.profile.name, work)


def _shown(case: Case, work: _Work) -> str:
    """The plans of a run that has not begun."""
    left, way = comparestage.left_over(case), dial(case.host, case.inventory.hosts)
    if not work.missing:
        return preview(Plan(comparestage.VERB, work.host, done=_kept(work)))
    if left.steps:
        return f"{preview(left, way)}\n{_LEFT}\n"
    plans = _plans(comparestage.set_up(case, dry_run=True), work)
    steps = tuple(step for plan in plans for step in plan.steps)
    return preview(Plan(comparestage.VERB, work.host, steps, plans[0].done), way)


def _wanted(text: str, again: str) -> tuple[str, ...]:
    found = listed(text)
    if len(found) < 2:
        raise UnknownName(
            f"--kv takes two precisions or more, with commas; got {text!r}",
            remedy=again,
        )
    return found


def _work(case: Case, targets: dict[str, Target]) -> _Work:
    suite, host = Suite(library.texts()), case.host.name
    work = _Work(
        console=case.console,
        host=host,
        keeping=comparekeep.keeping(case.root, case.profile.name),
        suite=suite,
        rules=known(case.root, "serve"),
        targets=targets,
        keys={
            kv: trial.measure_key(one.manifest.id, host, suite.digest)
            for kv, one in targets.items()
        },
    )
    found = {kv: work.keeping.scores(kv, work.keys[kv]) for kv in targets}
    work.measured |= of_one_length({kv: one for kv, one in found.items() if one is not None})
    return work


def _kept(work: _Work) -> tuple[str, ...]:
    return tuple(f"scores of {kv}, of {one.at}" for kv, one in work.measured.items())


def _plans(stage: Stage, work: _Work) -> list[Plan]:
    """All that a run does, in order."""
    any_ = next(iter(work.targets.values()))
    plans = [comparestage.first_plan(stage, any_, _kept(work))]
    for one in (work.targets[kv] for kv in work.missing):
        plans += [comparestage.launch_plan(stage, one), comparestage.end_plan(stage, one)]
    return [*plans, comparestage.last_plan(stage, any_)]


def _launch_all(stage: Stage, work: _Work) -> None:
    """Each that is missing, in turn; whatever happens, the profile's own server comes back."""
    first, *_, last = _plans(stage, work)
    for line in first.done:
        work.console.say(f"in place: {line}")
    begun = False
    try:
        execute.execute(first, stage.sites, work.console)
        begun = True
        for kv in work.missing:
            try:
                _launch(stage, work, kv)
            except (StepError, ProofError) as error:
                work.console.say(f"  {kv} was not measured: {error.what}")
                work.refused.append(_refusal(stage, work, kv, error))
    finally:
        if begun and not _comes_back(stage, work):
            stage = replace(stage, own=None)
            last = comparestage.last_plan(stage, next(iter(work.targets.values())))
        _surely(stage, work, last)
    if stage.own is not None:
        again = f"the server of {work.keeping.folder.name} starts again, as it was"
        status = typed("status", {"host": stage.shell.host.name})
        work.console.say(f"{again}; `{status}` shows it")


def _comes_back(stage: Stage, work: _Work) -> bool:
    """False where no server is to be started again, or `invoke stop` has ended it meanwhile."""
    if stage.own is None:
        return False
    folder = next(iter(work.targets.values())).rendered.home.parent
    ask = partial(stage.shell.run, trial.noted(folder))
    try:
        with undisturbed():
            is_gone = server.across(stage.shell, work.console, ask).rc == 1
    except HostError:
        is_gone = False
    if not is_gone:
        return True
    work.console.say(f"the server of {work.keeping.folder.name} was stopped meanwhile: it stays so")
    return False


def _launch(stage: Stage, work: _Work, kv: str) -> None:
    """Launch one precision, measure it, keep its figures at once, and stop it."""
    one, shell = work.targets[kv], stage.shell
    profile, logs = one.rendered.profile, list[ServerLog]()
    limits = Limits(profile.service.start_timeout_s, profile.service.stall_s)

    def ready() -> None:
        logs.append(
            watch.until_ready(shell, one.service, one.manifest, limits, work.rules, work.console)
        )

    def score() -> None:
        settled = next((found.limit for found in work.measured.values()), None)
        wanted, key = Precision(kv, work.keys[kv], settled), prove.api_key(profile, os.environ)
        found = comparescore.measure(shell, one, logs[0], work.suite, wanted, key, work.console)
        work.keeping.keep(found)
        work.measured[kv] = found
        work.console.say(f"  {kv}: {found.dtype}, measured in {span(found.seconds)}")

    plan = comparestage.launch_plan(stage, one)
    try:
        execute.execute(plan, stage.sites, work.console, {"ready": ready, "score": score})
    finally:
        _end(stage, work, one)


def _end(stage: Stage, work: _Work, one: Target) -> None:
    """Stop a server; raises HostError where it cannot be: two never stand on one card."""
    try:
        _surely(stage, work, comparestage.end_plan(stage, one))
    except StepError as error:
        what = f"the server that was measured cannot be stopped: {error.what}"
        raise HostError(what, where=stage.shell.host.name, remedy=error.remedy) from error


def _surely(stage: Stage, work: _Work, plan: Plan) -> None:
    """Do what must be done at an end: across a lost link, and whoever presses Ctrl-C meanwhile."""
    with undisturbed():
        end = partial(execute.execute, plan, stage.sites, work.console)
        server.across(stage.shell, work.console, end)


def _refusal(stage: Stage, work: _Work, kv: str, error: StepError | ProofError) -> Refusal:
    """What became of a precision; the log of its server is brought here before it goes there."""
    lines = error.log if isinstance(error, StepError) else ""
    try:
        text = _log(stage.shell, work.targets[kv])
    except HostError:
        text = ""
    died = cause(read(text, work.rules)) if text else None
    if died is not None and died.text not in lines:
        lines = "\n".join(filter(None, (lines, f"log line {died.line}: {died.text}", died.cause)))
    file = str(work.keeping.keep_log(kv, text)) if text else ""
    return Refusal(kv, error.what, lines, error.exit_code, file)


def _log(shell: Shell, one: Target) -> str:
    """The end of a server's log, where it says why it died."""
    piece, data = server.chunk(shell, one.service, ""), b""
    while piece.data:
        data = (data + piece.data)[-_LOG_BYTES:]
        piece = server.chunk(shell, one.service, piece.next_offset)
    return data.decode("utf-8", "replace")


def _report(profile: str, work: _Work) -> Report:
    order = tuple(work.measured[kv] for kv in work.targets if kv in work.measured)
    found = compare(profile, comparekeep.now(), order, tuple(work.refused))
    files = work.keeping.evidence(found) if order else ()
    project = work.keeping.folder.parents[1]
    shown = "".join(f"\nevidence: {catalog.shown(path, project)}" for path in files)
    data = {**to_json(found), "evidence": [str(path) for path in files]}
    text = f"{_head(found)}{comparetext.text(found)}\n{shown}"
    return Report(text, data, found.exit_code)


def _head(found: Comparison) -> str:
    release = f", release {found.first.release}" if found.first else ""
    return f"profile {found.profile}{release}\n\n"
