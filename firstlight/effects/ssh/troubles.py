"""Why a connection failed, said to a person: each cause with its place and its remedy."""

from __future__ import annotations

import errno
import socket

from paramiko.ssh_exception import (
    ChannelException,
    IncompatiblePeer,
    NoValidConnectionsError,
    ProxyCommandFailure,
    SSHException,
)

from firstlight.core.errors import ConnectionLost, HostError
from firstlight.effects.ssh.trust import Place

_AGAIN = "run the command again; what was started on the host may go on there"
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)


def is_crowded(error: Exception) -> bool:
    """True for a host that hung up before it said a word: sshd's MaxStartups, most often."""
    return (
        isinstance(error, EOFError | ConnectionResetError) or "SSH protocol banner" in str(error)
    ) and not isinstance(error, ChannelException)


def lost(where: str, error: Exception | None = None) -> ConnectionLost:
    """The link broke under a script or a transfer."""
    reason = f" ({error})" if error and str(error) else ""
    return ConnectionLost(f"the connection broke{reason}", where=where, remedy=_AGAIN)


def explain(error: Exception, place: Place) -> HostError:
    """What kept us from `place`, as one message."""
    what, remedy = _reason(error, place)
    return HostError(what, where=str(place), remedy=remedy)


def _reason(error: Exception, place: Place) -> tuple[str, str]:
    match error:
        case socket.gaierror() | UnicodeError():
            remedy = "correct `address` in the inventory, or HostName in your ssh_config"
            why = error.strerror if isinstance(error, OSError) else "no name can be so"
            return f"the name {place.address!r} does not resolve ({why})", remedy
        case ChannelException():
            via = place.via.name if place.via else "the hop before"
            return f"{via} cannot reach it ({error.text})", (
                f"is it up, and does the sshd of {via} allow forwarding (AllowTcpForwarding)?"
            )
        case NoValidConnectionsError():
            return _reason(next(iter(error.errors.values())), place)
        case TimeoutError():
            return "no answer: the connection timed out", "is it up, and does a firewall let us?"
        case ConnectionRefusedError():
            return f"it refuses connections on port {place.port}", (
                "is sshd running there, and is that its port?"
            )
        case OSError() if error.errno in _UNREACHABLE:
            return f"it cannot be reached ({error.strerror})", "is it up, and is the network?"
    return _ssh_reason(error)


def _ssh_reason(error: Exception) -> tuple[str, str]:
    if is_crowded(error):
        return "something answers, but it hangs up before it speaks SSH", (
            "is that the port of an sshd? A busy one turns people away: see MaxStartups and"
            " PerSourcePenalties in its sshd_config, and try again later"
        )
    match error:
        case IncompatiblePeer():
            return f"its sshd is too old to agree on safe ciphers with us ({error})", (
                "bring OpenSSH there up to date"
            )
        case ProxyCommandFailure():
            return f"the ProxyCommand of your ssh_config failed: {error}", "try it by hand"
        case SSHException() if "Timeout" in str(error):
            return f"no answer in time ({error})", "is it up, and is it overloaded?"
    return f"the connection failed ({error or type(error).__name__})", "try `ssh -v` by hand"
