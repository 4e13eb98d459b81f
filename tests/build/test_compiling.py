"""What a component's build is told, of the stacks that ship."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

import pytest

from firstlight.build.compiling import refused
from firstlight.build.lock import LockFile
from firstlight.build.lockcheck import check_lock
from firstlight.build.order import artifacts
from firstlight.core.schema import load
from firstlight.flows import recipes
from firstlight.flows.orders import all_orders
from tests.flows.project import REPO

STACK = "kernels-cu130-sm120"
ROOT = PurePosixPath("/srv/first light")


@pytest.mark.parametrize(
    ("component", "arch"), [("flash-attn", ["--arch", "12.0"]), ("flashinfer-python", [])]
)
def test_a_refused_wheel_can_be_looked_at_by_the_line_that_is_told(
    component: str, arch: list[str]
) -> None:
    """With --arch a wheel without GPU code would be refused for that alone."""
    order = all_orders(REPO, STACK, ROOT)["3.12"]
    told = refused(order, order.choices[component], "gpu01")
    line = shlex.split(f"{told['verify']}/k-1.whl")
    assert line == [
        "invoke", "verify", "--host", "gpu01", *arch,
        "--wheel", f"/srv/first light/build/refused-{component}/k-1.whl",
    ]  # fmt: skip


def test_what_is_built_for_one_python_is_not_taken_for_another() -> None:
    """Also where the wheels that it is built with are those of any: its own may be of one alone."""
    orders = all_orders(REPO, STACK, ROOT)
    assert {one.name for one in orders["3.12"].choices.values() if one.from_source} == {
        "flash-attn", "flashinfer-python",
    }  # fmt: skip
    for name in ("flash-attn", "flashinfer-python"):
        keys = {artifacts(order)[name].key for order in orders.values()}
        assert len(keys) == len(orders) == 3
    # A toolkit is of no Python.
    assert len({artifacts(order)["cuda-toolkit"].key for order in orders.values()}) == 1


def test_a_toolkit_of_two_releases_is_refused_when_its_lock_is_read() -> None:
    """Not on a host, after gigabytes were fetched."""
    document, components = recipes.stack(REPO, STACK)
    path = f"recipes/locks/{STACK}.lock.yaml"
    text = (REPO / path).read_text()
    mixed = re.sub(
        r"(name: nvidia-nvvm, version: )13\.0\.88(, file: nvidia_nvvm-)13\.0\.88",
        r"\g<1>13.3.33\g<2>13.3.33",
        text,
    )
    assert check_lock(document, load(text, path, LockFile), components) == ()
    told = [one.message for one in check_lock(document, load(mixed, path, LockFile), components)]
    assert told == [
        "mixed toolkit: nvidia-cuda-nvcc 13.0.88 with nvidia-cuda-crt 13.0.88"
        " and nvidia-nvvm 13.3.33",
        "nvidia-nvvm 13.3.33 is not of CUDA 13.0",
    ]
