"""What nvidia-smi's failures mean, by its words or its exit status; why a card is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.hosts.finding import Finding

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
        r"No devices were found",
        "the driver is loaded but finds no GPU",
        "Blackwell needs the open kernel modules, and Above-4G decoding in the BIOS; "
        "`sudo dmesg | grep NVRM` says which is missing",
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
    124: (
        "nvidia-smi gave no answer in time; the driver hangs",
        "`sudo dmesg | grep -E 'NVRM|Xid'` says why; mostly only a reboot helps",
    ),
}
# Of cards that the module could not start: words of the kernel's log (as nv.c of NVIDIA's open
# modules prints them, on one line or several), what, fix.
_CARD = r"The NVIDIA GPU (?P<card>[0-9A-Fa-f:.]+)(?:(?!The NVIDIA GPU)[\s\S]){0,120}?"
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
