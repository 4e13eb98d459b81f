"""What a verb found or did: text for people, data for programs, and the exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Report:
    """The end of a verb. `data` holds only what JSON can carry; units stand in its keys."""

    text: str
    data: Any = field(default_factory=dict)
    exit_code: int = 0
