"""What the tests of the doors may ask for: an sshd on a loopback port, a HOME that knows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from tests.effects.sshd import Sshd, fill_home, needs_sshd, running


@pytest.fixture(scope="session")
def one_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The sshd of all quick tests; ask for `sshd`, which makes it fit for one test."""
    needs_sshd()
    with running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's HOME with one key, who knows no host yet and runs no agent."""
    home = tmp_path / "home"
    fill_home(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def sshd(one_sshd: Sshd, home: Path) -> Sshd:
    """An sshd that lets this test's person in, and whose key that person trusts."""
    one_sshd.allow(home / ".ssh" / "id_ed25519.pub")
    (home / ".ssh" / "known_hosts").write_text(one_sshd.known())
    return one_sshd


@pytest.fixture
def shell(sshd: Sshd) -> Iterator[Shell]:
    """An open shell on that sshd."""
    opened = open_shell(sshd.host(), {})
    yield opened
    opened.close()
