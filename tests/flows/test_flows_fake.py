"""What flows ask of a host before anything is done there, with a shell that answers by function."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from firstlight.build.order import release_of
from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.effects import catalog, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Progress, Result
from firstlight.flows import front
from firstlight.flows.build import build
from firstlight.flows.orders import Wish, all_orders, built_release, root_steps
from firstlight.flows.reach import look
from firstlight.hosts.facts import Facts
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import MARK
from tests.flows.project import Project, make_project

ROOT = PurePosixPath("/srv/firstlight")
GPU01 = {"name": "gpu01", "address": "192.0.2.1", "root": str(ROOT)}


class FakeShell:
    """A host that answers each script as a function says, and counts what it was asked."""

    def __init__(self, host: Host, answer: Callable[[Script], Result]) -> None:
        self.host, self.connections, self.scripts = host, 1, 0
        self.sent: list[ShipFile] = []
        self._answer = answer

    def run(self, script: Script, timeout_s: float = 60.0) -> Result:
        assert timeout_s > 0
        self.scripts += 1
        return self._answer(script)

    def send(self, files: Sequence[ShipFile], progress: Progress) -> None:
        progress("sending")
        self.sent += files

    @contextlib.contextmanager
    def forward(self, port: int) -> Iterator[str]:
        yield f"http://127.0.0.1:{port}"

    def reopen(self) -> None:
        self.connections += 1

    def close(self) -> None:
        self.connections = 0


def survey(*releases: str) -> Result:
    """The answer to the first look of a host that has these releases, and nothing else."""
    rows = [["root", str(ROOT)], ["user", "ml"], ["boot", "b1"], ["writable", "yes"]]
    rows += [["release", release] for release in releases]
    lines = ["\t".join([MARK, *row]) for row in [*rows, ["end"]]]
    return Result(0, "\n".join(["noise of a login shell", *lines, ""]).encode())


def answering(*releases: str) -> Callable[[Script], Result]:
    """Answers of a host with these releases that can be looked at and nothing more."""

    def answer(script: Script) -> Result:
        if script.text == library.program("survey.sh"):
            return survey(*releases)
        raise AssertionError(f"one look was to be enough, and this was asked too:\n{script.text}")

    return answer


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, [GPU01, {"name": "local", "root": str(tmp_path / "firstlight")}])


def test_a_root_on_a_read_only_disk_is_no_folder_that_root_has_to_make(project: Project) -> None:
    host = catalog.inventory(project.root).hosts["gpu01"]
    told = survey().out.replace(b"writable\tyes", b"writable\tno\t/srv\tread-only")
    seen = look(FakeShell(host, lambda _: Result(0, told)))
    with pytest.raises(HostError, match="gpu01: /srv is on a file system that is read-only"):
        root_steps(seen, cast("Facts", None), "gpu01")


@pytest.mark.parametrize("series", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_build_that_is_in_place_asks_one_script(
    project: Project, series: str, dry_run: bool
) -> None:
    inventory = catalog.inventory(project.root)
    orders = all_orders(project.root, "sglang-cpu", ROOT)
    release = next(release_of(orders[python]) for python in orders if python == series)
    empty = FakeShell(inventory.hosts["gpu01"], answering())
    assert built_release(orders, look(empty)) is None
    shell = FakeShell(inventory.hosts["gpu01"], answering(release, "other-py311-000000000000"))
    console = Console(io.StringIO())
    seen = look(shell)
    report = build(project.root, console, shell, inventory, Wish("sglang-cpu"), seen, dry_run)
    assert (shell.scripts, shell.sent) == (1, [])
    assert report.data == {"release": release, "built": False}
    said = f"# in place: release {release}" if dry_run else f"gpu01: release {release} is in place"
    assert said in report.text


def refused(
    capsys: pytest.CaptureFixture[str], verb: str, project: Project, **options: Any
) -> tuple[object, str]:
    """The exit code of a verb that must not succeed, and what it told the person."""
    with pytest.raises(SystemExit) as left:
        front.run(verb, project.root, **options)
    return left.value.code, capsys.readouterr().err


UNKNOWN = [
    ("build", {"host": "gpu1"}, "no host 'gpu1' in the inventory; did you mean 'gpu01'?"),
    ("status", {"host": "locl"}, "no host 'locl' in the inventory; did you mean 'local'?"),
    ("build", {"stack": "sglang-cp"}, "no recipes/stacks/sglang-cp.yaml; did you mean"),
    ("deploy", {"profile": "smolm2-cpu"}, "no recipes/profiles/smolm2-cpu.yaml; did you mean"),
    ("render", {"profile": "smollm2"}, "no recipes/profiles/smollm2.yaml; did you mean"),
    ("up", {"profile": "../smollm2-cpu"}, "no recipes/profiles/../smollm2-cpu.yaml"),
    ("logs", {"lines": "many"}, "--lines takes a whole number; got 'many'"),
    ("ask", {"question": "  "}, "what to ask?\n  -> invoke ask --question"),
]


@pytest.mark.parametrize("verb, options, told", UNKNOWN)
def test_a_name_that_is_not_there_is_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
    project: Project,
    verb: str,
    options: dict[str, object],
    told: str,
) -> None:
    code, said = refused(capsys, verb, project, **options)
    assert (code, said.startswith(f"error: {told}")) == (2, True), said
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", ["deploy", "render"])
def test_what_needs_a_release_says_how_to_build_it(
    capsys: pytest.CaptureFixture[str], project: Project, verb: str
) -> None:
    code, said = refused(capsys, verb, project)
    assert code == 3
    assert said.startswith("error: local: stack sglang-cpu")
    assert "\n  -> invoke build --host local --profile smollm2-cpu\n" in said


@pytest.mark.parametrize("verb", ["stop", "smoke", "logs"])
def test_what_needs_a_deployment_says_how_to_deploy(
    capsys: pytest.CaptureFixture[str], project: Project, verb: str
) -> None:
    code, said = refused(capsys, verb, project)
    assert code == 3
    assert said.startswith("error: local: profile smollm2-cpu is not deployed; nothing is")
    assert "\n  -> invoke deploy --profile smollm2-cpu --host local\n" in said


def test_a_verb_that_is_refused_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], project: Project, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    for verb in ("deploy", "stop", "render", "smoke"):
        refused(capsys, verb, project)
    assert sorted(tmp_path.rglob("*")) == before
