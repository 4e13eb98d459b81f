"""NVIDIA's driver: the module that is loaded, the one on disk, the libraries, and do they agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from firstlight.hosts.answers import Answers, numbers, version_in, whole
from firstlight.hosts.drivertrouble import troubles
from firstlight.hosts.finding import Finding

Flavour = Literal["open", "proprietary"]

_LOADED = re.compile(r"NVRM version:(.*)")
_LIBRARY = re.compile(r"\.so\.([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})$")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z _-]*?)\s*:\s*(.*?)\s*$")
_CUDA = re.compile(r"CUDA (?:UMD )?version\s*:\s*([0-9]{1,4})\.([0-9]{1,4})", re.IGNORECASE)
_KERNEL_SIDE = re.compile(r"(?:KMD|DRIVER) version\s*:\s*([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_SHORT = re.compile(r"NVML library version:\s*([0-9]+(?:\.[0-9]+)+)")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): ([0-9]{1,6}), (.*)")
_CLIENT = re.compile(r"API mismatch: the client has(?: the)? version ([0-9]+(?:\.[0-9]+)+)")

RELOAD = (
    "reboot, or stop every program on the GPUs and reload the module: "
    "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; sudo modprobe nvidia"
)


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
    versions are known. `problems` are empty on a host without a GPU and a driver.
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
    return replace(verdict, problems=tuple(_problems(verdict, answers, gpus)))


def _parts(answers: Answers) -> Driver:
    module = fields(answers.values.get("driver.on_disk", ""))
    smi, version = answers.values.get("smi", ""), answers.values.get("smi.version", "")
    loaded, flavour = read_loaded(answers.values.get("driver.loaded", ""))
    log = answers.values.get("driver.log", "")
    short = _SHORT.search(smi)
    return Driver(
        loaded=loaded or read_kernel_side(version),
        on_disk=version_in(module.get("version")),
        library=library_version(answers.one("driver.nvml")) or (short[1] if short else None),
        libcuda=library_version(answers.one("driver.libcuda")),
        flavour=flavour or licence_flavour(module.get("license")),
        cuda=read_cuda(version),
        next_kernel=version_in(answers.one("driver.next")),
        cards_on_bus=len(_held_by_nvidia(answers.lines("driver.cards"))),
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


def library_version(path: str | None) -> str | None:
    """`libcuda.so.580.82.07` as 580.82.07; None where the real file's name has no version."""
    found = _LIBRARY.search(PurePosixPath(path or "").name)
    return found[1] if found else None


def read_xids(text: str) -> tuple[Xid, ...]:
    """Faults of cards in the kernel's log, oldest first."""
    return tuple(Xid(m[1], int(m[2]), m[3].strip()) for m in _XID.finditer(text))


def read_clients(text: str) -> tuple[str, ...]:
    """Versions of libraries that the loaded module has turned away, from the kernel's log."""
    return tuple(dict.fromkeys(match[1] for match in _CLIENT.finditer(text)))


def same(one: str, other: str) -> bool:
    """Equal in every part: a module of 570.124.06 refuses the libraries of 570.124.04."""
    return numbers(one) == numbers(other)


def _held_by_nvidia(cards: Sequence[str]) -> list[str]:
    """Cards that are not given away, to a guest machine for instance."""
    return [card for card in cards if [*card.split(), ""][1] in ("", "nvidia")]


def _consistent(parts: Driver, answers: Answers) -> bool | None:
    if _refused(answers):
        return False
    known = [v for v in (parts.loaded, parts.on_disk, parts.library, parts.libcuda) if v]
    if len(known) < 2:
        return None
    return all(same(known[0], other) for other in known[1:])


def _refused(answers: Answers) -> bool:
    """True when NVML itself says that its library and the loaded module differ (status 18)."""
    text = answers.values.get("smi", "")
    return "Driver/library version mismatch" in text or answers.one("smi.rc") == "18"


def _problems(driver: Driver, answers: Answers, gpus: int) -> Iterator[Finding]:
    if driver.consistent is False:
        yield _disagreement(driver)
    if "smi" not in answers.values:
        yield from _without_smi(driver)
    elif not _refused(answers):
        yield from troubles(answers.values["smi"], whole(answers.one("smi.rc")) or 0)
    if 0 < gpus < driver.cards_on_bus:
        what = f"{driver.cards_on_bus} NVIDIA cards on the bus, but the driver lists {gpus}"
        yield Finding("error", what, "`sudo dmesg | grep NVRM` says what became of the others")
    for client in read_clients(answers.values.get("driver.log", "")):
        if driver.loaded and not same(client, driver.loaded):
            what = f"the loaded {driver.loaded} turned away a program with libraries of {client}"
            fix = "find it (a container, an old library path) and renew it"
            yield Finding("warning", what, fix)


def _without_smi(driver: Driver) -> Iterator[Finding]:
    if driver.present:
        fix = "install the driver's utilities, for example nvidia-utils of the same version"
        yield Finding("error", "a driver is there, but no nvidia-smi", fix)
    elif driver.cards_on_bus:
        what = f"{driver.cards_on_bus} NVIDIA cards on the bus, but no driver"
        yield Finding("error", what, "install the open kernel modules and the driver, then reboot")


def _disagreement(driver: Driver) -> Finding:
    loaded, disk = driver.loaded, driver.on_disk
    parts = {"loaded": loaded, "on disk": disk, "NVML": driver.library, "libcuda": driver.libcuda}
    said = ", ".join(f"{name} {version}" for name, version in parts.items() if version)
    what = f"the parts of the NVIDIA driver disagree: {said or 'versions unknown'}"
    if loaded and disk and same(loaded, disk):
        fix = f"the libraries are not those of {loaded}: install them again, or remove the others"
        fix += " (a .run install, a cuda-compat folder in ld.so.conf); `ldconfig -p` shows which"
    else:
        fix = f"do not retry; what runs goes on, but nothing new can start: {RELOAD}"
    return Finding("error", what, fix)
