"""How the GPUs of a host are joined: the matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from firstlight.hosts.answers import whole

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"(?:GPU|NIC)[0-9]{1,4}|mlx[0-9a-z_]{1,32}")
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
    lines = [_ANSI.sub("", line).split() for line in text.splitlines()]
    at = next((n for n, words in enumerate(lines) if _devices(words)), None)
    if at is None:
        return Topology()
    devices = _devices(lines[at])
    rows = {
        words[0]: words[1:]
        for words in lines[at + 1 :]
        if words and words[0] in devices and len(words) > len(devices)
    }
    links = {
        name: dict(zip(devices, words, strict=False))
        for name, words in rows.items()
        if all(_LINK.fullmatch(word) for word in words[: len(devices)])
    }
    places = {name: _place(rows[name][len(devices) :]) for name in links}
    return Topology(devices, links, places)


def _devices(words: list[str]) -> tuple[str, ...]:
    """The device columns of a header line; () when the line is none."""
    names = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        names.append(word)
    return tuple(names) if names and words[len(names) :][:1] in ([], ["CPU"]) else ()


def _place(words: list[str]) -> Place:
    cpus, numa = (*words, "", "")[:2]
    return Place(cpus if _RANGE.fullmatch(cpus) else None, whole(numa))
