"""After a launch: what was predicted of its pools against what its own log says, as evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.kvmatch import Figure, Match, Told, matched
from firstlight.accuracy.kvmemory import NOTABLE, Memory, dtype_of, estimate
from firstlight.core.errors import FirstlightError
from firstlight.flows.gate import sm_of
from firstlight.flows.kv import Ground, ground_of
from firstlight.hosts.facts import Facts
from firstlight.hosts.inventory import Host
from firstlight.serve.profile import Profile
from firstlight.serve.serverlog import Pool, ServerLog, Weights

# What printed decimals may hide: two of each figure of a log, three of `/server_info`.
_LOG_GIB, _INFO_GIB = 0.005, 0.0005


def compared(
    host: Host,
    profile: Profile,
    version: str,
    found: Checkpoint,
    facts: Facts,
    log: ServerLog,
    kv_gib: float | None = None,
) -> dict[str, Any]:
    """The comparison as data: `figures`, `findings`, `causes`, and `missing` facts.

    `kv_gib` is the pool as `/server_info` gives it, which has a decimal more than the log."""
    try:
        ground = ground_of(host, profile, version, found, sm_of(profile, facts))
        match = _matched(ground, facts, log, kv_gib)
    except FirstlightError as error:
        return to_json(Match((), missing=(error.what,)))
    return to_json(match)


def _matched(ground: Ground, facts: Facts, log: ServerLog, kv_gib: float | None) -> Match:
    told, dtype = told_by(log, kv_gib)
    if told is None or dtype is None:
        return Match((), missing=("the log tells no pool of a dtype that is sized here",))
    flags = ground.flags
    mib = [gpu.memory_mib for gpu in facts.gpus if gpu.memory_mib]
    guess = estimate(ground.found, ground.geometry, flags, mib, ground.host)
    expected = guess.left if isinstance(guess, Memory) else None
    launch = replace(flags.launch, kv_dtype=dtype)
    return matched(ground.geometry, launch, told, expected, flags.fraction)


def told_by(log: ServerLog, kv_gib: float | None = None) -> tuple[Told | None, str | None]:
    """What the rank that holds most says of the target's pools; their dtype in the engine's word.

    Stages of a pipeline differ, and a prediction is of the largest; where all hold the same it is
    the first. The free memory is that of the rank with least: all ranks take the same tokens."""
    if log.compressed and log.max_total_tokens is not None:
        return _compressed(log, log.max_total_tokens)
    targets = [pool for pool in log.pools if not pool.draft and not pool.bound]
    if not targets or log.max_total_tokens is None:
        return None, None
    fullest = _fullest((pool.rank, pool.gib) for pool in targets)
    mine = [pool for pool in targets if pool.rank == fullest]
    before, after = _around_weights(log.weights)
    stateful = _fullest((state.rank, state.conv_gib + state.ssm_gib) for state in log.states)
    states = [state for state in log.states if state.rank == stateful]
    pool_gib = sum(pool.gib for pool in mine) if all(map(_is_sized, mine)) else None
    slack = _LOG_GIB * sum(1 if pool.kv_gib is not None else 2 for pool in mine)
    # It is one sum of all pools of the first rank, so that it serves where that is one.
    alone = len(log.pools) == len(targets) and len(mine) == 1
    if kv_gib and alone and fullest == targets[0].rank:
        pool_gib, slack = kv_gib, _INFO_GIB
    return Told(
        tokens=log.max_total_tokens,
        pool_gib=pool_gib,
        slack_gib=slack,
        slots=states[0].slots if states else None,
        state_gib=sum(state.conv_gib + state.ssm_gib for state in states) if states else None,
        before_gib=before,
        after_gib=after,
    ), dtype_of(mine[0].dtype)


def _compressed(log: ServerLog, tokens: int) -> tuple[Told, str | None]:
    """The pools of DeepSeek-V4, of the rank where a token costs most."""
    mine = max(log.compressed, key=lambda pool: pool.priced_bytes or 0)
    before, after = _around_weights(log.weights)
    counts = {"sliding": mine.window, "c4 state": mine.c4_states, "c128 state": mine.c128_states}
    return Told(
        tokens=tokens,
        before_gib=before,
        after_gib=after,
        counts=tuple((name, n) for name, n in counts.items() if n is not None),
        priced_bytes=mine.priced_bytes,
        available_gib=mine.available_gib,
    ), dtype_of(mine.dtype)


def _fullest(pools: Iterable[tuple[str, float]]) -> str:
    """The rank whose pools take most GiB, "" without any."""
    ranks: dict[str, float] = {}
    for rank, gib in pools:
        ranks[rank] = ranks.get(rank, 0.0) + gib
    return max(ranks, key=ranks.__getitem__, default="")


def _is_sized(pool: Pool) -> bool:
    return pool.kv_gib is not None or pool.k_gib is not None


def _around_weights(loads: tuple[Weights, ...]) -> tuple[float | None, float | None]:
    """The least free memory of all ranks before the first load, and after the last."""
    before, after = [], []
    for rank in {load.rank for load in loads}:
        mine = [load for load in loads if load.rank == rank]
        first, last = mine[0], mine[-1]
        if first.avail_gib is None or first.used_gib is None or last.avail_gib is None:
            return None, None
        before.append(first.avail_gib + first.used_gib)
        after.append(last.avail_gib)
    return (min(before), min(after)) if before else (None, None)


def to_json(match: Match) -> dict[str, Any]:
    """A comparison as a proof keeps it."""
    return {
        "figures": [_figure(one) for one in match.figures],
        "findings": [str(one) for one in match.findings],
        "causes": list(match.causes),
        "missing": list(match.missing),
    }


def _figure(one: Figure) -> dict[str, Any]:
    told = {key: value for key, value in asdict(one).items() if key != "slack"}
    return told | {"off": round(one.off, 6), "finding": one.is_finding, "text": str(one)}


def lines(data: Mapping[str, Any]) -> list[str]:
    """A comparison as a person reads it while a deploy goes on."""
    told = [("FINDING: " if one["finding"] else "") + one["text"] for one in data["figures"]]
    why = [f"because: {cause}" for cause in data["causes"]]
    return [*told, *why, *(f"not compared: {fact}" for fact in data["missing"])]


def short(data: Mapping[str, Any]) -> str:
    """A comparison in a line."""
    if data["findings"]:
        return f"{len(data['findings'])} of {len(data['figures'])} figures off by more than 2 %"
    if not data["figures"]:
        return f"not predicted: {'; '.join(data['missing'])}"
    # What is further off and no finding is so little that the log's decimals may hide it.
    hidden = any(abs(one["off"]) > NOTABLE for one in data["figures"])
    within = "2 % of the server's log" + (" and its rounding" if hidden else "")
    return f"{len(data['figures'])} figures predicted, all within {within}"
