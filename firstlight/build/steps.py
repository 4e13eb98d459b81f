"""The build room: an order, and what a host has already, become the steps that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote as percent

from firstlight.build.digest import digest
from firstlight.build.fetch import Depot, fetch_steps, has
from firstlight.build.order import (
    DESCRIBE,
    REPACK,
    Order,
    artifacts,
    manifest_of,
    release_of,
    render_manifest,
    sources,
)
from firstlight.build.release import Artifact, Patch, wheel_path
from firstlight.build.scripts import ASSEMBLE, UV_ENV
from firstlight.build.scripts import REPACK as REPACK_TEXT
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.plan import Job, Ship, ShipFile, Step, WriteFile

LOCK = "build"
_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Site:
    """Where a build happens: the names of what is there already, and where wheels come from.

    `artifacts` are folders of the store.
    """

    releases: frozenset[str]
    artifacts: frozenset[str]
    depot: Depot


def build_done(order: Order, site: Site) -> tuple[str, ...]:
    """What of an order is in place already, one line each."""
    release = release_of(order)
    if release in site.releases:
        return (f"release {release}",)
    made = [a.path.name for a in artifacts(order) if a.path.name in site.artifacts]
    wanted = _wanted(order, site)
    count = sum(has(site.depot, wheel) for wheel in wanted)
    return (*(f"artifact {name}" for name in made), f"{count} of {len(wanted)} wheels")


def build_steps(order: Order, site: Site) -> tuple[Step, ...]:
    """The steps from what a host has to a complete release; none when it has that release."""
    if release_of(order) in site.releases:
        return ()
    missing = [artifact for artifact in artifacts(order) if not _is_made(artifact, site)]
    return (
        _ship_programs(order, missing),
        *fetch_steps(_wanted(order, site), site.depot, order.stack.disk_gib * _MIB_PER_GIB),
        *(_repack(order, site, artifact) for artifact in missing),
        *_assemble(order, site),
    )


def _is_made(artifact: Artifact, site: Site) -> bool:
    return artifact.path.name in site.artifacts


def _ship_programs(order: Order, missing: Iterable[Artifact]) -> Step:
    patches = [patch for artifact in missing for patch in order.patches.get(artifact.name, ())]
    files = [*order.programs.values(), *(_patch_file(order, patch) for patch in patches)]
    return Step("programs", "send the programs and patches", Ship(tuple(files)))


def _patch_file(order: Order, patch: Patch) -> ShipFile:
    target = order.layout.shared(patch.sha256, Path(patch.file).name)
    return ShipFile(patch.source, target, patch.sha256)


def _wanted(order: Order, site: Site) -> list[Wheel]:
    """Every wheel that the steps read: what is installed, the tools, what is to be patched."""
    published = sources(order)
    unmade = [published[a.name] for a in artifacts(order) if not _is_made(a, site)]
    return [*order.lock.pythons[order.python].wheels, *unmade, *order.lock.tools]


def _repack(order: Order, site: Site, artifact: Artifact) -> Step:
    component = order.components[artifact.name]
    patches: list[str] = []
    for patch in order.patches.get(artifact.name, ()):
        patches += ["--required" if patch.load_bearing else "--patch"]
        patches += [str(_patch_file(order, patch).target)]
    program = str(order.programs[REPACK].target)
    wheel = str(wheel_path(order.layout, sources(order)[artifact.name]))
    head = (str(artifact.path), site.depot.python, program, wheel, component.local_version)
    job = Job(f"repack-{artifact.path.name}", Script(REPACK_TEXT, (*head, *patches)), LOCK)
    return Step(
        f"repack-{artifact.name}",
        f"patch {artifact.name} {component.version} into {artifact.version}",
        job,
        creates=artifact.path,
    )


def _assemble(order: Order, site: Site) -> Iterator[Step]:
    layout, release = order.layout, release_of(order)
    requirements, manifest = _requirements(order), render_manifest(manifest_of(order))
    listed = layout.shared(digest(requirements), "requirements.txt")
    told = layout.shared(digest(manifest), "manifest.json")
    yield _write("requirements", "list the files of the release", WriteFile(listed, requirements))
    yield _write("manifest", "say what the release is made of", WriteFile(told, manifest))
    uv = next(tool for tool in order.lock.tools if tool.name == "uv")
    home = layout.release(release)
    args = (
        *(str(layout.root), str(home), str(order.stack.disk_gib * _MIB_PER_GIB), site.depot.python),
        *(str(wheel_path(layout, uv)), str(listed), str(told)),
        *(str(order.programs[DESCRIBE].target), order.stack.engine),
        *(str(artifact.path) for artifact in artifacts(order)),
    )
    env = {"UV_CACHE_DIR": str(layout.uv_cache), **UV_ENV, **order.stack.env}
    job = Job(f"release-{release}", Script(ASSEMBLE, args, env), LOCK)
    yield Step("release", f"assemble release {release}", job, creates=home)


def _write(key: str, title: str, action: WriteFile) -> Step:
    return Step(key, title, action, creates=action.path)


def _requirements(order: Order) -> str:
    """A line for each wheel that is installed as it is; the artifacts' lines come on the host."""
    lines = [
        f"{wheel.name} @ file://{percent(str(wheel_path(order.layout, wheel)))}"
        f" --hash=sha256:{wheel.sha256}"
        for wheel in order.lock.pythons[order.python].wheels
    ]
    return "\n".join(lines) + "\n"
