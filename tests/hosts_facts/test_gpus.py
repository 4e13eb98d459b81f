"""GPUs out of nvidia-smi's csv, on recorded answers of real machines and on made ones."""

from pathlib import Path

import pytest

from firstlight.hosts.gpus import Gpu, MigDevice, read_gpu, read_gpus, read_mig, reason, table
from tests.hosts_facts.wire import answers

HEADER = "index, name, uuid, compute_cap, memory.total [MiB], pci.bus_id, mig.mode.current"
MEMINFO = "MemTotal:       127600748 kB\nMemAvailable:   120000000 kB"


def recorded(shared: Path, name: str, fields: list[str] | None = None) -> list[Gpu]:
    text = (shared / "data/host-facts" / name).read_text()
    return [read_gpu(row, at, "x86_64") for at, row in enumerate(table(text, fields))]


def test_recorded_eight_cards(shared: Path) -> None:
    cards = recorded(shared, "rtxpro6000x8_query_derived.csv")
    assert [card.index for card in cards] == list(range(8))
    assert {card.name for card in cards} == {"NVIDIA RTX PRO 6000 Blackwell Server Edition"}
    assert {(c.memory_mib, c.compute_capability) for c in cards} == {(97887, (12, 0))}
    assert {(c.pcie_gen_max, c.pcie_width_max, c.driver) for c in cards} == {(5, 16, "595.58.03")}
    assert cards[2].pci_bus_id == "00000000:75:00.0"
    assert cards[7].uuid == "GPU-7f13cb31-9f46-f937-6c18-1a5666b95f24"
    assert cards[0].vbios == "98.02.67.00.0A"
    assert cards[0].mig is None and cards[0].notes == ()


@pytest.mark.parametrize(
    ("file", "name", "memory", "capability", "gen", "mig", "persistence", "driver"),
    [
        ("h200mig_590.48.01", "H200", 143771, (9, 0), 5, True, True, "590.48.01"),
        ("l40s_595.80", "L40S", 46068, (8, 9), 4, None, False, "595.80"),
        (
            *("rtx2080s_610.57.04", "GeForce RTX 2080 SUPER", 8192),
            *((7, 5), 3, None, False, "610.57.04"),
        ),
        (
            *("rtx4080s_fedora44_595.71.05", "GeForce RTX 4080 SUPER", 16376),
            *((8, 9), 4, None, False, "595.71.05"),
        ),
    ],
)
def test_recorded_all_fields(
    shared: Path,
    file: str,
    name: str,
    memory: int,
    capability: tuple[int, int],
    gen: int,
    mig: bool | None,
    persistence: bool,
    driver: str,
) -> None:
    (card,) = recorded(shared, f"{file}_query-gpu_all.csv")
    assert (card.name, card.memory_mib, card.compute_capability) == (
        f"NVIDIA {name}",
        memory,
        capability,
    )
    # gen.current is 1 on an idle card: the link's best is the fact.
    assert (card.pcie_gen_max, card.pcie_width_max) == (gen, 16)
    assert (card.mig, card.persistence, card.driver) == (mig, persistence, driver)


def test_recorded_gb10_takes_the_memory_of_the_machine_and_says_so(shared: Path) -> None:
    text = (shared / "data/host-facts/gb10_query.csv").read_text()
    (card,) = read_gpus(answers(smi=text, memory__info=MEMINFO, os__arch="aarch64"))
    assert (card.index, card.name) == (0, "NVIDIA GB10")
    assert card.memory_mib == 127600748 // 1024
    assert card.memory_is_system
    assert any("shares the machine's" in note for note in card.notes)


def test_recorded_gb10_without_a_name_column(shared: Path) -> None:
    text = (shared / "data/host-facts/gb10_query2.csv").read_text()
    (card,) = read_gpus(answers(smi=text, memory__info=MEMINFO, os__arch="aarch64"))
    assert (card.index, card.name, card.memory_is_system) == (0, None, True)


def test_recorded_rows_without_header_and_units(shared: Path) -> None:
    fields = ["name", "compute_cap", "memory.total", "memory.used", "memory.free", "temperature"]
    (card,) = recorded(shared, "rtx5090_query_nounits.csv", fields)
    assert (card.name, card.memory_mib, card.memory_free_mib) == (
        "NVIDIA GeForce RTX 5090",
        32607,
        31031,
    )
    assert card.compute_capability == (12, 0)


def test_recorded_mig_devices_belong_to_their_card(shared: Path) -> None:
    folder = shared / "data/host-facts"
    listed = (folder / "h200mig_590.48.01_list.txt").read_text()
    query = (folder / "h200mig_590.48.01_query-gpu_all.csv").read_text()
    (card,) = read_gpus(answers(smi=query, smi__list=listed))
    assert [d.profile for d in card.mig_devices] == [
        *("1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb")
    ]
    assert card.mig_devices[2] == MigDevice(
        2, "2g.35gb", "MIG-00000002-0000-0000-0000-000000000002"
    )


def test_mig_devices_of_two_cards() -> None:
    text = (
        "GPU 0: A (UUID: GPU-a)\n  MIG 1g.18gb     Device  0: (UUID: MIG-1)\n"
        "GPU 1: B (UUID: GPU-b)\n  MIG 2g.35gb     Device  0: (UUID: MIG-2)\n"
    )
    assert {uuid: [d.uuid for d in found] for uuid, found in read_mig(text).items()} == {
        "GPU-a": ["MIG-1"],
        "GPU-b": ["MIG-2"],
    }


def test_commas_in_a_name_stay_in_the_name() -> None:
    (row,) = table(f"{HEADER}\n0, Brand, Inc. RTX 9, rev B, GPU-1, 12.0, 100 MiB, 0:1, [N/A]")
    assert row["name"] == "Brand, Inc. RTX 9, rev B"
    assert (row["uuid"], row["memory.total"]) == ("GPU-1", "100 MiB")


def test_warnings_around_the_rows_are_left_out() -> None:
    text = f"WARNING: infoROM is corrupted\n{HEADER}\nx, y\n0, A, GPU-1, 8.9, 9 MiB, 0, [N/A]\n"
    assert [row["name"] for row in table(text)] == ["A"]


def test_long_field_names_are_the_same_fields() -> None:
    (row,) = table("index, gpu_name, gpu_uuid, gpu_bus_id\n0, A, GPU-1, 00000000:01:00.0")
    assert (row["name"], row["uuid"], row["pci.bus_id"]) == ("A", "GPU-1", "00000000:01:00.0")


@pytest.mark.parametrize(
    "cell",
    [
        *("[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Unknown Error]", ""),
        *("[GPU requires reset]", "[Requested functionality has been deprecated]", "[gone]"),
        *("[Insufficient Permissions]", "[GPU is lost]"),
    ],
)
def test_every_form_of_no_value(cell: str) -> None:
    assert reason(cell)
    (row,) = table(f"{HEADER}\n3, A, {cell}, {cell}, {cell}, {cell}, {cell}")
    card = read_gpu(row, 0, "x86_64", 64000)
    assert (card.uuid, card.compute_capability, card.memory_mib, card.mig) == (None,) * 4
    assert any(note.startswith("memory: ") for note in card.notes)
    assert card.index == 3 and not card.memory_is_system


@pytest.mark.parametrize("cell", ["None", "Enabled", "12.0", "GPU-1", "valid"])
def test_values_are_no_reasons(cell: str) -> None:
    assert reason(cell) is None


@pytest.mark.parametrize("cell", ["[Unknown Error]", "[GPU requires reset]"])
def test_a_fault_is_never_papered_over_with_the_memory_of_the_machine(cell: str) -> None:
    (row,) = table(f"index, name, memory.total [MiB]\n0, NVIDIA GB10, {cell}")
    card = read_gpu(row, 0, "aarch64", 120000)
    assert card.memory_mib is None and cell.strip("[]") in card.notes[0]


def test_a_driver_that_knows_no_compute_capability() -> None:
    (card,) = read_gpus(answers(smi="index, name, memory.total [MiB]\n0, Tesla T4, 15109 MiB"))
    assert card.compute_capability is None and card.memory_mib == 15109
    assert card.notes == ("compute capability: not asked, or unknown to this driver",)


@pytest.mark.parametrize(
    ("cell", "mib"), [("32607 MiB", 32607), ("32607", 32607), ("1.5 GiB", 1536), ("2048 KiB", 2)]
)
def test_units(cell: str, mib: int) -> None:
    assert read_gpu({"memory.total": cell}, 0, "x86_64").memory_mib == mib


def test_a_terminal_s_colours_are_no_part_of_a_cell() -> None:
    text = "\x1b[1mindex, name, compute_cap\x1b[0m\n\x1b[32m0, A, 12.0\x1b[0m\n"
    (card,) = read_gpus(answers(smi=text))
    assert (card.name, card.compute_capability) == ("A", (12, 0))


def test_a_jetson_has_no_figures_of_its_own() -> None:
    text = (
        "index, name, uuid, driver_version, compute_cap, memory.total [MiB], memory.free [MiB],"
        " pci.bus_id, pcie.link.gen.max, mig.mode.current, persistence_mode\n"
        "0, Orin (nvgpu), [N/A], 540.4.0, 8.7, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n"
    )
    (card,) = read_gpus(answers(smi=text, memory__info=MEMINFO, os__arch="aarch64"))
    assert (card.name, card.compute_capability, card.driver) == ("Orin (nvgpu)", (8, 7), "540.4.0")
    assert card.memory_is_system and card.memory_mib == 127600748 // 1024
    assert (card.uuid, card.pci_bus_id, card.pcie_gen_max, card.mig) == (None,) * 4


def test_a_card_beside_an_arm_processor_keeps_its_own_memory() -> None:
    text = "index, name, memory.total [MiB]\n0, NVIDIA GH200 480GB, 97871 MiB\n"
    (card,) = read_gpus(answers(smi=text, memory__info=MEMINFO, os__arch="aarch64"))
    assert (card.memory_mib, card.memory_is_system) == (97871, False)


def test_windows_line_ends_are_no_part_of_a_cell() -> None:
    (card,) = read_gpus(answers(smi="index, name, compute_cap\r\n0, A, 12.0\r\n"))
    assert card.compute_capability == (12, 0)


def test_mig_devices_as_older_drivers_name_them() -> None:
    text = (
        "GPU 0: A100-SXM4-40GB (UUID: GPU-a)\n"
        "  MIG 3g.20gb Device 0: (UUID: MIG-GPU-a/1/0)\n"
        "  MIG 1g.5gb+me  Device  1: (UUID: MIG-b)\n"
    )
    assert [(d.index, d.profile, d.uuid) for d in read_mig(text)["GPU-a"]] == [
        (0, "3g.20gb", "MIG-GPU-a/1/0"),
        (1, "1g.5gb+me", "MIG-b"),
    ]
