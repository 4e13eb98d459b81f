"""The accuracy room: what was predicted of the pools against what a launch's log says.

    matched(geometry, launch, log, expected) -> Match

Tokens are predicted twice: from what was known before the launch, and from the free memory that
the log tells. The first can be off by the memory, the second by the arithmetic alone. More than
2 % (`NOTABLE`) is a finding; printed GiB have two decimals, and what those hide is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvcache import Capacity, capacity
from firstlight.accuracy.kvlaunch import GIB, Budget, Launch
from firstlight.accuracy.kvmemory import NOTABLE

_PLENTY_GIB = 1 << 16
_DECIMAL_GIB = 0.005


@dataclass(frozen=True)
class Told:
    """What the log of one rank says, the target model alone. GiB; None = not told.

    `pool_gib` is all of its pools, give or take `slack_gib` that printing hides; the pools of
    DeepSeek-V4 are told by their `counts`, the names of pools, and by `priced_bytes` of a token and
    the `available_gib` that it was counted from;
    `before_gib`, `after_gib` is the least free memory of all ranks around the weights."""

    tokens: int
    pool_gib: float | None = None
    slack_gib: float = 0.01
    slots: int | None = None
    state_gib: float | None = None
    before_gib: float | None = None
    after_gib: float | None = None
    counts: tuple[tuple[str, int], ...] = ()
    priced_bytes: float | None = None
    available_gib: float | None = None


@dataclass(frozen=True)
class Figure:
    """One figure, predicted and found, in `unit` of one GPU; `slack` is what printing may hide."""

    what: str
    predicted: float
    found: float
    unit: str
    slack: float = 0.0

    @property
    def off(self) -> float:
        """How far the prediction lies from what was found, as a share of that."""
        return self.predicted / self.found - 1 if self.found else float(self.predicted != 0)

    @property
    def is_finding(self) -> bool:
        """Off by more than 2 %, and by more than printing hides."""
        far = abs(self.predicted - self.found)
        return far > NOTABLE * abs(self.found) and far > self.slack

    def __str__(self) -> str:
        sizes = [
            f"{n:,.2f}" if self.unit == "GiB" else f"{n:,.0f}" for n in (self.predicted, self.found)
        ]
        return f"{self.what}: predicted {sizes[0]}, found {sizes[1]} {self.unit} ({self.off:+.1%})"


@dataclass(frozen=True)
class Match:
    """All that can be compared; `causes` explain tokens that came out otherwise, `missing` says
    what could not be predicted."""

    figures: tuple[Figure, ...]
    causes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Figure, ...]:
        """What is off by more than 2 %."""
        return tuple(figure for figure in self.figures if figure.is_finding)


def matched(
    geometry: Geometry,
    launch: Launch,
    told: Told,
    expected: Budget | float | None,
    fraction: float | None,
) -> Match:
    """Predicted against found. `launch` has the dtype that the log states, `expected` the memory
    as it was estimated, `fraction` the flag, None where the engine chose it."""
    by_log = _budget(told, expected, fraction)
    figures = [*_tokens(geometry, launch, told, expected, by_log)]
    figures += _sizes(geometry, launch, told, by_log)
    causes = tuple(_causes(expected, by_log)) if any(f.is_finding for f in figures) else ()
    return Match(tuple(figures), causes, tuple(_missing(launch, told, expected, by_log)))


def _budget(told: Told, expected: Budget | float | None, fraction: float | None) -> Budget | None:
    if isinstance(expected, Budget):
        fraction = fraction or expected.fraction
    if told.before_gib is None or told.after_gib is None or not fraction:
        return None
    return Budget(told.before_gib, told.after_gib, fraction)


def _tokens(
    geometry: Geometry,
    launch: Launch,
    told: Told,
    expected: Budget | float | None,
    by_log: Budget | None,
) -> Iterator[Figure]:
    if expected is not None:
        rest = expected.rest_gib if isinstance(expected, Budget) else expected
        made = capacity(geometry, launch, rest).tokens
        yield Figure("tokens, as estimated before the launch", made, told.tokens, "tokens")
    if by_log is not None:
        made = capacity(geometry, launch, by_log.rest_gib).tokens
        yield Figure("tokens, by the free memory of the log", made, told.tokens, "tokens")
    elif launch.max_total_tokens is not None:
        made = capacity(geometry, launch, _PLENTY_GIB).tokens
        yield Figure("tokens, by --max-total-tokens", made, told.tokens, "tokens")


def _sizes(
    geometry: Geometry, launch: Launch, told: Told, by_log: Budget | None
) -> Iterator[Figure]:
    """What the tokens of the log take, whatever memory gave them."""
    exactly = capacity(geometry, replace(launch, max_total_tokens=told.tokens), _PLENTY_GIB)
    if told.pool_gib is not None and exactly.pools:
        stored = sum(pool.line_gib for pool in exactly.pools if pool.name != "draft")
        slack = told.slack_gib
        yield Figure("KV pools for these tokens", stored, told.pool_gib, "GiB", slack)
        rows = told.tokens + launch.page_size
        each = (stored * GIB / rows, told.pool_gib * GIB / rows)
        yield Figure("bytes of a token", *each, "bytes", slack * GIB / rows)
    if geometry.compressed:
        yield from _compressed(geometry, launch, told, exactly)
    if told.slots is not None and geometry.states:
        yield from _states(geometry, launch, told, by_log, exactly)


def _compressed(
    geometry: Geometry, launch: Launch, told: Told, exactly: Capacity
) -> Iterator[Figure]:
    """What the log says of compressed pools, which have no line of bytes. The available memory is
    what the engine counted from, after all that stands before."""
    if told.available_gib is not None and launch.pp == 1:
        plain = replace(launch, language_only=True)
        made = capacity(geometry, plain, told.available_gib).tokens
        slack = _DECIMAL_GIB * GIB / exactly.priced_bytes if exactly.priced_bytes else 0.0
        what = "tokens, by the memory that the pools are counted from"
        yield Figure(what, made, told.tokens, "tokens", slack + launch.page_size)
    if told.priced_bytes is not None:
        yield Figure(
            "bytes that a token is charged", exactly.priced_bytes, told.priced_bytes, "bytes"
        )
    here = {pool.name: pool.tokens for pool in exactly.pools}
    for name, count in told.counts:
        if name in here:
            yield Figure(f"slots of the pool {name}", here[name], count, "slots")


def _states(
    geometry: Geometry, launch: Launch, told: Told, by_log: Budget | None, exactly: Capacity
) -> Iterator[Figure]:
    if by_log is not None and told.slots is not None:
        made = capacity(geometry, launch, by_log.rest_gib).states.slots
        yield Figure("slots of the state pool", made, told.slots, "slots", slack=1)
    # Before 0.5.17 a stage is charged with the states of all, and its pool has its own.
    whole = launch.pp == 1 or launch.rules.stage_states
    if told.state_gib is not None and told.slots is not None and whole:
        stored = (told.slots + 1) * exactly.states.slot_bytes / GIB
        yield Figure(
            "the state pool for these slots", stored, told.state_gib, "GiB", 2 * _DECIMAL_GIB
        )


def _causes(expected: Budget | float | None, by_log: Budget | None) -> Iterator[str]:
    """What the memory has to do with it: each part, in GiB of one GPU."""
    if not isinstance(expected, Budget) or by_log is None:
        return
    before = by_log.before_gib - expected.before_gib
    if abs(before) >= _DECIMAL_GIB:
        yield (
            f"free before the weights: {by_log.before_gib:.2f} GiB, {expected.before_gib:.2f} "
            f"were expected ({before * by_log.fraction:+.2f} GiB for the pools)"
        )
    loads = by_log.before_gib - by_log.after_gib, expected.before_gib - expected.after_gib
    if abs(loads[0] - loads[1]) >= _DECIMAL_GIB:
        yield (
            f"the weights took {loads[0]:.2f} GiB, {loads[1]:.2f} by their size on disk "
            f"({loads[1] - loads[0]:+.2f} GiB for the pools)"
        )


def _missing(
    launch: Launch, told: Told, expected: Budget | float | None, by_log: Budget | None
) -> Iterator[str]:
    if expected is None:
        yield "tokens before the launch: no GPU's memory was known to estimate them from"
    if by_log is None and launch.max_total_tokens is None:
        yield "tokens by the log: it tells no free memory, or the fraction is the engine's own"
    if told.pool_gib is None and not told.counts:
        yield "bytes of a token: the log has no size of the pool"
