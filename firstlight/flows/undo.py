"""The way back of a deploy that failed: the new server stopped, the proved one started again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from firstlight.core.command import typed
from firstlight.core.errors import FirstlightError, HostError, ProofError, StepError
from firstlight.core.plan import Plan, Step
from firstlight.effects import execute
from firstlight.effects.interrupts import undisturbed
from firstlight.flows import server
from firstlight.flows.target import Case, Goal
from firstlight.serve import launch
from firstlight.serve.deploy import back_steps, latest, stop_step


def undo_after(failure: Exception, case: Case, goal: Goal) -> None:
    """Undo, and tell beside the failure what could not be undone.

    Raises StepError in its place where another deploy of the profile is why it failed.
    """
    try:
        overtaken = undo(case, goal)
    except FirstlightError as error:
        if not isinstance(failure, FirstlightError):
            raise
        failure.remedy = "\n  -> ".join(filter(None, (failure.remedy, error.what, error.remedy)))
    else:
        if overtaken and isinstance(failure, StepError | ProofError):
            raise _overtaken(case, failure) from failure


def undo(case: Case, goal: Goal) -> bool:
    """Stop the new server; start the one before it, unless somebody else has started one, which
    is what it gives back. A link that is lost is made again.

    Raises HostError that says what is left where one of the two cannot be done.
    """
    case.console.say("  stopping the new server")
    left, shell = f"that of {goal.target.manifest.id} may run still", case.shell
    try:
        with undisturbed():
            server.across(shell, case.console, partial(_stop, case, goal))
            left = f"that of {goal.target.manifest.id} is stopped"
            overtaken = server.across(shell, case.console, partial(_is_overtaken, case, goal))
            if overtaken:
                case.console.say("  another deploy has begun meanwhile: what it starts stays")
            elif goal.back is not None:
                server.across(shell, case.console, partial(_bring_back, case, goal, goal.back))
    except (FirstlightError, KeyboardInterrupt) as error:
        raise _half_undone(case, goal, left, error) from error
    return overtaken


def _stop(case: Case, goal: Goal) -> None:
    """Stop the new server; where that fails and nothing of it runs, it is no less stopped."""
    service = goal.target.service
    try:
        _do(case, goal, [stop_step(service)])
    except StepError as error:
        if server.state(case.shell, service).may_run:
            raise
        case.console.say(f"  {error.what}; nothing of it runs")


def _bring_back(case: Case, goal: Goal, back: launch.Deployment) -> None:
    """One that was left by an earlier deploy has the port yet where its own stop failed."""
    other = [stop_step(goal.old)] if goal.old not in (None, back) else []
    _do(case, goal, [*other, *back_steps(back)])


def _do(case: Case, goal: Goal, steps: Iterable[Step]) -> None:
    plan = Plan("deploy", case.host.name, tuple(steps))
    execute.execute(plan, goal.sites, case.console)


def _is_overtaken(case: Case, goal: Goal) -> bool:
    """True when a deploy of the profile has begun after this one."""
    return case.shell.run(latest(goal.target)).text.strip() not in ("", goal.target.manifest.id)


def _overtaken(case: Case, failure: StepError | ProofError) -> StepError:
    """What made the server fail is the other one: its port, its memory, its answers."""
    name, host = case.profile.name, case.host.name
    status = typed("status", {"host": host})
    log = failure.log if isinstance(failure, StepError) else ""
    return StepError(
        f"another deploy of profile {name} has begun meanwhile: what it starts stays, and this "
        "one's server is stopped",
        where=host,
        remedy=f"`{status}` shows that one; ask whose it is, then deploy again",
        log="\n".join(filter(None, (failure.what, log))),
    )


def _half_undone(case: Case, goal: Goal, left: str, error: BaseException) -> HostError:
    """What runs and what does not, for a person who has to put it right."""
    name, host = case.profile.name, case.host.name
    why = error.what if isinstance(error, FirstlightError) else "it was interrupted"
    log = error.log.splitlines()[-1:] if isinstance(error, StepError) else []
    before = f"; that of {goal.back.home.name} was not started again" if goal.back else ""
    status = typed("status", {"host": host})
    again = typed("deploy", {"profile": name, "host": host})
    return HostError(
        f"the way back failed: {': '.join([why, *log])}",
        where=host,
        remedy=f"of the servers of {name}, {left}{before}: `{status}` shows what runs, "
        f"`{again}` proves the new one or tries the way back again",
    )
