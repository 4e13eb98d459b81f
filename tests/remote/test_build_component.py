"""build_component.py: what stays of a build that failed, and for how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import build_component
import pytest
from unified_diff import Fault

WHEEL = "kern-1.0+cu130-py3-none-linux_x86_64.whl"
REFUSED = "kern is not what was asked for; the store does not take it"


class Shop:
    """A host's root with the request of one build; what stands for compiling is told by a test."""

    def __init__(self, tmp: Path) -> None:
        self.root = tmp / "a root"
        self.aside = self.root / "build/refused-kern"
        self.request: dict[str, Any] = {
            "name": "kern",
            "home": str(self.root / "store/kern-1.0-aa"),
            "work": str(self.root / "build/kern-1.0-aa"),
            "refused": {"folder": str(self.aside), "verify": f"invoke verify '{self.aside}'"},
        }

    def left(self) -> list[str]:
        """Every file below the root."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def compiled(partial: Path) -> None:
    (partial / WHEEL).write_text("hours of work")


def test_a_wheel_that_is_refused_is_kept_and_its_place_is_told(shop: Shop, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    compiled(partial)
    told = build_component.kept(
        shop.request, partial, Fault(REFUSED, "correct the build", ("  kern.so: holds sm_90a",))
    )
    assert str(told) == REFUSED and told.shown == ("  kern.so: holds sm_90a",)
    assert told.fix == (
        f"correct the build; until the next build of kern it is kept as {shop.aside}/{WHEEL};"
        f" look at it with: invoke verify '{shop.aside}'/{WHEEL}"
    )
    assert (shop.aside / WHEEL).read_text() == "hours of work" and not list(partial.iterdir())


def test_where_there_is_no_wheel_nothing_is_promised(shop: Shop, tmp_path: Path) -> None:
    fault = Fault("uv failed", "")
    assert build_component.kept(shop.request, tmp_path, fault) is fault
    assert not shop.aside.exists()


def test_it_stays_until_the_next_build_of_any_version(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    compiled(partial)
    build_component.kept(shop.request, partial, Fault(REFUSED, ""))
    assert shop.left() == [f"build/refused-kern/{WHEEL}"]
    asked = tmp_path / "request.json"
    version = {"home": str(shop.root / "store/kern-1.1-bb"), "disk_mib": 0}
    version |= {"work": str(shop.root / "build/kern-1.1-bb"), "host_tools": ["no-such-tool"]}
    asked.write_text(json.dumps(shop.request | version))
    assert build_component.main([str(asked)]) == 1
    assert "error: the host has no no-such-tool" in capsys.readouterr().err
    assert shop.left() == []
