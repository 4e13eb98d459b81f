"""Running scripts over any exchange of bytes with bash: what both shells have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects.frame import BASH, Answer, framed
from firstlight.effects.library import program
from firstlight.effects.root import Sudo
from firstlight.effects.shell import Result

if TYPE_CHECKING:
    from firstlight.hosts.inventory import Host

_PROBE_S = 30.0


class Exchange(Protocol):
    """Starts a program, sends it bytes, feeds what it says to `answer` until that has ended.

    Raises TimeoutError when `timeout_s` passed first, ConnectionLost when the link broke.
    """

    def __call__(
        self, argv: tuple[str, ...], sent: Iterable[bytes], answer: Answer, timeout_s: float
    ) -> None: ...


class Talk:
    """Scripts to one host and their results; `sudo` is None where we are root already."""

    def __init__(self, host: Host, sudo: Sudo | None, exchange: Exchange) -> None:
        self._host, self._sudo, self._exchange = host, sudo, exchange

    def run(
        self, script: Script, timeout_s: float, payload: Iterable[bytes] | None = None
    ) -> Result:
        """The script's result; one that outlives its time, or a Ctrl-C, is stopped on the host."""
        argv, first = self._way(script)
        frame = framed(script, self._host.env, payload is not None)
        answer = Answer(frame.token)
        sent = itertools.chain((first + frame.text,), payload or ())
        try:
            self._exchange(argv, sent, answer, timeout_s)
        except TimeoutError:
            raise self._late(answer, (argv, first), timeout_s) from None
        except KeyboardInterrupt:
            self._stopped(answer, (argv, first))
            raise
        return answer.result(self._host.name)

    def _way(self, script: Script) -> tuple[tuple[str, ...], bytes]:
        if script.sudo and self._sudo is not None:
            return self._sudo.way(self._probe)
        return BASH, b""

    def _probe(self, argv: tuple[str, ...], sent: bytes) -> Answer:
        answer = Answer(framed(Script(""), {}).token)
        try:
            self._exchange(argv, (sent,), answer, _PROBE_S)
        except TimeoutError:
            what = f"sudo gave no answer within {_PROBE_S:.0f} s"
            raise HostError(what, where=self._host.name, remedy="try sudo there by hand") from None
        return answer

    def _late(
        self, answer: Answer, way: tuple[tuple[str, ...], bytes], timeout_s: float
    ) -> HostError:
        if not answer.started:
            fate = "bash did not even start"
        elif self._stopped(answer, way):
            fate = "it was stopped"
        else:
            fate = f"it may still run there, as process group {answer.group}"
        return HostError(
            f"a script gave no result within {timeout_s:.0f} s; {fate}",
            where=self._host.name,
            remedy="see what keeps the host busy, then run the command again",
        )

    def _stopped(self, late: Answer, way: tuple[tuple[str, ...], bytes]) -> bool:
        """End the script's whole process group, by the same way to root; True when it is gone."""
        # 0 is a group of another PID namespace; `kill -- -0` and `-1` would hit others.
        if not late.group.isdigit() or int(late.group) <= 1:
            return False
        argv, first = way
        frame = framed(Script(program("stop_group.sh"), (late.group,)), {})
        answer = Answer(frame.token)
        try:
            self._exchange(argv, (first + frame.text,), answer, 10.0)
        except (HostError, TimeoutError):
            return False
        return answer.ended and answer.result(self._host.name).ok
