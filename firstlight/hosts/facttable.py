"""Facts as a person reads them: rows of a question and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from firstlight.core.words import columns, size
from firstlight.hosts.driver import Driver
from firstlight.hosts.facts import Facts
from firstlight.hosts.finding import Finding
from firstlight.hosts.gpus import Gpu
from firstlight.hosts.machine import Disk
from firstlight.hosts.pythons import Python

Row = tuple[str, str]


def rows(facts: Facts) -> tuple[Row, ...]:
    """One row a subject; several things of one subject repeat no name."""
    return (
        *_machine(facts),
        *_list("python", (_python(p) for p in facts.pythons)),
        ("tools", _join(f"{t.name} {t.version or '?'}" for t in facts.tools) or "none"),
        *_list("CUDA toolkit", (f"{c.version or 'no nvcc'}  {c.path}" for c in facts.cudas)),
        *_list("GPU", _cards(facts.gpus)),
        *_driver(facts.driver),
        *_links(facts),
        *_account(facts),
        *_list("note", facts.notes),
    )


def text(facts: Facts) -> str:
    """The rows as an aligned table."""
    return columns(rows(facts))


def findings_text(found: Iterable[Finding]) -> str:
    """Findings, each with its fix on a line of its own."""
    lines = []
    for finding in found:
        lines.append(f"{finding.severity}: {finding.what}")
        lines += [f"  -> {finding.fix}"] if finding.fix else []
    return "\n".join(lines)


def _list(name: str, lines: Iterable[str]) -> Iterator[Row]:
    for at, line in enumerate(lines):
        yield ("" if at else name), line


def _join(words: Iterable[object], between: str = ", ") -> str:
    """The words that say something: no None, no False, no empty text."""
    return between.join(str(word) for word in words if word)


def _machine(facts: Facts) -> Iterator[Row]:
    system, cpu, memory = facts.system, facts.cpu, facts.memory
    glibc = system.glibc and f"glibc {system.glibc}"
    inside = system.container and f"inside of {system.container}"
    maker = (system.dgx, system.jetson)
    yield "system", _join((system.name or "unknown", *maker, inside, system.arch, glibc))
    reboot = "reboot pending" if system.reboot_required else None
    newer = system.newest_kernel if system.newest_kernel != system.kernel else None
    yield (
        "kernel",
        _join((system.kernel or "unknown", newer and f"{newer} at the next boot", reboot)),
    )
    sockets = cpu.sockets and f"{cpu.sockets} socket{'s' if cpu.sockets > 1 else ''}"
    quota = cpu.quota_cores is not None and f"limited to {cpu.quota_cores:g} cores"
    count = f"{cpu.usable or '?'} usable cores"
    yield "processor", _join((count, sockets or None, quota or None, cpu.model, *cpu.flags))
    limit = memory.limit_bytes and f"limited to {size(memory.limit_bytes)}"
    free = memory.available_bytes is not None and f"{size(memory.available_bytes)} available"
    yield "memory", _join((_size(memory.total_bytes), free or None, limit))
    root = facts.disk_root
    near = root.near != root.path and f"not there yet, would be made in {root.near}"
    yield "root", _join((root.path or "unknown", near, _disk(root)))
    yield "/tmp", _disk(facts.disk_tmp)


def _python(python: Python) -> str:
    return _join((f"{python.version}  {python.path}", *python.faults))


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count)


def _disk(disk: Disk) -> str:
    flags = (disk.noexec and "noexec", disk.writable is False and "not writable")
    return _join((f"{_size(disk.free_bytes)} free", disk.type, *flags))


def _cards(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Equal neighbours in one line: `4 x NAME, ...`."""
    for line, same in groupby(gpus, key=_card):
        indices = [gpu.index for gpu in same]
        many = len(indices) > 1
        where = f"{indices[0]}-{indices[-1]}" if many else f"{indices[0]}"
        yield f"{where}: {f'{len(indices)} x ' if many else ''}{line}"


def _card(gpu: Gpu) -> str:
    memory = f"{gpu.memory_mib} MiB" if gpu.memory_mib is not None else "memory unknown"
    capability = gpu.compute_capability and "sm_{}{}".format(*gpu.compute_capability)
    pcie = gpu.pcie_gen_max and f"PCIe {gpu.pcie_gen_max} x{gpu.pcie_width_max or '?'}"
    mig = gpu.mig and f"MIG: {_join((d.profile for d in gpu.mig_devices), ' ') or 'no devices'}"
    return _join((gpu.name or "no name", memory, capability, pcie or None, mig or None, *gpu.notes))


def _driver(driver: Driver) -> Iterator[Row]:
    if not driver.present:
        cards = driver.cards_on_bus and f"; {driver.cards_on_bus} NVIDIA cards on the bus"
        yield "driver", f"none{cards or ''}"
        return
    cuda = driver.cuda and "runs CUDA up to {}.{}".format(*driver.cuda)
    verdict = {True: "all parts agree", False: "its parts disagree", None: None}
    parts = (
        f"{driver.loaded} loaded" if driver.loaded else "not loaded",
        driver.on_disk and f"{driver.on_disk} on disk",
        driver.library and f"{driver.library} libraries",
        driver.flavour and f"{driver.flavour} kernel modules",
    )
    yield "driver", _join((*parts, cuda, verdict[driver.consistent]))
    if driver.switches:
        state = driver.fabric_state or "not there"
        yield "fabric", f"{driver.switches} NVSwitches, fabric manager {state}"


def _links(facts: Facts) -> Iterator[Row]:
    kinds = facts.topology.between_gpus()
    if kinds:
        yield "GPU links", _join(kinds) + ("" if facts.topology.has_nvlink else "; no NVLink")


def _account(facts: Facts) -> Iterator[Row]:
    user, systemd, sudo = facts.user, facts.systemd, facts.sudo
    groups = user.groups and f"in {' '.join(user.groups)}"
    shell = user.shell and f"shell {user.shell}"
    uid = None if user.uid is None else f"uid {user.uid}"
    yield "user", _join((user.name or "unknown", uid, shell, groups))
    linger = {True: "lingers", False: "does not linger", None: None}[systemd.linger]
    manager = f"user manager {systemd.user_manager or 'not reachable'}"
    if systemd.is_init:
        version = systemd.version and f"version {systemd.version}"
        yield "systemd", _join((systemd.state or "state unknown", version, manager, linger))
    else:
        yield "systemd", "not the init of this host"
    yield "sudo", _join((sudo.kind, sudo.reason), ": ")
    clock = facts.clock
    yield "time zone", _join((clock.zone, clock.offset), " ") or "unknown"
    ports = sorted({listener.port for listener in facts.listeners})
    yield "taken ports", _join((str(port) for port in ports), " ") or "none"
