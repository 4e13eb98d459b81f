"""How a script becomes root: sudo without a password, or with one that stays in memory."""

from __future__ import annotations

from collections.abc import Callable

from firstlight.core.errors import HostError
from firstlight.effects.frame import BASH, Answer
from firstlight.effects.shell import AskPassword

Way = tuple[tuple[str, ...], bytes]
"""The words that start bash, and the bytes that must come before the script."""
Attempt = Callable[[tuple[str, ...], bytes], Answer]

_SUDO = ("env", "-u", "BASH_ENV", "LC_ALL=C", "sudo")
_BASH = ("--", *BASH[-3:])
_FREE = (*_SUDO, "-n", *_BASH)
# -k: an older, still valid login must not leave the password unread, for bash to see it as text.
_PAID = (*_SUDO, "-k", "-S", "-p", "", *_BASH)


class Sudo:
    """Root by sudo on one host; asks a person at most once, and only where it must."""

    def __init__(self, account: str, where: str, ask: AskPassword | None) -> None:
        self._account, self._where, self._ask = account, where, ask
        self._known: Way | None = None

    def way(self, attempt: Attempt) -> Way:
        """The way to root, found out at the first call; raises HostError where there is none."""
        if self._known is None:
            answer = attempt(_FREE, b"")
            self._known = (
                (_FREE, b"") if answer.status == 0 else self._with_password(answer, attempt)
            )
        return self._known

    def _with_password(self, refused: Answer, attempt: Attempt) -> Way:
        said = refused.err.noise
        if "password is required" not in said and "authentication is required" not in said:
            raise self._error(f"sudo does not work there: {refused.noise or 'it said nothing'}")
        if self._ask is None:
            raise self._error(
                "sudo needs a password, and there is no terminal to ask for it",
                "run the command in a terminal, or allow sudo without a password there",
            )
        first = self._ask(f"sudo password for {self._account}").encode() + b"\n"
        # Tried with no script behind it, so that no line of a script is taken for a password.
        answer = attempt(_PAID, first)
        if answer.status != 0:
            raise self._refusal(answer)
        return _PAID, first

    def _refusal(self, answer: Answer) -> HostError:
        said = answer.err.noise
        if "incorrect password" in said or "no password was provided" in said:
            what = f"the sudo password for {self._account} is wrong"
            return self._error(what, "run the command again and type the password of that account")
        return self._error(f"sudo refuses {self._account}: {answer.noise or 'it said nothing'}")

    def _error(self, what: str, remedy: str = "") -> HostError:
        usual = f"let {self._account} use sudo there, or ask the host's administrator"
        return HostError(what, where=self._where, remedy=remedy or usual)
