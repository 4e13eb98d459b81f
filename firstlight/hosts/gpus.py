"""GPUs as nvidia-smi lists them: csv of any version, units or not, and every form of `no value`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from firstlight.hosts.answers import Answers, unescaped, whole
from firstlight.hosts.machine import read_memory

Capability = tuple[int, int]

_ABSENT = {"", "n/a", "not supported", "unknown error", "unknown", "err!", "gpu is lost"}
_HEADER = re.compile(r"^(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?: \[[^\]]*\])?$")
_LONG_NAMES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(KiB|MiB|GiB|MB)?")
_MIB = {"KiB": 1 / 1024, "GiB": 1024}
_CAPABILITY = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_CARD = re.compile(r"^GPU ([0-9]{1,4}): (.*) \(UUID: ([^)]*)\)")
_SLICE = re.compile(r"^\s+MIG\s+(\S+)\s+Device\s+([0-9]{1,4}):\s+\(UUID: ([^)]*)\)")
# Chips that share the memory of the machine, so that the driver has no figure of its own.
_SHARED = re.compile(r"\b(GB10|N1X?|Thor|Orin|Xavier)\b")

Row = Mapping[str, str]


@dataclass(frozen=True)
class MigDevice:
    """A slice of a GPU in MIG mode; `profile` like `2g.35gb`."""

    index: int
    profile: str
    uuid: str


@dataclass(frozen=True)
class Gpu:
    """One GPU. `notes` says why a value is None or where it came from.

    PCIe figures are the link's best, never its present ones, which drop to 1 when idle.
    `mig` is None where the GPU knows no such mode.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    memory_mib: int | None = None
    memory_free_mib: int | None = None
    memory_is_system: bool = False
    compute_capability: Capability | None = None
    pci_bus_id: str | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    vbios: str | None = None
    mig: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    persistence: bool | None = None
    driver: str | None = None
    notes: tuple[str, ...] = ()


def reason(cell: str | None) -> str | None:
    """Why a cell holds no value, in nvidia-smi's words; None when it holds one.

    Anything in square brackets is a reason, whatever the version calls it.
    """
    if cell is None:
        return "not asked, or unknown to this driver"
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1].strip() or "no value"
    return (text or "no value") if text.lower() in _ABSENT else None


def table(text: str, fields: Sequence[str] | None = None) -> tuple[Row, ...]:
    """csv of `--query-gpu` as rows by field name; `fields` names the columns of a `noheader` one.

    nvidia-smi quotes nothing: commas beyond the number of columns belong to the name. Lines that
    fit no row (warnings between them) are left out.
    """
    rows: list[Row] = []
    names = list(fields) if fields else None
    for line in unescaped(text).splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if names is None:
            names = _header(cells)
        elif (row := _row(names, cells)) is not None:
            rows.append(row)
    return tuple(rows)


def _header(cells: Sequence[str]) -> list[str] | None:
    """The fields of a header line; None when the line is no header."""
    found = [_HEADER.match(cell) for cell in cells]
    names = [_LONG_NAMES.get(match["name"], match["name"]) for match in found if match]
    is_header = len(names) == len(cells) and (len(names) > 1 or names[0].islower())
    return names if is_header else None


def _row(names: Sequence[str], cells: list[str]) -> Row | None:
    extra = len(cells) - len(names)
    if extra > 0 and "name" in names:
        at = names.index("name")
        cells = [*cells[:at], ", ".join(cells[at : at + extra + 1]), *cells[at + extra + 1 :]]
    return dict(zip(names, cells, strict=True)) if len(cells) == len(names) else None


def read_gpus(answers: Answers) -> tuple[Gpu, ...]:
    """Every GPU that nvidia-smi lists, in its order, with the MIG devices of each."""
    slices = read_mig(answers.values.get("smi.list", ""))
    memory = read_memory(answers)
    system_mib = memory.total_bytes // 2**20 if memory.total_bytes else None
    rows = table(answers.values.get("smi", ""))
    return tuple(
        read_gpu(row, at, answers.one("os.arch"), system_mib, slices) for at, row in enumerate(rows)
    )


def read_gpu(
    row: Row,
    position: int = 0,
    arch: str | None = None,
    system_mib: int | None = None,
    slices: Mapping[str, tuple[MigDevice, ...]] | None = None,
) -> Gpu:
    """One GPU from one row; `system_mib` stands in where the GPU shares the machine's memory."""
    number = whole(row.get("index"))
    uuid = _text(row, "uuid")
    memory, shared, notes = _memory(row, arch, system_mib)
    notes += [f"compute capability: {why}" for why in _why(row, "compute_cap")]
    return Gpu(
        index=position if number is None else number,
        name=_text(row, "name"),
        uuid=uuid,
        memory_mib=memory,
        memory_free_mib=_mib(row.get("memory.free")),
        memory_is_system=shared,
        compute_capability=_capability(row.get("compute_cap")),
        pci_bus_id=_text(row, "pci.bus_id"),
        pcie_gen_max=whole(row.get("pcie.link.gen.max")),
        pcie_width_max=whole(row.get("pcie.link.width.max", "").rstrip("x")),
        vbios=_text(row, "vbios_version"),
        mig=_enabled(row, "mig.mode.current"),
        mig_devices=(slices or {}).get(uuid or "", ()),
        persistence=_enabled(row, "persistence_mode"),
        driver=_text(row, "kmd_version") or _text(row, "driver_version"),
        notes=tuple(notes),
    )


def read_mig(text: str) -> dict[str, tuple[MigDevice, ...]]:
    """MIG devices by the uuid of their GPU, from `nvidia-smi -L`."""
    found: dict[str, tuple[MigDevice, ...]] = {}
    card = ""
    for line in text.splitlines():
        if match := _CARD.match(line):
            card = match[3]
        elif match := _SLICE.match(line):
            device = MigDevice(int(match[2]), match[1], match[3])
            found[card] = (*found.get(card, ()), device)
    return found


def _memory(row: Row, arch: str | None, system: int | None) -> tuple[int | None, bool, list[str]]:
    """Memory in MiB, whether it is the machine's own, and what to say about it."""
    cell = row.get("memory.total")
    amount = _mib(cell)
    if amount is not None:
        return amount, False, []
    why = reason(cell) or f"not a figure: {cell}"
    shares = bool(_SHARED.search(row.get("name", ""))) or arch not in ("x86_64", "amd64")
    if shares and system is not None and why.lower() in ("n/a", "not supported"):
        return system, True, ["memory: the GPU shares the machine's; the figure is the system's"]
    return None, False, [f"memory: {why}"]


def _mib(cell: str | None) -> int | None:
    found = _AMOUNT.fullmatch((cell or "").strip())
    if not found:
        return None
    return int(float(found[1]) * _MIB.get(found[2], 1))


def _capability(cell: str | None) -> Capability | None:
    found = _CAPABILITY.fullmatch((cell or "").strip())
    return (int(found[1]), int(found[2])) if found else None


def _text(row: Row, field: str) -> str | None:
    return None if reason(row.get(field)) else row[field].strip()


def _enabled(row: Row, field: str) -> bool | None:
    return {"enabled": True, "on": True, "disabled": False, "off": False}.get(
        row.get(field, "").strip().lower()
    )


def _why(row: Row, field: str) -> Iterator[str]:
    why = reason(row.get(field))
    if why:
        yield why
