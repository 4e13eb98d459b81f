"""The causes room: which line of a server's log says why the server died, and what to do.

The first causal line wins, never the last noise: a crash is followed by second tracebacks, by
the parent's own complaint and by a kill. A fold over lines, so that a log can be read in pieces.
What is known of failures is handed in: the rules of recipes/failures.yaml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from firstlight.build.failures import SHOWN, Match, Rules
from firstlight.build.loglines import LIMIT, flat, is_mild, is_refused

PORT = "port"
"""The rule of a cause that a server may not notice itself: another process has its port."""
KILLED = "killed"
GPU_FULL = ("gpu-memory", "gpu-busy", "pool-size", "state-pool-size")
NEEDED = (PORT, KILLED, *GPU_FULL)
"""The rules that the table must have, since a start is judged by them."""
UNKNOWN = ("error", "exception")
"""The kinds of causes that no rule knows."""


@dataclass(frozen=True)
class Cause:
    """Why a server died: `line` counts from 1 in the log as read, `text` is that line.

    `kind` is the id of a rule, or one of UNKNOWN.
    """

    kind: str
    line: int
    text: str
    cause: str
    fix: str
    link: str = ""


@dataclass(frozen=True)
class Search:
    """How far the search for the cause has come, with the rules that it goes by.

    `weight` is that of the best cause so far, -1 without one; `mortal` = it cannot have been
    survived; `trace` = inside a traceback, `announced` = one that the server itself called its end;
    `over` = a process was said to have died, and what its parent then raises tells nothing more.
    `chain` = the line of the first exception of a chain, 0 before any; `link` = the next traceback
    goes on with that chain, as a "cause" or raised "during" the handling of the one above.
    """

    rules: Rules = field(default_factory=Rules, compare=False, repr=False)
    best: Cause | None = None
    weight: int = -1
    mortal: bool = False
    trace: bool = False
    announced: bool = False
    over: bool = False
    chain: int = 0
    link: Literal["", "cause", "during"] = ""


def look(search: Search, number: int, message: str, stamped: bool = False) -> Search:
    """The search after one more line, given without its time stamp.

    A line with a stamp of its own ends no traceback: another rank speaks in between.
    """
    if "Traceback (most recent call last)" in message:
        announced = bool(_ANNOUNCED.search(message)) or bool(search.link and search.announced)
        return replace(search, trace=True, announced=announced)
    if search.trace and message[:1].isspace():
        return search
    text = flat(message[:LIMIT])
    if link := _LINKS.get(text.strip()):
        return replace(search, trace=False, link=link)
    match = search.rules.match(text, text.lower())
    weight = match.rule.weight if match else 1 if _is_error(text) else -1
    over = search.over or weight == 0
    after = replace(search, trace=search.trace and stamped, over=over)
    announced = search.trace and search.announced
    ends = _ends_trace(search, text, stamped)
    if ends:
        after = replace(after, chain=search.chain if search.link else number)
    if ends and weight in (-1, 1):
        weight = 0 if over and not announced else 3
        return _keep(after, _unknown("exception", number, message), weight, announced, announced)
    if match is not None:
        return _keep(after, _known(match, number, message), weight, weight == 3, announced)
    if weight < 0:
        return search
    weight = 3 if is_refused(text) else 1
    return _keep(after, _unknown("error", number, message), weight, False, False)


def survived(search: Search) -> Search:
    """The server went on to its next phase: what could have been survived was no cause."""
    return replace(search, trace=False) if search.mortal else Search(search.rules)


def served(search: Search) -> Search:
    """The server said that it is ready, so it survived all; but for a lost port.

    A server that cannot bind sends its warm-up request to whoever holds the port, gets an answer,
    and says that it is ready.
    """
    lost = search.best is not None and search.best.kind == PORT
    return search if lost else Search(search.rules)


_EXCEPTION = re.compile(r"^(?!(?:INFO|DEBUG)\b)[A-Za-z_][\w.]*(?:: .*|:)?$")
_ANNOUNCED = re.compile(r"hit an exception|Initialization failed|is dead\b")
_ERROR = re.compile(
    r"\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal|CRITICAL|[Ff]ailed|command not found"
    r"|No such file or directory|Permission denied)\b"
)
_LINKS: dict[str, Literal["cause", "during"]] = {
    "During handling of the above exception, another exception occurred:": "during",
    "The above exception was the direct cause of the following exception:": "cause",
}
_AROUND = {
    "error": "no known failure; the log around this line says more",
    "exception": "no known failure; the traceback above this line says where",
}


def _ends_trace(search: Search, text: str, stamped: bool) -> bool:
    mild = stamped or is_mild(text)
    return search.trace and not mild and bool(_EXCEPTION.match(text))


def _is_error(text: str) -> bool:
    """A request for /error that was logged is none."""
    return (
        bool(_ERROR.search(text)) and not text.startswith(("INFO", "DEBUG")) and not is_mild(text)
    )


def _known(match: Match, number: int, message: str) -> Cause:
    text = message.strip()[:SHOWN]
    return Cause(match.rule.id, number, text, match.cause, match.fix, match.rule.link)


def _unknown(kind: str, number: int, message: str) -> Cause:
    return Cause(
        kind, number, message.strip()[:SHOWN], f"an {kind} that no rule knows", _AROUND[kind]
    )


def _keep(search: Search, cause: Cause, weight: int, mortal: bool, announced: bool) -> Search:
    """The first of the heaviest; but what the server calls its end outdoes what it survived."""
    after = replace(search, link="")
    outdoes = announced and weight == search.weight == 3 and not search.mortal
    if search.link and search.best is not None and search.best.line >= search.chain:
        outdoes = _explains(search, search.best, cause) and weight > 0
        weight = max(weight, search.weight) if outdoes else min(weight, search.weight)
    if weight <= search.weight and not outdoes:
        return after
    return replace(after, best=cause, weight=weight, mortal=mortal or (outdoes and search.mortal))


def _explains(search: Search, before: Cause, cause: Cause) -> bool:
    """Of one chain a known exception tells most, then the last that was raised during another."""
    if before.kind not in UNKNOWN:
        return False
    return cause.kind not in UNKNOWN or search.link == "during"
