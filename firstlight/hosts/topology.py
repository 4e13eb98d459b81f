"""How the GPUs of a host are joined: the matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from firstlight.hosts.answers import unescaped, whole

_DEVICE = re.compile(r"(?:GPU|NIC)[0-9]{1,4}")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|PSB|C2C|NV[0-9]{1,3}|N/A|OK|NS|-")
_RANGE = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")


@dataclass(frozen=True)
class Place:
    """Where a device sits: the processors near to it, and its memory node."""

    cpus: str | None = None
    numa: int | None = None


@dataclass(frozen=True)
class Topology:
    """Links between devices, by the names of both: `NV18`, `PIX`, `NODE`, `SYS` ..."""

    devices: tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def between_gpus(self) -> tuple[str, ...]:
        """The kinds of link that occur between two GPUs, sorted."""
        cards = [name for name in self.devices if name.startswith("GPU")]
        pairs = ((a, b) for a in cards for b in cards if a != b)
        return tuple(sorted({self.links.get(a, {}).get(b, "?") for a, b in pairs}))

    @property
    def has_nvlink(self) -> bool:
        """True when any two GPUs are joined by NVLink."""
        return any(kind.startswith("NV") for kind in self.between_gpus())


def read_topology(text: str) -> Topology:
    """Read the matrix, tabs or spaces, with or without the escapes that nvidia-smi underlines with.

    Rows of network cards have no columns after the matrix; the legend below is no row.
    """
    lines = unescaped(text).splitlines()
    at = next((n for n, line in enumerate(lines) if _devices(line)), None)
    if at is None:
        return Topology()
    devices = _devices(lines[at])
    rows = {cells[0]: cells[1:] for cells in map(_cells, lines[at + 1 :]) if cells[0] in devices}
    links = {name: found for name, cells in rows.items() if (found := _links(devices, cells))}
    whole_rows = [name for name in links if len(links[name]) == len(devices)]
    places = {name: _place(rows[name][len(devices) :]) for name in whole_rows}
    return Topology(devices, links, places)


def _links(devices: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """A row's links; to the GPUs alone, which come first, where cells of the others ran together.

    That is what becomes of tabs that were copied as too few spaces.
    """
    for names in (devices, [name for name in devices if name.startswith("GPU")]):
        row = cells[: len(names)]
        if len(row) == len(names) and all(map(_LINK.fullmatch, row)):
            return dict(zip(names, row, strict=True))
    return {}


def _devices(line: str) -> tuple[str, ...]:
    """The device columns of a header line; () when the line is none.

    Older releases head the columns of network cards with the names that those have in the system.
    """
    words = line.split()
    names = tuple(takewhile(lambda word: word != "CPU", words))
    is_header = len(names) < len(words) or all(map(_DEVICE.fullmatch, names))
    return names if is_header and names and _DEVICE.fullmatch(names[0]) else ()


def _cells(line: str) -> list[str]:
    """A row's cells: between tabs one may be empty, between spaces none can be seen to be."""
    return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split() or [""]


def _place(cells: Sequence[str]) -> Place:
    """What stands after the matrix: processors, perhaps none, then the node after as many tabs."""
    cpus = next(iter(cells), "")
    # The memory of a Grace superchip's GPUs is nodes too, named behind the processors' own.
    numa = next(filter(None, cells[1:]), "").partition(",")[0]
    return Place(cpus if _RANGE.fullmatch(cpus) else None, whole(numa))
