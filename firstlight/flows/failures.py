"""What a project knows of failures: recipes/failures.yaml, and what it says of a failed step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from firstlight.build.failures import (
    Explanation,
    FailureTable,
    Rules,
    check_failures,
    explain,
    rules_of,
)
from firstlight.build.loglines import cut
from firstlight.core.command import Script
from firstlight.core.errors import ConfigError, Fault, HostError, StepError
from firstlight.core.schema import Document
from firstlight.effects import catalog
from firstlight.effects.follow import Site
from firstlight.serve.causes import NEEDED

FAILURES = Path("recipes") / "failures.yaml"

# The end of a log, and the number of its first line.
_END = """\
size=$(stat -c %s -- "$1") most=4194304
from=$((size > most ? size - most : 0))
head -c "$from" -- "$1" | wc -l
tail -c "+$((from + 1))" -- "$1"
"""


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


def explained(error: StepError, sites: Mapping[str, Site], rules: Rules) -> StepError:
    """The error with what the rules know of its log; as it is where the log says it all."""
    shell = next((s.shell for s in sites.values() if s.shell.host.name == error.where), None)
    if not error.file or shell is None:
        return error
    try:
        result = shell.run(Script(_END, (error.file,)), timeout_s=60)
    except HostError:
        return error
    number, _, text = result.text.partition("\n")
    found = explain(cut([text]), rules, first=int(number or 0) + 1) if result.ok else None
    return error if found is None else _told(error, found)


def _told(error: StepError, found: Explanation) -> StepError:
    lines = [f"{error.file}:{found.line}: {found.text}"]
    if not found.known:
        lines = [f"{number:>6}: {line}" for number, line in found.context]
    more = [found.fix, *([f"see {found.link}"] if found.link else []), error.remedy]
    what = f"{error.what}\n  cause: {found.cause}"
    remedy = "\n  -> ".join(more)
    return StepError(what, where=error.where, remedy=remedy, log="\n".join(lines))
