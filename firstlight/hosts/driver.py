"""NVIDIA's driver: the module that is loaded, the one on disk, the libraries, and do they agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from firstlight.hosts.answers import Answers, numbers, version_in, whole
from firstlight.hosts.drivertrouble import missing_cards, troubles
from firstlight.hosts.finding import Finding
from firstlight.hosts.gpus import table

Flavour = Literal["open", "proprietary"]

_LOADED = re.compile(r"NVRM version:(.*)")
# Jetson and WSL have a libcuda.so.1.1, which is no version of a driver.
_LIBRARY = re.compile(r"\.so\.([0-9]{3,6}(?:\.[0-9]{1,6}){1,3})$")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z _-]*?)\s*:\s*(.*?)\s*$")
_CUDA = re.compile(r"CUDA (?:UMD )?version\s*:\s*([0-9]{1,4})\.([0-9]{1,4})", re.IGNORECASE)
_KERNEL_SIDE = re.compile(r"(?:KMD|DRIVER) version\s*:\s*([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_NO_CUDA = re.compile(r"CUDA (?:UMD )?version\s*:\s*(?:N/A|ERR!|Not Found)", re.IGNORECASE)
_SHORT = re.compile(r"NVML library version:\s*([0-9]+(?:\.[0-9]+)+)")
# A slice of a card in MIG mode is named behind the card's address.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)\n]*\): ([0-9]{1,6}), (.*)")
# Newer modules name the program, and break the line where they please.
_CLIENT = re.compile(
    r"API mismatch: the client\b(?:(?!API mismatch)[\s\S]){0,160}?"
    r"\bhas(?: the)? version ([0-9]+(?:\.[0-9]+)+)"
)
# Modules that hold a card to give it to a guest machine.
_FOR_GUESTS = ("vfio-pci", "pci-stub", "pciback", "xen-pciback")

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
    return replace(verdict, problems=tuple(_problems(verdict, answers, gpus)))


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


def read_clients(text: str) -> tuple[str, ...]:
    """Versions of libraries that the loaded module has turned away, from the kernel's log."""
    return tuple(dict.fromkeys(match[1] for match in _CLIENT.finditer(text)))


def same(one: str, other: str) -> bool:
    """Equal in every part: a module of 570.124.06 refuses the libraries of 570.124.04."""
    return numbers(one) == numbers(other)


def _holders(cards: Sequence[str]) -> list[str]:
    """The module that holds each card, "" for none; cards for guest machines are left out."""
    holders = ([*card.split(), ""][1] for card in cards)
    return [holder for holder in holders if holder not in _FOR_GUESTS]


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
    container = answers.one("os.container")
    if driver.consistent is False:
        yield _disagreement(driver, container)
    if driver.held_by:
        yield _taken_by_others(driver)
    if "smi" not in answers.values:
        yield from _without_smi(driver)
    elif not _refused(answers):
        yield from _of_smi(answers, gpus)
    if gpus < max(driver.cards_on_bus, 1):
        yield from missing_cards(answers.values.get("driver.log", ""))
    if 0 < gpus < driver.cards_on_bus:
        yield _unlisted(driver.cards_on_bus, gpus, container)
    yield from _turned_away(driver, answers)


def _of_smi(answers: Answers, gpus: int) -> Iterator[Finding]:
    """What nvidia-smi complains of; one that lists nothing and complains of nothing is broken."""
    told = list(troubles(answers.values["smi"], whole(answers.one("smi.rc")) or 0))
    yield from told
    if not gpus and not told:
        yield Finding("error", "nvidia-smi lists no GPU and says nothing of why", "run it by hand")
    if gpus and _NO_CUDA.search(answers.values.get("smi.version", "")):
        what = "nvidia-smi finds no libcuda.so.1: no CUDA program can start"
        fix = "install it (libcuda1 or libnvidia-compute, of the driver's version); a container"
        yield Finding("error", what, f"{fix} needs NVIDIA_DRIVER_CAPABILITIES=compute,utility")


def _unlisted(cards: int, listed: int, container: str | None) -> Finding:
    what = f"{cards} NVIDIA cards on the bus, but the driver lists {listed}"
    if container:
        return Finding("note", f"{what}: this container is given no others")
    return Finding("error", what, "`sudo dmesg | grep NVRM` says what became of the others")


def _turned_away(driver: Driver, answers: Answers) -> Iterator[Finding]:
    for client in read_clients(answers.values.get("driver.log", "")):
        if driver.loaded and not same(client, driver.loaded):
            what = f"the loaded {driver.loaded} turned away a program with libraries of {client}"
            fix = "find it (a container, an old library path) and renew it"
            yield Finding("warning", what, fix)


def _taken_by_others(driver: Driver) -> Finding:
    names = " and ".join(driver.held_by)
    what = f"{names} holds NVIDIA cards, so that NVIDIA's own module cannot"
    lines = "; ".join(f"blacklist {name}" for name in driver.held_by)
    fix = f"install the driver, put `{lines}` into a file of /etc/modprobe.d, make the initramfs"
    return Finding("error", what, f"{fix} anew, reboot")


def _without_smi(driver: Driver) -> Iterator[Finding]:
    """Libraries alone, on a host without a card, are somebody's dependency and no driver."""
    if driver.loaded or (driver.present and driver.cards_on_bus):
        fix = "install the driver's utilities, for example nvidia-utils of the same version"
        yield Finding("error", "a driver is there, but no nvidia-smi", fix)
    elif driver.cards_on_bus and not driver.held_by:
        what = f"{driver.cards_on_bus} NVIDIA cards on the bus, but no driver"
        yield Finding("error", what, "install the open kernel modules and the driver, then reboot")


def _disagreement(driver: Driver, container: str | None) -> Finding:
    loaded, disk = driver.loaded, driver.on_disk
    parts = {"loaded": loaded, "on disk": disk, "NVML": driver.library, "libcuda": driver.libcuda}
    said = ", ".join(f"{name} {version}" for name, version in parts.items() if version)
    what = f"the parts of the NVIDIA driver disagree: {said or 'versions unknown'}"
    if container == "wsl":
        fix = "WSL brings the libraries of the driver in Windows, in /usr/lib/wsl/lib: remove those"
        fix += " of packages (libnvidia-*, nvidia-driver-*, cuda-compat-*)"
    elif container:
        fix = "its machine runs one driver and this container has libraries of another: start the"
        fix += " container anew, and take out of its image whatever brought libraries of its own"
    elif loaded and disk and same(loaded, disk):
        fix = f"the libraries are not those of {loaded}: install them again, or remove the others"
        fix += " (a .run install, a cuda-compat folder in ld.so.conf); `ldconfig -p` shows which"
    else:
        fix = f"do not retry; what runs goes on, but nothing new can start: {RELOAD}"
    return Finding("error", what, fix)
