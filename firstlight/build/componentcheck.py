"""The build room: every fault that can be seen in one component's recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from firstlight.build.choose import TOOLKIT
from firstlight.build.component import CAPABILITY, ArchSpelling, Build, Component
from firstlight.build.placeholders import PLANNED, unclosed, unknown, used, vocabulary
from firstlight.build.recipe import pin
from firstlight.core.command import assignments
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place, nearest

LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")
_GENCODE, _TARGET = re.compile(r"[1-9][0-9]+[af]?"), re.compile(r"sm_[1-9][0-9]+[af]?")
# By these a build is where it should be, with the toolkit and at the time of its lock.
_OURS = ("PATH", "HOME", "TMPDIR", "CUDA_HOME", "CUDA_PATH", "SOURCE_DATE_EPOCH")
_SOURCES = ("sdist", "archive", "git")


def check_component(document: Document[Component]) -> tuple[Fault, ...]:
    """Impossible versions, placeholders that nobody fills, sources without a build."""
    component = document.value
    found = [*_versions(component), *_local_version(component)]
    if component.build is not None:
        found += [*_build(component, component.build), *_targets(component.build)]
    return tuple(document.fault(place, message) for place, message in found)


def bad_version(text: str) -> str:
    """Why that is no version; "" when it is one."""
    try:
        Version(text)
    except InvalidVersion:
        return f"{text!r} is no version; write for example '0.5.23'"
    return ""


def _versions(component: Component) -> Iterator[tuple[Place, str]]:
    for name, version in component.versions.items():
        if message := bad_version(name):
            yield ("versions", name), message
        for index, source in enumerate(version.sources):
            place = ("versions", name, "sources", index)
            if source.kind in _SOURCES and component.build is None:
                yield place, f"a source of kind {source.kind} needs `build`, which says how"
            if source.kind == "toolkit" and component.name != TOOLKIT:
                yield place, f"only {TOOLKIT} is a toolkit: needs and builds know it by that name"
        names = [one.name for one in version.fetched]
        for index, one in enumerate(names):
            if one in (*names[:index], component.name):
                yield ("versions", name, "fetched", index, "name"), f"{one!r} is given twice"
        built = any(source.kind in _SOURCES for source in version.sources)
        for word in _handed_in(component) if built else ():
            if word not in names:
                yield ("versions", name), f"fetches no {word}, which `build` hands in"


def _handed_in(component: Component) -> list[str]:
    """The fetched sources that the build names, if any version has them: one and all must."""
    known = {one.name for version in component.versions.values() for one in version.fetched}
    build = component.build
    texts = [*build.env.values(), *build.config.values(), *build.cmake.values()] if build else []
    words = {word.removeprefix("fetched:") for text in texts for word in used(text)}
    return sorted(words & known)


def _local_version(component: Component) -> Iterator[tuple[Place, str]]:
    words = unknown(component.local_version, ())
    for word in words:
        yield ("local_version",), _no_word(word, PLANNED)
    sample = re.sub(r"\$\{[^}]*\}", "x", component.local_version)
    if not words and sample and not LOCAL.fullmatch(sample):
        message = f"{component.local_version!r} is no local version; letters, digits and dots only"
        yield ("local_version",), message


def _build(component: Component, build: Build) -> Iterator[tuple[Place, str]]:
    yield from _pins(("build", "requires"), build.requires)
    fetched = sorted({one.name for v in component.versions.values() for one in v.fetched})
    for key, table in (("env", build.env), ("config", build.config), ("cmake", build.cmake)):
        for name, text in table.items():
            for word in unknown(text, fetched):
                yield ("build", key, name), _no_word(word, vocabulary(fetched))
            if unclosed(text):
                yield ("build", key, name), "a ${ has no end; write ${word}"
    for key, text in (("subdir", build.subdir), ("project", build.project)):
        if "${" in text:
            yield ("build", key), "placeholders are filled in `env`, `config` and `cmake` only"
    if ".." in build.subdir.split("/") or build.subdir.startswith("/"):
        yield ("build", "subdir"), f"{build.subdir!r} leads out of the source"
    if build.cmake and build.backend == "setuptools":
        yield ("build", "cmake"), "setuptools has no use for `cmake`"
    if build.project and build.subdir:
        yield ("build", "subdir"), "`project` says already where to build; keep one of the two"
    for name in build.env:
        if name in _OURS or name.startswith("FIRSTLIGHT_"):
            yield ("build", "env", name), f"{name} is set for every build, and is not for a recipe"
        try:
            assignments({name: ""})
        except ValueError as error:
            yield ("build", "env", name), str(error)


def _targets(build: Build) -> Iterator[tuple[Place, str]]:
    """Capabilities and GPU targets as nobody writes them: else told when hours were compiled."""
    arch = build.arch or ArchSpelling()
    tables = {
        ("build", "arch", "spelling"): arch.spelling,
        ("build", "arch", "gencodes"): arch.gencodes,
        ("build", "check", "targets"): build.check.targets,
    }
    for place, table in tables.items():
        for capability in table:
            if not re.fullmatch(CAPABILITY, capability):
                message = f"{capability!r} is no capability of a card; write it like '12.0'"
                yield (*place, capability), message
    for capability, gencode in arch.gencodes.items():
        if not _GENCODE.fullmatch(gencode):
            message = f"{gencode!r} is no gencode; write what follows compute_, like '120a'"
            yield ("build", "arch", "gencodes", capability), message
    for capability, targets in build.check.targets.items():
        for index, target in enumerate(targets):
            if not _TARGET.fullmatch(target):
                message = f"{target!r} is no target; write it like 'sm_120a'"
                yield ("build", "check", "targets", capability, index), message


def _pins(place: Place, requirements: Iterable[str]) -> Iterator[tuple[Place, str]]:
    seen: set[str] = set()
    for index, requirement in enumerate(requirements):
        try:
            name, _ = pin(requirement)
        except ValueError as error:
            yield (*place, index), str(error)
            continue
        if name in seen:
            yield (*place, index), f"{name} is given twice"
        seen.add(name)


def _no_word(word: str, known: object) -> str:
    words = list(known) if isinstance(known, (dict, tuple)) else []
    return f"nothing fills ${{{word}}}{nearest(word, words)}"
