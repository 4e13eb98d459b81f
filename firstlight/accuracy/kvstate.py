"""The accuracy room: how much memory the states of linear-attention layers take, and for how many.

A request needs some slots of the state pool, and an attention cache beside it; the engine splits
what is left between the two. Formulas and their sources by version: facts §3.3, kvrules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    `slots`, for padding, which is charged from 0.5.17 on."""

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
    each, launch = charged_bytes(geometry, launch), _as_kept(geometry, launch)
    if launch.rules.state in ("requests", "share"):
        return _unsolved(geometry, launch, each, rest_gib)
    rules, drafts = launch.rules, _drafts(launch)
    spare = 1 if rules.state == "padded" else 0
    if rules.state in ("first", "shared_first"):
        first_gib = each * _ahead(launch) * drafts / GIB
        slots = _slots(launch, each, rest_gib - first_gib, 0, 0)
        spec_gib = first_gib
    else:
        slots = _slots(launch, each, rest_gib, drafts, spare)
        spec_gib = each * (_verified(launch, slots) + spare) * drafts / GIB
    taken = max(0, slots + spare) * each / GIB
    return StatePool(slots, slots // launch.slots_per_request, each, taken, spec_gib)


def _as_kept(geometry: Geometry, launch: Launch) -> Launch:
    """The launch with the radix cache off where that version had none for such states."""
    rules = launch.rules
    mamba = geometry.states[0].kind == "Mamba 2"
    without = rules.state == "requests" or (rules.state == "share" and mamba)
    return replace(launch, radix=False) if without else launch


def _unsolved(geometry: Geometry, launch: Launch, each: int, rest_gib: float) -> StatePool:
    """Before 0.5.7 each slot has the states between draft tokens with it, which 0.5.2 and 0.5.3 do
    not charge; a share of the memory is divided by the ranks of DP attention for GDN alone."""
    drafts = _drafts(launch) if launch.rules.state == "share" else 0
    if launch.radix:
        slots = int(_share_bytes(launch, rest_gib) // each // (1 + drafts))
    else:
        slots = launch.state_slots or launch.asked or launch.rules.slots
    if not launch.radix or geometry.states[0].kind == "GDN":
        slots //= launch.dp
    taken = max(0, slots) * each / GIB
    return StatePool(slots, slots // launch.slots_per_request, each, taken, taken * drafts)


def _ahead(launch: Launch) -> int:
    """Requests whose states between draft tokens are taken off before the slots are counted."""
    if launch.rules.state == "first":
        return launch.running or 0
    given = launch.state_slots is not None or _by_requests(launch) is not None
    return 0 if given else launch.asked or 0


def _drafts(launch: Launch) -> int:
    return launch.speculation.draft_tokens if launch.speculation and not launch.replay_states else 0


def _by_requests(launch: Launch) -> int | None:
    """Slots where they are as many as the requests asked for: without a radix cache."""
    return None if launch.radix else launch.asked or launch.rules.slots or None


def _verified(launch: Launch, slots: int) -> int:
    """Requests that can have states between draft tokens."""
    if launch.state_slots is None and _by_requests(launch) is not None:
        return slots
    return min(launch.running or 0, slots // launch.slots_per_request)


def _share_bytes(launch: Launch, rest_gib: float) -> float:
    # In the order of the engine's own operations, so that the last bit agrees too.
    return rest_gib * launch.state_ratio / (1 + launch.state_ratio) * GIB


def _slots(launch: Launch, each: int, rest_gib: float, drafts: int, spare: int) -> int:
    if launch.state_slots is not None:
        return launch.state_slots // launch.dp
    if (asked := _by_requests(launch)) is not None:
        return max(spare, asked // launch.dp)
    budget = _share_bytes(launch, rest_gib)
    if drafts:
        ahead = each * (1 + drafts) if spare else 0
        return int((budget - ahead) // (each * (1 + drafts / launch.slots_per_request)))
    return int((budget - spare * each) // each)
