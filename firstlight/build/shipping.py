"""The build room: what of a finished build another host lacks, and how it comes to lie there.

An artifact travels into a folder beside its place, which gets its name when all of it has come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from firstlight.build.fetch import Controller, Depot
from firstlight.build.order import Order, artifacts, release_of
from firstlight.build.recipe import Python
from firstlight.build.release import Layout
from firstlight.build.steps import Site, build_steps
from firstlight.core.command import Script, typed
from firstlight.core.errors import HostError
from firstlight.core.plan import Run, Ship, ShipFile, Step
from firstlight.core.words import size
from firstlight.hosts.survey import MARK, Survey

# Hidden from whoever looks for finished things; pruned when nobody goes on with it.
ARRIVING = ".ship.partial"

LIST = f"""\
tell() {{ local IFS=$'\\t'; printf '{MARK}\\t%s\\n' "$*"; }}
cd -- "$1" || return
shift
for item in "$@"; do
  [ -e "$item" ] || return
  # A toolkit is no wheel but a tree: the other host puts its own together.
  [ -z "$(find "$item" -mindepth 1 ! -type f -print -quit)" ] || continue
  while IFS= read -r file; do
    digest=$(sha256sum <"$file") || return
    tell file "$file" "$(stat -c %s -- "$file")" "${{digest%% *}}"
  done < <(find "$item" -type f)
done
tell end
"""

ACCEPT = """\
incoming=$1
shift
while [ "$#" -gt 0 ]; do
  came=$incoming/$1 place=$2 digest=$3
  shift 3
  [ -f "$came" ] && [ ! -e "$place" ] || continue
  found=$(sha256sum <"$came") || exit
  if [ "${found%% *}" = "$digest" ]; then
    mkdir -p -- "${place%/*}" && chmod 644 -- "$came" && mv -T -- "$came" "$place" || exit
  fi
done
"""

PLACE = f"""\
cd -- "$1" || exit
shift
for item in "$@"; do
  if [ -e "$item" ]; then
    rm -rf -- "$item{ARRIVING}" || exit
  else
    mv -T -- "$item{ARRIVING}" "$item" || exit
  fi
done
"""


@dataclass(frozen=True)
class Parcel:
    """A file below the root of the host that has it, with its bytes and its sha256."""

    path: str
    bytes: int
    sha256: str


def list_script(root: PurePosixPath, items: Iterable[str]) -> Script:
    """Asks a host for the files of its artifacts and wheels, each digested as it lies there."""
    return Script(LIST, (str(root), *sorted(items)))


def read_list(output: str, host: str) -> tuple[Parcel, ...]:
    """The answer to `list_script`; raises HostError when it is not whole."""
    answers = [line.split("\t")[1:] for line in output.splitlines() if line.startswith(MARK)]
    if not answers or answers[-1] != ["end"]:
        what = "it did not say whole what it has"
        raise HostError(what, where=host, remedy="can its store and its wheels be read?")
    found = tuple(Parcel(path, int(count), digest) for _, path, count, digest in answers[:-1])
    for one in found:
        if one.path.startswith("wheels/") and one.path.split("/")[1] != one.sha256:
            raise HostError(
                f"{one.path} has sha256 {one.sha256}: it is damaged",
                where=host,
                remedy="remove that file there and build there again",
            )
    return found


def lacking(order: Order, source: Survey, target: Survey, python: str) -> tuple[str, ...]:
    """The artifacts and wheels that the source has, the target lacks, and its release needs.

    As paths below the root: `store/NAME` and `wheels/SHA256/FILE`. `order` is for the target's
    root, `python` an interpreter there.
    """
    here = source.artifacts - target.artifacts
    made = [one.path.name for one in artifacts(order).values() if one.path.name in here]
    had = target.artifacts | set(made)
    depot = Depot(
        series=order.python,
        python=python,
        program=order.programs["fetch_wheels.py"],
        layout=order.layout,
        wheels=target.wheels,
        route="controller",
        controller=Controller(python, Layout(source.root), source.wheels),
        indexes=order.stack.indexes,
    )
    steps = build_steps(order, Site(target.releases, had, depot))
    wheels = [
        str(file.target.relative_to(order.layout.wheels))
        for step in steps
        if step.id == "wheels" and isinstance(step.action, Ship)
        for file in step.action.files
    ]
    found = [f"wheels/{wheel}" for wheel in wheels if wheel in source.wheels]
    return (*(f"store/{name}" for name in made), *found) if steps else ()


def built_for(orders: Mapping[Python, Order], source: Survey, host: str) -> tuple[Python, ...]:
    """The CPythons for which the source has a release of the stack, or all that one is made of.

    Whole releases come first, and of those the most wanted. Raises HostError when there is none.
    """
    whole = tuple(python for python in orders if release_of(orders[python]) in source.releases)
    parts = tuple(python for python, order in orders.items() if _has_parts(order, source))
    if found := tuple(dict.fromkeys((*whole, *parts))):
        return found
    stack = next(iter(orders.values())).stack.name
    raise HostError(
        f"stack {stack}, as it is locked now, is not built there, so there is nothing to send",
        where=host,
        remedy=typed("build", {"host": host, "stack": stack}),
    )


def _has_parts(order: Order, source: Survey) -> bool:
    names = {one.path.name for one in artifacts(order).values()}
    return bool(names) and names <= source.artifacts


def shared_python(
    sent: Sequence[Python], there: Collection[Python], source: str, host: str, stack: str
) -> Python:
    """The first CPython of those that `source` has things for that the host has too.

    `there` are those of the stack that the host has. Raises HostError when it has none of them.
    """
    for python in sent:
        if python in there:
            return python
    build = typed("build", {"host": host, "stack": stack})
    has = f"the host has {', '.join(there)}" if there else "the host has none that the stack takes"
    raise HostError(
        f"what {source} has is for CPython {' and '.join(sent)}; {has}",
        where=host,
        remedy=f"install CPython {sent[0]} there, or build there: {build}",
    )


def of_items(parcels: Iterable[Parcel], items: Iterable[str]) -> tuple[Parcel, ...]:
    """The parcels that are these items, or files of these."""
    wanted = frozenset(items)
    return tuple(p for p in parcels if p.path in wanted or _artifact(p.path) in wanted)


def _artifact(path: str) -> str:
    return "/".join(path.split("/")[:2])


def incoming_of(target: Survey, release: str) -> PurePosixPath:
    """The folder into which rsync brings what a release lacks: hidden, and gone on with."""
    return target.root / "store" / f"{release}.incoming.partial"


def accept_script(
    incoming: PurePosixPath, parcels: Sequence[Parcel], files: Sequence[ShipFile]
) -> Script:
    """Puts each parcel that rsync brought whole to its place; the others it leaves."""
    words = (
        word
        for parcel, file in zip(parcels, files, strict=True)
        for word in (parcel.path, str(file.target), parcel.sha256)
    )
    return Script(ACCEPT, (str(incoming), *words))


def with_arrived(target: Survey, parcels: Iterable[Parcel]) -> Survey:
    """The target as it will be when the parcels are there."""
    paths = [parcel.path.split("/", 1) for parcel in parcels]
    wheels = {rest for folder, rest in paths if folder == "wheels"}
    made = {rest.partition("/")[0] for folder, rest in paths if folder == "store"}
    return replace(target, wheels=target.wheels | wheels, artifacts=target.artifacts | made)


def files(parcels: Iterable[Parcel], source: Survey, target: Survey) -> tuple[ShipFile, ...]:
    """Each parcel with its place on the source and on the target, where artifacts arrive aside."""
    return tuple(
        ShipFile(Path(source.root / one.path), target.root / _arrival(one.path), one.sha256)
        for one in parcels
    )


def _arrival(path: str) -> str:
    folder, name, *rest = path.split("/")
    return "/".join((folder, name + ARRIVING, *rest)) if folder == "store" else path


def ship_steps(
    parcels: Sequence[Parcel], source: Survey, target: Survey, origin: str
) -> tuple[Step, ...]:
    """Send what is lacking, then give the artifacts their names; none for nothing."""
    if not parcels:
        return ()
    total = size(sum(one.bytes for one in parcels))
    sent = files(parcels, source, target)
    title = f"send {_counted(parcels)} from {origin}: {total}"
    stored = sorted({_artifact(p.path) for p in parcels if _is_stored(p)})
    place = Run(Script(PLACE, (str(target.root), *stored)))
    last = (Step("place", "put the artifacts in place", place),) if stored else ()
    return (Step("send", title, Ship(sent)), *last)


def _is_stored(parcel: Parcel) -> bool:
    return parcel.path.startswith("store/")


def _counted(parcels: Sequence[Parcel]) -> str:
    stored = len({_artifact(p.path) for p in parcels if _is_stored(p)})
    wheels = sum(not _is_stored(p) for p in parcels)
    words = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((stored, "artifact"), (wheels, "wheel"))
        if count
    ]
    return " and ".join(words)
