"""What a component's build is told, of the stacks that ship."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

import pytest

from firstlight.build.compiling import refused
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
