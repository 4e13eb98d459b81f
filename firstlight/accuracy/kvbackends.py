"""The accuracy room: which attention backends a launch runs, and what they do with scales.

A launch has two sides, prefill and decode; a side that names no backend is left to the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firstlight.accuracy import rules
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.classes import LATENT
from firstlight.accuracy.kvchoice import AUTO, Ask
from firstlight.accuracy.rules import Backend

Holds = Callable[[Backend | None], bool]


@dataclass(frozen=True)
class Backends:
    """Those that run: `named` ones surely, of the `usual` ones one or another where a side is left
    to the engine; None is one that no rule knows. `told` is how a sentence about them begins."""

    named: tuple[Backend | None, ...]
    usual: tuple[Backend | None, ...]
    told: str

    @property
    def source(self) -> str:
        """Where what is known of them was read."""
        found = {one.source for one in (*self.named, *self.usual) if one}
        return f"rule {'; '.join(sorted(found)) or 'no rule'}"

    def surely(self, holds: Holds) -> bool:
        """Whether that holds of one that runs, whichever the engine chooses."""
        return any(map(holds, self.named)) or (bool(self.usual) and all(map(holds, self.usual)))

    def all(self, holds: Holds) -> bool:
        """Whether that holds of every one that may run."""
        return all(map(holds, (*self.named, *self.usual)))


def backends(checkpoint: Checkpoint, ask: Ask, version: str) -> Backends:
    """The backends of both sides in one version that was read."""
    common = ask.flag("attention_backend")
    both = [ask.flag(f"{side}_attention_backend") or common for side in ("prefill", "decode")]
    names = sorted({*both} - {"", AUTO})
    named = tuple(_backend(name, checkpoint, version) for name in names)
    if {"", AUTO}.isdisjoint(both):
        return Backends(named, (), ", ".join(names))
    usual: tuple[Backend | None, ...] = (None,)
    left = "and that of this GPU"
    if ask.sm in (None, 120, 121):
        usual = tuple(_backend(name, checkpoint, version) for name in rules.USUAL_BACKENDS)
        left = f"on SM120 it is {' or '.join(rules.USUAL_BACKENDS)}, which"
    other = f"{', '.join(names)} is named for one side and none for the other" if names else ""
    return Backends(named, usual, f"{other or 'no backend is named'}, {left}")


def does(what: str) -> Holds:
    """Whether a backend does that with the scales of an FP8 cache."""
    return lambda one: one is not None and one.on_fp8 == what


def multiplies(one: Backend | None) -> bool:
    """Whether a backend multiplies by scales what a 16-bit cache holds without them."""
    return one is not None and one.on_wide


def leaves_alone(one: Backend | None) -> bool:
    """Whether a backend is known to read a 16-bit cache as it was written."""
    return one is not None and not one.on_wide


def _backend(name: str, checkpoint: Checkpoint, version: str) -> Backend | None:
    # For a latent cache the same name is another program, which does not know of scales
    # (0.5.23 flashinfer_mla_backend.py); what is stored then was not read.
    named = LATENT.intersection(checkpoint.architectures[:1])
    if name == "flashinfer" and (named or checkpoint.text.get("kv_lora_rank")):
        return None
    return next((b for b in rules.BACKENDS if b.name == name and b.holds(version)), None)
