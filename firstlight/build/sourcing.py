"""The build room: which source archives have to come from outside, who brings them, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firstlight.build.digest import digest, short
from firstlight.build.release import Layout
from firstlight.build.scripts import FETCH_SOURCES
from firstlight.build.source import LockedSource, fetch_request, source_path
from firstlight.core.command import Script
from firstlight.core.plan import Job, Ship, ShipFile, Step, WriteFile

LOCK = "fetch"


@dataclass(frozen=True)
class Shelf:
    """Source archives (`<sha256>/<file>`) of one machine, and what brings it more."""

    held: frozenset[str]
    layout: Layout
    python: str
    program: str

    def has(self, source: LockedSource) -> bool:
        """True when the machine has that source."""
        return f"{source.sha256}/{source.file}" in self.held


@dataclass(frozen=True)
class Sourcing:
    """Where a host's sources come from: its own shelf, the controller's, and by which way."""

    host: Shelf
    controller: Shelf
    route: Literal["host", "controller"]
    mirrors: Mapping[str, str]


def source_steps(sources: Iterable[LockedSource], by: Sourcing) -> Iterator[Step]:
    """The steps that bring the missing of these sources to the host; none when none is missing.

    What the controller holds already is sent, whoever downloads: a host that has a way out may
    still lack git, and a mirror that is a folder lies on the controller.
    """
    missing = [source for source in sources if not by.host.has(source)]
    absent = [source for source in missing if not by.controller.has(source)]
    where = by.route
    if absent:
        yield from _download(absent, by.host if where == "host" else by.controller, by, where)
    sent = [source for source in missing if where == "controller" or source not in absent]
    if sent:
        files = tuple(_ship(source, by) for source in sent)
        yield Step("sources", f"send {_count(sent)}", Ship(files))


def _download(
    sources: Sequence[LockedSource],
    shelf: Shelf,
    by: Sourcing,
    where: Literal["host", "controller"],
) -> Iterator[Step]:
    text = fetch_request(sources, by.mirrors)
    path = shelf.layout.shared(digest(text), "sources.json")
    title = f"list {_count(sources)} to fetch"
    yield Step("source-list", title, WriteFile(path, text), where, path)
    args = (str(shelf.layout.root), shelf.python, shelf.program, str(path))
    job = Job(f"fetch-sources-{short(text)}", Script(FETCH_SOURCES, args), LOCK)
    yield Step("fetch-sources", f"fetch {_count(sources)}, each checked by its hash", job, where)


def _ship(source: LockedSource, by: Sourcing) -> ShipFile:
    here = source_path(by.controller.layout.sources, source)
    return ShipFile(Path(here), source_path(by.host.layout.sources, source), source.sha256)


def _count(sources: Sequence[LockedSource]) -> str:
    return f"{len(sources)} source{'s' if len(sources) > 1 else ''}"
