"""The build room: a stack's components as they will really be made, in the order of their needs."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from firstlight.build.component import Build, Component, Fetched, Source
from firstlight.build.placeholders import fill
from firstlight.build.recipe import Pick, Stack
from firstlight.build.source import SdistSource

TOOLKIT = "cuda-toolkit"
FROM_SOURCE = ("sdist", "archive", "git")


@dataclass(frozen=True)
class Choice:
    """One component at one version from one source; what was known to the plan is filled in."""

    name: str
    version: str
    source: Source
    fetched: tuple[Fetched, ...]
    build: Build | None
    local_version: str

    @property
    def as_is(self) -> bool:
        """True for a published wheel that nothing is done to."""
        return self.source.kind == "wheel" and not self.local_version

    @property
    def repacked(self) -> bool:
        """True for a published wheel that gets our patches and our local version."""
        return self.source.kind == "wheel" and bool(self.local_version)

    @property
    def from_source(self) -> bool:
        """True for what is compiled, or at least packed, by us."""
        return self.source.kind in FROM_SOURCE

    @property
    def project(self) -> str:
        """The project whose wheel it is, as indexes compare names."""
        named = self.build.project if self.build and self.from_source else ""
        if isinstance(self.source, SdistSource):
            named = named or self.source.name or ""
        return canonicalize_name(named or self.name)

    @property
    def needs(self) -> tuple[str, ...]:
        """The components that must be made before this one."""
        return self.build.needs if self.build and self.from_source else ()


def choose(stack: Stack, components: Mapping[str, Component]) -> dict[str, Choice]:
    """Every component of a stack without faults, those that others need before those others."""
    found = {name: _choice(stack, components[name]) for name in stack.components}
    graph = {name: [need for need in one.needs if need in found] for name, one in found.items()}
    order = tuple(graphlib.TopologicalSorter(graph).static_order())
    return {name: found[name] for name in order}


def cycle(stack: Stack, components: Mapping[str, Component]) -> tuple[str, ...]:
    """Components that need each other in a circle, the first again at the end; () for none."""
    graph = {name: _needs(pick, components.get(name)) for name, pick in stack.components.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # It goes from what is needed to what needs it.
        return tuple(reversed(error.args[1]))
    return ()


def _needs(pick: Pick, component: Component | None) -> tuple[str, ...]:
    version = component.versions.get(pick.version) if component else None
    if version is None or component is None or component.build is None:
        return ()
    wanted = [one.kind for one in version.sources if pick.source in (None, one.kind)]
    return component.build.needs if wanted and wanted[0] in FROM_SOURCE else ()


def waves(choices: Mapping[str, Choice]) -> tuple[tuple[str, ...], ...]:
    """The names of what is made from source, grouped so that a group needs only earlier ones."""
    sorter = graphlib.TopologicalSorter({name: one.needs for name, one in choices.items()})
    sorter.prepare()
    groups: list[tuple[str, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        built = tuple(n for n in sorted(ready) if n in choices and choices[n].from_source)
        groups += [built] if built else []
        sorter.done(*ready)
    return tuple(groups)


def with_needs(choices: Mapping[str, Choice], name: str) -> dict[str, Choice]:
    """One component and all that has to be made for it, in order."""
    wanted, queue = set[str](), [name]
    while queue:
        one = queue.pop()
        if one in choices and one not in wanted:
            wanted.add(one)
            queue += choices[one].needs
    return {one: choice for one, choice in choices.items() if one in wanted}


def planned_values(stack: Stack, version: str, build: Build | None) -> dict[str, str]:
    """The placeholders that a plan can fill in."""
    arch = build.arch if build else None
    spelled = [arch.spelling.get(a, a) if arch else a for a in stack.arch_list]
    return {
        "version": version,
        "tag": stack.tag,
        "cuda": stack.cuda,
        "cuda_tag": f"cu{stack.cuda.replace('.', '')}",
        "torch": torch_version(stack),
        "arch_list": (arch.separator if arch else ";").join(spelled),
        "threads": str(build.threads if build else 1),
    }


def torch_version(stack: Stack) -> str:
    """The torch that a stack stands on; "" for none."""
    if "torch" in stack.components:
        return stack.components["torch"].version
    return next((one.version for one in stack.prebuilt if one.name == "torch"), "")


def _choice(stack: Stack, component: Component) -> Choice:
    pick = stack.components[component.name]
    version = component.versions[pick.version]
    wanted = [one for one in version.sources if pick.source in (None, one.kind)]
    values = planned_values(stack, pick.version, component.build)
    build = component.build
    if build is not None:
        filled = {
            key: {name: fill(text, values) for name, text in getattr(build, key).items()}
            for key in ("env", "config", "cmake")
        }
        build = build.model_copy(update=filled)
    local = fill(component.local_version, values)
    return Choice(component.name, pick.version, wanted[0], version.fetched, build, local)
