"""The whole chain of `invoke up`, and at its end what the person wanted: an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firstlight.core.command import Command
from firstlight.core.report import Report
from firstlight.effects import catalog, memory
from firstlight.effects.console import Console
from firstlight.flows import prove, quick, recipes
from firstlight.flows.build import build
from firstlight.flows.deploy import deploy
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.inventory import Host

_ASK = "Why is the sky blue?"


def run(
    root: Path, console: Console, *, host: str = "", profile: str = "", dry_run: bool = False
) -> Report:
    """Build, deploy and prove a profile; what is in place is left alone."""
    seen_files = memory.fingerprint(root)
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    document = recipes.profile(root, recipes.profile_name(inventory, target, profile))
    with reached(opener(inventory, target, console), console) as shell:
        seen = look(shell)
        built = build(root, console, shell, inventory, document.value.stack, seen, dry_run)
        release = built.data["release"]
        if dry_run and release not in seen.releases:
            deployed = "# deploy follows: `invoke deploy --dry-run` shows it once this is built\n"
            return Report(built.text + deployed, built.data)
        console.say(built.text)
        seen = look(shell) if built.data["built"] else seen
        served = deploy(root, console, shell, inventory, document, release, seen, dry_run)
    report = Report(
        served.text if dry_run else _text(target, served), {**built.data, **served.data}
    )
    if target.is_local and not dry_run:
        kept = quick.memory_of(report, seen.root, target.env)
        memory.remember(root, ("up", host, profile), seen_files, kept)
    return report


def _text(target: Host, served: Report) -> str:
    manifest, proof = served.data["deployment"], served.data["proof"]
    return "\n".join([served.text, "", *_answer(proof), *_facts(target, manifest, proof)])


def _answer(proof: Mapping[str, Any]) -> list[str]:
    if not proof["questions"]:
        return []
    first = proof["questions"][0]
    return [f"  asked     {first['ask']}", f"  answered  {first['answer'].strip()}", ""]


def _facts(target: Host, manifest: Mapping[str, Any], proof: Mapping[str, Any]) -> list[str]:
    port, name = manifest["port"], manifest["served_model_name"]
    address = f"http://{manifest['bind']}:{port}"
    messages = [{"role": "user", "content": _ASK}]
    body = json.dumps({"model": name, "messages": messages})
    curl = Command(("curl", f"http://127.0.0.1:{port}/v1/chat/completions", "--json", body))
    on = [] if target.is_local else ["--host", target.name]
    profile = ["--profile", manifest["profile"]]
    ask = Command(("invoke", "ask", *on, *profile, "--question", _ASK))
    lines = [
        f"  server    {address}" + ("" if target.is_local else f" on {target.name}"),
        f"  KV cache  {prove.pool_text(proof)} (read back from the server)",
        f"  proof     {proof['outcome']}, {len(proof['questions'])} questions",
        f"  ask it    {ask.line()}",
    ]
    if not target.is_local:
        tunnel = f"{port}:127.0.0.1:{port}"
        lines.append(f"            {Command(('ssh', '-L', tunnel, str(target.address))).line()}")
    return [*lines, f"            {curl.line()}"]
