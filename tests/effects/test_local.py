"""Scripts on this machine: the same promises as over SSH."""

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.local import LocalShell
from firstlight.effects.ssh import open_shell
from firstlight.hosts.inventory import Host
from tests.effects.test_ssh_run import alive, press_ctrl_c


@pytest.fixture
def local() -> LocalShell:
    return LocalShell(Host(name="local", env={"FL_NOTE": "a 'b'"}))


def test_a_local_host_needs_no_ssh() -> None:
    assert isinstance(open_shell(Host(name="local"), {}), LocalShell)


def test_streams_status_arguments_and_environment(local: LocalShell) -> None:
    script = Script('echo "$1|$FL_NOTE|$LANG"; echo oh >&2; exit 7', ("a  *",))
    result = local.run(script)
    assert (result.rc, result.out, result.err) == (7, b"a  *|a 'b'|C.UTF-8\n", b"oh\n")
    assert (local.connections, local.scripts) == (0, 1)


def test_large_output_on_both_streams(local: LocalShell) -> None:
    result = local.run(Script("head -c 16777216 /dev/zero; head -c 4000000 /dev/zero >&2"))
    assert (result.out.count(0), result.err.count(0)) == (1 << 24, 4_000_000)


def test_a_program_that_reads_its_input_finds_none(local: LocalShell) -> None:
    assert local.run(Script("cat; echo after")).text == "after\n"


def test_a_child_left_behind_does_not_hold_us(local: LocalShell) -> None:
    result = local.run(Script("sleep 600 & echo $!"), timeout_s=60)
    os.kill(int(result.text), signal.SIGKILL)


def test_a_killed_shell_is_no_failed_command(local: LocalShell) -> None:
    with pytest.raises(HostError, match="killed by signal 9"):
        local.run(Script("sleep 2 & kill -9 $$"))


def test_a_late_script_is_stopped_with_its_children(local: LocalShell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = Script('(trap "" TERM; sleep 600) & echo "$!" >"$1"; wait', (str(pid),))
    with pytest.raises(HostError, match="no result within 3 s; it was stopped"):
        local.run(script, timeout_s=3)
    assert not alive(int(pid.read_text()))


def test_a_script_that_closes_its_outputs_keeps_its_status(local: LocalShell) -> None:
    assert local.run(Script("exec >&- 2>&-; exit 5")).rc == 5


def test_ctrl_c_stops_the_script_and_goes_on_up(local: LocalShell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    threading.Thread(target=press_ctrl_c, args=(pid,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        local.run(Script('echo $BASHPID >"$1"; sleep 600', (str(pid),)))
    assert not alive(int(pid.read_text()))


def ship(folder: Path, data: bytes, sha256: str = "") -> ShipFile:
    source = folder / "source"
    source.write_bytes(data)
    target = PurePosixPath(folder / "there" / "it's")
    return ShipFile(source, target, sha256 or hashlib.sha256(data).hexdigest())


def test_send_copies_once(local: LocalShell, tmp_path: Path) -> None:
    said: list[str] = []
    file = ship(tmp_path, b"data")
    local.send([file, file], said.append)
    local.send([file], said.append)
    assert Path(file.target).read_bytes() == b"data"
    assert said == ["copying it's"]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["it's"]


def test_send_refuses_wrong_bytes(local: LocalShell, tmp_path: Path) -> None:
    file = ship(tmp_path, b"data", "0" * 64)
    with pytest.raises(HostError, match="has sha256 3a6eb"):
        local.send([file], print)
    assert list((tmp_path / "there").iterdir()) == []


def test_send_says_what_is_in_the_way(local: LocalShell, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file")
    with pytest.raises(HostError, match=r"cannot copy .*/there: File exists"):
        local.send([ship(tmp_path, b"data")], print)


def test_forward_is_loopback_itself(local: LocalShell) -> None:
    with local.forward(30000) as url:
        assert url == "http://127.0.0.1:30000"


def test_words_that_are_no_utf_8_travel_as_the_bytes_that_they_are(local: LocalShell) -> None:
    assert local.run(Script('printf %s "$1"', (os.fsdecode(b"/a\xffb"),))).out == b"/a\xffb"


def test_what_keeps_us_from_reading_what_we_send_is_told(local: LocalShell) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise HostError("cannot read /far/away: it has become shorter", where="gpu01")

    with pytest.raises(HostError, match="it has become shorter"):
        local.feed(Script("cat <&9 >/dev/null; exit 74"), 60, pieces())
