"""The build room: what of a host's builds may go, and the step that takes it away.

Never a release that a deployment runs, ran before or has started, nor one of the newest of its
stack. What only a release that goes has named goes when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.build.digest import short
from firstlight.build.hold import BUILD_JOBS, SAYS, Hold
from firstlight.build.holdings import Holdings, freed, weight
from firstlight.core.command import Script
from firstlight.core.plan import Job, Step
from firstlight.core.words import columns, size, span

# Hidden from whoever looks for finished things, whichever folder it stands in.
GONE = ".partial.old"
# Who holds this lock runs beside no job that holds any: see remote/supervise.sh.
LOCK = "all"
_DAY_S = 24 * 3600
# What only makes a later build or lock quick; it grows with every one of them.
CACHES = ("cache/ccache", "sources/git")
_KINDS = {
    "cache/ccache": "compiler cache",
    "sources/git": "cache of repositories",
    "releases": "release",
    "cache": "unpacked wheel",
    "store": "artifact",
    "wheels": "wheel",
    "sources": "source",
    "lib": "program folder",
    "build": "unfinished build",
    "twice": "build to compare",
    "holds": "old hold",
}
_JOBS = f"jobs/{{{','.join(BUILD_JOBS)}}}*"

REMOVE = f"""\
{SAYS}
cd -- "$1" || exit
LC_ALL=C looked=$2 now=$(date +%s)
shift 2
# A build that began since we looked counts on what it found; it may be over by now.
source "$FIRSTLIGHT_JOB/processes.sh"
for job in {_JOBS}/pid; do
  if [[ -s ${{job%pid}}exit ]] || ! alive "$job"; then
    # One in the time to come is of a clock that was ahead.
    began=$(stat -c %Y -- "$job" 2>/dev/null) && ((looked < began && began <= now)) || continue
  fi
  echo "error: a build has begun meanwhile: $(basename -- "${{job%/pid}}")"
  echo "fix: wait for its end, then prune again; nothing was removed"
  exit 1
done
# Each holder has a file of its own: one that we have not seen is new.
seen=" $* "
for hold in holds/*; do
  [[ -f $hold && $hold != *.partial && $hold != *[![:print:]]* ]] || continue
  [[ $seen != *" $hold "* ]] || continue
  echo "error: a build has begun meanwhile: $(says "$hold")"
  echo "fix: wait for its end, then prune again; nothing was removed"
  exit 1
done
# Renamed first, at once and whole; what cannot be deleted then is no longer taken for anything.
for item in "$@"; do
  case $item in
    releases/*)
      name="\\"${{item#releases/}}\\""
      if grep -qsF -- "$name" deployments/*/{{current,previous,started,coming}}/manifest.json &&
        [ -e "$item/venv" ]; then
        echo "note: $item is deployed meanwhile; it stays"
        continue
      fi
      ;;
  esac
  [ -e "$item" ] || continue
  echo "removing $item"
  case $item in
    *{GONE}) rm -rf -- "$item" ;;
    *) rm -rf -- "$item{GONE}" && mv -T -- "$item" "$item{GONE}" && rm -rf -- "$item{GONE}" ;;
  esac || exit
done
"""


@dataclass(frozen=True)
class Kept:
    """A release that stays, and why."""

    release: str
    why: str


@dataclass(frozen=True)
class Cut:
    """What goes, in the order in which it is removed, what stays, and the bytes that are freed."""

    gone: tuple[str, ...]
    kept: tuple[Kept, ...]
    freed: int


def stack_of(release: str) -> str:
    """The stack of a release: `sglang-cpu` of `sglang-cpu-py311-0123456789ab`."""
    return release.rsplit("-", 2)[0]


def going_on(holdings: Holdings) -> tuple[Hold, ...]:
    """The holds of builds that are not over: not lost, and what they make is not there yet."""
    return tuple(
        hold
        for hold in holdings.holds
        if not hold.is_stale(holdings.now) and not _is_made(holdings, hold.name)
    )


def _is_made(holdings: Holdings, name: str) -> bool:
    release = f"releases/{name}"
    made = release in holdings.items and release not in holdings.husks
    return made or f"store/{name}" in holdings.items


def choose(
    holdings: Holdings,
    keep: int,
    *,
    store: bool = False,
    caches: bool = False,
    wanted: Iterable[str] = (),
) -> Cut:
    """What may go when `keep` releases of each stack stay.

    With `store` also whatever no release that stays names; `wanted` are digests and names of lib
    folders that stay all the same. What earlier builds and prunings left half-done goes always, the
    CACHES only with `caches`.
    """
    kept = tuple(_kept(holdings, keep))
    stay = {f"releases/{one.release}" for one in kept}
    gone = {hold.item for hold in holdings.holds} - {hold.item for hold in going_on(holdings)}
    finished = {item for item in holdings.items if not item.endswith((".partial", ".old"))}
    gone |= {item for item in finished if item.startswith("releases/")} - stay
    gone |= {item for item in holdings.items if _is_left_over(holdings, item)}
    if store:
        gone |= _unnamed(holdings, finished, stay, frozenset(wanted))
    gone = gone - set(CACHES) | (set(CACHES) & set(holdings.items) if caches else set())
    order = tuple(sorted(gone, key=lambda item: (list(_KINDS).index(_kind(item)), item)))
    return Cut(order, kept, freed(holdings, gone))


def _kept(holdings: Holdings, keep: int) -> Iterator[Kept]:
    """The releases that stay, the newest first, each with the reason that weighs most."""
    uses = {use.release: f"{use.link} of {use.profile}" for use in reversed(holdings.uses)}
    made = {
        i.removeprefix("releases/"): t for i, t in holdings.items.items() if _is_whole(holdings, i)
    }
    place: dict[str, int] = {}
    for release in sorted(made, key=lambda name: (-made[name], name)):
        stack = stack_of(release)
        place[stack] = place.get(stack, 0) + 1
        if release in uses:
            yield Kept(release, uses[release])
        elif place[stack] <= keep:
            yield Kept(release, f"{place[stack]} of {keep} newest")


def _is_left_over(holdings: Holdings, item: str) -> bool:
    """Half-done, by a pruning or a build that was killed: no build runs now.

    What is being sent to this host is no job of it, so that is given a day. Wheels in part are gone
    on with by whoever fetches them next.
    """
    if item.endswith((".ship.partial", ".incoming.partial")):
        return abs(holdings.now - holdings.items[item]) > _DAY_S
    if _folder(item) in ("build", "twice"):
        return True
    ours = _folder(item) in ("releases", "store")
    return item.endswith(GONE) or (ours and item.endswith(".partial"))


def _is_release(item: str) -> bool:
    return item.startswith("releases/") and not item.endswith((".partial", ".old"))


def _is_whole(holdings: Holdings, item: str) -> bool:
    return _is_release(item) and item not in holdings.husks


def _unnamed(
    holdings: Holdings, finished: set[str], stay: set[str], wanted: frozenset[str]
) -> set[str]:
    """What is in the store, the wheels, the sources, lib and uv's cache for nobody who stays."""
    # A file of uv's cache that a release links to is that release's too.
    shared = {i for e in holdings.extents if not e.holders.isdisjoint(stay) for i in e.holders}
    known, left = stay | shared | wanted, finished
    # What stays may name more: an artifact names the toolkit that it was made with.
    while named := {item for item in left if item in known or _last(item) in known}:
        left = left - named
        known = known.union(*(holdings.names.get(item, ()) for item in named))
    return left


def _folder(item: str) -> str:
    return item.partition("/")[0]


def _kind(item: str) -> str:
    return item if item in CACHES else _folder(item)


def _last(item: str) -> str:
    return item.rpartition("/")[2]


def prune_step(cut: Cut, root: PurePosixPath, looked: int) -> Step:
    """The step that removes, as a job that builds wait for; the host was looked at `looked`."""
    script = Script(REMOVE, (str(root), str(looked), *cut.gone))
    job = Job(f"prune-{short(list(cut.gone))}", script, LOCK)
    return Step("prune", f"remove {_counted(cut)}: {size(cut.freed)}", job)


def render_cut(holdings: Holdings, cut: Cut) -> str:
    """Every release with its age, its size and what becomes of it; then the rest in a line."""
    why = {f"releases/{kept.release}": f"stays: {kept.why}" for kept in cut.kept}
    shown = [item for item in holdings.items if _is_release(item)]
    rows = [("release", "age", "size", "")] if shown else []
    for item in sorted(shown, key=lambda item: (-holdings.items[item], item)):
        age = _age(max(0, holdings.now - holdings.items[item]))
        else_ = "goes: its release is gone" if item in holdings.husks else "goes"
        rows.append((_last(item), age, size(weight(holdings, item)), why.get(item, else_)))
    stale = [
        f"taken over: the hold of {hold.text}; no sign of it for a day"
        for hold in holdings.holds
        if hold.item in cut.gone and not _is_made(holdings, hold.name)
    ]
    odd = [f"passed over: {name}; no name of ours: remove it by hand" for name in holdings.odd]
    total = f"goes: {_counted(cut)}, {size(cut.freed)}" if cut.gone else "nothing to remove"
    kept = [one for one in CACHES if one in holdings.items and one not in cut.gone]
    lines = [
        f"stays: {_KINDS[one]} {one}, {size(weight(holdings, one))} (--caches)" for one in kept
    ]
    return "\n".join([*([columns(rows)] if rows else []), *lines, *stale, *odd, total])


def _age(seconds: int) -> str:
    return span(seconds) if seconds < 2 * _DAY_S else f"{seconds // _DAY_S} days"


def _counted(cut: Cut) -> str:
    """`2 releases and 31 wheels`."""
    folders = [_kind(item) for item in cut.gone]
    counts = {folder: folders.count(folder) for folder in _KINDS if folder in folders}
    words = [f"{n} {_KINDS[folder]}{'s' if n > 1 else ''}" for folder, n in counts.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
