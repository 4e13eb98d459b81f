"""Root on this machine's side: the local exchange of bytes with a real sudo, on a test host."""

from collections.abc import Iterable

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects.frame import Answer
from firstlight.effects.local import LocalShell
from firstlight.effects.root import Sudo
from firstlight.effects.shell import AskPassword
from firstlight.effects.talk import Talk
from firstlight.hosts.inventory import Host
from tests.hosts import machine
from tests.hosts.fleet import TestHost

pytestmark = pytest.mark.hosts
LOCAL = Host(name="local")
WHO = Script('id -un; echo "$1"', ("a 'b'",), sudo=True)


def local_talk(test: TestHost, user: str, ask: AskPassword | None) -> Talk:
    """What LocalShell does for a user who is not root, moved onto a machine with sudo."""
    shell = LocalShell(LOCAL)
    first = f"--target={machine.leader(test.pid)}"
    # setsid: our own session is none of that machine's, which shows its process group as 0.
    enter = ("nsenter", first, "--all", "setsid", "--wait", "runuser", "-u", user, "--")

    def exchange(
        argv: tuple[str, ...], sent: Iterable[bytes], answer: Answer, timeout_s: float
    ) -> None:
        shell._exchange((*enter, *argv), sent, answer, timeout_s)

    return Talk(LOCAL, Sudo(user, LOCAL.name, ask), exchange)


def test_without_a_password(gpu01: TestHost) -> None:
    assert local_talk(gpu01, "zoe", None).run(WHO, 60).text == "root\na 'b'\n"


def test_with_a_password_asked_for_once(gpu01: TestHost) -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "correct horse"

    talk = local_talk(gpu01, "finn", ask)
    assert talk.run(WHO, 60).text == "root\na 'b'\n"
    assert talk.run(WHO, 60).text == "root\na 'b'\n"
    assert asked == ["sudo password for finn"]


def test_with_a_wrong_password_or_nobody_to_ask(gpu01: TestHost) -> None:
    with pytest.raises(HostError, match="the sudo password for finn is wrong"):
        local_talk(gpu01, "finn", lambda _: "wrong").run(WHO, 60)
    with pytest.raises(HostError, match="no terminal to ask"):
        local_talk(gpu01, "finn", None).run(WHO, 60)


def test_a_late_script_of_root_is_stopped(gpu01: TestHost) -> None:
    talk = local_talk(gpu01, "zoe", None)
    with pytest.raises(HostError, match="it was stopped"):
        talk.run(Script("sleep 615 & sleep 616", sudo=True), 5)
    assert talk.run(Script("pgrep -f 'sleep 61[56]'"), 60).text == ""
