"""The accuracy room: the capacity card, what BF16, FP8 and FP4 hold side by side, as a value.

    card(geometry, launch, budget, workload) -> Card ; cardtext.text(card) -> str

Everything on it is worked out by kvcache with one argument changed at a time; the rule for
"affordable" is that of facts §3.7: the tokens of the workload, and at least one whole context,
fit the BF16 pool, and its requests fit the state pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firstlight.accuracy.fitting import Fit, Workload, fit
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.knobs import Knob, fp4_name, knobs
from firstlight.accuracy.kvcache import Capacity, capacity, memory_for
from firstlight.accuracy.kvlaunch import BF16, FP8, Budget, Launch
from firstlight.core.errors import FirstlightError

_NAMES = {BF16: "BF16", FP8: "FP8"}
CONTEXTS = (8_192, 32_768, 131_072, 262_144)


@dataclass(frozen=True)
class Column:
    """One KV dtype: its capacity, and how many requests of each context fit at once."""

    kv_dtype: str
    capacity: Capacity
    fits: tuple[Fit, ...]


@dataclass(frozen=True)
class Price:
    """What BF16 costs against FP8: tokens, and the share of FP8's tokens in percent."""

    tokens: int
    percent: float


@dataclass(frozen=True)
class Card:
    """The capacity of one model on one kind of GPU. `measured` is False where the free memory is
    an estimate. `affordable` is None without a workload; `sentence` says it plainly."""

    geometry: Geometry
    launch: Launch
    rest_gib: float
    measured: bool
    contexts: tuple[int, ...]
    columns: tuple[Column, ...]
    price: Price | None
    knobs: tuple[Knob, ...]
    workload: Workload | None
    affordable: bool | None
    sentence: str

    def column(self, kv_dtype: str) -> Column:
        """The column of one dtype."""
        return next(column for column in self.columns if column.kv_dtype == kv_dtype)


def card(
    geometry: Geometry,
    launch: Launch,
    memory: Budget | float,
    workload: Workload | None = None,
    context: int | None = None,
) -> Card:
    """The card of one launch. `memory` is what stands around the load of the weights, or the GiB
    that are left on one GPU; `context` the profile's own length, beyond which no request is."""
    budget = memory if isinstance(memory, Budget) else None
    rest = memory.rest_gib if isinstance(memory, Budget) else memory
    own = (context, workload.context if workload else None)
    usual = (length for length in CONTEXTS if not context or length <= context)
    contexts = tuple(sorted({*usual, *(length for length in own if length)}))
    columns = tuple(
        _column(geometry, replace(launch, kv_dtype=kv_dtype), rest, contexts)
        for kv_dtype in (BF16, FP8, fp4_name(launch))
    )
    wide = replace(launch, kv_dtype=widest(geometry))
    turned = knobs(geometry, wide, rest, budget, workload)
    mine = next(column for column in columns if column.kv_dtype == wide.kv_dtype)
    affordable, sentence = _verdict(geometry, wide, mine, turned, workload, context)
    return Card(
        geometry=geometry,
        launch=launch,
        rest_gib=rest,
        measured=budget.measured if budget else True,
        contexts=contexts,
        columns=columns,
        price=None if mine is columns[1] else _price(mine.capacity, columns[1].capacity),
        knobs=turned,
        workload=workload,
        affordable=affordable,
        sentence=sentence,
    )


def widest(geometry: Geometry) -> str:
    """The dtype to be had before any narrower one: BF16, or FP8 where there is a layout of it
    alone."""
    return FP8 if geometry.compressed else BF16


def _column(
    geometry: Geometry, launch: Launch, rest_gib: float, contexts: tuple[int, ...]
) -> Column:
    found = capacity(geometry, launch, rest_gib)
    fits = tuple(fit(geometry, launch, found, length) for length in contexts)
    return Column(launch.kv_dtype, found, fits)


def _price(wide: Capacity, narrow: Capacity) -> Price | None:
    if narrow.refused or narrow.tokens <= 0:
        return None
    lost = narrow.tokens - max(0, wide.tokens)
    return Price(lost, 100 * lost / narrow.tokens)


def _least(geometry: Geometry, launch: Launch, tokens: int) -> str:
    try:
        return f"{memory_for(geometry, launch, tokens):.2f} GiB a GPU would do"
    except FirstlightError as error:
        return error.what


def _verdict(
    geometry: Geometry,
    launch: Launch,
    wide: Column,
    turned: tuple[Knob, ...],
    workload: Workload | None,
    context: int | None,
) -> tuple[bool | None, str]:
    found, name = wide.capacity, _NAMES[launch.kv_dtype]
    if found.refused:
        told = _least(geometry, launch, workload.context if workload else 1)
        return False, f"{name} would not start: {found.refused} ({told})."
    if workload is None:
        return None, f"{name} holds {found.tokens:,} tokens; no workload is given to weigh them by."
    held = fit(geometry, launch, found, workload.context)
    if held.requests < workload.concurrency:
        way = _way(workload, turned, found, launch)
        return False, f"{_shortfall(workload, held, found, launch)} {way}"
    if context and fit(geometry, launch, found, context).requests < 1:
        return (
            False,
            f"Not affordable in {name}: one request of the whole {context:,} does not fit.",
        )
    need = f"{workload.concurrency:,} requests of {workload.context:,} tokens"
    used = f"{workload.tokens:,} of {found.tokens * launch.dp:,} tokens"
    return True, f"Affordable in {name}: {need} take {used}{_states(geometry, found)}."


def _states(geometry: Geometry, found: Capacity) -> str:
    return f", and the state pool allows {found.states.requests:,}" if geometry.states else ""


def _shortfall(work: Workload, held: Fit, found: Capacity, launch: Launch) -> str:
    need = f"{work.concurrency:,} requests of {work.context:,} tokens"
    why = {
        "tokens": f"they take {work.tokens:,} tokens and it holds {found.tokens * launch.dp:,}",
        "window": f"their windows fill the sliding pool at {held.requests:,}",
        "states": f"the state pool allows {held.requests:,}",
        "max_running": f"--max-running-requests allows {held.requests:,}",
    }[held.bound]
    name = _NAMES[launch.kv_dtype]
    return f"Not affordable in {name} as launched: {need} do not fit, {why}."


def _way(work: Workload, turned: tuple[Knob, ...], now: Capacity, launch: Launch) -> str:
    """The knob to turn first of those that suffice, the smallest turn of it; or that none does."""
    enough = [knob for knob in turned if knob.fit and knob.fit.requests >= work.concurrency]
    if enough:
        gentle = min(enough, key=lambda knob: (knob.rank, abs(knob.tokens - now.tokens)))
        return f"With {gentle.flags} it is: {gentle.tokens:,} tokens ({gentle.cost})."
    best = max((knob.fit.requests for knob in turned if knob.fit), default=0)
    most = f"; the best of them holds {best:,}" if best else ""
    narrow = ", or FP8 with checked scales" if launch.kv_dtype == BF16 else ""
    return f"No argument here buys it{most}. Fewer or shorter requests{narrow}."
