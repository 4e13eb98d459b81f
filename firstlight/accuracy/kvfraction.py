"""The accuracy room: the --mem-fraction-static that the engine takes when a launch names none.

It depends on version, card, parallelism, graphs, speculation and the vision tower (facts §1.5),
so a profile should name it. This is what to expect where one does not; whether graphs of prefill
are captured can itself depend on the model, so it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.accuracy.kvlaunch import Launch
from firstlight.accuracy.kvrules import since

_GIB_MIB = 1024
# Below so many MiB of GPU memory: tokens of a prefill chunk, and the largest batch of a decode
# graph with fewer than 4 GPUs and with more.
_TIERS: tuple[tuple[float, int, int, int], ...] = (
    (20 * _GIB_MIB, 2048, 8, 8),
    (35 * _GIB_MIB, 2048, 24, 80),
    (60 * _GIB_MIB, 4096, 32, 160),
    (160 * _GIB_MIB, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
# The second tier from 0.5.20 on (arg_groups/memory_hook.py:96-114).
_WIDER = (35 * _GIB_MIB, 4096, 48, 160)
_LEAST_MIB = 10 * _GIB_MIB
# Sizes that prefill graphs are captured for: from, to, step.
_CAPTURED = (
    (4, 32, 4),
    (48, 256, 16),
    (288, 512, 32),
    (576, 1024, 64),
    (1280, 4096, 256),
    (4608, 1 << 20, 512),
)


@dataclass(frozen=True)
class Tower:
    """The vision tower of a multimodal model: `num_hidden_layers` and `hidden_size` of its
    vision_config, and the engine's own 24 and 1024 where those keys are absent."""

    layers: int = 24
    hidden: int = 1024

    @property
    def ratio(self) -> float:
        """What the fraction is multiplied by: less for a tower larger than ViT-L/14."""
        size = self.layers * self.hidden**2 / (24 * 1024**2)
        return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (size - 1)))


def default_fraction(
    launch: Launch,
    gpu_mib: int,
    *,
    latent: bool = False,
    tower: Tower | None = None,
    prefill_graphs: bool | None = None,
    chunk: int | None = None,
) -> float:
    """The fraction for a card of `gpu_mib` (the least of all, as nvidia-smi says it).

    `latent` for MLA models. `prefill_graphs` None means that version's default: off in 0.5.9, on
    from 0.5.10. `chunk` is --chunked-prefill-size where it is given.
    """
    tokens, batch = _tier(launch, gpu_mib)
    tokens = chunk or tokens
    reserved = 512 + 1.5 * max(tokens, 2048) + 2 * batch + launch.tp * launch.pp / 8 * 1024
    if launch.dp > 1:
        reserved += batch * launch.dp * (4.5 if batch > 300 else 3)
    if prefill_graphs is None:
        prefill_graphs = since(launch.version, "0.5.10")
    if prefill_graphs:
        latent_here = latent and since(launch.version, "0.5.10")
        reserved += 1.5 * _GIB_MIB if latent_here else 8 * captured(tokens)
    if gpu_mib > 60 * _GIB_MIB:
        reserved = max(reserved, _LEAST_MIB)
    fraction = round((gpu_mib - reserved - _drafting(launch)) / gpu_mib, 3)
    return fraction * tower.ratio if tower and not launch.language_only else fraction


def _tier(launch: Launch, gpu_mib: int) -> tuple[int, int]:
    most, tokens, few, many = next(tier for tier in _TIERS if gpu_mib < tier[0])
    if most == _WIDER[0] and since(launch.version, "0.5.20"):
        _, tokens, few, many = _WIDER
    batch = few if launch.tp < 4 else many
    if launch.max_running and since(launch.version, "0.5.23"):
        batch = min(batch, launch.max_running)
    return tokens, batch


def _drafting(launch: Launch) -> int:
    """What speculation is kept for, until 0.5.14 counted the draft itself."""
    if launch.speculation is None or since(launch.version, "0.5.14"):
        return 0
    return 4 * _GIB_MIB if since(launch.version, "0.5.10") else 2 * _GIB_MIB


def captured(most: int) -> int:
    """How many sizes graphs of prefill are captured for, up to `most` tokens."""
    return sum(len(range(first, min(last, most) + 1, step)) for first, last, step in _CAPTURED)
