"""One program on the host over one channel: bytes in, two streams and a status out."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Iterable

import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from firstlight.core.command import Command
from firstlight.core.errors import HostError
from firstlight.effects.frame import Answer
from firstlight.effects.interrupts import undisturbed
from firstlight.effects.ssh.troubles import lost

_CHUNK = 1 << 17
_PACKET = 1 << 15
_STALLED_S = 60.0


def exchange(
    transport: paramiko.Transport,
    argv: tuple[str, ...],
    sent: Iterable[bytes],
    answer: Answer,
    timeout_s: float,
    where: str,
) -> None:
    """Run `argv`, send, listen until both outputs are complete or the program has gone.

    Raises TimeoutError when `timeout_s` passed after all was sent, ConnectionLost when the link
    broke, HostError when the host opens no channel or its shell was killed.
    """
    try:
        with undisturbed():
            channel = transport.open_session(timeout=20)
    except ChannelException as error:
        what = f"it opens no further session ({error.text})"
        raise HostError(what, where=where, remedy="see MaxSessions in its sshd_config") from None
    except (SSHException, EOFError, OSError) as error:
        raise lost(where, error) from None
    try:
        channel.settimeout(_STALLED_S)
        _begin(channel, argv, where)
        _send(channel, sent)
        _listen(channel, answer, time.monotonic() + timeout_s)
        if not answer.ended:
            answer.status = _status(channel, where)
    except (SSHException, EOFError) as error:
        raise lost(where, error) from None
    finally:
        # Saying goodbye over a broken link fails as well, and would hide what broke it.
        with undisturbed(), contextlib.suppress(SSHException, EOFError, OSError):
            channel.close()


def _begin(channel: paramiko.Channel, argv: tuple[str, ...], where: str) -> None:
    # Constant words, the same in bash, zsh, fish and tcsh: no login shell parses our text.
    words = "exec " + Command(argv).line()
    try:
        with undisturbed():
            channel.exec_command(words)
    except OSError as error:
        # Paramiko hands on what the socket said when the link broke while the host was to answer.
        raise lost(where, error) from None


def _send(channel: paramiko.Channel, sent: Iterable[bytes]) -> None:
    try:
        for piece in sent:
            view = memoryview(piece)
            for start in range(0, len(view), _PACKET):
                with undisturbed():
                    channel.sendall(bytes(view[start : start + _PACKET]))
        with undisturbed():
            channel.shutdown_write()
    except TimeoutError:
        raise SSHException(f"the host took no data for {_STALLED_S:.0f} s") from None
    except OSError:
        # The program ended before it had read everything; what it said tells why.
        return


def _listen(channel: paramiko.Channel, answer: Answer, deadline: float) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(channel.fileno(), selectors.EVENT_READ)
        while not answer.ended:
            with undisturbed():
                over = channel.closed or (channel.eof_received and channel.exit_status_ready())
                moved = _drain(channel, answer)
            if moved:
                continue
            if over:
                return
            if time.monotonic() > deadline:
                raise TimeoutError
            # After EOF the descriptor stays ready, so that only the status is worth waiting for.
            if channel.eof_received:
                time.sleep(0.05)
            else:
                ready.select(min(1.0, max(0.0, deadline - time.monotonic())))


def _drain(channel: paramiko.Channel, answer: Answer) -> bool:
    moved = False
    while channel.recv_ready():
        answer.out.feed(channel.recv(_CHUNK))
        moved = True
    while channel.recv_stderr_ready():
        answer.err.feed(channel.recv_stderr(_CHUNK))
        moved = True
    return moved


def _status(channel: paramiko.Channel, where: str) -> int:
    """The exit status; -1 is none: the link broke, or a signal killed the shell."""
    with undisturbed():
        status = channel.recv_exit_status()
    if status >= 0:
        return status
    transport = channel.get_transport()
    transport.join(1.0)  # a dying transport closes its channels a moment before it says so
    if not transport.is_active():
        raise lost(where, transport.get_exception())
    raise HostError(
        "the script's shell was killed on the host",
        where=where,
        remedy="was it out of memory? `dmesg` there says so; then run the command again",
    )
