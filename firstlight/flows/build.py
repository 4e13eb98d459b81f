"""`invoke build`: from a stack and its lock to a complete release on a host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from firstlight.build.capacity import Need
from firstlight.build.hold import BUILD_JOBS
from firstlight.build.order import artifacts, release_of
from firstlight.build.steps import artifact_steps, build_done, build_steps, compiled
from firstlight.core.errors import StepError
from firstlight.core.plan import Plan, preview
from firstlight.core.report import Report
from firstlight.core.words import span
from firstlight.effects import catalog, execute, jobs
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import recipes
from firstlight.flows.dial import dial
from firstlight.flows.failures import explained, known
from firstlight.flows.ground import Ground
from firstlight.flows.hold import holders, let_all_go
from firstlight.flows.orders import Wish, built_release, look_ahead, wished
from firstlight.flows.reach import look, opener, reached
from firstlight.flows.task import Task, begin, framed, ground, holding, require_host_toolkit
from firstlight.flows.task import task as task_of
from firstlight.flows.twice import both
from firstlight.hosts.inventory import Host, Inventory, UnknownName
from firstlight.hosts.survey import Survey


def run(
    root: Path,
    console: Console,
    *,
    host: str = "",
    stack: str = "",
    profile: str = "",
    component: str = "",
    arch: str = "",
    twice: bool = False,
    cancel: bool = False,
    dry_run: bool = False,
) -> Report:
    """Build what is missing; when nothing is, say so after one round trip.

    `component` builds that one and what it needs, and no release; `twice` builds it in two places
    and compares. `arch` says for a host without a GPU that it builds for others.
    """
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    if cancel:
        _require_alone(stack or profile or component or arch or twice)
        return _cancel(inventory, target, console, dry_run)
    if twice and not component:
        raise UnknownName("--twice builds one component in two places", remedy="say --component C")
    name = stack or _stack_of(root, recipes.profile_name(inventory, target, profile))
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        story = both if twice else build
        wish = Wish(name, component, arch)
        return story(root, console, shell, inventory, wish, seen, dry_run)


def _require_alone(others: str | bool) -> None:
    """A person who names one component must not see the builds of all others end."""
    if others:
        raise UnknownName(
            "--cancel ends every build of a host, whatever it builds",
            remedy="say it with --host alone",
        )


def _cancel(inventory: Inventory, target: Host, console: Console, dry_run: bool) -> Report:
    """End what builds on a host, what this machine downloads for it, and what is held for it."""
    end, let_go = (_running, holders) if dry_run else (cancel_builds, let_all_go)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        ended, held = end(shell, seen, BUILD_JOBS, console), let_go(shell, seen.root)
    if not target.is_local:
        with reached(opener(inventory, inventory.hosts["local"], console), console) as here:
            ended += end(here, look(here), BUILD_JOBS[:1], console)
    for line in held:
        console.say(f"{'# would let go' if dry_run else 'let go'}: {line}")
    done = "would end" if dry_run else "ended"
    text = f"{done} {len(ended)} job(s)" if ended else "no build runs"
    return Report(f"{'# ' * dry_run}{target.name}: {text}", {"ended": [] if dry_run else ended})


def build(
    root: Path,
    console: Console,
    shell: Shell,
    inventory: Inventory,
    wish: Wish,
    seen: Survey,
    dry_run: bool,
) -> Report:
    """Build a stack on a host that was looked at; the report's data names the release."""
    name, orders = shell.host.name, wished(root, wish, seen.root)
    built = None if wish.component else built_release(orders, seen)
    if built is not None:
        plan = Plan("build", name, done=(f"release {built}",))
        text = preview(plan) if dry_run else f"{name}: release {built} is in place"
        return Report(text, {"release": built, "built": False})
    task = task_of(orders, shell, inventory, seen, wish)
    first = begin(task, seen, console, dry_run)
    laid = _lay(task, wish, seen, console, dry_run)
    told, hold = _told(task, wish), _hold(task, wish)
    data = {"release": release_of(task.order), "built": False}
    if dry_run or not laid.plan.steps:
        plan = framed(laid.plan, first, laid.ground, hold)
        shown = preview(plan, dial(shell.host, inventory.hosts))
        return Report(shown if dry_run else f"{told} is in place", data)
    if laid.needs:
        require_host_toolkit(task, console)
    look_ahead(laid.needs, task.facts, name, console)
    with holding(laid.ground, laid.plan, hold, console):
        laid = _lay(task, wish, look(shell), console, dry_run)
        took = _carry_out(root, laid, task.order.stack.title, console)
    return Report(f"{told} is built ({took})", {**data, "built": True})


@dataclass(frozen=True)
class _Laid:
    """A plan, the ground that it stands on, and what compiling in it takes."""

    plan: Plan
    ground: Ground
    needs: tuple[Need, ...]


def _lay(task: Task, wish: Wish, seen: Survey, console: Console, dry_run: bool) -> _Laid:
    """The plan for a host as it was seen."""
    order = task.order
    found, site = ground(task, seen, console, dry_run)
    steps = artifact_steps(order, site) if wish.component else build_steps(order, site)
    plan = Plan("build", task.host, steps, build_done(order, site))
    return _Laid(plan, found, compiled(order, site))


def _carry_out(root: Path, laid: _Laid, title: str, console: Console) -> str:
    """Do the plan; how long it took. A failure is told with what is known of its kind."""
    rules = known(root, "build")
    console.say(f"{laid.plan.host}: building {title}")
    for line in laid.plan.done:
        console.say(f"in place: {line}")
    try:
        outcomes = execute.execute(laid.plan, laid.ground.sites, console)
    except StepError as error:
        raise explained(error, laid.ground.sites, rules) from None
    return span(sum(outcome.seconds for outcome in outcomes))


def _told(task: Task, wish: Wish) -> str:
    made = artifacts(task.order)
    if wish.component:
        return f"{task.host}: {made[wish.component].path}"
    return f"{task.host}: release {release_of(task.order)}"


def _hold(task: Task, wish: Wish) -> tuple[str, str]:
    """The name of the build's hold, and how people read whose it is."""
    release, made = release_of(task.order), artifacts(task.order)
    name = made[wish.component].path.name if wish.component else release
    return name, f"build of {name}" if wish.component else f"build of release {release}"


def cancel_builds(
    shell: Shell, seen: Survey, kinds: tuple[str, ...], console: Console
) -> list[str]:
    """End every job of these kinds that runs there, with all that it started; their ids."""
    running = sorted(job for job in seen.jobs if job.startswith(kinds))
    for job in running:
        console.say(f"ending {job} on {shell.host.name}")
        left = jobs.cancel(shell, seen.root, job)
        console.say(f"  ended; {left} of its processes are left")
    return running


def _running(shell: Shell, seen: Survey, kinds: tuple[str, ...], console: Console) -> list[str]:
    """What cancel_builds would end; nothing is done."""
    running = sorted(job for job in seen.jobs if job.startswith(kinds))
    for job in running:
        console.say(f"# would end {job} on {shell.host.name}")
    return running


def _stack_of(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack
