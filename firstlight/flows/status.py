"""`invoke status`: what is built on a host, and what is served there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firstlight.core.report import Report
from firstlight.core.words import columns
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import prove, server
from firstlight.flows.asked import asked_now
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.survey import Survey
from firstlight.serve.manifest import Damaged


def run(root: Path, console: Console, *, host: str = "") -> Report:
    """Show releases, running jobs, and every deployment with its state and its proof."""
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        served = [_entry(root, shell, seen, name) for name in sorted(seen.deployments)]
    data = {
        "host": target.name,
        "root": str(seen.root),
        "releases": sorted(seen.releases),
        "jobs": sorted(seen.jobs),
        "deployments": [entry for entry in served if entry],
    }
    return Report(_text(data), data)


def _entry(root: Path, shell: Shell, seen: Survey, profile: str) -> dict[str, Any]:
    """One that cannot be read is no reason to be silent about the others."""
    try:
        return _deployment(root, shell, seen, profile)
    except Damaged as error:
        return {"profile": profile, "state": "damaged", "detail": error.what}


def _deployment(root: Path, shell: Shell, seen: Survey, profile: str) -> dict[str, Any]:
    found = seen.deployments[profile]
    if not (found.current or found.started):
        return {}
    manifest = server.last_started(shell, seen, profile)
    state = server.state(shell, server.service(manifest, seen.root))
    is_current = manifest.id == found.current
    health = server.healthy(shell, manifest.port).status if state.condition == "running" else 0
    return {
        "profile": profile,
        "deployment": manifest.id,
        "current": is_current,
        "state": state.condition,
        "detail": state.detail,
        "restarts": state.restarts,
        "healthy": health == 200,
        "url_on_host": manifest.url_on_host,
        "release": manifest.release,
        "launcher": manifest.launcher,
        "asked": vars(asked_now(root, shell.host, seen, manifest)),
        "proof": dict(found.proof) if is_current else {},
        "failed": dict(found.failed),
    }


def _text(data: dict[str, Any]) -> str:
    rows = [("host", f"{data['host']}, root {data['root']}")]
    rows += [("release", release) for release in data["releases"]] or [("release", "none")]
    rows += [("job without an end", job) for job in data["jobs"]]
    for entry in data["deployments"]:
        rows += _rows(entry)
    if not data["deployments"]:
        rows.append(("served", "nothing"))
    return columns(rows)


def _rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    if entry["state"] == "damaged":
        return [("profile", entry["profile"]), ("  state", f"damaged: {entry['detail']}")]
    answers = "answers" if entry["healthy"] else "does not answer"
    state = f"{entry['state']}, {answers}" if entry["state"] == "running" else entry["state"]
    proof = entry["proof"]
    proved = f"{proof['outcome']} at {proof['at']}" if proof else "not proved"
    rows = [
        ("profile", f"{entry['profile']}, deployment {entry['deployment']}"),
        ("  state", f"{state} ({entry['launcher']}, {entry['restarts']} restarts)"),
        ("  address", f"{entry['url_on_host']} on the host"),
        ("  release", entry["release"]),
        ("  proof", proved),
    ]
    if proof:
        rows.append(("  KV cache", prove.pool_text(proof)))
    if not entry["asked"]["same"]:
        rows.append(("  asked for", entry["asked"]["words"]))
    if entry["failed"]:
        rows.append(("  last try", _failed(entry["failed"])))
    return rows


def _failed(proof: Mapping[str, Any]) -> str:
    of = f"deployment {proof['deployment']} of release {proof['release']}"
    return f"{proof['outcome']} at {proof['at']}, {of}: {prove.shortcoming(proof)}"
