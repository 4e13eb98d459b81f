"""`invoke up`: quick to say that all is in place, and otherwise the whole chain."""

from __future__ import annotations

from pathlib import Path

from firstlight.core.report import Report
from firstlight.effects.console import Console
from firstlight.flows import quick


def run(
    root: Path, console: Console, *, host: str = "", profile: str = "", dry_run: bool = False
) -> Report:
    """Build, deploy and prove a profile; what is in place is left alone."""
    known = None if dry_run else quick.in_place(root, host, profile)
    if known is not None:
        return known
    # Imported late: reading recipes costs more than saying that all is in place.
    from firstlight.flows import chain

    return chain.run(root, console, host=host, profile=profile, dry_run=dry_run)
