"""The accuracy room: several precisions of one profile, held against the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firstlight.accuracy.divergence import Divergence, divergence
from firstlight.accuracy.drift import Bucket, Drift, Pair, by_position, by_text, drift, pairs
from firstlight.accuracy.scores import Measured, require_same_texts


@dataclass(frozen=True)
class Refusal:
    """A precision without figures: `what` happened, the `lines` of the engine that say so, the
    exit code that says of which kind, and the file that holds the server's log, "" for none."""

    kv: str
    what: str
    lines: str
    code: int
    log: str = ""


@dataclass(frozen=True)
class Against:
    """One precision against the first: every paired token, and what its groups say."""

    measured: Measured
    pairs: tuple[Pair, ...]
    whole: Drift
    positions: tuple[tuple[Bucket, Drift | None], ...]
    texts: tuple[Drift, ...]
    parted: Divergence | None


@dataclass(frozen=True)
class Comparison:
    """`first` is what the others are held against; None where no precision was measured."""

    profile: str
    at: str
    first: Measured | None
    others: tuple[Against, ...]
    refused: tuple[Refusal, ...]

    @property
    def exit_code(self) -> int:
        """0 when every precision was measured; 5 comes before 4."""
        return max((one.code for one in self.refused), default=0)


def compare(
    profile: str, at: str, measured: tuple[Measured, ...], refused: tuple[Refusal, ...]
) -> Comparison:
    """Hold all against the first; raises ProofError for one that scored other tokens."""
    first = measured[0] if measured else None
    others = tuple(_against(first, other) for other in measured[1:]) if first else ()
    return Comparison(profile, at, first, others, refused)


def of_one_length(kept: Mapping[str, Measured]) -> dict[str, Measured]:
    """Those of earlier measurements that scored the same tokens: the ones with the shortest texts,
    which every server of them can take."""
    least = min((one.limit for one in kept.values()), default=0)
    return {name: one for name, one in kept.items() if one.limit == least}


def longest(measured: Measured) -> int:
    """The context of the server, in tokens; its limit where it told none."""
    return measured.context_length or measured.limit


def nll(measured: Measured) -> float:
    """The mean NLL over all tokens of all texts, in nats."""
    values = [-value for text in measured.texts for value in text.logprobs]
    return sum(values) / len(values)


def _against(first: Measured, other: Measured) -> Against:
    require_same_texts(first, other)
    found = pairs(first, other)
    whole = drift("all", found)
    assert whole is not None
    return Against(
        other,
        found,
        whole,
        by_position(found, longest(first)),
        by_text(found),
        divergence(first.answer.tokens, other.answer.tokens),
    )
