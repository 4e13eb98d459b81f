"""The flow of `invoke lock`: resolve a stack's recipes into exact files, and write them down."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from firstlight.build.lock import LockFile, PythonLock, make_lock, render
from firstlight.build.recipe import Component, Stack
from firstlight.build.resolve import (
    get_uv,
    parse_pylock,
    resolve_requirements,
    resolve_sources,
    resolve_tools,
)
from firstlight.build.wheel import Wheel
from firstlight.core.errors import FirstlightError, StepError
from firstlight.core.plan import Plan, Run, Step, preview
from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.local import LocalShell
from firstlight.effects.shell import Shell
from firstlight.flows import recipes
from firstlight.hosts.inventory import Host, UnknownName

_TIMEOUT_S = 900.0


def run(root: Path, console: Console, *, stack: str = "", dry_run: bool = False) -> Report:
    """Resolve a stack for each of its CPythons and write recipes/locks/NAME.lock.yaml."""
    document, components = recipes.stack(root, stack or _only_stack(root))
    recipe = document.value
    path = root / recipes.LOCKS / f"{recipe.name}{recipes.LOCK_SUFFIX}"
    with tempfile.TemporaryDirectory(prefix="firstlight-lock-") as home:
        plan = plan_lock(recipe, components, PurePosixPath(home) / "uv", _known_uv(root, recipe))
        if dry_run:
            return Report(preview(plan))
        found = _execute(plan, LocalShell(Host(name="local")), console)
    path.parent.mkdir(exist_ok=True)
    path.write_text(render(_lock(recipe, components, found)), encoding="utf-8")
    return Report(f"wrote {catalog.shown(path, root)}", {"stack": recipe.name, "lock": str(path)})


def plan_lock(
    stack: Stack, components: Mapping[str, Component], home: PurePosixPath, known: Wheel | None
) -> Plan:
    """The scripts that resolve a stack; each one's id says what its output is."""
    uv = str(home / "bin" / "uv")
    scripts = {
        "uv": ("get uv", get_uv(sys.executable, home, _uv(stack), known)),
        "tools": ("resolve the tools", resolve_tools(uv, stack)),
    }
    for python in stack.python:
        title = f"for Python {python}"
        wheels = resolve_requirements(uv, stack, python)
        sources = resolve_sources(uv, stack, components, python)
        scripts[f"wheels-{python}"] = (f"resolve the requirements {title}", wheels)
        scripts[f"sources-{python}"] = (f"resolve the components {title}", sources)
    steps = [
        Step(key, title, Run(script, _TIMEOUT_S), where="controller")
        for key, (title, script) in scripts.items()
    ]
    return Plan("lock", "local", tuple(steps))


def _execute(plan: Plan, shell: Shell, console: Console) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for step in plan.steps:
        assert isinstance(step.action, Run)
        console.say(step.title)
        result = shell.run(step.action.script, step.action.timeout_s)
        if not result.ok:
            raise StepError(f"cannot {step.title}", where="local", log=result.error_text)
        outputs[step.id] = result.text
    return outputs


def _lock(stack: Stack, components: Mapping[str, Component], found: Mapping[str, str]) -> LockFile:
    def read(key: str, python: str) -> tuple[Wheel, ...]:
        return parse_pylock(found[key], python, stack.arch, stack.glibc)

    resolved = {
        python: PythonLock(
            wheels=read(f"wheels-{python}", python), sources=read(f"sources-{python}", python)
        )
        for python in stack.python
    }
    return make_lock(stack, components, resolved, read("tools", stack.python[0]))


def _uv(stack: Stack) -> str:
    return next(tool for tool in stack.tools if tool.startswith("uv=="))


def _known_uv(root: Path, stack: Stack) -> Wheel | None:
    try:
        lock = catalog.find(root, recipes.LOCKS, stack.name, LockFile, recipes.LOCK_SUFFIX).value
    except FirstlightError:
        return None
    return next((tool for tool in lock.tools if f"{tool.name}=={tool.version}" == _uv(stack)), None)


def _only_stack(root: Path) -> str:
    names = catalog.names(root, recipes.STACKS)
    if len(names) != 1:
        raise UnknownName(
            f"which stack? there are: {', '.join(names) or 'none'}", remedy="say --stack NAME"
        )
    return names[0]
