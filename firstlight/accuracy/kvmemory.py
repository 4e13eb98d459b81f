"""The accuracy room: the memory that one GPU has left, given, estimated, or measured.

An estimate is: what the smallest card has, less what is gone before the weights, less the weights
on disk by rank. A measurement is the pool of a server that runs: the memory that gives its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.configkeys import Config, count, section
from firstlight.accuracy.geometry import Geometry, Latent
from firstlight.accuracy.kvcache import Capacity, capacity, memory_for
from firstlight.accuracy.kvflags import Flags
from firstlight.accuracy.kvfraction import Tower, default_fraction
from firstlight.accuracy.kvlaunch import BF16, GIB, Budget
from firstlight.core.errors import FirstlightError

_MIB_PER_GIB = 1024
# Gone before the weights (context, collectives): published boots lack 1.0 to 1.4 GiB with one or
# two cards, and 2.3 to 3.1 with four and eight.
_GONE_GIB, _GONE_OF_MANY_GIB, _MANY = 1.2, 2.7, 4
_DTYPES = {
    "bfloat16": BF16,
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fnuz": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float8_e5m2fnuz": "fp8_e5m2",
}
_PLENTY_GIB = 4096.0
# More than this between what was predicted and what was found is worth a line.
NOTABLE = 0.02


@dataclass(frozen=True)
class Memory:
    """What is left on one GPU: a budget where all three figures are known, else GiB.

    `told` says where it comes from."""

    left: Budget | float
    source: Literal["given", "estimate", "measured"]
    told: str

    @property
    def rest_gib(self) -> float:
        """GiB for KV and states."""
        return self.left.rest_gib if isinstance(self.left, Budget) else self.left


@dataclass(frozen=True)
class Missing:
    """The facts that an estimate lacks, one a line."""

    facts: tuple[str, ...]


@dataclass(frozen=True)
class Served:
    """What the server of a deployment said of its pool; `kv_dtype` is torch's name."""

    kv_dtype: str
    tokens: int
    kv_gib: float | None = None


def dtype_of(torch_name: str) -> str | None:
    """The engine's word for a dtype of torch's, None for one that no rule here sizes."""
    return _DTYPES.get(torch_name.removeprefix("torch."))


def weights_bytes(found: Checkpoint, flags: Flags) -> int:
    """Bytes of tensors that a launch loads: without speculation the draft's stay on the disk."""
    whole = sum(group.bytes for group in found.reading.groups)
    return whole if flags.launch.speculation else whole - found.draft.bytes


def estimate(
    found: Checkpoint, geometry: Geometry, flags: Flags, gpu_mib: Sequence[int], host: str
) -> Memory | Missing:
    """What should be left. `gpu_mib` is the memory of each GPU of the host, in MiB."""
    if lacks := tuple(_lacks(found, gpu_mib, host)):
        return Missing(lacks)
    least = min(gpu_mib)
    named = "" if flags.fraction else ", the engine's own"
    fraction = flags.fraction or _fraction(found.config, geometry, flags, least)
    before = least / _MIB_PER_GIB - (_GONE_OF_MANY_GIB if flags.gpus >= _MANY else _GONE_GIB)
    loaded = weights_bytes(found, flags) / flags.gpus / GIB
    budget = Budget(before, before - loaded, fraction, measured=False)
    told = (
        f"estimated: {before:.2f} GiB of a card's {least / _MIB_PER_GIB:.2f} before the weights, "
        f"{loaded:.2f} of weights a GPU by their size on disk, fraction {fraction:.3f}{named}"
    )
    if flags.launch.dp > 1:
        told += "; weights of attention that each rank of DP attention holds whole are not counted"
    if len(gpu_mib) < flags.gpus:
        told += f"; {host} has {len(gpu_mib)} GPUs, the launch asks for {flags.gpus}"
    return Memory(budget, "estimate", told)


def _lacks(found: Checkpoint, gpu_mib: Sequence[int], host: str) -> Iterator[str]:
    if not gpu_mib:
        yield f"the memory of a GPU: {host} has none"
    if not found.reading.shards:
        yield f"the weights: {found.reading.folder} holds no safetensors"
    elif not all(shard.whole for shard in found.reading.shards):
        yield "the weights: not every shard could be read"


def _fraction(config: Config, geometry: Geometry, flags: Flags, gpu_mib: int) -> float:
    latent = any(isinstance(layer.rows, Latent) for layer in geometry.layers)
    tower = _tower(config) if geometry.multimodal else None
    launch, chunk = flags.launch, flags.chunk
    return default_fraction(launch, gpu_mib, latent=latent, tower=tower, chunk=chunk)


def _tower(config: Config) -> Tower:
    seen = section(config, "vision_config")
    usual = Tower()
    layers, hidden = count(seen, "num_hidden_layers"), count(seen, "hidden_size")
    return Tower(layers or usual.layers, hidden or usual.hidden)


def measured(
    geometry: Geometry, flags: Flags, served: Served, expected: Memory | None
) -> Memory | None:
    """The memory that gives the tokens of a server that runs, None where they do not tell it.

    `expected` is the estimate, of which the figures around the weights are kept."""
    dtype = dtype_of(served.kv_dtype)
    if dtype is None or served.tokens <= 0:
        return None
    launch = replace(flags.launch, kv_dtype=dtype)
    try:
        rest = memory_for(geometry, launch, served.tokens)
    except FirstlightError:
        return None
    size = f", {served.kv_gib:.2f} GiB" if served.kv_gib is not None else ""
    told = f"measured: the server of this profile holds {served.tokens:,} tokens in {dtype}{size}"
    most = launch.max_total_tokens
    if most is not None and served.tokens >= most // launch.page_size * launch.page_size:
        return Memory(rest, "measured", f"{told}, its --max-total-tokens; there may be more memory")
    if expected and isinstance(expected.left, Budget):
        told += _difference(served.tokens, capacity(geometry, launch, expected.rest_gib))
        return Memory(_around(expected.left, rest), "measured", told)
    return Memory(rest, "measured", told)


def _around(budget: Budget, rest_gib: float) -> Budget:
    """The budget whose rest is the measured one."""
    after = rest_gib + budget.before_gib * (1 - budget.fraction)
    return replace(budget, after_gib=after, measured=True)


def _difference(tokens: int, predicted: Capacity) -> str:
    off = predicted.tokens / tokens - 1
    return f"; the estimate from the weights gave {predicted.tokens:,} ({off:+.1%})"


def odd_rows(geometry: Geometry, flags: Flags, served: Served) -> str:
    """A line where the server's bytes per token are others than predicted, else "".

    Only pools of one kind can be told from their sum: K and V of all layers over the rows."""
    dtype = dtype_of(served.kv_dtype)
    split = geometry.sliding or geometry.compressed
    if dtype is None or not served.kv_gib or split or flags.launch.speculation:
        return ""
    launch = replace(flags.launch, kv_dtype=dtype)
    pools = capacity(geometry, launch, _PLENTY_GIB).pools
    here = pools[0].row.line_bytes if pools else 0
    # Two decimals are printed of K and of V.
    slack = 0.01 * GIB / served.tokens
    there = served.kv_gib * GIB / (served.tokens + launch.page_size)
    # A log may have told of the pools of all GPUs, and the proof has their sum.
    if any(abs(there - n * here) <= NOTABLE * n * here + n * slack for n in {1, flags.gpus}):
        return ""
    return f"the server's pool takes {there:,.0f} bytes a token, and {here:,} were predicted"


def served_by(proof: Mapping[str, object]) -> Served | None:
    """What a kept proof says of the pool, None where it says too little."""
    dtype, tokens, size = (proof.get(key) for key in ("kv_dtype", "kv_tokens", "kv_gib"))
    if not isinstance(dtype, str) or not isinstance(tokens, int) or tokens <= 0:
        return None
    return Served(dtype, tokens, float(size) if isinstance(size, int | float) else None)
