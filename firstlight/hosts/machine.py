"""The machine itself: system, processor, memory, disks, clock, taken ports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.hosts.answers import Answers, numbers, version_in, whole

# cgroup v1 says "no limit" with a number near 2^63.
_NO_LIMIT_BYTES = 2**60
_ASSIGNMENT = re.compile(r"^\s*([A-Z_]+)=(.*?)\s*$")
_ENDPOINT = re.compile(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})")
_TEGRA = re.compile(r"R([0-9]{1,4}) \(release\), REVISION: ([0-9]{1,4}(?:\.[0-9]{1,4})*)")
_CLOCK = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) (\S+) ([+-][0-9]{4})")


@dataclass(frozen=True)
class System:
    """The operating system. `newest_kernel` is the newest one installed, perhaps not running.

    `container` is the kind of container that all this is inside of, `wsl` among them.
    """

    id: str | None = None
    version: str | None = None
    like: tuple[str, ...] = ()
    name: str | None = None
    dgx: str | None = None
    jetson: str | None = None
    container: str | None = None
    kernel: str | None = None
    newest_kernel: str | None = None
    arch: str | None = None
    glibc: str | None = None
    selinux_enforcing: bool | None = None
    boot_id: str | None = None
    boot_words: tuple[str, ...] = ()
    reboot_required: bool = False
    reboot_reasons: tuple[str, ...] = ()

    @property
    def family(self) -> str | None:
        """`debian` or `fedora`: whose packages the system uses; None for another one."""
        for word in (self.id, *self.like):
            if word in ("debian", "ubuntu"):
                return "debian"
            if word in ("fedora", "rhel", "centos"):
                return "fedora"
        return None


@dataclass(frozen=True)
class Cpu:
    """Processors. `usable` counts what our programs may use; `flags` only those that matter.

    `quota_cores` is the smallest share that a cgroup above us allows, or None for no limit.
    """

    model: str | None = None
    usable: int | None = None
    sockets: int | None = None
    quota_cores: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes; `limit_bytes` is the smallest cgroup ceiling above us, or None."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    limit_bytes: int | None = None
    cgroup_version: int | None = None


@dataclass(frozen=True)
class Disk:
    """The file system where `path` is or would be; `near` is its nearest existing parent."""

    path: PurePosixPath | None = None
    near: PurePosixPath | None = None
    type: str | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    free_inodes: int | None = None
    writable: bool | None = None
    noexec: bool | None = None


@dataclass(frozen=True)
class Clock:
    """The host's time in seconds since 1970, and its zone."""

    epoch_s: float | None = None
    zone: str | None = None
    offset: str | None = None


@dataclass(frozen=True, order=True)
class Listener:
    """Something that listens for TCP connections."""

    port: int
    address: str


def assignments(text: str) -> dict[str, str]:
    """`NAME=value` lines, quoted or not, as os-release and dgx-release have; the last one counts.

    An empty value is no value.
    """
    found = (_ASSIGNMENT.match(line) for line in text.splitlines())
    pairs = ((match[1], _unquoted(match[2])) for match in found if match)
    return {name: value for name, value in pairs if value}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\([\\\"'$`])", r"\1", value).strip()


def read_system(answers: Answers) -> System:
    """The operating system, its kernel and C library."""
    release = assignments(answers.values.get("os.release", ""))
    selinux = answers.one("os.selinux")
    glibc = answers.one("os.glibc") or ""
    return System(
        id=release.get("ID"),
        version=release.get("VERSION_ID"),
        like=tuple(release.get("ID_LIKE", "").split()),
        name=release.get("PRETTY_NAME") or release.get("NAME"),
        dgx=read_dgx(answers.values.get("os.dgx", "")),
        jetson=read_jetson(answers.one("os.tegra"), answers.one("os.board")),
        container=answers.one("os.container"),
        kernel=answers.one("os.kernel"),
        newest_kernel=answers.one("os.newest_kernel"),
        arch=answers.one("os.arch"),
        glibc=version_in(glibc) if glibc.startswith("glibc") else None,
        selinux_enforcing=None if selinux is None else selinux == "1",
        boot_id=answers.one("os.boot_id"),
        boot_words=answers.words("os.cmdline"),
        reboot_required="os.reboot" in answers.values,
        reboot_reasons=answers.words("os.reboot"),
    )


def read_dgx(text: str) -> str | None:
    """`DGX Spark 7.5.0`: the last update counts, not the first image; None on other machines."""
    release = assignments(text)
    version = release.get("DGX_OTA_VERSION") or release.get("DGX_SWBUILD_VERSION")
    name = release.get("DGX_NAME")
    return " ".join(filter(None, (name or "DGX", version))) if name or version else None


def read_jetson(release: str | None, board: str | None) -> str | None:
    """`NVIDIA Jetson AGX Orin, L4T 36.4.3`, from /etc/nv_tegra_release and the board's name."""
    if release is None:
        return None
    found = _TEGRA.search(release)
    return f"{board or 'Jetson'}, L4T{f' {found[1]}.{found[2]}' if found else ''}"


def read_cpu(answers: Answers) -> Cpu:
    """Processors; 0 sockets (no such file on the host) is no answer."""
    return Cpu(
        model=answers.one("cpu.model"),
        usable=whole(answers.one("cpu.usable")) or None,
        sockets=whole(answers.one("cpu.sockets")) or None,
        quota_cores=min(_quotas(answers.lines("cgroup.cpu")), default=None),
        flags=tuple(sorted(set(answers.words("cpu.flags")))),
    )


def _quotas(lines: list[str]) -> Iterator[float]:
    """Shares of `quota period` lines, both in microseconds; `max` and -1 are no limit."""
    for line in lines:
        quota, period = (*line.split(), "", "")[:2]
        if (used := whole(quota)) and (of := whole(period)):
            yield round(used / of, 2)


def read_memory(answers: Answers) -> Memory:
    """Main memory from /proc/meminfo, and the ceiling that the groups above us set."""
    kib = {
        words[0].rstrip(":"): whole(words[1])
        for line in answers.lines("memory.info")
        if len(words := line.split()) >= 2
    }
    ceilings = [whole(line) for line in answers.lines("cgroup.memory")]
    real = [value for value in ceilings if value is not None and value < _NO_LIMIT_BYTES]
    return Memory(
        total_bytes=_bytes(kib.get("MemTotal")),
        available_bytes=_bytes(kib.get("MemAvailable")),
        swap_bytes=_bytes(kib.get("SwapTotal")),
        limit_bytes=min(real, default=None),
        cgroup_version=whole(answers.one("cgroup.version")),
    )


def _bytes(kib: int | None) -> int | None:
    return None if kib is None else kib * 1024


def read_disk(answers: Answers, key: str) -> Disk:
    """The disk asked for under `key`; the mount point comes last because it may hold spaces."""
    figures = (answers.one(f"{key}.df") or "").split(maxsplit=4)
    size, free, inodes, kind = (*figures, "", "", "", "")[:4]
    options = answers.one(f"{key}.options")
    return Disk(
        path=_path(answers.one(f"{key}.path")),
        near=_path(answers.one(f"{key}.near")),
        type=kind or None,
        size_bytes=whole(size),
        free_bytes=whole(free),
        # btrfs and others make inodes as they need them, and say 0 or "-".
        free_inodes=whole(inodes) or None,
        writable=answers.yes(f"{key}.writable"),
        noexec=None if options is None else "noexec" in options.split(","),
    )


def _path(text: str | None) -> PurePosixPath | None:
    return PurePosixPath(text) if text else None


def read_clock(answers: Answers) -> Clock:
    """The time at the end of the questions."""
    found = _CLOCK.fullmatch(answers.one("clock.now") or "")
    return Clock(float(found[1]), found[2], found[3]) if found else Clock()


def read_listeners(answers: Answers) -> tuple[Listener, ...]:
    """Listening TCP sockets out of /proc/net/tcp: little-endian words in hex."""
    return tuple(sorted(set(_listeners(answers.words("net.listening")))))


def _listeners(endpoints: tuple[str, ...]) -> Iterator[Listener]:
    for endpoint in endpoints:
        if match := _ENDPOINT.fullmatch(endpoint):
            raw = bytes.fromhex(match[1])
            swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
            yield Listener(int(match[2], 16), str(ipaddress.ip_address(swapped)))


def older(version: str | None, minimum: str) -> bool:
    """True when a known version is below the minimum; an unknown one is not."""
    return version is not None and numbers(version) < numbers(minimum)
