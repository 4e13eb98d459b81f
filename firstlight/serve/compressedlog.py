"""The compressed log room: what a server's log says of the pools of DeepSeek-V4.

It has no line of bytes: one tells what a token is charged with and the memory, the next the tokens
of each pool, once more after a cap; the buffers themselves are told by their slots alone (0.5.12
pool_configurator.py:417 and :447, deepseek_v4_memory_pool.py:389; 0.5.23:1602 and :1679).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

# Eight bits are the only layout; ROCm's unified buffer has others, and says so.
_DTYPE = "torch.float8_e4m3fn"
PRICE = r"^DS[Vv]4 memory calculation: .*?bytes_per_full_token="
SIZES = r"^DS[Vv]4 pool sizes: full=(\d+), swa=(\d+)"
SLOTS = r"^Initialize DeepSeekV4TokenToKVPool with .*c128_state_pool_size=(\d+)"


@dataclass(frozen=True)
class CompressedPools:
    """The pools of one rank: tokens of the context, of the windows, and slots of the states; None
    where no line told them yet. `priced_bytes` is what a token is charged with, `available_gib`
    the memory it was counted from, `fixed_gib` what was taken off before."""

    rank: str
    tokens: int = 0
    window: int = 0
    c4_states: int | None = None
    c128_states: int | None = None
    priced_bytes: float | None = None
    available_gib: float | None = None
    fixed_gib: float = 0.0
    unified: bool = False

    @property
    def dtype(self) -> str:
        """Torch's name of the rows' dtype, "" where it is not the one of NVIDIA."""
        return "" if self.unified else _DTYPE


Known = tuple[CompressedPools, ...]


def priced(known: Known, rank: str, line: str) -> Known:
    """What is known after the line that says what a token costs."""
    price, memory = _figure("bytes_per_full_token", line), _figure("available_bytes", line)
    fixed = sum(float(gib) for gib in re.findall(r"fixed=(\d+(?:\.\d+)?) GB", line))
    unified = "unified=True" in line
    pool = replace(_of(known, rank), priced_bytes=price, available_gib=memory)
    return _with(known, replace(pool, fixed_gib=fixed, unified=unified))


def sized(known: Known, rank: str, line: str) -> Known:
    """What is known after the line of tokens, the last of which holds."""
    found = re.search(SIZES, line)
    assert found
    states = _figure("c4_state", line)
    pool = replace(_of(known, rank), tokens=int(found[1]), window=int(found[2]))
    return _with(known, replace(pool, c4_states=None if states is None else int(states)))


def slotted(known: Known, rank: str, line: str) -> Known:
    """What is known after the line of the buffers, whose states of 128 are the final ones."""
    found = re.search(SLOTS, line)
    assert found
    mine = _of(known, rank)
    # A draft's buffers come after, and say 0.
    if mine.c128_states is not None or not mine.tokens:
        return known
    return _with(known, replace(mine, c128_states=int(found[1])))


def _of(known: Known, rank: str) -> CompressedPools:
    return next((pool for pool in known if pool.rank == rank), CompressedPools(rank))


def _with(known: Known, pool: CompressedPools) -> Known:
    if all(other.rank != pool.rank for other in known):
        return (*known, pool)
    return tuple(pool if other.rank == pool.rank else other for other in known)


def _figure(name: str, line: str) -> float | None:
    found = re.search(rf"\b{name}=(\d+(?:\.\d+)?)", line)
    return float(found[1]) if found else None
