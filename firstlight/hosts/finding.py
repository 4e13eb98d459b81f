"""One thing about a host that a person should know: how bad, what, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """`error`: work will fail; `warning`: it may, or will later; `note`: only worth knowing."""

    severity: Severity
    what: str
    fix: str = ""
