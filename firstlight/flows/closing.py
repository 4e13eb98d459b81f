"""What a person reads once a server is proved: its answer, its address, how to ask it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from firstlight.core.command import Command, typed
from firstlight.flows import capacity, gate, prove
from firstlight.flows.dial import dial
from firstlight.flows.target import Case
from firstlight.hosts.inventory import Host

_ASK = "Why is the sky blue?"
_MOST = 200


def closing(case: Case, manifest: Mapping[str, Any], proof: Mapping[str, Any]) -> str:
    """An answer of the model, where it is, what it runs with, and how to ask it."""
    target = case.host
    asking = [_curl(manifest)]
    if not target.is_local:
        asking.insert(0, _tunnel(target, case.inventory.hosts, manifest["port"]))
    lines = [*_answer(proof), *_facts(target, manifest, proof)]
    return "\n".join([*lines, *(f"{' ' * 12}{line}" for line in asking)])


def _answer(proof: Mapping[str, Any]) -> list[str]:
    if not proof["questions"]:
        return []
    first = proof["questions"][0]
    return [f"  asked     {first['ask']}", f"  answered  {first['answer'].strip()}", ""]


def _facts(target: Host, manifest: Mapping[str, Any], proof: Mapping[str, Any]) -> list[str]:
    address = f"http://{manifest['bind']}:{manifest['port']}"
    # Without --host it would mean the inventory's default, which may be another.
    whom = {"host": target.name, "profile": manifest["profile"]}
    return [
        f"  server    {address}" + ("" if target.is_local else f" on {target.name}"),
        f"  KV cache  {prove.pool_text(proof)} (read back from the server)",
        *_policy(proof),
        f"  proof     {proof['outcome']}, {len(proof['questions'])} questions",
        f"  ask it    {typed('ask', {**whom, 'question': _ASK})}",
    ]


def _tunnel(target: Host, hosts: Mapping[str, Host], port: int) -> str:
    return Command(("ssh", "-L", f"{port}:127.0.0.1:{port}", *dial(target, hosts))).line()


def _curl(manifest: Mapping[str, Any]) -> str:
    messages = [{"role": "user", "content": _ASK}]
    # A small model may never come to an end by itself.
    ask = {"model": manifest["served_model_name"], "messages": messages, "max_tokens": _MOST}
    chat = f"http://127.0.0.1:{manifest['port']}/v1/chat/completions"
    kind = "Content-Type: application/json"
    return Command(("curl", chat, "-H", kind, "-d", json.dumps(ask))).line()


def _policy(proof: Mapping[str, Any]) -> list[str]:
    """How right the cache is and how well its size was predicted; older proofs do not say."""
    policy, size = proof.get("policy"), proof.get("capacity")
    found = [f"            {gate.told(policy)}"] if policy else []
    return [*found, f"  capacity  {capacity.short(size)}"] if size else found
