"""What a deploy that fails leaves behind: the proved server, whoever left what before it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.effects.sshd import Sshd, fill_home, needs_sshd, running
from tests.flows.test_bad_input_host import set_host
from tests.flows.test_bad_input_interrupt import broken_off
from tests.flows.tiny import Tiny, refused

pytestmark = pytest.mark.slow

LESS = ("max_total_tokens: 16384", "max_total_tokens: 8192")
WRONG = ("fault: none", "fault: wrong")
CRASH = ("fault: none", "fault: crash"), ("launcher: process", "launcher: process\n  restart: no")


def current(tiny: Tiny) -> str:
    return str((tiny.root / "deployments/tiny/current").readlink())


def entry(tiny: Tiny) -> dict[str, Any]:
    """What status says of the only deployment."""
    status = json.loads(tiny.project.invoke("status", "--json", check=True).stdout)
    (found,) = status["deployments"]
    assert isinstance(found, dict)
    return found


def serves(tiny: Tiny, deployment: str) -> bool:
    """That deployment is the current one, answers, and is the only server."""
    found = entry(tiny)
    told = found["deployment"], found["current"], found["healthy"], len(tiny.servers())
    assert told == (deployment, True, True, 1), found
    return True


def left_starting(tiny: Tiny, number: signal.Signals, *edits: tuple[str, str]) -> None:
    """Begin to deploy a profile with these edits, and leave while its server loads."""
    tiny.profile(*edits)
    tiny.loading.touch()
    broken_off(tiny, "deploy", "loading weights", number)
    tiny.loading.unlink()


@pytest.fixture
def served(built: Tiny) -> Tiny:
    built.project.invoke("deploy", check=True)
    return built


def test_a_server_that_was_left_and_fails_gives_way_to_the_proved_one(served: Tiny) -> None:
    before = current(served)
    left_starting(served, signal.SIGINT, WRONG)
    message = refused(served.project.invoke("deploy"), 5)
    assert "the server of tiny was not proved" in message or "moon" in message
    assert serves(served, before)


def test_a_server_that_was_left_and_died_gives_way_to_the_proved_one(served: Tiny) -> None:
    before = current(served)
    left_starting(served, signal.SIGINT, *CRASH)
    while served.servers():
        time.sleep(0.1)
    refused(served.project.invoke("deploy"), 4)
    assert serves(served, before)


def test_a_server_that_was_never_proved_does_not_come_back(served: Tiny) -> None:
    before = current(served)
    left_starting(served, signal.SIGKILL, LESS)
    served.profile(*CRASH)
    refused(served.project.invoke("deploy"), 4)
    assert serves(served, before)


def test_what_somebody_stopped_stays_stopped(served: Tiny) -> None:
    left_starting(served, signal.SIGKILL, LESS)
    served.project.invoke("stop", check=True)
    served.profile(*CRASH)
    refused(served.project.invoke("deploy"), 4)
    assert served.servers() == []


@pytest.fixture
def small(built: Tiny) -> Iterator[Tiny]:
    """A tiny project whose profile is served from a disk of its own, with 2 MiB."""
    folder = built.root / "deployments"
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        built.project.invoke("deploy", check=True)
        yield built
        built.end()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(tiny: Tiny, spare_kib: int) -> Path:
    """Leave so much of the small disk, by a file that takes the rest."""
    folder = tiny.root / "deployments"
    file, left = folder / "full", shutil.disk_usage(folder).free - (spare_kib << 10)
    file.write_bytes(b"x" * left)
    assert shutil.disk_usage(folder).free == spare_kib << 10
    return file


def answers(tiny: Tiny, word: str) -> bool:
    """The only server has that word on its command line, and answers; its disk may be too full for
    its supervisor to write down that it runs."""
    url, end = f"http://127.0.0.1:{tiny.port}/health_generate", time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url) as answer:
                (pid,) = tiny.servers()
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                return answer.status == 200 and word in words
        except OSError:
            time.sleep(0.2)
    return False


@pytest.mark.parametrize("spare_kib", [8, 20, 36])
def test_a_disk_that_fills_up_costs_no_proved_server(small: Tiny, spare_kib: int) -> None:
    before = current(small)
    fill(small, spare_kib)
    small.profile(LESS)
    message = refused(small.project.invoke("deploy"), 4)
    told = "No space left on device" in message and "-> free some space there, or" in message
    assert told or "did not start; is the disk full?" in message
    assert current(small) == before and answers(small, "16384")
    assert not list((small.root / "deployments").rglob("*.new"))


def test_a_full_disk_keeps_no_server_from_being_stopped(small: Tiny) -> None:
    file = fill(small, 0)
    for _ in range(2):
        small.project.invoke("stop", check=True)
        assert (small.servers(), entry(small)["state"]) == ([], "stopped")
    file.unlink()
    small.project.invoke("deploy", check=True)
    assert serves(small, current(small))


@pytest.fixture
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    needs_sshd()
    with running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def far(built: Tiny, sshd: Sshd) -> Tiny:
    """A tiny project whose profile is served on `near`, which is reached by SSH."""
    sshd.allow(fill_home(built.project.home))
    (built.project.home / ".ssh/known_hosts").write_text(sshd.known())
    set_host(built, address="127.0.0.1", port=sshd.port, root=str(built.root))
    built.project.invoke("deploy", check=True)
    return built


def cut_at(tiny: Tiny, sshd: Sshd, line: str, known: str) -> tuple[int, str]:
    """Deploy a server that answers wrongly, and lose the link when that line is printed."""
    tiny.profile(WRONG)
    with tiny.project.start("deploy") as process:
        assert process.stdout
        assert any(line in said for said in process.stdout)
        (tiny.project.home / ".ssh/known_hosts").write_text(known)
        sshd.cut()
        out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err
    return process.returncode, out + err


@pytest.mark.parametrize("line", ["start the server (", "ask it what it must know"])
def test_a_link_that_is_lost_is_made_again_for_the_way_back(
    far: Tiny, sshd: Sshd, line: str
) -> None:
    before = current(far)
    code, said = cut_at(far, sshd, line, sshd.known())
    assert code in (3, 5), said
    assert f"start the server again that ran before ({before})" in said
    assert serves(far, before)


def test_a_way_back_that_is_cut_off_says_what_is_left(far: Tiny, sshd: Sshd) -> None:
    before = current(far)
    known = sshd.known().replace(sshd.public().split()[1][-20:], "A" * 20)
    code, said = cut_at(far, sshd, "note which deployment is started", known)
    assert code == 3, said
    assert "  -> the way back failed: " in said
    assert f"may run still; that of {before} was not started again: " in said
    assert "`invoke status --host near` shows what runs, `invoke deploy --profile tiny " in said
    (far.project.home / ".ssh/known_hosts").write_text(sshd.known())
    refused(far.project.invoke("deploy"), 5)
    assert serves(far, before)
