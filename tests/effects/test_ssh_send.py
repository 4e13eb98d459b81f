"""Files to the host: what is missing, whole, with the right bytes, or not at all."""

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from firstlight.core.errors import ConnectionLost, HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.frame import Answer
from firstlight.effects.shell import Shell
from firstlight.effects.ssh.channel import exchange
from firstlight.effects.ssh.connect import connect, disconnect
from firstlight.effects.ssh.sending import Disk
from tests.effects.sshd import Sshd
from tests.effects.test_ssh_run import press_ctrl_c


def make(folder: Path, name: str, data: bytes) -> ShipFile:
    """A file here, on its way to a folder `there` beside it."""
    source = folder / name
    source.write_bytes(data)
    target = PurePosixPath(folder / "there" / "a 'b' $c" / name)
    return ShipFile(source, target, hashlib.sha256(data).hexdigest())


def place(file: ShipFile) -> Path:
    return Path(file.target)


def partial(file: ShipFile) -> Path:
    path = Path(f"{file.target}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def send(shell: Shell, files: Sequence[ShipFile]) -> list[str]:
    said: list[str] = []
    shell.send(files, said.append)
    return said


def test_what_is_missing_arrives_and_what_is_there_is_not_sent(
    shell: Shell, tmp_path: Path
) -> None:
    files = [make(tmp_path, f"{n} ü.whl", os.urandom(n * 100_000)) for n in range(8)]
    said = send(shell, files)
    assert [place(file).read_bytes() == file.source.read_bytes() for file in files] == [True] * 8
    assert said[-1].startswith("sending: 8 of 8 files, 2.7 MiB of 2.7 MiB, ")
    assert said[-1].endswith("iB/s")
    before = shell.scripts
    assert send(shell, files) == []
    assert shell.scripts == before + 1


def test_a_folder_under_home_may_be_given_with_a_tilde(shell: Shell, tmp_path: Path) -> None:
    real = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    file = make(tmp_path, "x", b"here")
    name = f".firstlight-test-{os.getpid()}"
    send(shell, [ShipFile(file.source, PurePosixPath(f"~/{name}"), file.sha256)])
    assert (real / name).read_bytes() == b"here"
    (real / name).unlink()


def test_a_partial_copy_is_gone_on_from(shell: Shell, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    file = make(tmp_path, "big", data)
    partial(file).write_bytes(data[:2_000_000])
    assert "976.6 KiB of 976.6 KiB" in send(shell, [file])[-1]
    assert place(file).read_bytes() == data
    assert not partial(file).exists()


@pytest.mark.parametrize("rubbish", [b"other bytes", b"x" * 50_000])
def test_a_partial_copy_of_something_else_is_thrown_away(
    shell: Shell, tmp_path: Path, rubbish: bytes
) -> None:
    data = b"y" * 40_000
    file = make(tmp_path, "f", data)
    partial(file).write_bytes(rubbish)
    send(shell, [file])
    assert place(file).read_bytes() == data


def test_a_partial_copy_that_a_dead_sender_holds_is_left_to_it(
    shell: Shell, tmp_path: Path
) -> None:
    data = b"z" * 40_000
    file = make(tmp_path, "f", data)
    with partial(file).open("wb") as held:
        held.write(data[:10_000])
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        send(shell, [file])
        held.write(b"late")
    assert place(file).read_bytes() == data


def test_wrong_bytes_never_get_the_final_name(shell: Shell, tmp_path: Path) -> None:
    good = make(tmp_path, "f", b"good")
    file = ShipFile(good.source, good.target, "0" * 64)
    with pytest.raises(HostError) as caught:
        send(shell, [file])
    assert f"{good.source} has sha256 {good.sha256}, expected 000000" in str(caught.value)
    assert not place(file).exists() and not partial(file).exists()


def test_a_source_that_is_gone_is_told(shell: Shell, tmp_path: Path) -> None:
    file = make(tmp_path, "f", b"good")
    file.source.unlink()
    with pytest.raises(HostError, match=r"cannot read .*/f on this machine: No such file"):
        send(shell, [file])


def test_a_folder_that_cannot_be_made_is_told(shell: Shell, tmp_path: Path) -> None:
    file = make(tmp_path, "f", b"good")
    (tmp_path / "there").write_text("a file in the way")
    with pytest.raises(HostError, match="cannot make the folders for our files"):
        send(shell, [file])


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A filesystem of one MiB at a folder."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_noticed_before_sending(shell: Shell, tmp_path: Path) -> None:
    with small_disk(tmp_path / "there"):
        file = make(tmp_path, "f", b"x" * 3_000_000)
        with pytest.raises(HostError) as caught:
            send(shell, [file])
        room = f"no room in {place(file).parent}: 2.9 MiB needed, 1.0 MiB free"
        assert room in str(caught.value)
        assert "another `root`" in caught.value.remedy
        assert not partial(file).exists()


def test_files_are_added_up_before_they_are_let_in(shell: Shell, tmp_path: Path) -> None:
    with small_disk(tmp_path / "there"):
        files = [make(tmp_path, name, b"x" * 600_000) for name in ("f", "g")]
        with pytest.raises(HostError, match=r"1\.1 MiB needed"):
            send(shell, files)
        send(shell, files[:1])
        assert place(files[0]).exists()


def test_a_disk_that_fills_up_on_the_way_is_told(shell: Shell, tmp_path: Path) -> None:
    with small_disk(tmp_path / "there"):
        # It has no size that could be added up, and no end.
        endless = ShipFile(Path("/dev/zero"), PurePosixPath(tmp_path / "there/f"), "0" * 64)
        with pytest.raises(HostError, match="No space left on device") as caught:
            send(shell, [endless])
        assert f"cannot write {tmp_path}/there/f" in str(caught.value)
        assert not place(endless).exists()


def test_a_transfer_that_is_cut_is_gone_on_from(sshd: Sshd, shell: Shell, tmp_path: Path) -> None:
    data = os.urandom(64_000_000)
    file = make(tmp_path, "big", data)
    begun = partial(file)

    def cut_when_begun() -> None:
        while not (begun.exists() and begun.stat().st_size > 1_000_000):
            time.sleep(0.005)
        sshd.cut()

    watcher = threading.Thread(target=cut_when_begun, daemon=True)
    watcher.start()
    with pytest.raises(ConnectionLost):
        send(shell, [file])
    watcher.join()
    assert not place(file).exists()
    come = begun.stat().st_size
    assert 0 < come < len(data)
    shell.reopen()
    said = send(shell, [file])
    assert place(file).read_bytes() == data
    assert f"of {(len(data) - come) / 2**20:.1f} MiB" in said[-1]


def test_a_link_whose_goodbye_fails_as_well_is_told_as_a_broken_link(sshd: Sshd) -> None:
    connection = connect(sshd.host(), {})

    def pieces() -> Iterator[bytes]:
        yield b"x"
        # From here on nothing can be sent, although the link is not known to be down.
        connection.transport.sock.shutdown(socket.SHUT_WR)
        yield bytes(1_000_000)

    with pytest.raises(ConnectionLost):
        exchange(connection.transport, ("cat",), pieces(), Answer("mark"), 30, "near")
    disconnect(connection)


def test_a_link_that_breaks_while_a_program_is_begun_is_told_as_a_broken_link() -> None:
    class Channel:
        def settimeout(self, _: float) -> None:
            pass

        def exec_command(self, _: str) -> None:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

        def close(self) -> None:
            pass

    transport: Any = SimpleNamespace(open_session=lambda **_: Channel())
    with pytest.raises(ConnectionLost, match=r"near: .*No route to host"):
        exchange(transport, ("cat",), (), Answer("mark"), 30, "near")


def test_ctrl_c_ends_a_transfer_and_keeps_what_has_come(shell: Shell, tmp_path: Path) -> None:
    data = os.urandom(64_000_000)
    file = make(tmp_path, "big", data)
    threading.Thread(target=press_ctrl_c, args=(partial(file),), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        send(shell, [file])
    assert not place(file).exists()
    send(shell, [file])
    assert place(file).read_bytes() == data


@pytest.mark.parametrize("source", ["/nowhere/x.whl", "/proc", "/proc/self/mem"])
def test_a_disk_that_cannot_be_read_is_no_broken_link(source: str) -> None:
    file = ShipFile(Path(source), PurePosixPath("/there/x.whl"), "00")
    with pytest.raises(HostError, match=f"cannot read {source} on this machine: ") as caught:
        list(Disk().pieces(file, 0))
    assert caught.value.remedy
