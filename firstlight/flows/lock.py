"""The flow of `invoke lock`: resolve a stack's recipes into exact files, and write them down."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path, PurePosixPath

from firstlight.build.choose import choose
from firstlight.build.lock import LockFile, render
from firstlight.build.locking import Desk, failure, lock_steps, read_lock
from firstlight.build.recipe import Stack
from firstlight.build.release import Layout
from firstlight.build.wheel import Wheel
from firstlight.core.errors import FirstlightError
from firstlight.core.plan import Plan, Run, preview
from firstlight.core.report import Report
from firstlight.effects import catalog, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from firstlight.flows import recipes
from firstlight.flows.reach import look
from firstlight.hosts.inventory import UnknownName


def run(
    root: Path, console: Console, *, stack: str = "", check: bool = False, dry_run: bool = False
) -> Report:
    """Resolve a stack for each of its CPythons and write recipes/locks/NAME.lock.yaml.

    `check` resolves nothing: it says whether the lock goes with the stack.
    """
    document, components = recipes.stack(root, stack or default_stack(root))
    recipe = document.value
    path = root / recipes.LOCKS / f"{recipe.name}{recipes.LOCK_SUFFIX}"
    if check:
        recipes.locked(root, document, components)
        return Report(f"{catalog.shown(path, root)} goes with its stack", {"stack": recipe.name})
    choices, inventory = choose(recipe, components), catalog.inventory(root)
    shell = open_shell(inventory.hosts["local"], inventory.hosts)
    with tempfile.TemporaryDirectory(prefix="firstlight-lock-") as home:
        desk = Desk(
            sys.executable,
            PurePosixPath(home) / "uv",
            PurePosixPath(library.PROGRAMS),
            Layout(look(shell).root).sources,
            inventory.mirrors,
            _known_uv(root, recipe),
        )
        plan = Plan("lock", "local", tuple(lock_steps(recipe, choices, desk)))
        if dry_run:
            return Report(preview(plan))
        found = _execute(plan, recipe, shell, console)
    _write(path, render(read_lock(recipe, components, choices, found)))
    return Report(f"wrote {catalog.shown(path, root)}", {"stack": recipe.name, "lock": str(path)})


def _write(path: Path, text: str) -> None:
    """The whole lock or nothing of it; raises FirstlightError where it may not be written."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        what = f"cannot write {path}: {error.strerror}"
        raise FirstlightError(what, remedy="make room for it there, or let it be written") from None


def _execute(plan: Plan, stack: Stack, shell: Shell, console: Console) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for step in plan.steps:
        assert isinstance(step.action, Run)
        console.say(step.title)
        result = shell.run(step.action.script, step.action.timeout_s)
        if not result.ok:
            raise failure(step, stack, result.error_text)
        outputs[step.id] = result.text
    return outputs


def _uv(stack: Stack) -> str:
    return next(tool for tool in stack.tools if tool.startswith("uv=="))


def _known_uv(root: Path, stack: Stack) -> Wheel | None:
    try:
        lock = catalog.find(root, recipes.LOCKS, stack.name, LockFile, recipes.LOCK_SUFFIX).value
    except FirstlightError:
        return None
    return next((tool for tool in lock.tools if f"{tool.name}=={tool.version}" == _uv(stack)), None)


def default_stack(root: Path) -> str:
    """The only stack, or that of the default profile; raises UnknownName where there is neither."""
    names = catalog.names(root, recipes.STACKS)
    if len(names) != 1:
        inventory = catalog.inventory(root)
        profile = inventory.host("").profile or inventory.default_profile
        if names and profile:
            return recipes.profile(root, profile).value.stack
        remedy = "say --stack NAME" if names else f"write one: {recipes.STACKS}/NAME.yaml"
        raise UnknownName(f"which stack? there are: {', '.join(names) or 'none'}", remedy=remedy)
    return names[0]
