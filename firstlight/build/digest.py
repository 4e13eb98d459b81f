"""The build room: one digest for any value, whatever order its keys came in."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(value: Any) -> str:
    """sha256 in hex of plain data (maps, lists, text, numbers); the order of keys is no matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def short(value: Any) -> str:
    """The first 12 digits of a digest: enough to name a folder."""
    return digest(value)[:12]
