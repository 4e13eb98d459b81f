"""`invoke prune`: take away old releases of a host, and with --store what only they needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from firstlight.build.hold import BUILD_JOBS, SAYS
from firstlight.build.holdings import Holdings, parse
from firstlight.build.lock import LockFile
from firstlight.build.prune import Cut, choose, going_on, prune_step, render_cut
from firstlight.core.command import Script, typed
from firstlight.core.errors import HostError
from firstlight.core.plan import Plan, Ship, Step, preview
from firstlight.core.report import Report
from firstlight.core.words import size
from firstlight.effects import catalog, execute, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes
from firstlight.flows.dial import dial
from firstlight.flows.given import whole
from firstlight.flows.hold import running
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.survey import Survey, require_writable

_LOOK_S = 900.0
# A deploy brings its model before it says on which release that is to run.
_MODEL_JOBS = ("model-",)


def run(
    root: Path,
    console: Console,
    *,
    host: str = "",
    keep: str = "3",
    store: bool = False,
    caches: bool = False,
    dry_run: bool = False,
) -> Report:
    """Show every release, remove what may go, and say what that frees."""
    newest = whole("--keep", keep)
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        _require_no_job(running(shell, seen), target.name)
        _require_no_model(running(shell, seen, _MODEL_JOBS), target.name)
        found = holdings(shell)
        _require_no_hold(found, target.name)
        wanted = {programs.folder_name(), *_tools(root)} if store else set()
        cut = choose(found, newest, store=store, caches=caches, wanted=wanted)
        plan = _plan(cut, found, seen, target.name)
        if dry_run:
            told = "".join(f"# {line}\n" for line in render_cut(found, cut).splitlines())
            return Report(told + preview(plan, dial(target, inventory.hosts)), _data(cut))
        console.say(render_cut(found, cut))
        if cut.gone:
            require_writable(seen, target.name)
        site = execute.Site(shell, seen.root, programs.supervisor(seen.root))
        execute.execute(plan, {"host": site}, console)
    done = f"freed {size(cut.freed)}" if cut.gone else "nothing was removed"
    return Report(f"{target.name}: {done}", _data(cut))


def holdings(shell: Shell) -> Holdings:
    """All that the host holds of builds: one script, which reads every folder of the root."""
    script = Script(SAYS + library.program("holdings.sh"), (shell.host.root, *BUILD_JOBS))
    return parse(shell.run(script, _LOOK_S).text, shell.host.name)


def _require_no_job(running: list[str], host: str) -> None:
    """Raise HostError while a build or a download runs there: it counts on what it found."""
    if running:
        raise HostError(
            f"a build runs there: {', '.join(running)}",
            where=host,
            remedy=f"wait for it, or: {_cancel(host)}",
        )


def _require_no_model(running: list[str], host: str) -> None:
    """Raise HostError while a deploy that has named no release yet brings its model."""
    if running:
        raise HostError(
            f"a deploy brings its model there: {', '.join(running)}",
            where=host,
            remedy="wait for it: it counts on a release that it has not named yet",
        )


def _require_no_hold(found: Holdings, host: str) -> None:
    """Raise HostError while a build is between two of its jobs."""
    if holds := going_on(found):
        raise HostError(
            f"held there: {'; '.join(hold.text for hold in holds)}",
            where=host,
            remedy="wait for its end, or run that build again; if nobody goes on with it: "
            + _cancel(host),
        )


def _cancel(host: str) -> str:
    return typed("build", {"cancel": True, "host": host})


def _plan(cut: Cut, found: Holdings, seen: Survey, host: str) -> Plan:
    if not cut.gone:
        return Plan("prune", host)
    sent = Ship(tuple(programs.shipped(seen.root).values()))
    remove = prune_step(cut, seen.root, found.now)
    return Plan("prune", host, (Step("programs", "send the programs", sent), remove))


def _tools(root: Path) -> Iterator[str]:
    """The wheels of the tools that every build takes again, by sha256; no release names them."""
    for name in catalog.names(root, recipes.LOCKS, recipes.LOCK_SUFFIX):
        lock = catalog.find(root, recipes.LOCKS, name, LockFile, recipes.LOCK_SUFFIX)
        yield from (tool.sha256 for tool in lock.value.tools)


def _data(cut: Cut) -> dict[str, object]:
    return {
        "gone": list(cut.gone),
        "kept": {kept.release: kept.why for kept in cut.kept},
        "freed_bytes": cut.freed,
    }
