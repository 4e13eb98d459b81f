"""The accuracy room: what a workload takes, for a machine of which the memory is not known.

The question of the card turned round: not how much fits, but how many GiB would have to be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from firstlight.accuracy.fitting import Workload, fit
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.knobs import fp4_name
from firstlight.accuracy.kvbytes import row
from firstlight.accuracy.kvcache import capacity, price
from firstlight.accuracy.kvlaunch import BF16, FP8, Launch
from firstlight.accuracy.kvstate import state_bytes
from firstlight.core.words import columns

# A GPU that needs more than this for its cache alone does not exist.
_MOST_GIB = 4096.0
_STEP_GIB = 0.01


@dataclass(frozen=True)
class Need:
    """One dtype: bytes of a token and of a state slot on one GPU, and the GiB that have to be
    left on it for the workload; None without one, or where the arguments never allow it."""

    kv_dtype: str
    row_bytes: int
    window_bytes: int
    slot_bytes: int
    gib: float | None


def needs(geometry: Geometry, launch: Launch, work: Workload | None) -> tuple[Need, ...]:
    """The needs of BF16, FP8 and FP4."""
    dtypes = (BF16, FP8, fp4_name(launch))
    return tuple(_need(geometry, replace(launch, kv_dtype=dtype), work) for dtype in dtypes)


def _need(geometry: Geometry, launch: Launch, work: Workload | None) -> Need:
    return Need(
        launch.kv_dtype,
        _row_bytes(geometry, launch),
        row(geometry.sliding, launch).stored_bytes,
        state_bytes(geometry, launch).slot_bytes,
        _least(geometry, launch, work) if work else None,
    )


def _row_bytes(geometry: Geometry, launch: Launch) -> int:
    """Bytes of a token; of compressed pools its price, 0 for a dtype without a layout."""
    if geometry.compressed:
        return round(price(geometry, launch)) if launch.kv_dtype == FP8 else 0
    return row(geometry.full, launch).stored_bytes


def _least(geometry: Geometry, launch: Launch, work: Workload) -> float | None:
    """Found by halving; one slot more can cost a few tokens, so it is right to one slot."""

    def holds(gib: float) -> bool:
        found = capacity(geometry, launch, gib)
        return fit(geometry, launch, found, work.context).requests >= work.concurrency

    low, high = 0.0, _MOST_GIB
    if not holds(high):
        return None
    while high - low > _STEP_GIB:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def text(found: tuple[Need, ...], work: Workload | None) -> str:
    """A table by dtype."""
    return columns([("", *(need.kv_dtype for need in found)), *_rows(found, work)])


def _rows(found: tuple[Need, ...], work: Workload | None) -> Iterator[tuple[str, ...]]:
    rows = (f"{need.row_bytes:,}" if need.row_bytes else "no layout" for need in found)
    yield ("bytes of a token on one GPU", *rows)
    if any(need.window_bytes for need in found):
        yield ("bytes of a token in a window", *(f"{need.window_bytes:,}" for need in found))
    if any(need.slot_bytes for need in found):
        yield ("bytes of a state slot", *(f"{need.slot_bytes:,}" for need in found))
    if work:
        name = f"GiB left for {work.concurrency:,} requests of {work.context:,}"
        yield (name, *("never" if n.gib is None else f"{n.gib:.2f}" for n in found))
