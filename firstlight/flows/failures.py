"""What a project knows of failures: recipes/failures.yaml, read and checked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from firstlight.build.failures import FailureTable, Rules, check_failures, rules_of
from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import Document
from firstlight.effects import catalog
from firstlight.serve.causes import NEEDED

FAILURES = Path("recipes") / "failures.yaml"


def known(root: Path, where: Literal["build", "serve", "any"] = "any") -> Rules:
    """The rules for builds, for servers or for any log; raises ConfigError with every fault."""
    document = table(root)
    if found := tuple(faults(document)):
        raise ConfigError(found)
    return rules_of(document.value, where)


def table(root: Path) -> Document[FailureTable]:
    """The table as it is written."""
    return catalog.read(root / FAILURES, root, FailureTable)


def faults(document: Document[FailureTable]) -> Iterable[Fault]:
    """What is wrong in the table."""
    return check_failures(document, NEEDED)
