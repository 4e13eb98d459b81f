"""The accuracy room: the audit as a person reads it, and as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from firstlight.accuracy.audit import Audit, Cell
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.core.words import columns, size

_MARK = {True: "within", False: "against"}


def text(found: Audit, checkpoint: Checkpoint, reason: str = "", judged: bool = True) -> str:
    """The checkpoint, the table, why, and what else there is. `judged`: a profile was asked."""
    parts = [_head(found, checkpoint), _table(found, judged), *_why(found, judged)]
    if judged:
        told = f"policy {found.policy}: kv_cache_dtype {found.own} is {_MARK[found.within]} it"
        told += ", as no broken checkpoint is within any" if found.broken else ""
        parts.append(f"{told}; reason: {reason}" if reason else told)
    return "\n\n".join(filter(None, [*parts, _flaws(checkpoint), _threats(found)]))


def _head(found: Audit, checkpoint: Checkpoint) -> str:
    reading, used = checkpoint.reading, checkpoint.quantisation.used
    name = ", ".join(checkpoint.architectures) or "no architecture"
    rows = [
        ("checkpoint", reading.folder),
        ("model", f"{name}, {checkpoint.depth or '?'} layers, {size(reading.bytes)}"),
        ("quantised", f"{used.algo} ({used.family}), by {used.place}" if used else "no"),
        ("engine", f"sglang {found.ask.version}, {_device(found)}"),
        *(("note", note) for note in found.notes),
    ]
    return columns(rows)


def _device(found: Audit) -> str:
    return "CPU" if found.ask.is_cpu else f"SM{found.ask.sm or '?'}"


def _table(found: Audit, judged: bool) -> str:
    rows = [("  --kv-cache-dtype", "the cache is", "scales", "verdict")]
    for cell in found.cells:
        mark = "> " if judged and cell.asked == found.own else "  "
        rows.append((mark + cell.asked, cell.dtype, cell.scales, cell.verdict))
    return columns(rows)


def _why(found: Audit, judged: bool) -> list[str]:
    """The profile's own choice first; the same lines are not told twice."""
    order = sorted(found.cells, key=lambda cell: not (judged and cell.asked == found.own))
    told: set[str] = set()
    return [_because(cell, told) for cell in order]


def _because(cell: Cell, told: set[str]) -> str:
    lines = [str(line) for line in cell.evidence]
    new = [line for line in lines if line not in told]
    told.update(lines)
    return "\n".join([f"{cell.asked}: {cell.verdict}", *(f"  {line}" for line in new)])


def _flaws(checkpoint: Checkpoint) -> str:
    lines = [f"  {one.severity}: {one.where}: {one.what}" for one in checkpoint.flaws]
    return "\n".join(["files of the checkpoint", *lines]) if lines else ""


def _threats(found: Audit) -> str:
    lines = []
    for one in found.threats:
        fix = f"; {one.fix}" if one.fix else ""
        lines.append(f"  {one.severity}: {one.where}: {one.what}{fix}")
    return "\n".join(["also", *lines]) if lines else ""


def to_json(found: Audit, checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything that the text tells, for programs."""
    used = checkpoint.quantisation.used
    return {
        "checkpoint": checkpoint.reading.folder,
        "architectures": list(checkpoint.architectures),
        "quantised": {"by": used.place, "algo": used.algo} if used else None,
        "engine": {"name": "sglang", "version": found.ask.version, "sm": found.ask.sm},
        "own": found.own,
        "policy": found.policy,
        "within": found.within,
        "change": found.change,
        "broken": found.broken,
        "cells": [asdict(cell) for cell in found.cells],
        "flaws": [flaw.model_dump() for flaw in checkpoint.flaws],
        "threats": [asdict(threat) for threat in found.threats],
        "notes": list(found.notes),
    }
