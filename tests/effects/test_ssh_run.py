"""Scripts over a real sshd: exact bytes, exact arguments, and no hanging."""

import os
import signal
import string
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError
from firstlight.effects.frame import framed
from firstlight.effects.shell import Shell
from firstlight.effects.ssh import open_shell
from tests.effects.sshd import Sshd


def test_streams_status_and_arguments(shell: Shell) -> None:
    script = Script('echo "$1|$X"; echo oh >&2; exit 7', ("a  b",), {"X": "(FP8): *"})
    result = shell.run(script)
    assert (result.rc, result.text, result.error_text) == (7, "a  b|(FP8): *\n", "oh\n")


def test_the_environment_is_ours_and_the_inventory_s(sshd: Sshd) -> None:
    shell = open_shell(sshd.host(env={"FL_NOTE": "two words's"}), {})
    result = shell.run(Script('printf "%s\\n" "$PATH" "$LANG" "${LC_ALL-none}" "$FL_NOTE"'))
    shell.close()
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert result.text.splitlines() == [usual, "C.UTF-8", "none", "two words's"]


any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
tricky = st.text(string.punctuation + " \n\t~é漢", max_size=30)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(any_text | tricky, max_size=5))
def test_arguments_arrive_as_they_are(shell: Shell, args: list[str]) -> None:
    result = shell.run(Script('[ $# -eq 0 ] || printf "%s\\0" "$@"', tuple(args)))
    assert result.out == b"".join(arg.encode() + b"\0" for arg in args)


def test_sixteen_megabytes_on_both_streams(shell: Shell) -> None:
    result = shell.run(Script("head -c 16777216 /dev/zero; head -c 4000000 /dev/zero >&2"))
    assert (result.out.count(0), result.err.count(0)) == (1 << 24, 4_000_000)


def test_every_byte_survives(shell: Shell) -> None:
    octal = "".join(f"\\{n:03o}" for n in range(256))
    assert shell.run(Script('printf "$1"', (octal,))).out == bytes(range(256))
    text = "漢字 ünïcode 😀 " * 5000
    assert shell.run(Script('printf %s "$1"', (text,))).text == text


def test_a_program_that_reads_its_input_finds_none(shell: Shell) -> None:
    result = shell.run(Script("cat; read -r x; echo after"))
    assert result.text == "after\n"


def test_a_child_left_behind_does_not_hold_us(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = Script('sleep 600 & echo "$!" >"$1"; echo done', (str(pid),))
    assert shell.run(script, timeout_s=60).text == "done\n"
    os.kill(int(pid.read_text()), 9)


def test_output_right_before_the_end_is_whole_despite_a_child(shell: Shell) -> None:
    for _ in range(10):
        result = shell.run(Script("(sleep 1; echo late) & head -c 300000 /dev/zero"))
        assert len(result.out) == 300_000


def test_exit_traps_and_syntax_errors_keep_their_status(shell: Shell) -> None:
    assert shell.run(Script("trap 'echo bye' EXIT; exit 4")).text == "bye\n"
    result = shell.run(Script("if true; do"))
    assert result.rc == 2 and "syntax error" in result.error_text


@pytest.mark.parametrize("login", ["zsh", "fish", "bash"])
def test_any_login_shell_and_its_noise(sshd: Sshd, home: Path, login: str) -> None:
    words = f'echo noise; echo louder >&2; exec {login} -c \\"$SSH_ORIGINAL_COMMAND\\"'
    sshd.allow(home / ".ssh" / "id_ed25519.pub", f'command="{words}"')
    shell = open_shell(sshd.host(), {})
    result = shell.run(Script('echo "$1"; echo oh >&2', ("Loading (FP8): *",)))
    shell.close()
    assert (result.out, result.err) == (b"Loading (FP8): *\n", b"oh\n")


def test_an_account_without_a_shell_is_told(sshd: Sshd, home: Path) -> None:
    sshd.allow(home / ".ssh" / "id_ed25519.pub", 'command="echo no shell for you; exit 1"')
    shell = open_shell(sshd.host(), {})
    with pytest.raises(HostError, match=r"did not start /bin/bash .*no shell for you"):
        shell.run(Script("true"))
    shell.close()


def test_a_late_script_is_stopped_with_its_children(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = Script('sleep 600 & echo "$!" >"$1"; wait', (str(pid),))
    with pytest.raises(HostError, match="no result within 5 s; it was stopped"):
        shell.run(script, timeout_s=5)
    assert not alive(int(pid.read_text()))


def press_ctrl_c(when: Path) -> None:
    """As a person would, once a file has something in it."""
    while not (when.exists() and when.stat().st_size):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def alive(pid: int) -> bool:
    """True for a process that is there and no zombie."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_script_that_kills_its_shell_is_no_failed_command(shell: Shell) -> None:
    with pytest.raises(HostError, match="shell was killed") as caught:
        shell.run(Script("kill -9 $$"))
    assert not isinstance(caught.value, ConnectionLost)
    assert shell.run(Script("echo on")).text == "on\n"


def test_a_cut_session_is_a_lost_connection_and_can_be_reopened(sshd: Sshd, shell: Shell) -> None:
    threading.Timer(0.5, sshd.cut).start()
    with pytest.raises(ConnectionLost, match="the connection broke") as caught:
        shell.run(Script("sleep 600"), timeout_s=60)
    assert "run the command again" in caught.value.remedy
    with pytest.raises(ConnectionLost):
        shell.run(Script("true"))
    shell.reopen()
    assert shell.run(Script("echo again")).text == "again\n"
    assert shell.connections == 2


def test_a_script_cut_short_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = framed(Script(f"touch {mark}\n" * 50), {}).text
    for length in range(0, len(text) - 3, 97):
        subprocess.run(["/bin/bash", "--norc", "-s"], input=text[:length], capture_output=True)
    assert not mark.exists()


def test_what_it_cost_is_counted(shell: Shell) -> None:
    shell.run(Script("true"))
    shell.run(Script("true"))
    assert (shell.connections, shell.scripts) == (1, 2)


def test_ctrl_c_stops_the_script_and_goes_on_up(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    threading.Thread(target=press_ctrl_c, args=(pid,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        shell.run(Script('echo $BASHPID >"$1"; sleep 600', (str(pid),)))
    assert not alive(int(pid.read_text()))
    assert shell.run(Script("echo on")).text == "on\n"
