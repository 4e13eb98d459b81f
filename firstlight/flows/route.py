"""Who downloads for a host: the host itself, or the controller, which then sends."""

from __future__ import annotations

from firstlight.build.fetch import Where
from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import programs
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import Survey

# The answer is kept on the host; `fetch: host` or `controller` in the inventory overrules it.
_PROBE = """\
"$1" "$2" --probe /dev/stdin "$3" <<<"$4" >&2
case $? in 0) way=host ;; *) way=controller ;; esac
mkdir -p -- "$5" && printf '%s\\n' "$way" >"$5/route.partial" && mv -- "$5/route.partial" "$5/route"
echo "$way"
"""


def try_route(shell: Shell, seen: Survey, request: str, python: str, console: Console) -> Where:
    """Try once whether the host can download a wheel of the request; remembered there."""
    name = shell.host.name
    console.say(f"{name}: trying whether it has a way out")
    program = programs.shipped(seen.root)["fetch_wheels.py"]
    shell.send((program,), console.note)
    args = (python, str(program.target), str(seen.root / "wheels"), request, str(seen.root))
    result = shell.run(Script(_PROBE, args), timeout_s=90)
    way = result.text.strip()
    if way == "host":
        console.say("  it has; it downloads for itself")
        return "host"
    if way == "controller":
        console.say("  it has not; this machine downloads and sends")
        return "controller"
    raise HostError(
        f"cannot tell whether it has a way out: {result.error_text.strip()}",
        where=name,
        remedy="say `fetch: host` or `fetch: controller` for it in inventory/",
    )


def known_route(target: Host, seen: Survey) -> Where | None:
    """What the inventory says, or what an earlier trial found; None when nobody knows."""
    if target.fetch != "auto":
        return target.fetch
    if target.is_local or seen.route == "host":
        return "host"
    return "controller" if seen.route == "controller" else None
