"""What a person reads once a server is proved: its answer, its address, how to ask it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from firstlight.core.command import Command, typed
from firstlight.flows import capacity, gate, prove
from firstlight.hosts.inventory import Host

_ASK = "Why is the sky blue?"
_MOST = 200


def closing(target: Host, manifest: Mapping[str, Any], proof: Mapping[str, Any]) -> str:
    """An answer of the model, where it is, what it runs with, and how to ask it."""
    return "\n".join([*_answer(proof), *_facts(target, manifest, proof)])


def _answer(proof: Mapping[str, Any]) -> list[str]:
    if not proof["questions"]:
        return []
    first = proof["questions"][0]
    return [f"  asked     {first['ask']}", f"  answered  {first['answer'].strip()}", ""]


def _facts(target: Host, manifest: Mapping[str, Any], proof: Mapping[str, Any]) -> list[str]:
    port, name = manifest["port"], manifest["served_model_name"]
    address = f"http://{manifest['bind']}:{port}"
    messages = [{"role": "user", "content": _ASK}]
    # A small model may never come to an end by itself.
    body = json.dumps({"model": name, "messages": messages, "max_tokens": _MOST})
    chat = f"http://127.0.0.1:{port}/v1/chat/completions"
    curl = Command(("curl", chat, "-H", "Content-Type: application/json", "-d", body))
    # Without --host it would mean the inventory's default, which may be another.
    whom = {"host": target.name, "profile": manifest["profile"]}
    lines = [
        f"  server    {address}" + ("" if target.is_local else f" on {target.name}"),
        f"  KV cache  {prove.pool_text(proof)} (read back from the server)",
        *_policy(proof),
        f"  proof     {proof['outcome']}, {len(proof['questions'])} questions",
        f"  ask it    {typed('ask', {**whom, 'question': _ASK})}",
    ]
    if not target.is_local:
        tunnel = f"{port}:127.0.0.1:{port}"
        lines.append(f"            {Command(('ssh', '-L', tunnel, str(target.address))).line()}")
    return [*lines, f"            {curl.line()}"]


def _policy(proof: Mapping[str, Any]) -> list[str]:
    """How right the cache is and how well its size was predicted; older proofs do not say."""
    policy, size = proof.get("policy"), proof.get("capacity")
    found = [f"            {gate.told(policy)}"] if policy else []
    return [*found, f"  capacity  {capacity.short(size)}"] if size else found
