"""The build room: an order, and what a host has already, become the steps that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote as percent

from firstlight.build.capacity import Need, Room, share
from firstlight.build.choose import TOOLKIT, Choice, waves
from firstlight.build.compiling import Builder, compile_job, need
from firstlight.build.digest import digest
from firstlight.build.fetch import Depot, fetch_steps, has
from firstlight.build.order import (
    DESCRIBE,
    REPACK,
    Order,
    artifacts,
    lock_of,
    manifest_of,
    release_of,
    render_manifest,
    sources,
    toolkit_path,
)
from firstlight.build.release import Artifact, Patch, wheel_path
from firstlight.build.scripts import ASSEMBLE, UV_ENV
from firstlight.build.scripts import REPACK as REPACK_TEXT
from firstlight.build.scripts import TOOLKIT as TOOLKIT_TEXT
from firstlight.build.source import LockedSource
from firstlight.build.sourcing import Sourcing, source_steps
from firstlight.build.toolkit import assemble_args
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.plan import Job, Jobs, Ship, ShipFile, Step, WriteFile

# One compile job, and no ceiling.
ROOM_UNKNOWN = Room(1, None)
LOCK = "build"
ASSEMBLE_TOOLKIT = "assemble_toolkit.py"
_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Site:
    """Where a build happens: the names of what is there already, and where files come from.

    `artifacts` are folders of the store; `sourcing` and `room` (what the host has to spare) are
    needed only for what is built from source; `host` is what messages call it.
    """

    releases: frozenset[str]
    artifacts: frozenset[str]
    depot: Depot
    sourcing: Sourcing | None = None
    room: Room = ROOM_UNKNOWN
    host: str = "local"

    @property
    def builder(self) -> Builder:
        """Who compiles there."""
        return Builder(self.depot.python, self.host)


def build_done(order: Order, site: Site) -> tuple[str, ...]:
    """What of an order is in place already, one line each."""
    release = release_of(order)
    if release in site.releases:
        return (f"release {release}",)
    made = [a.path.name for a in artifacts(order).values() if _is_made(a, site)]
    wanted = _wanted(order, _missing(order, site), whole=True)
    count = sum(has(site.depot, wheel) for wheel in wanted)
    return (*(f"artifact {name}" for name in made), f"{count} of {len(wanted)} wheels")


def build_steps(order: Order, site: Site) -> tuple[Step, ...]:
    """The steps from what a host has to a complete release; none when it has that release."""
    if release_of(order) in site.releases:
        return ()
    return (*artifact_steps(order, site, whole=True), *_assemble(order, site))


def artifact_steps(order: Order, site: Site, whole: bool = False) -> tuple[Step, ...]:
    """The steps to every artifact of an order that the store lacks; `whole` for a release."""
    missing = _missing(order, site)
    if not missing and not whole:
        return ()
    spare = order.stack.disk_gib * _MIB_PER_GIB if whole else 0
    toolkit = missing.get(TOOLKIT)
    repacked = [one for name, one in missing.items() if order.choices[name].repacked]
    return (
        _ship_programs(order, missing),
        *fetch_steps(_wanted(order, missing, whole), site.depot, spare),
        *(source_steps(_archives(order, missing), site.sourcing) if site.sourcing else ()),
        *((_toolkit(order, site, toolkit),) if toolkit else ()),
        *_compile(order, site, missing),
        *(_repack(order, site, artifact) for artifact in repacked),
    )


def compiled(order: Order, site: Site) -> tuple[Need, ...]:
    """What each component takes that is still to be built from source."""
    choices = (order.choices[name] for name in _missing(order, site))
    return tuple(need(choice, order) for choice in choices if choice.from_source)


def _missing(order: Order, site: Site) -> dict[str, Artifact]:
    return {name: one for name, one in artifacts(order).items() if not _is_made(one, site)}


def _is_made(artifact: Artifact, site: Site) -> bool:
    return artifact.path.name in site.artifacts


def _ship_programs(order: Order, missing: Iterable[str]) -> Step:
    patches = [patch for name in missing for patch in order.patches.get(name, ())]
    files = [*order.programs.values(), *(_patch_file(order, patch) for patch in patches)]
    return Step("programs", "send the programs and patches", Ship(tuple(files)))


def _patch_file(order: Order, patch: Patch) -> ShipFile:
    target = order.layout.shared(patch.sha256, Path(patch.file).name)
    return ShipFile(patch.source, target, patch.sha256)


def _wanted(order: Order, missing: Mapping[str, Artifact], whole: bool) -> list[Wheel]:
    """Every wheel that the steps read: what is installed, the tools, what others are made of."""
    lock, published = lock_of(order), sources(order)
    wanted = [*(lock.wheels if whole else ())]
    wanted += [published[name] for name in missing if name in published]
    wanted += [*order.lock.tools, *(order.lock.toolkit if TOOLKIT in missing else ())]
    for name in missing:
        wanted += [*lock.build.get(name, ()), *lock.check.get(name, ())]
    return list({wheel.sha256: wheel for wheel in wanted}.values())


def _archives(order: Order, missing: Iterable[str]) -> list[LockedSource]:
    found = (one for name in missing for one in order.lock.archives.get(name, ()))
    # Two names of one content are two files: each is looked for by its own.
    return list({(one.sha256, one.file): one for one in found}.values())


def _toolkit(order: Order, site: Site, artifact: Artifact) -> Step:
    program = str(order.programs[ASSEMBLE_TOOLKIT].target)
    wheels = [wheel_path(order.layout, wheel) for wheel in order.lock.toolkit]
    args = assemble_args(artifact.path, order.stack.cuda, wheels)
    script = Script(TOOLKIT_TEXT, (site.depot.python, program, *args))
    job = Job(f"toolkit-{artifact.path.name}", script, LOCK)
    title = f"put the CUDA {order.stack.cuda} toolkit together"
    return Step("toolkit", title, job, creates=artifact.path)


def _compile(order: Order, site: Site, missing: Mapping[str, Artifact]) -> Iterator[Step]:
    """Every component that is to be built, side by side where needs and memory allow it."""
    for wave in waves(order.choices):
        queue = [order.choices[name] for name in wave if name in missing]
        while queue:
            shares = share(site.room, [need(one, order) for one in queue])
            beside, queue = queue[: len(shares)], queue[len(shares) :]
            made = [
                compile_job(order, one, given, site.builder)
                for one, given in zip(beside, shares, strict=True)
            ]
            for one, (asked, _) in zip(beside, made, strict=True):
                yield _write(f"request-{one.name}", f"say how {one.name} is built", asked)
            yield _build_step(beside, [job for _, job in made], missing)


def _build_step(beside: list[Choice], jobs: list[Job], missing: Mapping[str, Artifact]) -> Step:
    names = " and ".join(f"{one.name} {one.version}" for one in beside)
    key = "+".join(one.name for one in beside)
    if len(jobs) == 1:
        path = missing[beside[0].name].path
        return Step(f"build-{key}", f"build {names} from source", jobs[0], creates=path)
    return Step(f"build-{key}", f"build {names} from source, side by side", Jobs(tuple(jobs)))


def _repack(order: Order, site: Site, artifact: Artifact) -> Step:
    choice = order.choices[artifact.name]
    patches: list[str] = []
    for patch in order.patches.get(artifact.name, ()):
        patches += ["--required" if patch.load_bearing else "--patch"]
        patches += [str(_patch_file(order, patch).target)]
    program = str(order.programs[REPACK].target)
    wheel = str(wheel_path(order.layout, sources(order)[artifact.name]))
    head = (str(artifact.path), site.depot.python, program, wheel, choice.local_version)
    job = Job(f"repack-{artifact.path.name}", Script(REPACK_TEXT, (*head, *patches)), LOCK)
    return Step(
        f"repack-{artifact.name}",
        f"patch {artifact.name} {choice.version} into {artifact.version}",
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
        *(str(made.path) for name, made in artifacts(order).items() if name != TOOLKIT),
    )
    toolkit = {"TOOLKIT": toolkit_path(order)} if toolkit_path(order) else {}
    imports = {"IMPORTS": " ".join(names)} if (names := _imports(order)) else {}
    env = {"UV_CACHE_DIR": str(layout.uv_cache), **UV_ENV, **toolkit, **imports, **order.stack.env}
    job = Job(f"release-{release}", Script(ASSEMBLE, args, env), LOCK)
    yield Step("release", f"assemble release {release}", job, creates=home)


def _imports(order: Order) -> list[str]:
    """The modules of all that was compiled, which must be imported in the release as well."""
    compiled = [choice for choice in order.choices.values() if choice.from_source]
    return [name for one in compiled if one.build for name in one.build.check.imports]


def _write(key: str, title: str, action: WriteFile) -> Step:
    return Step(key, title, action, creates=action.path)


def _requirements(order: Order) -> str:
    """A line for each wheel that is installed as it is; the artifacts' lines come on the host."""
    lines = [
        f"{wheel.name} @ file://{percent(str(wheel_path(order.layout, wheel)))}"
        f" --hash=sha256:{wheel.sha256}"
        for wheel in lock_of(order).wheels
    ]
    return "\n".join(lines) + "\n"
