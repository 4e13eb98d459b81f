"""Facts of a host: each is one question of remote/facts.sh and one pure reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from firstlight.hosts.account import Sudo, Systemd, User, read_sudo, read_systemd, read_user
from firstlight.hosts.answers import Answers, decode
from firstlight.hosts.driver import Driver, read_driver
from firstlight.hosts.finding import Finding
from firstlight.hosts.gpus import Gpu, read_gpus
from firstlight.hosts.machine import (
    Clock,
    Cpu,
    Disk,
    Listener,
    Memory,
    System,
    read_clock,
    read_cpu,
    read_disk,
    read_listeners,
    read_memory,
    read_system,
)
from firstlight.hosts.pythons import Python, choose, read_pythons
from firstlight.hosts.tools import Cuda, Tool, read_cudas, read_tools
from firstlight.hosts.topology import Topology, read_topology

# Every host of any kind answers these; a missing one is worth a note.
ALWAYS = (
    "os.release",
    "os.kernel",
    "os.arch",
    "os.glibc",
    "os.boot_id",
    "cpu.usable",
    "memory.info",
    "disk.root.df",
    "disk.root.options",
    "disk.tmp.df",
    "disk.tmp.options",
    "net.listening",
    "user.uid",
    "user.name",
    "user.shell",
    "systemd.init",
    "pythons",
    "tools",
    "clock.now",
)


@dataclass(frozen=True)
class Facts:
    """What one host is. What it did not say is None or empty, and `notes` says so."""

    system: System
    cpu: Cpu
    memory: Memory
    disk_root: Disk
    disk_tmp: Disk
    disk_shm: Disk
    pythons: tuple[Python, ...]
    tools: tuple[Tool, ...]
    cudas: tuple[Cuda, ...]
    gpus: tuple[Gpu, ...]
    driver: Driver
    topology: Topology
    user: User
    systemd: Systemd
    sudo: Sudo
    listeners: tuple[Listener, ...]
    clock: Clock
    notes: tuple[str, ...] = ()

    def tool(self, name: str) -> Tool | None:
        """The program of that name, if the host has it."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def taken(self, port: int) -> bool:
        """True when something listens on that TCP port, at whatever address."""
        return any(listener.port == port for listener in self.listeners)


def parse(text: bytes) -> Facts:
    """Facts from the output of remote/facts.sh, whatever stands around it; never raises.

    Unknown keys are left alone: a newer script may ask more than this reader knows.
    """
    answers = decode(text)
    found = read_gpus(answers)
    return Facts(
        system=read_system(answers),
        cpu=read_cpu(answers),
        memory=read_memory(answers),
        disk_root=read_disk(answers, "disk.root"),
        disk_tmp=read_disk(answers, "disk.tmp"),
        disk_shm=read_disk(answers, "disk.shm"),
        pythons=read_pythons(answers),
        tools=read_tools(answers),
        cudas=read_cudas(answers),
        gpus=found,
        driver=read_driver(answers, len(found)),
        topology=read_topology(answers.values.get("smi.topo", "")),
        user=read_user(answers),
        systemd=read_systemd(answers),
        sudo=read_sudo(answers),
        listeners=read_listeners(answers),
        clock=read_clock(answers),
        notes=(*answers.notes, *_unanswered(answers)),
    )


def _unanswered(answers: Answers) -> list[str]:
    return [f"no answer to {key!r}" for key in ALWAYS if key not in answers.values]


def python_for(facts: Facts, supported: Sequence[str]) -> Python | Finding:
    """The interpreter for a release, or a finding that says what is needed and how to get it."""
    return choose(facts.pythons, facts.system, supported)


def to_json(facts: Facts) -> dict[str, Any]:
    """Facts as plain data for `--json`; units stand in the names."""
    return {field.name: _plain(getattr(facts, field.name)) for field in dataclasses.fields(facts)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value
