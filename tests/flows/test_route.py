"""Whether a host has a way out: asked of a real pip, and remembered only when it is known."""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path

import pytest

from firstlight.build.fetch import request_text
from firstlight.build.wheel import Wheel
from firstlight.core.errors import HostError
from firstlight.effects.console import Console
from firstlight.effects.local import LocalShell
from firstlight.flows.reach import look
from firstlight.flows.route import try_route
from firstlight.hosts.inventory import Host
from tests.remote.programs import small_wheel

PYTHON = f"3.{sys.version_info.minor}"
DEAD = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple"}


class Place:
    """A host with a wheel to ask for, and pip's settings there."""

    def __init__(self, tmp: Path) -> None:
        self.root, self.links, self.said = tmp / "root", tmp / "links", io.StringIO()
        self.wheel = small_wheel(self.links, "part", "1.0", {"part.py": ""})
        self.digest = hashlib.sha256(self.wheel.read_bytes()).hexdigest()

    def tried(self, python: str = sys.executable, **env: str) -> str:
        """The answer for a host with these settings."""
        pip = {"PIP_CONFIG_FILE": "/dev/null", **env}
        shell = LocalShell(Host(name="local", root=str(self.root), env=pip))
        wheel = Wheel(name="part", version="1.0", file=self.wheel.name, sha256=self.digest)
        request = request_text([wheel], PYTHON, {})
        return try_route(shell, look(shell), request, python, Console(self.said))

    @property
    def remembered(self) -> str | None:
        """What the next survey will see."""
        file = self.root / "route"
        return file.read_text().strip() if file.exists() else None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_host_that_can_download_is_remembered(place: Place) -> None:
    assert place.tried(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(place.links)) == "host"
    assert place.remembered == "host"


def test_a_host_with_no_way_out_is_remembered(place: Place) -> None:
    assert place.tried(**DEAD) == "controller"
    assert place.remembered == "controller"


def test_another_fault_is_told_in_the_host_s_words_and_not_remembered(place: Place) -> None:
    place.links.rename(place.links.with_name("moved"))
    with pytest.raises(HostError) as caught:
        place.tried(PIP_NO_INDEX="1")
    assert caught.value.what == (
        f"cannot tell whether it has a way out: {place.wheel.name} is on no index"
    )
    assert caught.value.remedy.startswith(
        "check it in the lock, or name its index; or say `fetch: "
    )
    assert place.remembered is None


def test_a_wheel_of_another_content_is_no_lack_of_a_way(place: Place) -> None:
    place.digest = "0" * 64
    with pytest.raises(HostError, match="sha256"):
        place.tried(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(place.links))
    assert place.remembered is None


def test_a_python_that_cannot_start_is_told(place: Place) -> None:
    with pytest.raises(HostError, match=r"cannot tell whether it has a way out: .*no-python"):
        place.tried("/no-python")
    assert place.remembered is None


def test_a_python_without_pip_is_sent_wheels_and_may_get_one_later(
    place: Place, tmp_path: Path
) -> None:
    hide = "import sys\nsys.modules['pip'] = sys.modules['ensurepip'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    assert place.tried(PYTHONPATH=str(tmp_path), **DEAD) == "controller"
    assert "no pip to ask; this machine downloads and sends" in place.said.getvalue()
    assert place.remembered is None
