"""NVIDIA's driver: the module that is loaded, the one on disk, the libraries, and do they agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from firstlight.hosts.answers import Answers, same, version_in
from firstlight.hosts.drivertrouble import problems, refused
from firstlight.hosts.finding import Finding
from firstlight.hosts.gpus import table

Flavour = Literal["open", "proprietary"]

_LOADED = re.compile(r"NVRM version:(.*)")
# Jetson and WSL have a libcuda.so.1.1, which is no version of a driver.
_LIBRARY = re.compile(r"\.so\.([0-9]{3,6}(?:\.[0-9]{1,6}){1,3})$")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z _-]*?)\s*:\s*(.*?)\s*$")
_CUDA = re.compile(r"CUDA (?:UMD )?version\s*:\s*([0-9]{1,4})\.([0-9]{1,4})", re.IGNORECASE)
_KERNEL_SIDE = re.compile(r"(?:KMD|DRIVER) version\s*:\s*([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_SHORT = re.compile(r"NVML library version:\s*([0-9]+(?:\.[0-9]+)+)")
# A slice of a card in MIG mode is named behind the card's address.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)\n]*\): ([0-9]{1,6}), (.*)")
# Modules that hold a card to give it to a guest machine.
_FOR_GUESTS = ("vfio-pci", "pci-stub", "pciback", "xen-pciback")


@dataclass(frozen=True)
class Xid:
    """One fault that the kernel logged for a card."""

    pci: str
    number: int
    text: str


@dataclass(frozen=True)
class Driver:
    """What is known of the driver; every version is as its maker writes it, or None.

    `cuda` is the newest CUDA that the driver runs. `consistent` is None where fewer than two
    versions are known. `held_by` names modules of others that hold NVIDIA cards. `problems` are
    empty on a host without a GPU and a driver.
    """

    loaded: str | None = None
    on_disk: str | None = None
    library: str | None = None
    libcuda: str | None = None
    flavour: Flavour | None = None
    cuda: tuple[int, int] | None = None
    next_kernel: str | None = None
    consistent: bool | None = None
    cards_on_bus: int = 0
    held_by: tuple[str, ...] = ()
    switches: int = 0
    fabric_state: str | None = None
    fabric_version: str | None = None
    xids: tuple[Xid, ...] = ()
    problems: tuple[Finding, ...] = ()

    @property
    def present(self) -> bool:
        """True when any part of a driver is on the host."""
        return any((self.loaded, self.on_disk, self.library, self.libcuda))


def read_driver(answers: Answers, gpus: int) -> Driver:
    """The driver's parts, and what is wrong with them; `gpus` = how many it lists."""
    parts = _parts(answers)
    verdict = replace(parts, consistent=_consistent(parts, answers))
    return replace(verdict, problems=tuple(problems(verdict, answers, gpus)))


def _parts(answers: Answers) -> Driver:
    module = fields(answers.values.get("driver.on_disk", ""))
    smi, version = answers.values.get("smi", ""), answers.values.get("smi.version", "")
    loaded, flavour = read_loaded(answers.values.get("driver.loaded", ""))
    log = answers.values.get("driver.log", "")
    holders = _holders(answers.lines("driver.cards"))
    short = _SHORT.search(smi)
    return Driver(
        loaded=loaded or read_kernel_side(version) or read_listed(smi),
        on_disk=version_in(module.get("version")),
        library=library_version(answers.one("driver.nvml")) or (short[1] if short else None),
        libcuda=library_version(answers.one("driver.libcuda")),
        flavour=flavour or licence_flavour(module.get("license")),
        cuda=read_cuda(version),
        next_kernel=version_in(answers.one("driver.next")),
        cards_on_bus=len(holders),
        held_by=tuple(sorted(set(holders) - {"", "nvidia"})),
        switches=len(answers.words("driver.switches")),
        fabric_state=answers.one("driver.fabric_state"),
        fabric_version=version_in(answers.one("driver.fabric_version")),
        xids=read_xids(log),
    )


def read_loaded(text: str) -> tuple[str | None, Flavour | None]:
    """Version and flavour out of /proc/driver/nvidia/version.

    Only the NVRM line counts (the GCC line has numbers too), and in it what follows the word
    Module: an open module names its architecture there first.
    """
    found = _LOADED.search(text)
    if not found:
        return None, None
    head, _, tail = found[1].partition("Module")
    version = version_in(tail or head)
    return version, ("open" if "Open" in head else "proprietary") if version else None


def licence_flavour(licence: str | None) -> Flavour | None:
    """The flavour that a module's licence tells: only the open one is under the GPL too."""
    if not licence:
        return None
    return "open" if "GPL" in licence else "proprietary"


def fields(text: str) -> dict[str, str]:
    """`name: value` lines by lower-case name; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _FIELD.match(line):
            found.setdefault(match[1].lower(), match[2])
    return found


def read_cuda(text: str) -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, from `--version`, `-q` or the table of any release.

    610 and later say `Deprecated, see ...` at the old name and give the figure at a new one.
    """
    found = _CUDA.search(text)
    return (int(found[1]), int(found[2])) if found else None


def read_kernel_side(text: str) -> str | None:
    """The loaded module's version as nvidia-smi tells it, under its old name or its new one."""
    found = _KERNEL_SIDE.search(text)
    return found[1] if found else None


def read_listed(text: str) -> str | None:
    """The driver's version out of nvidia-smi's list of cards, where nothing else tells it."""
    return next((v for row in table(text) if (v := version_in(row.get("driver_version")))), None)


def library_version(path: str | None) -> str | None:
    """`libcuda.so.580.82.07` as 580.82.07; None where the real file's name has no version."""
    found = _LIBRARY.search(PurePosixPath(path or "").name)
    return found[1] if found else None


def read_xids(text: str) -> tuple[Xid, ...]:
    """Faults of cards in the kernel's log, oldest first."""
    return tuple(Xid(m[1], int(m[2]), m[3].strip()) for m in _XID.finditer(text))


def _holders(cards: Sequence[str]) -> list[str]:
    """The module that holds each card, "" for none; cards for guest machines are left out."""
    holders = ([*card.split(), ""][1] for card in cards)
    return [holder for holder in holders if holder not in _FOR_GUESTS]


def _consistent(parts: Driver, answers: Answers) -> bool | None:
    if refused(answers):
        return False
    known = [v for v in (parts.loaded, parts.on_disk, parts.library, parts.libcuda) if v]
    if len(known) < 2:
        return None
    return all(same(known[0], other) for other in known[1:])
