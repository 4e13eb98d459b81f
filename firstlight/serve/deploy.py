"""From a profile and a release to the steps that make a server of them, and back again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firstlight.core.command import Command, Script, quote
from firstlight.core.plan import Run, Step, Watch, WriteFile
from firstlight.serve import launch
from firstlight.serve.manifest import Manifest, render_manifest
from firstlight.serve.render import (
    Deployment,
    render_env,
    render_launch,
    render_unit,
)
from firstlight.serve.smoke import questions_of, request_for

# Each link is renamed into place. `previous` is what a rollback would go back to; `started` lets
# a later deploy find a server that was left while it started; `coming` tells a deploy that another
# one has begun after it.
_POINT = """\
cd -- "$1" || return
point() { ln -sfn -- "$2" "$1.new" && mv -T -- "$1.new" "$1"; }
"""
_STARTED = _POINT + 'point started "$2"\n'
_COMING = _POINT + 'point coming "$2"\n'
_LATEST = 'readlink -- "$1/coming" || true\n'
_SWITCH = f"""\
{_POINT}
was=$(readlink -- current)
if [ -n "$was" ] && [ "$was" != "$2" ]; then point previous "$was" || return; fi
point current "$2" && point started "$2"
"""
# What was free when the plan was made may be taken now: models take hours to come. A server that
# was stopped a moment ago may hold its port a moment longer.
_PORT = """\
taken() {
  local at place state
  at=$(printf :%04X "$1")
  while read -r _ place _ state _; do
    [[ $state != 0A || $place != *"$at" ]] || return 0
  done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
  return 1
}
for _ in $(seq "$2"); do taken "$1" || return 0; sleep 0.2; done
echo "something listens on port $1 by now: stop it, or give service.port another number" >&2
return 1
"""
_STOP_MARGIN_S = 60.0
STARTING = frozenset({"stop", "mark"})
"""The ids of the steps after which a failure leaves something to be undone."""


@dataclass(frozen=True)
class Target:
    """One deployment in its three aspects: what is rendered, what is launched, what is recorded."""

    rendered: Deployment
    service: launch.Deployment
    manifest: Manifest


def audit_step(profile: str, host: str) -> Step:
    """Hold the KV cache that the engine would make against the profile's policy."""
    line = Command(("invoke", "audit", "--profile", profile, "--host", host)).line()
    return Step("audit", "say what becomes of its KV cache", Watch("audit", Script(line)))


def file_steps(
    target: Target, templates: Mapping[str, str], secrets: Mapping[str, str]
) -> Iterator[Step]:
    """Write the deployment's files."""
    home = target.rendered.home
    script = render_launch(target.rendered, templates)
    yield Step("launch", "write the launch script", WriteFile(home / "launch.sh", script, 0o755))
    if target.rendered.flavour != "process":
        unit = render_unit(target.rendered, templates)
        yield Step("unit", "write the systemd unit", WriteFile(home / "unit", unit))
    if secrets:
        env = WriteFile(home / "env", render_env(secrets), 0o600, secret=True)
        yield Step("env", "write the secrets, for the server alone", env)
    yield record_step(target)


def record_step(target: Target) -> Step:
    """Write what the deployment says of itself."""
    text = render_manifest(target.manifest)
    record = WriteFile(target.rendered.home / "manifest.json", text)
    return Step("manifest", "say what is deployed", record)


def start_steps(
    target: Target, old: launch.Deployment | None, linger_for: str | None
) -> Iterator[Step]:
    """Stop what is to be replaced, and start the server."""
    if linger_for is not None:
        run = Run(launch.enable_linger(linger_for))
        yield Step("linger", f"let services of {linger_for} outlive a login", run)
    home = target.service.home
    coming = Run(Script(_COMING, (str(home.parent), home.name)))
    yield Step("coming", "note which deployment is coming", coming)
    if old is not None:
        yield stop_step(old)
    port, looks = target.manifest.port, 25 if old is not None else 5
    free = Run(Script(_PORT, (str(port), str(looks))))
    yield Step("port", f"see that port {port} is free", free)
    yield _mark_step(target.service)
    title = f"start the server ({target.service.launcher})"
    yield Step("start", title, Run(launch.start(target.service), _patience(target.service)))


def latest(target: Target) -> Script:
    """Print the id of the deployment whose deploy began last, nothing where none did."""
    return Script(_LATEST, (str(target.service.home.parent),))


def back_steps(old: launch.Deployment) -> Iterator[Step]:
    """Start a replaced server again; it is the one to be asked for its state from then on."""
    yield _mark_step(old)
    title = f"start the server again that ran before ({old.home.name})"
    yield Step("back", title, Run(launch.start(old), _patience(old)))


def proof_steps(target: Target) -> Iterator[Step]:
    """Wait for the server, prove it, and only then make it the current one."""
    manifest, home = target.manifest, target.rendered.home
    url = quote(f"{manifest.url_on_host}/health_generate")
    script = Script(f"until curl -fsS {url}; do sleep 1; done")
    yield Step("ready", "wait until it is ready", Watch("ready", script))
    asked = Script("\n".join(command.line() for command in _questions(target)))
    yield Step("smoke", "ask it what it must know, compare its own figures", Watch("smoke", asked))
    args = (str(home.parent), home.name)
    yield Step("switch", "make it the current deployment", Run(Script(_SWITCH, args)))


def _questions(target: Target) -> Iterator[Command]:
    """What a proof asks, as a person would by hand."""
    manifest = target.manifest
    chat = ("curl", "-fsS", f"{manifest.url_on_host}/v1/chat/completions")
    for question in questions_of(target.rendered.profile.smoke):
        body = json.dumps(request_for(question, manifest.served_model_name), ensure_ascii=False)
        yield Command((*chat, "-H", "Content-Type: application/json", "-d", body))
    yield Command(("curl", "-fsS", f"{manifest.url_on_host}/server_info"))


def stop_step(service: launch.Deployment) -> Step:
    """Stop a server."""
    title = f"stop the server of {service.profile} ({service.home.name})"
    return Step("stop", title, Run(launch.stop(service), _patience(service)))


def _mark_step(service: launch.Deployment) -> Step:
    mark = Run(Script(_STARTED, (str(service.home.parent), service.home.name)))
    return Step("mark", "note which deployment is started", mark)


def _patience(service: launch.Deployment) -> float:
    # SIGTERM and its patience may come twice: to the server, then to what it left behind.
    return 2 * service.stop_s + _STOP_MARGIN_S
