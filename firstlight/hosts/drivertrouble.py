"""What is wrong with the driver: its parts, nvidia-smi's words, what the kernel logged of cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from firstlight.hosts.answers import Answers, numbers, same, whole
from firstlight.hosts.finding import Finding

if TYPE_CHECKING:
    from firstlight.hosts.driver import Driver

RELOAD = (
    "reboot, or stop every program on the GPUs and reload the module: "
    "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; sudo modprobe nvidia"
)
_NO_CUDA = re.compile(r"CUDA (?:UMD )?version\s*:\s*(?:N/A|ERR!|Not Found)", re.IGNORECASE)
# Newer modules name the program, and break the line where they please.
_CLIENT = re.compile(
    r"API mismatch: the client\b(?:(?!API mismatch)[\s\S]){0,160}?"
    r"\bhas(?: the)? version ([0-9]+(?:\.[0-9]+)+)"
)
_REBOOT = "reboot the host; if it comes back, reseat or replace the card"

# (words in the output, what, fix); the first that fits is told.
_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        r"couldn't communicate with the NVIDIA driver",
        "nvidia-smi cannot talk to the driver: its module is not loaded",
        "`sudo modprobe nvidia`; where that fails the module was not built for this kernel: "
        "`dkms status`, install the kernel's headers, build it",
    ),
    (
        r"couldn't find (?:the )?\S*(?:libnvidia-ml|NVML)|NVML Shared Library Not Found",
        "nvidia-smi is there without the driver's library libnvidia-ml",
        "install the driver's libraries (libnvidia-compute or nvidia-driver-cuda-libs), "
        "of the version that is loaded",
    ),
    (
        # In a cell of the table the same words are about one figure. `suffient` is nvidia-smi's.
        r"(?<!\[)Insufficient Permissions|do not have suffi?c?ient permissions",
        "this user may not use the GPUs",
        "add the user to the group that owns /dev/nvidia* (video or render) and log in again",
    ),
    (
        r"GPU access blocked by the operating system",
        "the system lets nothing of it reach the GPU",
        "WSL: `wsl --shutdown` in Windows, then anew; a container: start it with `--gpus all`",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "NVML cannot start; a container loses its GPUs when its machine's systemd is reloaded",
        "start the container anew, its devices named one by one (`--device /dev/nvidia0` ...); "
        "elsewhere `sudo dmesg | grep NVRM` says more",
    ),
    (
        r"GPU is lost|fallen off the bus",
        "a GPU has fallen off the bus",
        _REBOOT,
    ),
    (
        r"GPU requires reset|GPU Reset Required",
        "a GPU must be reset before it works again",
        "stop what uses it and run `sudo nvidia-smi --gpu-reset`, or reboot",
    ),
    (
        r"Unable to determine the device handle",
        "a GPU does not answer the driver",
        _REBOOT,
    ),
    (
        r"No devices were found",
        "the driver is loaded but finds no GPU",
        "Blackwell needs the open kernel modules, and Above-4G decoding in the BIOS; "
        "`sudo dmesg | grep NVRM` says which is missing",
    ),
)
_HANGS = (
    "nvidia-smi gave no answer in time; the driver hangs",
    "`sudo dmesg | grep -E 'NVRM|Xid'` says why; mostly only a reboot helps",
)
_STATUS: dict[int, tuple[str, str]] = {
    4: ("nvidia-smi was refused: no permission", "ask for access to /dev/nvidia*"),
    6: ("nvidia-smi found no GPU", "`sudo dmesg | grep NVRM` says why"),
    8: ("a GPU lacks power", "plug in its external power cables"),
    9: ("the NVIDIA driver is not loaded", "`sudo modprobe nvidia`"),
    10: ("the kernel has trouble with a GPU's interrupts", "`sudo dmesg | grep NVRM` says more"),
    12: ("the driver's library libnvidia-ml is missing", "install the driver's libraries"),
    14: ("a GPU's InfoROM is damaged", "see the maker's support; the card may still work"),
    15: ("a GPU has fallen off the bus", _REBOOT),
    124: _HANGS,
    137: _HANGS,
}
# Of cards that the module could not start: words of the kernel's log (as nv.c of NVIDIA's open
# modules prints them, on one line or several), what, fix.
_CARD = r"The NVIDIA GPU (?P<card>[0-9A-Fa-f:.]+)(?:(?!The NVIDIA GPU)[\s\S]){0,240}?"
_LOST = "card {card} has fallen off the bus"
_LOGGED: tuple[tuple[str, str, str], ...] = (
    (
        _CARD + r"requires use of the NVIDIA open",
        "card {card} works with the open kernel modules only, and the proprietary ones are loaded",
        "install the open ones of that driver (nvidia-open, nvidia-driver-NNN-open), take the "
        "others away, reboot",
    ),
    (
        _CARD + r"is not supported by the",
        "card {card} is not supported by the driver that is loaded",
        "install a newer one: 570 or later knows Blackwell",
    ),
    (
        r"GPU (?P<card>[0-9A-Fa-f]+:[0-9A-Fa-f:.]+): RmInitAdapter failed!",
        "the driver cannot start card {card}",
        "switch the host off and on again, for a reboot leaves the card under power; if it comes "
        "back: another driver, then another slot or card",
    ),
    (_CARD + r"fallen off the bus", _LOST, _REBOOT),
    (
        r"GPU (?:at )?(?:PCI:)?(?P<card>[0-9A-Fa-f]+:[0-9A-Fa-f:.]*[0-9A-Fa-f]):? (?:GPU )?has "
        r"fallen off the bus",
        _LOST,
        _REBOOT,
    ),
    (
        r"PCI I/O region assigned to your NVIDIA device is invalid",
        "the BIOS gave a card no place for its memory",
        "switch Above-4G decoding on in the BIOS, or start the kernel with pci=realloc",
    ),
)


def missing_cards(log: str) -> Iterator[Finding]:
    """Why the module started fewer cards than there are, from the kernel's log, each thing once."""
    told = [
        Finding("error", what.format(**match.groupdict()), fix)
        for pattern, what, fix in _LOGGED
        for match in re.finditer(pattern, log)
    ]
    yield from dict.fromkeys(told)


def troubles(text: str, rc: int) -> Iterator[Finding]:
    """What is wrong according to nvidia-smi: its output (any stream) and its exit status.

    A version mismatch (status 18) is not among them: that is told by all parts of the driver.
    """
    for pattern, what, fix in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            yield Finding("error", what, fix)
            return
    if rc in _STATUS:
        what, fix = _STATUS[rc]
        yield Finding("error", what, fix)
    elif rc != 0:
        last = (text.strip().splitlines() or ["no output"])[-1][:200]
        yield Finding("error", f"nvidia-smi ended with status {rc}: {last}", "run it by hand")


def refused(answers: Answers) -> bool:
    """True when NVML itself says that its library and the loaded module differ (status 18)."""
    text = answers.values.get("smi", "")
    return "Driver/library version mismatch" in text or answers.one("smi.rc") == "18"


def read_clients(text: str) -> tuple[str, ...]:
    """Versions of libraries that the loaded module has turned away, from the kernel's log."""
    return tuple(dict.fromkeys(match[1] for match in _CLIENT.finditer(text)))


def problems(driver: Driver, answers: Answers, gpus: int) -> Iterator[Finding]:
    """Everything that is wrong with the driver, which lists `gpus` cards."""
    container = answers.one("os.container")
    if driver.consistent is False:
        yield _disagreement(driver, answers)
    if driver.held_by:
        yield _taken_by_others(driver)
    if "smi" not in answers.values:
        yield from _without_smi(driver)
    elif not refused(answers):
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


def _disagreement(driver: Driver, answers: Answers) -> Finding:
    loaded, disk = driver.loaded, driver.on_disk
    parts = {"loaded": loaded, "on disk": disk, "NVML": driver.library, "libcuda": driver.libcuda}
    said = ", ".join(f"{name} {version}" for name, version in parts.items() if version)
    what = f"the parts of the NVIDIA driver disagree: {said or 'versions unknown'}"
    if _is_compat(driver, answers):
        fix = (
            "a cuda-compat folder lies before the driver's libraries, which only data-centre cards"
        )
        return Finding("warning", what, f"{fix} bear (others: error 804); take it from their path")
    if not refused(answers) and not _foreign_libraries(driver):
        return Finding("warning", what, _before_the_reboot(driver))
    return Finding("error", what, _together(driver, answers.one("os.container")))


def _is_compat(driver: Driver, answers: Answers) -> bool:
    """True when nothing is odd but a newer libcuda out of NVIDIA's forward compatibility."""
    ours = [driver.on_disk, driver.library, driver.loaded]
    agree = driver.loaded and all(same(part, driver.loaded) for part in ours if part)
    newer = numbers(driver.libcuda) > numbers(driver.loaded)
    return bool(agree) and newer and "compat" in (answers.one("driver.libcuda") or "")


def _foreign_libraries(driver: Driver) -> bool:
    """True when a library is not the loaded module's; without a module none can be."""
    libraries = [part for part in (driver.library, driver.libcuda) if part]
    return not driver.loaded or any(not same(part, driver.loaded) for part in libraries)


def _before_the_reboot(driver: Driver) -> str:
    goes_on = f"what runs and what starts goes on; the next boot loads {driver.on_disk}: see that"
    return f"{goes_on} the libraries of {driver.on_disk} are installed, then reboot when it suits"


def _together(driver: Driver, container: str | None) -> str:
    """How the libraries come to be those of the module again."""
    loaded, disk = driver.loaded, driver.on_disk
    if container == "wsl":
        return (
            "WSL brings the libraries of the driver in Windows, in /usr/lib/wsl/lib: remove those "
            "of packages (libnvidia-*, nvidia-driver-*, cuda-compat-*)"
        )
    if container:
        return (
            "its machine runs one driver and this container has libraries of another: start the "
            "container anew, and take out of its image whatever brought libraries of its own"
        )
    if not loaded:
        return "install module and libraries of one version, then `sudo modprobe nvidia`"
    if disk and same(loaded, disk):
        return (
            f"the libraries are not those of {loaded}: install them again, or remove the others "
            "(a .run install, another folder in ld.so.conf); `ldconfig -p` shows which"
        )
    return f"do not retry; what runs goes on, but nothing new can start: {RELOAD}"
