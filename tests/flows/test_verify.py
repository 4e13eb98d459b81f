"""`invoke verify` as a person types it: on this machine, and on a host over SSH."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.core.errors import ProofError
from tests.effects.sshd import fill_home, needs_sshd, running
from tests.flows.project import Project, make_project
from tests.remote import cuda

TAG = "cp310-abi3-linux_x86_64"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with one library that has nothing to do with GPUs."""
    library = cuda.shared(tmp_path / "made", "libone.so", "int one(void){return 1;}")
    return cuda.wheel(tmp_path / "wheels", {"kern/libone.so": library, "kern/a.py": b"a = 1\n"})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, [{"name": "local", "root": str(tmp_path / "root")}])


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Project]:
    """A project with a host `near` behind a real sshd; its root has a space and a quote."""
    needs_sshd()
    with running(tmp_path / "sshd") as server:
        home = tmp_path / "home"
        server.allow(fill_home(home))
        (home / ".ssh" / "known_hosts").write_text(server.known())
        near = {"name": "near", "address": "127.0.0.1", "port": server.port}
        yield make_project(tmp_path, [near | {"root": str(tmp_path / "fire light's")}], home=home)


def test_a_wheel_of_this_machine(project: Project, wheel: Path) -> None:
    done = project.invoke("verify", "--wheel", str(wheel))
    assert (done.returncode, done.stderr) == (0, "")
    head, *_, last = done.stdout.splitlines()
    assert (head.split("  ")[:2], last) == (["kern 1.0", TAG], "no fault")
    assert not (project.root.parent / "root").exists()


def test_faults_are_a_failed_proof_and_data_for_programs(project: Project, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("kern/slipped_in.py", "import os\n")
    done = project.invoke("verify", "--wheel", str(wheel), "--json")
    assert done.returncode == ProofError.exit_code
    found = json.loads(done.stdout)
    fault = {"check": "record", "where": "kern/slipped_in.py", "what": "RECORD does not list it"}
    assert found["faults"] == [fault]
    assert found["libraries"][0]["path"] == "kern/libone.so"


def test_a_wheel_without_gpu_code_has_none_of_what_is_asked_for(
    project: Project, wheel: Path
) -> None:
    done = project.invoke("verify", "--wheel", str(wheel), "--arch", "12.0a")
    assert done.returncode == ProofError.exit_code
    assert "fault: no library of it holds GPU code; wanted is sm_120a" in done.stdout


def test_a_name_in_a_wheel_says_nothing_to_the_terminal(project: Project, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("kern/a\nno fault\x1b[2J.so", b"")
    done = project.invoke("verify", "--wheel", str(wheel))
    assert done.returncode == ProofError.exit_code
    assert "\x1b" not in done.stdout and "\nno fault" not in done.stdout
    assert r"kern/a\nno fault\x1b[2J.so: its name has characters" in done.stdout


MISTAKES = [
    (
        ("--wheel", "~nobody-here/a-1-py3-none-any.whl"),
        "~nobody-here/a-1-py3-none-any.whl: No such",
    ),
    ((), "error: which wheel?\n  -> invoke verify --wheel FILE"),
    (
        ("--wheel", "no-1-py3-none-any.whl"),
        "cannot be verified: {0}/no-1-py3-none-any.whl: No such",
    ),
    (("--wheel", "tasks.py"), "error: tasks.py: cannot be verified: that is no name of a wheel"),
    (("--wheel", "a-1-py3-none-any.whl", "--arch", "sm_120"), "error: --arch 'sm_120' is no arch"),
    (("--wheel", "a-1-py3-none-any.whl", "--host", "ner"), "error: no host 'ner' in the inventory"),
]


@pytest.mark.parametrize("words, told", MISTAKES)
def test_mistakes_are_told(project: Project, words: tuple[str, ...], told: str) -> None:
    done = project.invoke("verify", *words)
    assert done.returncode == 2
    assert told.format(project.root) in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_wheel_of_a_host(remote: Project, wheel: Path) -> None:
    """The host's own Python reads it, with the parser that was sent there."""
    words = ("verify", "--host", "near", "--wheel", str(wheel), "--json")
    done = remote.invoke(*words, check=True)
    assert json.loads(done.stdout)["libraries"][0]["machine"] == "x86_64"
    root = remote.root.parent / "fire light's"
    (packed,) = root.glob("lib/elftools-*/elftools.zip")
    before = packed.stat().st_mtime_ns
    remote.invoke(*words, check=True)
    assert packed.stat().st_mtime_ns == before
    assert list(root.glob("lib/*/__pycache__")) == []
    gone = remote.invoke("verify", "--host", "near", "--wheel", "/no/kern-1.0-py3-none-any.whl")
    assert gone.returncode == 2
    assert "/no/kern-1.0-py3-none-any.whl: No such file or directory" in gone.stdout
