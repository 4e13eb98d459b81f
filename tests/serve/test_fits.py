"""Whether a host is what a profile is made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.core.schema import load
from firstlight.hosts.gpus import Gpu
from firstlight.serve.fits import misfits, within_reach
from firstlight.serve.profile import Match, Profile

PRO_6000 = Gpu(0, name="NVIDIA RTX PRO 6000 Blackwell Server Edition", compute_capability=(12, 0))
RTX_5090 = Gpu(1, name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0))
A100 = Gpu(0, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
SPARK = Gpu(0, name="NVIDIA GB10", compute_capability=(12, 1))


@pytest.mark.parametrize(
    ("hw", "gpus", "machine"),
    [
        (None, (), ()),
        ("cpu", (), ()),
        ("CPU", (A100,), ()),
        ("rtx5090", (RTX_5090,), ()),
        ("RTX PRO 6000", (PRO_6000,), ()),
        ("rtx-pro-6000 server", (PRO_6000, RTX_5090), ()),
        ("a100", (A100,), ()),
        ("dgx-spark", (SPARK,), ("DGX Spark 7.5.0",)),
        ("lab box 3", (A100,), ("lab box 3",)),
    ],
)
def test_a_host_that_is_named_so_fits(
    hw: str | None, gpus: tuple[Gpu, ...], machine: tuple[str, ...]
) -> None:
    assert misfits(Match(hw=hw), gpus, machine) == ()


@pytest.mark.parametrize(
    ("match", "gpus", "told"),
    [
        (Match(hw="rtx5090"), (PRO_6000,), f"it is made for rtx5090; found: {PRO_6000.name}"),
        (Match(hw="a10"), (A100,), "it is made for a10; found: NVIDIA A100-SXM4-80GB"),
        (Match(hw="rtx5090"), (), "it is made for rtx5090; found: nothing of that kind"),
        (Match(hw="5090", gpus=2), (PRO_6000, RTX_5090), "it needs 2 GPUs; found 1"),
        (Match(hw="a100", sm=120), (A100, RTX_5090), "it needs GPUs of SM120; found: SM80"),
        (Match(nodes=2), (A100,), "it is for 2 nodes, and a deploy starts a server on one"),
        (Match(gpus=1), (), "it needs 1 GPUs; found 0"),
    ],
)
def test_a_host_that_is_something_else_does_not(
    match: Match, gpus: tuple[Gpu, ...], told: str
) -> None:
    assert misfits(match, gpus) == (told,)


@pytest.mark.parametrize("gpus", [(), (A100,)])
def test_our_profile_for_the_cpu_fits_every_host(gpus: tuple[Gpu, ...]) -> None:
    path = Path("recipes/profiles/smollm2-cpu.yaml")
    assert misfits(load(path.read_text(), path.name, Profile).value.match, gpus) == ()


@pytest.mark.parametrize(
    ("visible", "first", "cards"),
    [
        (None, 0, [0, 1, 2, 3]),
        (None, 2, [2, 3]),
        ("2,3", 0, [2, 3]),
        (" 3, 1", 1, [1]),
        ("GPU-2b,GPU-1", 0, [2, 1]),
        ("", 0, []),
        ("GPU-9", 0, [0, 1, 2, 3]),
        ("MIG-x", 0, [0, 1, 2, 3]),
    ],
)
def test_only_the_cards_that_a_server_may_take_count(
    visible: str | None, first: int, cards: list[int]
) -> None:
    gpus = [Gpu(index, uuid=f"GPU-{index}b") for index in range(4)]
    assert [gpu.index for gpu in within_reach(gpus, visible, first)] == cards
