"""The build room: the plan of `invoke lock`, and how what it printed becomes a lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.build.choose import TOOLKIT, Choice
from firstlight.build.component import Component
from firstlight.build.lock import LockFile, PythonLock, make_lock, prebuilt_wheels
from firstlight.build.recipe import Python, Stack
from firstlight.build.resolve import (
    get_uv,
    parse_pylock,
    resolve_build,
    resolve_check,
    resolve_requirements,
    resolve_sources,
    resolve_toolkit,
    resolve_tools,
    without_own,
)
from firstlight.build.source import (
    ArchiveSource,
    GitSource,
    LockedSource,
    SdistSource,
    locked_archive,
    locked_git,
    locked_sdist,
    pack_request,
    sdist_request,
)
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.errors import StepError
from firstlight.core.plan import Run, Step

TIMEOUT_S = 3600.0
# What pip and uv say when nothing answers them.
_NO_ROUTE = re.compile(
    r"Failed to establish a new connection|Failed to fetch|error sending request|dns error"
    r"|[Cc]onnection (?:refused|reset|timed out)|Temporary failure in name resolution"
    r"|Network is unreachable|network was disabled"
)
_ELSEWHERE = (
    "run `{again}` on a machine that reaches it and commit {lock}, or map that url under `mirrors:`"
    " in inventory/hosts.yaml (docs/builds.md)"
)

_ASK = """\
set -euo pipefail
python=$1 program=$2 request=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
printf '%s' "$request" >"$work/request.json"
"$python" "$program" "$work/request.json" "$@"
"""


@dataclass(frozen=True)
class Desk:
    """Where a lock is made: our Python, where uv goes, our programs, the cache of sources."""

    python: str
    uv_home: PurePosixPath
    programs: PurePosixPath
    sources: PurePosixPath
    mirrors: Mapping[str, str]
    known_uv: Wheel | None

    @property
    def uv(self) -> str:
        """The resolver."""
        return str(self.uv_home / "bin" / "uv")


def lock_steps(stack: Stack, choices: Mapping[str, Choice], desk: Desk) -> Iterator[Step]:
    """The scripts that resolve a stack; each one's id says what its output is."""
    uv = next(tool for tool in stack.tools if tool.startswith("uv=="))
    yield _step("uv", "get uv", get_uv(desk.python, desk.uv_home, uv, desk.known_uv))
    for choice in choices.values():
        yield from _archive_steps(choice, desk)
    yield _step("tools", "resolve the tools", resolve_tools(desk.uv, stack))
    if _has_toolkit(stack, choices):
        yield _step("toolkit", "resolve the CUDA toolkit", resolve_toolkit(desk.uv, stack))
    for python in stack.python:
        yield from _python_steps(stack, choices, desk, python)


def _python_steps(
    stack: Stack, choices: Mapping[str, Choice], desk: Desk, python: Python
) -> Iterator[Step]:
    end = f"for Python {python}"
    script = resolve_requirements(desk.uv, stack, choices, python)
    yield _step(f"wheels-{python}", f"resolve the requirements {end}", script)
    if any(one.repacked for one in choices.values()):
        script = resolve_sources(desk.uv, stack, choices, python)
        yield _step(f"sources-{python}", f"resolve the components {end}", script)
    for name, choice in choices.items():
        if choice.from_source:
            script = resolve_build(desk.uv, stack, choices, name, python)
            yield _step(
                f"build-{python}-{name}", f"resolve what {name} is built with {end}", script
            )
            script = resolve_check(desk.uv, stack, choices, name, python)
            yield _step(f"check-{python}-{name}", f"resolve what {name} runs with {end}", script)


def _archive_steps(choice: Choice, desk: Desk) -> Iterator[Step]:
    sources = [(choice.name, choice.source), *((one.name, one.source) for one in choice.fetched)]
    for name, source in sources:
        title, key = f"look up the source of {name}", f"archive-{choice.name}-{name}"
        if isinstance(source, SdistSource):
            asked = sdist_request(name, choice.version, source, desk.mirrors)
            yield _step(key, title, _ask(desk, "find_sdist.py", asked))
        elif isinstance(source, GitSource):
            asked = pack_request(source, desk.mirrors)
            yield _step(key, title, _ask(desk, "pack_git.py", asked, str(desk.sources)))


def _ask(desk: Desk, program: str, request: str, *more: str) -> Script:
    return Script(_ASK, (desk.python, str(desk.programs / program), request, *more))


def _step(key: str, title: str, script: Script) -> Step:
    return Step(key, title, Run(script, TIMEOUT_S), where="controller")


def failure(step: Step, stack: Stack, said: str) -> StepError:
    """Why a step of resolving failed, in the words of what failed, and what to do about it."""
    lines = said.strip().splitlines()
    ours = {
        mark: [one for one in lines if one.startswith(mark)][-1:] for mark in ("error: ", "fix: ")
    }
    error, fix = (words[0].partition(": ")[2] if words else "" for words in ours.values())
    rest = [one for one in lines if one not in (*ours["error: "], *ours["fix: "])]
    what = f"cannot {step.title}: {error}" if error else f"cannot {step.title}"
    again = f"invoke lock --stack {stack.name}"
    remedy = f"{fix or _remedy(step.id, stack, said)}; then run: {again}"
    if error.startswith("no route to "):
        # The advice of a fetch, which another machine can do: a lock is made on this one.
        remedy = _ELSEWHERE.format(again=again, lock=f"recipes/locks/{stack.name}.lock.yaml")
    return StepError(what, where="local", remedy=remedy, log="\n".join(rest))


def _remedy(key: str, stack: Stack, said: str) -> str:
    recipe = f"recipes/stacks/{stack.name}.yaml"
    if _NO_ROUTE.search(said):
        asked = "pip's settings" if key == "uv" else "UV_DEFAULT_INDEX, or a uv.toml"
        return f"let this machine reach a package index ({asked})"
    if key == "uv":
        return f"pin a uv in `tools` of {recipe} that this machine's pip can find"
    return f"change what it names, in {recipe} or in a component's recipe, until it goes together"


def _has_toolkit(stack: Stack, choices: Mapping[str, Choice]) -> bool:
    return TOOLKIT in choices and stack.toolkit == "pinned"


def read_lock(
    stack: Stack,
    components: Mapping[str, Component],
    choices: Mapping[str, Choice],
    found: Mapping[str, str],
) -> LockFile:
    """The lock from what the scripts printed, by the ids of their steps."""
    pythons = {python: _read_python(stack, choices, found, python) for python in stack.python}
    tools, resolved = (_read_shared(stack, found, key) for key in ("tools", "toolkit"))
    # The package that names them all holds nothing.
    toolkit = [wheel for wheel in resolved if wheel.name.startswith("nvidia-")]
    return make_lock(stack, components, pythons, tools, toolkit, _read_archives(choices, found))


def _read_python(
    stack: Stack, choices: Mapping[str, Choice], found: Mapping[str, str], python: Python
) -> PythonLock:
    def read(key: str) -> tuple[Wheel, ...]:
        text = found.get(f"{key}", "")
        return parse_pylock(text, python, stack.arch, stack.glibc) if text else ()

    def beside(key: str, name: str, prebuilt: tuple[str, ...]) -> tuple[Wheel, ...]:
        extra = [one for one in prebuilt_wheels(stack, python) if one.name in prebuilt]
        return (*without_own(read(f"{key}-{python}-{name}"), choices), *extra)

    builds = {name: one.build for name, one in choices.items() if one.from_source and one.build}
    return PythonLock(
        wheels=without_own(read(f"wheels-{python}"), choices),
        sources=read(f"sources-{python}"),
        build={name: beside("build", name, build.needs) for name, build in builds.items()},
        check={name: beside("check", name, build.check.run) for name, build in builds.items()},
    )


def _read_archives(
    choices: Mapping[str, Choice], found: Mapping[str, str]
) -> dict[str, tuple[LockedSource, ...]]:
    """The sources of every component that is built, its own first."""
    return {
        choice.name: (
            _locked(choice.name, choice.name, choice.source, found),
            *(_locked(choice.name, one.name, one.source, found) for one in choice.fetched),
        )
        for choice in choices.values()
        if choice.from_source
    }


def _locked(component: str, name: str, source: object, found: Mapping[str, str]) -> LockedSource:
    answer = found.get(f"archive-{component}-{name}", "")
    if isinstance(source, SdistSource):
        return locked_sdist(name, answer)
    if isinstance(source, GitSource):
        return locked_git(name, source, answer)
    assert isinstance(source, ArchiveSource)
    return locked_archive(name, source)


def _read_shared(stack: Stack, found: Mapping[str, str], key: str) -> tuple[Wheel, ...]:
    """The tools, or the toolkit's wheels: the same for every CPython."""
    text = found.get(key, "")
    return parse_pylock(text, stack.python[0], stack.arch, stack.glibc) if text else ()
