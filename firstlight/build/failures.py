"""The failures room: a log that ends badly to its cause, the line that shows it, a fix, a link.

What is known of failures is data, recipes/failures.yaml: one rule for each. Of a log the first
line of the highest weight is the cause, never the last noise, nor what the log survived. What no
rule knows is said to be unknown and shown by its first error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from string import Formatter
from typing import Literal

from pydantic import Field

from firstlight.build.cited import is_cited
from firstlight.build.loglines import (
    LIMIT,
    Turn,
    error_weight,
    flat,
    goes_on,
    indent,
    is_mild,
    plain,
    turn,
)
from firstlight.build.needles import SHORTEST, any_of, needles
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Model, Place
from firstlight.hosts.inventory import NAME

SHOWN = 400
"""Longest line of a log that is shown, in characters."""


class Rule(Model):
    """One known failure.

    `patterns` are searched in single lines; a line that matches `unless` is none of them. `cause`
    and `fix` may name groups of the patterns as {name}. `weight` 3 = says why, 2 = says how it
    ended, 1 = a hint, 0 = an echo of another's death. `mild` = also looked for in warnings, status
    lines and the code that a traceback quotes. `behind` names rules that say why this one comes
    about: one that matched before it is the cause. `link` is shown; `also` are further reports.
    """

    id: str = Field(pattern=NAME)
    where: Literal["build", "serve", "both"]
    patterns: tuple[str, ...] = Field(min_length=1)
    unless: str = ""
    component: str = ""
    cause: str = Field(min_length=1)
    fix: str = Field(min_length=1)
    link: str = ""
    also: tuple[str, ...] = ()
    weight: int = Field(default=3, ge=0, le=3)
    mild: bool = False
    behind: tuple[str, ...] = ()


class FailureTable(Model):
    """recipes/failures.yaml; of two rules that match a line the earlier one counts."""

    schema_: Literal[1] = Field(alias="schema")
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Match:
    """A rule that knows a line, with its texts filled in."""

    rule: Rule
    cause: str
    fix: str


@dataclass(frozen=True)
class Explanation:
    """Why a log ends badly; `rule` is "" when no rule knows it.

    `line` counts as the log's lines do, `text` is that line, `context` the lines around it.
    """

    rule: str
    cause: str
    line: int
    text: str
    fix: str
    link: str = ""
    component: str = ""
    context: tuple[tuple[int, str], ...] = ()

    @property
    def known(self) -> bool:
        """True when a rule knows the failure."""
        return bool(self.rule)


@dataclass(frozen=True)
class _Test:
    rule: Rule
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None

    def match(self, text: str) -> Match | None:
        own = (
            found
            for found in self.pattern.finditer(text)
            if not is_cited(text, found.start(), found.end())
        )
        found = next(own, None)
        if not found or (self.unless and self.unless.search(text)):
            return None
        groups = {name: value or "" for name, value in found.groupdict().items()}
        return Match(self.rule, self.rule.cause.format(**groups), self.rule.fix.format(**groups))


class _Index:
    """Tests in the order of the table, found by the plain texts that their lines must hold."""

    def __init__(self, tests: Iterable[_Test]) -> None:
        self.tests = tuple(tests)
        self._needles: dict[str, list[tuple[str, int]]] = {}
        for index, test in enumerate(self.tests):
            for needle in needles(test.pattern.pattern):
                self._needles.setdefault(needle[:SHORTEST], []).append((needle, index))
        self._any = any_of(needle for found in self._needles.values() for needle, _ in found)

    def worth(self, low: str) -> bool:
        """False for the many lines that no test can match."""
        return bool(self._any.search(low))

    def first(self, text: str, low: str) -> Match | None:
        hits: set[int] = set()
        found = self._any.search(low)
        while found:
            at = found.start()
            near = self._needles[low[at : at + SHORTEST]]
            hits.update(index for needle, index in near if low.startswith(needle, at))
            found = self._any.search(low, at + 1)
        tried = (self.tests[index].match(text) for index in sorted(hits))
        return next((match for match in tried if match), None)


class Rules:
    """Rules ready for use."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._all = _Index(test for rule in rules for test in _tests(rule))
        self._mild = _Index(test for test in self._all.tests if test.rule.mild)

    def match(self, text: str, low: str, quoted: bool = False) -> Match | None:
        """The first rule of the table that knows a flat line; `low` is it in lower case.

        What is `quoted` counts as mild, as warnings do.
        """
        if not self._all.worth(low):
            return None
        return (self._mild if quoted or is_mild(text) else self._all).first(text, low)


def _tests(rule: Rule) -> Iterator[_Test]:
    unless = re.compile(rule.unless) if rule.unless else None
    for pattern in rule.patterns:
        yield _Test(rule, re.compile(pattern), unless)


def rules_of(table: FailureTable, where: Literal["build", "serve", "any"] = "any") -> Rules:
    """The rules that are for builds, for servers, or for any log."""
    return Rules(rule for rule in table.rules if where == "any" or rule.where in (where, "both"))


def explain(lines: Iterable[str], rules: Rules, first: int = 1) -> Explanation | None:
    """Why a log ends badly, None when nothing in it looks like an error.

    `lines` may be a stream; the first has the number `first`. A text is split by `cut([text])`,
    since `splitlines` counts what redraws a progress bar as lines.
    """
    best = _weighed(_candidates(lines, rules, first))
    if best is None:
        return None
    context = tuple((number, text[:SHOWN]) for number, text in best.around)
    text = best.text.strip()[:SHOWN]
    if best.match is None:
        cause = "unknown: no rule knows this; it is the first error of the log"
        return Explanation("", cause, best.line, text, UNKNOWN_FIX, context=context)
    rule, match = best.match.rule, best.match
    return Explanation(
        rule.id, match.cause, best.line, text, match.fix, rule.link, rule.component, context
    )


def check_failures(
    document: Document[FailureTable], needed: Iterable[str] = ()
) -> tuple[Fault, ...]:
    """Faults of the table; `needed` are the rules that the code asks for by name."""
    rules = document.value.rules
    found: list[tuple[Place, str]] = []
    for index, rule in enumerate(rules):
        found += [(("rules", index, *place), message) for place, message in _faults(rule)]
        if rule.id in {earlier.id for earlier in rules[:index]}:
            found.append((("rules", index, "id"), f"rule {rule.id!r} is given twice"))
    known = {rule.id for rule in rules}
    for index, rule in enumerate(rules):
        for name in sorted(set(rule.behind) - known):
            found.append((("rules", index, "behind"), f"there is no rule {name!r}"))
    missing = sorted(set(needed) - known)
    found += [(("rules",), f"needs rule {name!r}: a start is judged by it") for name in missing]
    return tuple(document.fault(place, message) for place, message in found)


UNKNOWN_FIX = (
    "read the log from that line on; once the cause is known, a rule in recipes/failures.yaml "
    "tells it the next time"
)


@dataclass(frozen=True)
class _Candidate:
    weight: int
    line: int
    text: str
    match: Match | None
    around: tuple[tuple[int, str], ...]
    survived: int

    @property
    def behind(self) -> tuple[str, ...]:
        return self.match.rule.behind if self.match else ()


def _rank(found: _Candidate) -> tuple[bool, int, int, bool]:
    """What says why counts most; of the rest what the log did not survive, and of equal weight
    the error itself: a hint is no cause while there is an error that no rule knows."""
    return (found.weight == 3, found.survived, found.weight, found.match is None)


def _weighed(found: Iterable[_Candidate | Turn]) -> _Candidate | None:
    """What says most, or what is behind that; nothing of what a turn for the better made void."""
    best: _Candidate | None = None
    seen: dict[str, _Candidate] = {}
    before, done, asked = (best, seen), False, False
    for one in found:
        # What dies of a server that was asked to end complains of it.
        if asked and isinstance(one, _Candidate) and one.weight < 3:
            continue
        asked = one is Turn.ASKED or (asked and one is not Turn.DONE)
        done = one is Turn.DONE or (done and asked)
        if one is Turn.TESTS:
            before = best, dict(seen)
        elif one is Turn.PASSED:
            best, seen = before
        elif isinstance(one, _Candidate):
            best = one if best is None else max(best, one, key=_rank)
            if one.match:
                seen.setdefault(one.match.rule.id, one)
    # What does not say why, and nothing was wrong after pip had done it all or a server served.
    if best is None or (done and best.weight < 3):
        return None
    return next((seen[rule] for rule in best.behind if rule in seen), best)


_Line = tuple[int, str]


def _candidates(lines: Iterable[str], rules: Rules, first: int) -> Iterator[_Candidate | Turn]:
    """Every line that could be the cause; code that a traceback quotes is no error by itself."""
    trace: int | None = None
    warned = False
    survived = 0
    for held in _windows(_pieces(lines, first)):
        number, text = held[2] or (0, "")
        if "Traceback (most recent call last)" in text:
            trace = indent(text)
            continue
        quoted = trace is not None and indent(text) > trace
        exception = trace is not None and not quoted
        trace = trace if quoted else None
        # What cmake warns of stands in the lines below, as what it fails of does.
        warned = text.startswith("CMake Warning") or (warned and text.startswith("  "))
        quoted = quoted or warned
        survived += goes_on(text)
        straight = flat(text)
        low = straight.lower()
        match = rules.match(straight, low, quoted)
        weight = match.rule.weight if match else None
        if not match and not quoted:
            weight = error_weight(straight, low, exception)
        if better := turn(text):
            yield better
        elif weight is not None:
            around = tuple(line for line in held if line)
            yield _Candidate(weight, number, text, match, around, survived)


def _pieces(lines: Iterable[str], first: int) -> Iterator[_Line]:
    """Plain lines with their numbers; a bar that is drawn over itself is several of one number."""
    for number, line in enumerate(lines, first):
        for piece in line.split("\r"):
            text = plain(piece[:LIMIT])
            if text and not text.isspace():
                yield number, text


def _windows(pieces: Iterable[_Line]) -> Iterator[deque[_Line | None]]:
    """Each line in the middle of five; None where the log has none."""
    edge = (None, None)
    held: deque[_Line | None] = deque(maxlen=5)
    for piece in chain(edge, pieces, edge):
        held.append(piece)
        if len(held) == 5:
            yield held


def _faults(rule: Rule) -> Iterator[tuple[Place, str]]:
    groups: set[str] | None = None
    for number, pattern in enumerate(rule.patterns):
        known, message = _groups(pattern)
        if message:
            yield ("patterns", number), message
        elif not needles(pattern):
            message = f"pattern {pattern!r} needs {SHORTEST} plain letters in a row in every match"
            yield ("patterns", number), message
        groups = known if groups is None else groups & known
    if rule.unless and _groups(rule.unless)[1]:
        yield ("unless",), _groups(rule.unless)[1]
    for key, text in (("cause", rule.cause), ("fix", rule.fix)):
        yield from ((((key,)), message) for message in _unfilled(text, groups or set()))
    for place, link in (
        (("link",), rule.link),
        *((("also", n), u) for n, u in enumerate(rule.also)),
    ):
        if link and not link.startswith("https://"):
            yield place, f"{link!r} is no https address"


def _groups(pattern: str) -> tuple[set[str], str]:
    """The named groups of a pattern, or what is wrong with it."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        return set(), f"{pattern!r} is no regular expression: {error}"
    if compiled.search(""):
        return set(), f"pattern {pattern!r} matches every line"
    return set(compiled.groupindex), ""


def _unfilled(text: str, groups: set[str]) -> Iterator[str]:
    try:
        named = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        yield f"a brace is open or stray: {error}"
        return
    for name in named:
        if name not in groups:
            yield f"{{{name}}} is no named group of every pattern"
