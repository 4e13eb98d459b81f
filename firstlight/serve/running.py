"""The running room: what a launcher knows of its server, and the log, read piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from firstlight.core.command import Script, typed
from firstlight.core.errors import HostError
from firstlight.serve.launch import CTL, Deployment, Launcher, deployment_script

Condition = Literal[
    "starting", "running", "restarting", "stopping", "stopped", "failed", "lost", "missing"
]

_PROPERTIES = (
    "LoadState,ActiveState,SubState,Result,MainPID,ExecMainCode,ExecMainStatus,"
    "NRestarts,InvocationID"
)

# All deployments of a profile share one unit: what it says is about this one only while the unit
# is this one's.
_UNIT_STATE = f"""\
shown=LoadState=not-found
if cmp -s -- "$home/unit" "$units/$unit"; then shown=$(ctl show -p {_PROPERTIES} -- "$unit"); fi
printf '@state systemd\\n%s\\n' "$shown"
"""
_PROCESS_STATE = """\
printf '@state process\\n'
if [ -e "$home/serve.sh" ]; then bash "$home/serve.sh" state "$home"; else echo State=missing; fi
"""

_STATE: Mapping[Launcher, str] = {
    "systemd-system": CTL["systemd-system"] + _UNIT_STATE,
    "systemd-user": CTL["systemd-user"] + _UNIT_STATE,
    "process": _PROCESS_STATE,
}

# A file is known by inode and time of birth. A log that was opened and is not the one read before
# has taken its place: the rest of that one, now log.1, comes first. Between the two there is none.
_FILE_LOG = """\
offset=$9 most=${10}
key() { stat -L -c %i.%W -- "$1" 2>/dev/null; }
size_of() { stat -L -c %s -- "$1"; }
[ -n "$offset" ] || offset=$(cat -- "$home/begin" 2>/dev/null)
from=${offset%:*} at=${offset#*:} old=$home/log.1 log=/proc/self/fd/8 now=
if { exec 8<"$home/log"; } 2>/dev/null; then now=$(key "$log"); fi
if [ "$from" != "$now" ] && [ -n "$from" ] && [ "$from" = "$(key "$old")" ] &&
  { [ -z "$now" ] || [ "$at" -lt "$(size_of "$old")" ]; }; then
  exec 8<"$old"
elif [ -z "$now" ]; then
  printf '@log file %s %d 0\\n' "${from:--}" "${at:-0}"
  return
elif [ "$from" != "$now" ]; then
  at=0
fi
count=$(($(size_of "$log") - at))
[ "$count" -le "$most" ] || count=$most
[ "$count" -ge 0 ] || count=0
printf '@log file %s %d %d\\n' "$(key "$log")" "$at" "$count"
tail -c "+$((at + 1))" <&8 | head -c "$count"
"""

# The first look is at this start alone; a cursor goes on into the next one, so that what a crash
# said is not missed. systemd forgets the last start of a unit that was stopped; the journal does
# not. A dead server's last lines may be on their way into the journal still.
_JOURNAL_LOG = """\
offset=$9 most=${10}
case $shown in *ActiveState=failed*|*ActiveState=inactive*) journalctl --sync 2>/dev/null ;; esac
read_on() { journalctl --quiet --no-pager -o export "$@"; }
printf '@log journal %s\\n' "${offset:--}"
if [ -n "$offset" ]; then
  read_on --output-fields=MESSAGE --unit="$unit" --after-cursor="$offset"
else
  id=$(printf '%s\n' "$shown" | sed -n 's/^InvocationID=//p')
  [ -n "$id" ] || id=$(read_on --unit="$unit" -n 20 |
    sed -nE 's/^(_SYSTEMD_)?INVOCATION_ID=//p' | tail -n 1)
  [ -z "$id" ] ||
    read_on --output-fields=MESSAGE _SYSTEMD_INVOCATION_ID="$id" + INVOCATION_ID="$id"
fi | head -c "$most"
"""

_LOG: Mapping[Launcher, str] = {
    "systemd-system": _JOURNAL_LOG,
    "systemd-user": _FILE_LOG,
    "process": _FILE_LOG,
}

_STATE_PART = re.compile(
    rb"^@state (systemd|process)\n(.*?)(?=^@log |\Z)", re.MULTILINE | re.DOTALL
)
_LOG_PART = re.compile(rb"^@log (file|journal) (\S+)(?: (\d+) (\d+))?\n", re.MULTILINE)

_UNIT_CONDITIONS: Mapping[str, Condition] = {
    "active": "running",
    "reloading": "running",
    "activating": "starting",
    "deactivating": "stopping",
    "failed": "failed",
    "inactive": "stopped",
}


@dataclass(frozen=True)
class ServerState:
    """How the server is, by its launcher; `rc` is the exit status of the last run that ended.

    `running` means that its process is there, not that it answers; `lost`, that it may be there and
    nobody looks after it. `detail` says more, or "".
    """

    condition: Condition
    pid: int | None = None
    rc: int | None = None
    restarts: int = 0
    detail: str = ""

    @property
    def over(self) -> bool:
        """True when the server will not come back by itself."""
        return self.condition in ("stopped", "failed", "lost", "missing")

    @property
    def may_run(self) -> bool:
        """True when something of the server may hold its port and its memory."""
        return not self.over or self.condition == "lost"


@dataclass(frozen=True)
class LogChunk:
    """A piece of the log, and the text that asks for the next piece; opaque to everybody else."""

    next_offset: str
    data: bytes
    state: ServerState


def state(deployment: Deployment) -> Script:
    """Ask how the server is; `parse_state` reads the answer."""
    return deployment_script(deployment, _STATE[deployment.launcher])


def read_log(deployment: Deployment, offset: str = "", max_bytes: int = 1 << 18) -> Script:
    """Ask for the state, and then for the log from `offset`; `parse_log` reads the answer.

    "" means from where the present start of the server began. The journal counts its own marks
    in `max_bytes`, some 200 bytes a line.
    """
    text = _STATE[deployment.launcher] + _LOG[deployment.launcher]
    # Only root reads the journal of a system unit on every host.
    return deployment_script(deployment, text, offset, str(max_bytes), may_need_root=True)


def parse_state(out: bytes, host: str) -> ServerState:
    """What the launcher said; raises HostError when that cannot be read."""
    found = _STATE_PART.search(out)
    if found is None:
        raise _unreadable("state", out, host)
    pairs = (line.partition("=") for line in found[2].decode("utf-8", "replace").splitlines())
    fields = {name: value for name, _, value in pairs}
    return _of_unit(fields) if found[1] == b"systemd" else _of_process(fields)


def parse_log(out: bytes, host: str) -> LogChunk:
    """The piece of log that `read_log` asked for; raises HostError when it cannot be read.

    A piece that was cut short on its way is no loss: the next one starts where it ends.
    """
    known = parse_state(out, host)
    found = _LOG_PART.search(out)
    if found is None:
        raise _unreadable("log", out, host)
    key, rest = found[2].decode(), out[found.end() :]
    if found[1] == b"journal":
        return _journal("" if key == "-" else key, rest, known)
    data = rest[: int(found[4] or 0)]
    offset = "" if key == "-" else f"{key}:{int(found[3] or 0) + len(data)}"
    return LogChunk(offset, data, known)


def _unreadable(what: str, out: bytes, host: str) -> HostError:
    said = out[-300:].decode("utf-8", "replace").strip() or "nothing"
    return HostError(
        f"cannot read the server's {what}; the host said: {said}",
        where=host,
        remedy=f"try `{typed('status', {'host': host})}`, or log in to the host",
    )


def _of_unit(fields: Mapping[str, str]) -> ServerState:
    if fields.get("LoadState") == "not-found":
        return ServerState("missing", detail="its unit is not installed")
    condition = _UNIT_CONDITIONS.get(fields.get("ActiveState", ""))
    if condition is None:
        return ServerState("missing", detail="systemd does not answer")
    if fields.get("SubState", "").startswith("auto-restart"):
        condition = "restarting"
    words = (fields.get(name, "") for name in ("ActiveState", "SubState", "Result"))
    return ServerState(
        condition,
        pid=_number(fields.get("MainPID")) or None,
        rc=_unit_status(fields),
        restarts=_number(fields.get("NRestarts")) or 0,
        detail="systemd says {} ({}), result {}".format(*words),
    )


def _unit_status(fields: Mapping[str, str]) -> int | None:
    """As a shell gives it: a signal counts from 128. CLD_EXITED is 1; above it are the signals."""
    code, status = _number(fields.get("ExecMainCode")), _number(fields.get("ExecMainStatus"))
    if not code or status is None:
        return None
    return status if code == 1 else 128 + status


def _of_process(fields: Mapping[str, str]) -> ServerState:
    word, rc = fields.get("State", ""), _number(fields.get("ExitStatus"))
    condition, detail = _process_condition(word, rc)
    pid, restarts = _number(fields.get("MainPID")), _number(fields.get("Restarts"))
    return ServerState(condition, pid, rc, restarts or 0, detail)


def _process_condition(word: str, rc: int | None) -> tuple[Condition, str]:
    match word:
        case "starting" | "running" | "restarting" | "stopping" | "stopped":
            return word, ""
        case "ended":
            return ("failed" if rc else "stopped"), f"it ended with status {rc}"
        case "gave-up":
            return "failed", "it crashed too often to be started again"
        case "lost":
            return "lost", "its supervisor was killed"
        case "rebooted":
            return "stopped", "the host was rebooted"
    return "missing", "it was never started"


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _journal(offset: str, export: bytes, known: ServerState) -> LogChunk:
    lines = []
    for entry in _entries(export):
        offset = entry.get(b"__CURSOR", b"").decode("ascii", "replace") or offset
        lines.append(entry.get(b"MESSAGE", b"") + b"\n")
    return LogChunk(offset, b"".join(lines), known)


def _entries(export: bytes) -> Iterator[dict[bytes, bytes]]:
    """The whole entries of the journal in systemd's "Journal Export Format".

    A field is NAME=VALUE on a line; or NAME on a line, the length in 8 bytes (little endian) and
    that many bytes. An empty line ends an entry; one without it was cut and is left out.
    """
    entry: dict[bytes, bytes] = {}
    at = 0
    while (end := export.find(b"\n", at)) >= 0:
        line, at = export[at:end], end + 1
        name, equals, value = line.partition(b"=")
        if not line and entry:
            yield entry
            entry = {}
        elif equals:
            entry[name] = value
        elif line:
            length = int.from_bytes(export[at : at + 8], "little")
            entry[name] = export[at + 8 : at + 8 + length]
            at += 8 + length + 1
