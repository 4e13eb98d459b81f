"""The matrix of links between GPUs, on recorded answers of real machines and on made ones."""

from pathlib import Path

import pytest

from firstlight.hosts.topology import Place, Topology, read_topology

CARDS = tuple(f"GPU{n}" for n in range(8))


@pytest.fixture
def data(shared: Path) -> Path:
    return shared / "data/host-facts"


def test_recorded_with_escapes_and_tabs(data: Path) -> None:
    found = read_topology((data / "rtxpro6000x8_topo-m.txt").read_text())
    assert found.devices == CARDS and tuple(found.links) == CARDS
    assert (found.links["GPU0"]["GPU1"], found.links["GPU0"]["GPU2"]) == ("PIX", "NODE")
    assert found.links["GPU7"]["GPU0"] == "SYS" and found.links["GPU3"]["GPU3"] == "X"
    assert found.between_gpus() == ("NODE", "PIX", "SYS") and not found.has_nvlink
    assert found.places["GPU0"] == Place("0-63,128-191", 0)
    assert found.places["GPU4"] == Place("64-127,192-238", 1)


def test_recorded_network_cards_have_links_and_no_place(data: Path) -> None:
    found = read_topology((data / "rtx5090x8_topo-m_nics.txt").read_text())
    assert found.devices == (*CARDS, "NIC0", "NIC1")
    assert found.links["NIC0"]["NIC1"] == "PIX" and found.links["GPU0"]["NIC1"] == "NODE"
    assert found.places["NIC0"] == Place() and found.places["GPU4"].numa == 1
    assert found.between_gpus() == ("NODE", "SYS")


def test_recorded_single_gpu(data: Path) -> None:
    found = read_topology((data / "gb10_topo-m.txt").read_text())
    assert found == Topology(("GPU0",), {"GPU0": {"GPU0": "X"}}, {"GPU0": Place("0-19", 0)})
    assert found.between_gpus() == ()


def test_nvlink_is_seen() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-9\nGPU1\tNV18\t X \t0-9\n"
    assert read_topology(text).has_nvlink


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "GPU 0: A", "X = Self"])
def test_no_matrix_is_no_topology(text: str) -> None:
    assert read_topology(text) == Topology()


def test_a_row_cut_short_is_no_row() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-9\nGPU1\tSYS\n"
    assert tuple(read_topology(text).links) == ("GPU0",)


def test_a_card_without_processors_of_its_own_keeps_its_node() -> None:
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV18\tNODE\t0-71\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tNODE\t\t1\t\tN/A\n"
        "NIC0\tNODE\tNODE\t X \t\t\t\t\n"
    )
    found = read_topology(text)
    assert found.places["GPU0"] == Place("0-71", 0) and found.places["GPU1"] == Place(None, 1)
    assert found.places["NIC0"] == Place() and found.links["NIC0"]["GPU1"] == "NODE"


def test_the_first_of_a_superchip_s_nodes_is_the_processors() -> None:
    text = (
        "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
        "GPU0 X NV18 0-71 0,2-8 2\nGPU1 NV18 X 72-143 1,10-16 10\n"
    )
    places = read_topology(text).places
    assert places == {"GPU0": Place("0-71", 0), "GPU1": Place("72-143", 1)}


def test_cells_that_ran_together_leave_the_links_of_the_cards() -> None:
    text = (
        "GPU0 GPU1 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
        "GPU0 X NV12 NODEPIX 0-9 0\nGPU1 NV12 X SYSSYS 0-9 0\n"
    )
    found = read_topology(text)
    assert found.links == {
        "GPU0": {"GPU0": "X", "GPU1": "NV12"},
        "GPU1": {"GPU0": "NV12", "GPU1": "X"},
    }
    assert found.has_nvlink and not found.places


def test_a_short_range_is_padded_with_a_second_tab() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\t0\t\tN/A\n"
    assert read_topology(text).places["GPU0"] == Place("0-7", 0)
    nowhere = text.replace("\t0\t", "\tN/A\t")
    assert read_topology(nowhere).places["GPU0"] == Place("0-7", None)


@pytest.mark.parametrize("card", ["mlx5_0", "bnxt_re0", "rocep3s0f1", "efa_0", "NIC0"])
def test_network_cards_of_every_maker_are_columns(card: str) -> None:
    text = f"GPU0 {card} CPU Affinity\nGPU0 X PIX 0-9\n{card} PIX X\n"
    assert read_topology(text).links == {
        "GPU0": {"GPU0": "X", card: "PIX"},
        card: {"GPU0": "PIX", card: "X"},
    }
