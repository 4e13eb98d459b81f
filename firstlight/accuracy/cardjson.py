"""The accuracy room: the capacity card as data for programs; units stand in the keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from firstlight.accuracy.card import Card, Column
from firstlight.accuracy.kvlaunch import Launch


def to_json(card: Card) -> dict[str, Any]:
    """Everything of the card; sizes and tokens are of one GPU and of one replica."""
    return {
        "rest_gib": card.rest_gib,
        "measured": card.measured,
        "dtypes": [_column(column) for column in card.columns],
        "bf16_costs": asdict(card.price) if card.price else None,
        "knobs": [
            {"flags": k.flags, "tokens": k.tokens, "requests": k.states, "cost": k.cost}
            for k in card.knobs
        ],
        "workload": asdict(card.workload) if card.workload else None,
        "affordable": card.affordable,
        "sentence": card.sentence,
    }


def launch_json(launch: Launch) -> dict[str, Any]:
    """The arguments that sizing read, under its own names."""
    return asdict(launch)


def _column(column: Column) -> dict[str, Any]:
    found = column.capacity
    states = found.states
    return {
        "kv_dtype": column.kv_dtype,
        "token_bytes": found.row_bytes,
        "tokens": found.tokens,
        "kv_gib": found.target_gib,
        "left_gib": found.kv_gib,
        "pools": [
            {"name": p.name, "tokens": p.tokens, "token_bytes": p.row.stored_bytes}
            for p in found.pools
        ],
        "states": {
            "slots": states.slots,
            "slot_bytes": states.slot_bytes,
            "gib": states.charged_gib + states.spec_gib,
            "requests": states.requests,
        },
        "requests_at_once": [
            {"context": f.context, "requests": f.requests, "bound": f.bound} for f in column.fits
        ],
        "refused": found.refused,
        "notes": list(found.notes),
    }
