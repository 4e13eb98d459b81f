"""The accuracy room: which argument moves memory to the KV cache, and how many tokens it gives.

A knob is the launch with one argument changed and its capacity worked out anew; nothing is scaled
by hand. Each says what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from firstlight.accuracy.fitting import Fit, Workload, fit
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvcache import capacity, memory_for
from firstlight.accuracy.kvdsv4 import window_cap
from firstlight.accuracy.kvlaunch import Budget, Launch
from firstlight.accuracy.kvwindow import request_cap
from firstlight.core.errors import FirstlightError

# Shares of the memory for states that are worth a look; the engine's own is 0.9.
_RATIOS = (0.3, 0.1)
# Requests that a state pool should allow where no workload says how many.
_REQUESTS = 32
# Tokens of a prefill chunk where nobody says: the most of the engine's own.
_CHUNK = 16384
# Chosen: more than this leaves too little for activations and graphs.
_MOST_FRACTION = 0.97


@dataclass(frozen=True)
class Knob:
    """One change of the arguments; `flags` as they are written, `states` the requests that the
    state pool allows on one rank (None without states), `fit` for the workload if there is one.
    `rank` says what to turn first (facts §3.7): 0 shrink a pool that is larger than needed, 1 take
    memory from activations, 2 give something up."""

    flags: str
    tokens: int
    states: int | None
    cost: str
    rank: int
    fit: Fit | None
    launch: Launch


def knobs(
    geometry: Geometry,
    launch: Launch,
    rest_gib: float,
    budget: Budget | None,
    work: Workload | None,
) -> tuple[Knob, ...]:
    """What gives more tokens, or holds more of the workload, most tokens first.

    `budget` lets --mem-fraction-static be named."""
    found = (
        *_state_knobs(geometry, launch, rest_gib, work),
        *_window_knobs(geometry, launch, rest_gib, work),
        *_fraction_knobs(geometry, launch, budget, work),
    )
    now = capacity(geometry, launch, rest_gib)
    held = fit(geometry, launch, now, work.context).requests if work else 0
    better = [k for k in found if k.tokens > now.tokens or (k.fit and k.fit.requests > held)]
    return tuple(sorted(better, key=lambda knob: -knob.tokens))


def _knob(
    geometry: Geometry,
    launch: Launch,
    rest_gib: float,
    work: Workload | None,
    told: tuple[int, str, str],
) -> Knob | None:
    """The knob that `launch` is; `told` are its rank, its flags, and its cost."""
    found = capacity(geometry, launch, rest_gib)
    if found.refused:
        return None
    states = found.states.requests if geometry.states else None
    held = fit(geometry, launch, found, work.context) if work else None
    rank, flags, cost = told
    return Knob(flags, found.tokens, states, cost, rank, held, launch)


def _state_knobs(
    geometry: Geometry, launch: Launch, rest_gib: float, work: Workload | None
) -> Iterator[Knob]:
    if not geometry.states:
        return
    requests = -(-(work.concurrency if work else _REQUESTS) // launch.dp) * launch.dp
    for changed, rank, flags, cost in _state_changes(launch, requests):
        if changed.ssm_dtype and all(state.ssm_bytes == 2 for state in geometry.states):
            continue
        if knob := _knob(geometry, changed, rest_gib, work, (rank, flags, cost)):
            yield knob


def _state_changes(launch: Launch, requests: int) -> Iterator[tuple[Launch, int, str, str]]:
    slots, kept = requests * launch.slots_per_request, "fewer prefixes keep their state"
    changed = replace(launch, state_slots=slots)
    yield changed, 0, f"--max-mamba-cache-size {slots}", kept
    for ratio in _RATIOS:
        changed = replace(launch, state_slots=None, state_ratio=ratio)
        yield changed, 0, f"--mamba-full-memory-ratio {ratio}", kept
    if launch.radix:
        flags = f"--disable-radix-cache --max-running-requests {requests}"
        changed = replace(launch, state_slots=None, radix=False, max_running=requests)
        yield changed, 2, flags, "no prefix is ever used again"
    if launch.ssm_dtype is None:
        changed = replace(launch, ssm_dtype="bfloat16")
        yield changed, 2, "--mamba-ssm-dtype bfloat16", "states in 16 bits: measure first"


def _window_knobs(
    geometry: Geometry, launch: Launch, rest_gib: float, work: Workload | None
) -> Iterator[Knob]:
    """The least ratio whose sliding pool still holds the windows of all requests."""
    two = (geometry.sliding and geometry.full) or _by_ratio(geometry, launch)
    if not two or not geometry.window:
        return
    requests = -(-(work.concurrency if work else _REQUESTS) // launch.dp)
    windows = requests * (geometry.window + launch.page_size) + launch.page_size
    if geometry.compressed:
        chunked = replace(launch, chunk=launch.chunk or _CHUNK)
        windows = request_cap(geometry.window, requests, chunked)
        windows = -(-windows // launch.page_size) * launch.page_size
    ratio = launch.swa_ratio
    for _ in range(8):
        tokens = capacity(geometry, replace(launch, swa_ratio=ratio), rest_gib).tokens
        if tokens <= 0:
            return
        ratio = min(launch.swa_ratio, math.ceil(windows / tokens * 1000) / 1000)
    flags = f"--swa-full-tokens-ratio {ratio:g}"
    changed = replace(launch, swa_ratio=ratio, swa_given=True)
    cost = f"windows of {requests} requests and no more"
    knob = _knob(geometry, changed, rest_gib, work, (0, flags, cost))
    if knob and ratio < launch.swa_ratio:
        yield knob


def _by_ratio(geometry: Geometry, launch: Launch) -> bool:
    """Whether the windows of compressed pools go by the ratio, which the knob then turns."""
    return geometry.compressed is not None and window_cap(geometry, launch) is None


def _fraction_knobs(
    geometry: Geometry, launch: Launch, budget: Budget | None, work: Workload | None
) -> Iterator[Knob]:
    """The fraction that the workload needs, else a little more than now."""
    if budget is None:
        return
    fraction = round(budget.fraction + 0.03, 3)
    if work:
        try:
            need = memory_for(geometry, launch, -(-work.tokens // launch.dp))
            fraction = max(budget.fraction, budget.fraction_for(need))
        except FirstlightError:
            return
    if budget.fraction < fraction <= _MOST_FRACTION:
        more = replace(budget, fraction=fraction)
        took = (fraction - budget.fraction) * budget.before_gib
        cost = f"{took:.2f} GiB less for activations and graphs"
        flags = f"--mem-fraction-static {fraction:g}"
        if knob := _knob(geometry, launch, more.rest_gib, work, (1, flags, cost)):
            yield knob


def fp4_name(launch: Launch) -> str:
    """What this version calls a KV cache of four bits."""
    return launch.rules.fp4[0]
