"""The accuracy room: how far two KV precisions drift apart over the same tokens.

Everything is paired: the same token in the same context, scored twice. NLL is minus the logprob,
in nats; a difference above 0 means that the second precision finds the true text less likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from firstlight.accuracy.scores import Measured, Scores

# Neighbours are not independent: what is drawn again is a run of tokens, not a token.
BLOCK = 32
DRAWS = 1000
_MOST_BLOCKS = 512
_FEWEST_BLOCKS = 8
_SEED = 20250101
_K = 1024


@dataclass(frozen=True)
class Bucket:
    """Context positions from `low` up to, and without, `high`: how many tokens come before."""

    low: int
    high: int

    @property
    def name(self) -> str:
        """`0-1k`, `1-4k`; k is 1024."""
        return f"{self.low // _K}-{self.high // _K}k"


@dataclass(frozen=True)
class Pair:
    """One token, scored twice: `nll` with the first precision, `other` with the second; `same`:
    both find the same token most likely. `position` is its place in the text named `text`."""

    text: str
    position: int
    nll: float
    other: float
    same: bool

    @property
    def difference(self) -> float:
        """Nats that the second precision loses on this token."""
        return self.other - self.nll


@dataclass(frozen=True)
class Interval:
    """Where 95 % of the means lie that drawing the same blocks again gives."""

    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """A group of tokens: `name` says which. Means are in nats by token; `interval` is None where
    there are too few blocks to draw from; `jump` is the token whose NLL moved most, either way."""

    name: str
    tokens: int
    nll: float
    other: float
    interval: Interval | None
    agreement: float
    jump: Pair

    @property
    def difference(self) -> float:
        """The mean loss by token, in nats."""
        return self.other - self.nll


def buckets(longest: int) -> tuple[Bucket, ...]:
    """The buckets of a context of `longest` tokens: 0-1k, 1-4k, 4-16k, and on by factors of 4."""
    found, low, high = [], 0, _K
    while low < longest:
        found.append(Bucket(low, high))
        low, high = high, high * 4
    return tuple(found)


def pairs(first: Measured, other: Measured) -> tuple[Pair, ...]:
    """Every token that both scored, text by text in order of position."""
    theirs = {text.name: text for text in other.texts}
    return tuple(pair for text in first.texts for pair in _pairs(text, theirs[text.name]))


def by_position(found: Sequence[Pair], longest: int) -> tuple[tuple[Bucket, Drift | None], ...]:
    """Every bucket up to `longest` with what it holds, None for one without a token."""
    return tuple(
        (bucket, drift(bucket.name, [p for p in found if bucket.low <= p.position < bucket.high]))
        for bucket in buckets(longest)
    )


def by_text(found: Sequence[Pair]) -> tuple[Drift, ...]:
    """Each text by itself."""
    names = dict.fromkeys(pair.text for pair in found)
    each = (drift(name, [pair for pair in found if pair.text == name]) for name in names)
    return tuple(one for one in each if one is not None)


def drift(name: str, group: Sequence[Pair]) -> Drift | None:
    """What a group of tokens says; None for an empty one."""
    if not group:
        return None
    return Drift(
        name,
        len(group),
        mean(pair.nll for pair in group),
        mean(pair.other for pair in group),
        bootstrap(group),
        mean(pair.same for pair in group),
        max(group, key=lambda pair: abs(pair.difference)),
    )


def bootstrap(group: Sequence[Pair], seed: int = _SEED) -> Interval | None:
    """The interval of the mean difference, by drawing blocks of tokens with replacement.

    The same tokens give the same interval. None below 8 blocks: it would promise too much.
    """
    sums = [(sum(p.difference for p in block), len(block)) for block in _blocks(group)]
    if len(sums) < _FEWEST_BLOCKS:
        return None
    draw = random.Random(seed)
    means = sorted(_weighted(draw.choices(sums, k=len(sums))) for _ in range(DRAWS))
    middle, edge = _weighted(sums), DRAWS // 40
    return Interval(min(means[edge], middle), max(means[-1 - edge], middle))


def mean(values: Iterable[float]) -> float:
    """The mean of at least one value."""
    listed = list(values)
    return sum(listed) / len(listed)


def _pairs(mine: Scores, theirs: Scores) -> Iterator[Pair]:
    rows = zip(mine.logprobs, theirs.logprobs, mine.tops, theirs.tops, strict=True)
    for position, (a, b, top, other) in enumerate(rows, 1):
        yield Pair(mine.name, position, -a, -b, top == other)


def _blocks(group: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Runs of one text's tokens; longer ones where there would be more than 512."""
    length = max(BLOCK, -(-len(group) // _MOST_BLOCKS))
    block: list[Pair] = []
    for pair in group:
        if block and (len(block) == length or pair.text != block[-1].text):
            yield block
            block = []
        block.append(pair)
    if block:
        yield block


def _weighted(sums: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in sums) / sum(count for _, count in sums)
