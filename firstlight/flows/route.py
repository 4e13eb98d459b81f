"""Who downloads for a host: the host itself, or the controller, which then sends."""

from __future__ import annotations

from collections.abc import Mapping

from firstlight.build.fetch import Where
from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects.console import Console
from firstlight.effects.shell import Result, Shell
from firstlight.flows import programs
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import Survey

# The answer is kept on the host; `fetch: host` or `controller` in the inventory overrules it. Only
# 75 says that there is no way out: everything else may be over tomorrow, and is not kept.
_PROBE = """\
has='from importlib.util import find_spec as f; exit(0 if f("pip") or f("ensurepip") else 69)'
"$1" -c "$has"
rc=$?
case $rc in 0) ;; 69) echo no-pip && return ;; *) return "$rc" ;; esac
"$1" "$2" --probe /dev/stdin "$3" <<<"$4" >&2
rc=$?
case $rc in 0) way=host ;; 75) way=controller ;; *) return "$rc" ;; esac
mkdir -p -- "$5" && printf '%s\\n' "$way" >"$5/route.partial" && mv -- "$5/route.partial" "$5/route"
echo "$way"
"""
_FETCH = "`fetch: host` or `fetch: controller` for it in inventory/"


def try_route(shell: Shell, seen: Survey, request: str, python: str, console: Console) -> Where:
    """Try once whether the host can download a wheel of the request; remembered there.

    Raises HostError with the host's words when that cannot be told.
    """
    name = shell.host.name
    console.say(f"{name}: trying whether it has a way out")
    shipped = programs.shipped(seen.root)
    program = shipped["fetch_wheels.py"]
    shell.send((program, shipped["ending.py"]), console.note)
    args = (python, str(program.target), str(seen.root / "wheels"), request, str(seen.root))
    result = shell.run(Script(_PROBE, args), timeout_s=90)
    answer = result.text.strip() if result.ok else ""
    if answer not in _TOLD:
        raise _untold(result, name)
    way, told = _TOLD[answer]
    console.say(f"  {told}")
    return way


_TOLD: Mapping[str, tuple[Where, str]] = {
    "host": ("host", "it has; it downloads for itself"),
    "controller": ("controller", "it has not; this machine downloads and sends"),
    "no-pip": ("controller", "its Python has no pip to ask; this machine downloads and sends"),
}


def _untold(result: Result, host: str) -> HostError:
    """The host's words for why it cannot be told, and its own advice before ours."""
    lines = [line.strip() for line in result.error_text.splitlines() if line.strip()]
    said = {mark: line[len(mark) :] for line in lines for mark in _MARKS if line.startswith(mark)}
    why = said.get("error: ") or (lines[-1] if lines else f"exit status {result.rc}")
    fix = said.get("fix: ")
    return HostError(
        f"cannot tell whether it has a way out: {why}",
        where=host,
        remedy=f"{fix}; or say {_FETCH}" if fix else f"say {_FETCH}",
    )


_MARKS = ("error: ", "fix: ")


def known_route(target: Host, seen: Survey) -> Where | None:
    """What the inventory says, or what an earlier trial found; None when nobody knows."""
    if target.fetch != "auto":
        return target.fetch
    if target.is_local or seen.route == "host":
        return "host"
    return "controller" if seen.route == "controller" else None
