"""The build room: which wheels have to come from outside, who downloads them, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firstlight.build.digest import digest, short
from firstlight.build.release import Layout, wheel_path
from firstlight.build.scripts import FETCH
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.plan import Job, Ship, ShipFile, Step, WriteFile

Where = Literal["host", "controller"]
LOCK = "fetch"
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Controller:
    """The machine that runs us, where it downloads for a host; `wheels` as in a Depot."""

    python: str
    layout: Layout
    wheels: frozenset[str]


@dataclass(frozen=True)
class Depot:
    """What a host has of wheels (`<sha256>/<file>`), and who brings it more.

    `series` is the CPython that the wheels are for, `python` an interpreter there that can
    download, `program` fetch_wheels.py with its places, `indexes` addresses by name.
    """

    series: str
    python: str
    program: ShipFile
    layout: Layout
    wheels: frozenset[str]
    route: Where
    controller: Controller
    indexes: Mapping[str, str]


def has(depot: Depot, wheel: Wheel) -> bool:
    """True when the wheel is on the host."""
    return _name(wheel) in depot.wheels


def fetch_steps(wheels: Iterable[Wheel], depot: Depot, spare_mib: int = 0) -> Iterator[Step]:
    """The steps that bring the missing of these wheels to the host, and none when none is missing.

    The host has our programs already. `spare_mib` of disk must be free beside the wheels on the
    host before it downloads.
    """
    missing = [wheel for wheel in wheels if not has(depot, wheel)]
    if not missing:
        return
    if depot.route == "host":
        yield from _download(missing, depot, "host", spare_mib)
        return
    absent = [wheel for wheel in missing if _name(wheel) not in depot.controller.wheels]
    if absent:
        yield from _download(absent, depot, "controller", 0)
    layout = depot.controller.layout
    files = (
        ShipFile(Path(wheel_path(layout, wheel)), wheel_path(depot.layout, wheel), wheel.sha256)
        for wheel in missing
    )
    yield Step("wheels", f"send {_count(missing)}", Ship(tuple(files)))


def _download(wheels: Sequence[Wheel], depot: Depot, where: Where, spare: int) -> Iterator[Step]:
    on_host = where == "host"
    layout = depot.layout if on_host else depot.controller.layout
    python = depot.python if on_host else depot.controller.python
    program = str(depot.program.target if on_host else depot.program.source)
    request = request_text(wheels, depot.series, depot.indexes)
    path = layout.shared(digest(request), "wheels.json")
    title = f"list {_count(wheels)} to download"
    yield Step("wheel-list", title, WriteFile(path, request), where, path)
    need = spare + sum(wheel.size or 0 for wheel in wheels) // _MIB
    args = (str(layout.root), str(need), python, program, str(path))
    job = Job(f"fetch-{short(request)}", Script(FETCH, args), LOCK)
    yield Step("fetch", f"download {_count(wheels)}, each checked by its hash", job, where)


def request_text(wheels: Iterable[Wheel], series: str, indexes: Mapping[str, str]) -> str:
    """The request that fetch_wheels.py reads, one wheel a line."""
    rows = [
        {
            "name": wheel.name,
            "version": wheel.version,
            "file": wheel.file,
            "sha256": wheel.sha256,
            "size": wheel.size,
            "index": indexes[wheel.index] if wheel.index else None,
        }
        for wheel in wheels
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{"python": "{series}", "wheels": [\n{lines}\n]}}\n'


def _name(wheel: Wheel) -> str:
    return f"{wheel.sha256}/{wheel.file}"


def _count(wheels: Sequence[Wheel]) -> str:
    return f"{len(wheels)} wheel{'s' if len(wheels) > 1 else ''}"
