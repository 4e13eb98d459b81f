"""The accuracy room: how much memory the states of linear-attention layers take, and for how many.

A request needs some slots of the state pool, and an attention cache beside it; the engine splits
what is left between the two. Formulas and their sources by version: facts §3.3, kvrules.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvbytes import stages
from firstlight.accuracy.kvlaunch import GIB, Launch
from firstlight.accuracy.states import SSM_BYTES


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one slot on one GPU: the windows of all convolutions, and the matrices."""

    conv_bytes: int = 0
    ssm_bytes: int = 0

    @property
    def slot_bytes(self) -> int:
        """Both."""
        return self.conv_bytes + self.ssm_bytes


@dataclass(frozen=True)
class StatePool:
    """The state pool of one GPU. `charged_gib` is what the engine takes off the budget for the
    slots, `spec_gib` for the states between draft tokens; the pool has one slot more than
    `slots`, for padding, which is charged from 0.5.20 on."""

    slots: int = 0
    requests: int = 0
    slot_bytes: int = 0
    charged_gib: float = 0.0
    spec_gib: float = 0.0

    @property
    def stored_gib(self) -> float:
        """What the slots take, the one for padding with them."""
        return (self.slots + 1) * self.slot_bytes / GIB


def state_bytes(geometry: Geometry, launch: Launch) -> StateBytes:
    """Bytes of one slot on one GPU, all layers with a state together."""
    ssm = SSM_BYTES.get(launch.ssm_dtype or "")
    return StateBytes(
        sum(state.conv_on_gpu(launch.attn_tp) for state in geometry.states),
        sum(state.ssm_on_gpu(launch.attn_tp, ssm) for state in geometry.states),
    )


def charged_bytes(geometry: Geometry, launch: Launch) -> int:
    """Bytes that one slot is charged with: of the largest pipeline stage, or of all layers."""
    whole = state_bytes(geometry, launch).slot_bytes
    if launch.pp == 1 or not launch.rules.stage_states:
        return whole
    shares = [sum(1 for la in stage if la.state) for stage in stages(geometry.layers, launch.pp)]
    return int(whole * (max(shares) / max(1, len(geometry.states))))


def state_pool(geometry: Geometry, launch: Launch, rest_gib: float) -> StatePool:
    """The slots that `rest_gib` of free memory gives, and what they take of it.

    Three ways: as many slots as asked for; as many as requests, without a radix cache; or the
    share r / (1 + r) of the memory. `slots` can come out as 0 or less: then the engine refuses.
    """
    if not geometry.states:
        return StatePool()
    each = charged_bytes(geometry, launch)
    rules, drafts = launch.rules, _drafts(launch)
    spare = 1 if rules.state == "padded" else 0
    if rules.state == "first":
        first_gib = each * (launch.running or 0) * drafts / GIB
        slots = _slots(launch, each, rest_gib - first_gib, 0, 0)
        spec_gib = first_gib
    else:
        slots = _slots(launch, each, rest_gib, drafts, spare)
        spec_gib = each * (_verified(launch, slots) + spare) * drafts / GIB
    taken = (slots + spare) * each / GIB
    return StatePool(slots, slots // launch.slots_per_request, each, taken, spec_gib)


def _drafts(launch: Launch) -> int:
    return launch.speculation.draft_tokens if launch.speculation and not launch.replay_states else 0


def _verified(launch: Launch, slots: int) -> int:
    """Requests that can have states between draft tokens."""
    if launch.state_slots is None and not launch.radix and launch.max_running is not None:
        return slots
    return min(launch.running or 0, slots // launch.slots_per_request)


def _slots(launch: Launch, each: int, rest_gib: float, drafts: int, spare: int) -> int:
    if launch.state_slots is not None:
        return launch.state_slots // launch.dp
    if not launch.radix and launch.max_running is not None:
        return max(spare, launch.max_running // launch.dp)
    # In the order of the engine's own operations, so that the last bit agrees too.
    budget = rest_gib * launch.state_ratio / (1 + launch.state_ratio) * GIB
    if drafts:
        ahead = each * (1 + drafts) if spare else 0
        return int((budget - ahead) // (each * (1 + drafts / launch.slots_per_request)))
    return int((budget - spare * each) // each)
