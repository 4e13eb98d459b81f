"""Files of one host on their way to another: read in blocks, and told when they cannot be."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.errors import HostError
from firstlight.core.plan import ShipFile
from firstlight.effects.local import LocalShell
from firstlight.effects.ssh import relay
from firstlight.effects.ssh.relay import Relay
from firstlight.hosts.inventory import Host


@contextlib.contextmanager
def reading(lengths: dict[str, int]) -> Iterator[Relay]:
    origin = Relay(LocalShell(Host(name="local")), lengths)
    try:
        yield origin
    finally:
        origin.close()


def file(path: Path) -> ShipFile:
    return ShipFile(path, PurePosixPath("/there"), "")


@pytest.mark.parametrize("offset", [0, 999, 1000, 2500, 3000])
def test_the_bytes_from_any_offset_on(
    tmp_path: Path, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_BLOCK", 1000)
    path = tmp_path / "it's a wheel"
    path.write_bytes(os.urandom(3000))
    with reading({str(path): 3000}) as origin:
        assert b"".join(origin.pieces(file(path), offset)) == path.read_bytes()[offset:]
        assert origin.sha256(file(path)) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    with reading({str(path): 5}) as origin, pytest.raises(HostError) as caught:
        list(origin.pieces(file(path), 0))
    assert str(caught.value).startswith(f"local: cannot read {path}: it has become shorter\n  -> ")


def test_a_file_that_is_gone_has_no_digest(tmp_path: Path) -> None:
    with reading({}) as origin, pytest.raises(HostError, match=r"cannot read .*/gone: .*No such"):
        origin.sha256(file(tmp_path / "gone"))
