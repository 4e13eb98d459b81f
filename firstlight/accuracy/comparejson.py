"""The accuracy room: a comparison as data; NLL, loss and jumps in nats, sizes in GiB."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from firstlight.accuracy.comparison import Against, Comparison, longest, nll
from firstlight.accuracy.drift import Drift
from firstlight.accuracy.scores import Measured
from firstlight.build.digest import digest


def to_json(found: Comparison) -> dict[str, Any]:
    """Everything that the text tells, for programs and for later."""
    return {
        "schema": 1,
        "profile": found.profile,
        "at": found.at,
        "first": _measured(found.first) if found.first else None,
        "others": [_against(other) for other in found.others],
        "refused": [asdict(one) for one in found.refused],
    }


def _measured(one: Measured) -> dict[str, Any]:
    return {
        "kv": one.kv,
        "kv_dtype": one.dtype,
        "kv_tokens": one.pool_tokens,
        "kv_gib": one.pool_gib,
        "context_length": longest(one),
        "release": one.release,
        "host": one.host,
        "measured_at": one.at,
        "seconds": one.seconds,
        "noise_nats": one.noise,
        "mean_nll": nll(one),
        "texts": [
            {"name": text.name, "tokens": len(text.ids), "digest": digest(list(text.ids))}
            for text in one.texts
        ],
        "answer": {"text": "".join(one.answer.tokens), "tokens": len(one.answer.tokens)},
        "needles": [needle.model_dump(mode="json") for needle in one.needles],
    }


def _against(other: Against) -> dict[str, Any]:
    return {
        **_measured(other.measured),
        "whole": _drift(other.whole),
        "positions": [
            {"from": bucket.low, "to": bucket.high, **(_drift(one) if one else {"tokens": 0})}
            for bucket, one in other.positions
        ],
        "by_text": [{"text": one.name, **_drift(one)} for one in other.texts],
        "parted": asdict(other.parted) if other.parted else None,
    }


def _drift(one: Drift) -> dict[str, Any]:
    interval = [one.interval.low, one.interval.high] if one.interval else None
    jump = {
        "text": one.jump.text,
        "token": one.jump.position,
        "loss": one.jump.difference,
        "nll": one.jump.other,
    }
    return {
        "tokens": one.tokens,
        "mean_nll_first": one.nll,
        "mean_nll": one.other,
        "loss": one.difference,
        "loss_95": interval,
        "same_top1": one.agreement,
        "largest_jump": jump,
    }
