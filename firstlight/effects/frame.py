"""How a script goes to bash and its answer comes back: marked, so that nothing is cut or added.

What a login shell prints before bash starts lies before the first mark; what a program left in
the background prints later lies after the last one. Neither belongs to the script.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from firstlight.core.command import Script, assignments
from firstlight.core.errors import HostError
from firstlight.effects.shell import Result

BASH = ("env", "-u", "BASH_ENV", "LC_ALL=C", "/bin/bash", "--norc", "-s")
PAYLOAD = 9
"""The file descriptor under which a script finds the bytes that follow it."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Frame:
    """A script ready to travel, and the random word that marks its output."""

    token: str
    text: bytes


def framed(script: Script, env: Mapping[str, str], payload: bool = False) -> Frame:
    """Mark the script's output; bash parses all of the script before it runs any of it.

    The first mark carries the process group, the last one the exit status. With `payload` the
    bytes sent after the frame are the script's, as descriptor PAYLOAD.
    """
    token = secrets.token_hex(16)
    exports = assignments({"PATH": _PATH, "LANG": "C.UTF-8", **env})
    extra = f" {PAYLOAD}<&0" if payload else ""
    text = f"""unset "${{!LC_@}}" LANGUAGE; export {exports}
IFS=' ' read -r _ _ _ _ __group _ </proc/$$/stat
printf '%s:%s\\n' {token} "$__group"; printf '%s:\\n' {token} >&2
{{
(
{script.source()}){extra}
__status=$?
printf '%s:%s\\n' {token} "$__status"; printf '%s:\\n' {token} >&2
exit "$__status"
}}
"""
    # Names of files that are no UTF-8 travel as the bytes that they are.
    return Frame(token, text.encode("utf-8", "surrogateescape"))


class Stream:
    """One output of a framed script, fed as it arrives; each byte is looked at once."""

    def __init__(self, token: str) -> None:
        self._mark = token.encode() + b":"
        self._data = bytearray()
        self._next = 0
        self._marks: list[tuple[int, int]] = []

    def feed(self, piece: bytes) -> None:
        """Take the next bytes, and look for marks in them."""
        self._data += piece
        while len(self._marks) < 2:
            start = self._data.find(self._mark, self._next)
            end = self._data.find(b"\n", start) if start >= 0 else -1
            if end < 0:
                tail = max(self._next, len(self._data) - len(self._mark))
                self._next = start if start >= 0 else tail
                return
            self._marks.append((start, end))
            self._next = end + 1

    @property
    def started(self) -> bool:
        """True when the first mark has come."""
        return len(self._marks) > 0

    @property
    def ended(self) -> bool:
        """True when the last mark has come: nothing of the script can follow."""
        return len(self._marks) == 2

    @property
    def body(self) -> bytes:
        """What the script itself wrote."""
        if not self._marks:
            return b""
        stop = self._marks[1][0] if self.ended else len(self._data)
        return bytes(self._data[self._marks[0][1] + 1 : stop])

    @property
    def noise(self) -> str:
        """What came before the script, as text."""
        stop = self._marks[0][0] if self._marks else len(self._data)
        return self._data[:stop].decode("utf-8", "replace").strip()

    def note(self, index: int) -> str:
        """The words of a mark; "" when it has not come."""
        if index >= len(self._marks):
            return ""
        start, end = self._marks[index]
        return self._data[start + len(self._mark) : end].decode("ascii", "replace")


class Answer:
    """Both outputs of one framed script; `status` is the shell's own, once it is known."""

    def __init__(self, token: str) -> None:
        self.out, self.err = Stream(token), Stream(token)
        self.status: int | None = None

    @property
    def started(self) -> bool:
        """True when bash runs the script."""
        return self.out.started

    @property
    def ended(self) -> bool:
        """True when both outputs are complete."""
        return self.out.ended and self.err.ended

    @property
    def group(self) -> str:
        """The script's process group on the host; "" before it started."""
        return self.out.note(0)

    @property
    def noise(self) -> str:
        """What was said instead of starting the script: the last line of stderr, else stdout."""
        lines = (self.err.noise or self.out.noise).splitlines()
        return lines[-1] if lines else ""

    def result(self, where: str) -> Result:
        """The script's outcome; raises HostError when bash never started."""
        if not self.started:
            said = f"; it said: {self.noise}" if self.noise else ""
            raise HostError(
                f"the login shell did not start /bin/bash (exit status {self.status}){said}",
                where=where,
                remedy="see that bash is installed there and that the account has a login shell",
            )
        word = self.out.note(1)
        status = int(word) if word else self.status
        return Result(1 if status is None else status, self.out.body, self.err.body)
