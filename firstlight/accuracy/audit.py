"""The accuracy room: the verdict of the audit, from a checkpoint, an engine and its flags.

    audit(checkpoint, Ask(version, flags, sm), Policy) -> Audit ; audittext.text(audit) -> str

Three layers are asked: what the files hold, what this version of the engine does with that, and
what its flags allow. A version that was not read lies between two that were: where both say the
same, that is said; where they differ, or where it lies outside, the verdict is `unknown`, unless
a probe of the engine's own code answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy import kvcpu, rules, threats
from firstlight.accuracy.checkpoint import Checkpoint
from firstlight.accuracy.kvchoice import (
    AUTO,
    NOT_ASKED,
    REFUSED,
    UNKNOWN,
    WIDE,
    Ask,
    Evidence,
    Probe,
    effective,
)
from firstlight.accuracy.kvverdict import Fate, Verdict, judge
from firstlight.accuracy.threats import Threat

__all__ = ["Ask", "Audit", "Cell", "Evidence", "Policy", "Probe", "audit"]

COLUMNS = (AUTO, "bf16", "fp8_e4m3", "fp8_e5m2", "nvfp4")
Policy = Literal["require_bf16", "allow_calibrated", "allow_any"]
_FLAG = "kv_cache_dtype"

_WITHIN: dict[Policy, frozenset[Verdict]] = {
    "require_bf16": frozenset({"safe"}),
    "allow_calibrated": frozenset({"safe", "lossy-calibrated"}),
    # Somebody gave a reason, and may know what we do not; `wrong` is no matter of policy.
    "allow_any": frozenset({"safe", "lossy-calibrated", "lossy-uncalibrated", "unknown"}),
}


@dataclass(frozen=True)
class Cell:
    """One value of `--kv-cache-dtype`.

    `dtype` is what the cache gets, `unknown`, or `refused`; `scales` what becomes of the
    checkpoint's; `warned`: the engine prints that no scales were provided, true or not.
    """

    asked: str
    dtype: str
    scales: Fate
    verdict: Verdict
    warned: bool
    evidence: tuple[Evidence, ...]

    @property
    def is_narrow(self) -> bool:
        """A cache of fewer than 16 bits, as far as is known."""
        return self.dtype not in WIDE and self.dtype not in (UNKNOWN, REFUSED)


@dataclass(frozen=True)
class Audit:
    """The report. `own` is the profile's value, `auto` where it gives none; `within` says whether
    its verdict is within `policy`; `change` is the value to give instead, "" where none is known
    to be better; `broken` says what is wrong with the files, which no policy allows, "" where
    nothing is; `notes` are about the version."""

    ask: Ask
    cells: tuple[Cell, ...]
    own: str
    policy: Policy
    within: bool
    change: str
    broken: str
    threats: tuple[Threat, ...]
    notes: tuple[str, ...]

    def cell(self, asked: str) -> Cell:
        """The cell of one value."""
        return next(cell for cell in self.cells if cell.asked == asked)


def audit(checkpoint: Checkpoint, ask: Ask, policy: Policy = "require_bf16") -> Audit:
    """Every value of the flag, the profile's own choice against its policy, and other threats."""
    own = ask.flag(_FLAG) or AUTO
    cells = tuple(_cell(checkpoint, ask, value) for value in COLUMNS)
    # One model takes the longer spelling alone.
    more = {own} | ({"bfloat16"} if cells[1].dtype == REFUSED else set())
    cells += tuple(_cell(checkpoint, ask, value) for value in sorted(more.difference(COLUMNS)))
    mine = next(cell for cell in cells if cell.asked == own)
    broken = next((f"{flaw.where}: {flaw.what}" for flaw in checkpoint.broken), "")
    within = mine.verdict in _WITHIN[policy] and not broken
    return Audit(
        ask=ask,
        cells=cells,
        own=own,
        policy=policy,
        within=within,
        change="" if within else _better(cells, own, policy),
        broken=broken,
        threats=threats.threats(checkpoint, ask, mine.dtype),
        notes=tuple(_notes(ask)),
    )


def _better(cells: tuple[Cell, ...], own: str, policy: Policy) -> str:
    """A value that is within the policy, 16 bits before all others."""
    fit = [cell for cell in cells if cell.verdict in _WITHIN[policy] and cell.asked != own]
    # What `auto` gives today another checkpoint or version takes away.
    order = sorted(fit, key=lambda cell: (cell.asked == AUTO, cell.verdict != "safe"))
    return order[0].asked if order and order[0].verdict != "unknown" else ""


def _notes(ask: Ask) -> Iterator[str]:
    near = rules.neighbours(ask.version)
    if not near:
        told = f"version {ask.version} of the engine is outside the table"
        yield f"{told} ({rules.READ[0]} to {rules.READ[-1]}); only a probe of its code can decide"
    if len(near) == 2:
        yield f"version {ask.version} was not read; {near[0]} and {near[1]} are held together"
    if ask.choices is None:
        yield "no release was asked which values it takes: the stack is not built there"


def _cell(checkpoint: Checkpoint, ask: Ask, asked: str) -> Cell:
    broken = [flaw for flaw in checkpoint.flaws if flaw.severity == "error"]
    if broken:
        lines = tuple(Evidence(flaw.where, flaw.what) for flaw in broken)
        return Cell(asked, UNKNOWN, UNKNOWN, UNKNOWN, False, lines)
    near = rules.neighbours(ask.version)
    if not near and ask.probe is None:
        line = Evidence(NOT_ASKED, f"{ask.version} is in no table")
        return Cell(asked, UNKNOWN, UNKNOWN, UNKNOWN, False, (line,))
    # Outside the table the newest rules carry what all versions share; the probe has the rest.
    found = [_in_version(checkpoint, ask, asked, version) for version in near or rules.READ[-1:]]
    cell = found[0] if len(found) == 1 else _agreed(found[0], found[1], near)
    return cell if near else _probed(cell, ask)


def _in_version(checkpoint: Checkpoint, ask: Ask, asked: str, version: str) -> Cell:
    made = kvcpu.on_device(effective(checkpoint, ask, asked, version), ask, version)
    judged = judge(checkpoint, ask, made, version)
    warned = (
        made.dtype != REFUSED
        and made.argument == "fp8_e4m3"
        and not ask.flag("quantization_param_path")
    )
    lines = (*made.evidence, *judged.evidence)
    if warned:
        untrue = ", and is untrue here" if judged.scales == "yes" else ""
        said = f"the engine warns of missing scales for this argument, whatever there is{untrue}"
        lines = (*lines, Evidence("rule §2.4", said))
    return Cell(asked, made.dtype, judged.scales, judged.verdict, warned, lines)


def _agreed(older: Cell, newer: Cell, near: tuple[str, ...]) -> Cell:
    same = (older.dtype, older.scales, older.verdict) == (newer.dtype, newer.scales, newer.verdict)
    if same:
        return newer
    lines = tuple(
        Evidence(f"rules of {version}", f"{cell.dtype}, scales {cell.scales}: {cell.verdict}")
        for version, cell in zip(near, (older, newer), strict=True)
    )
    dtype = older.dtype if older.dtype == newer.dtype else UNKNOWN
    scales: Fate = older.scales if older.scales == newer.scales else "unknown"
    line = Evidence(NOT_ASKED, "which of the two holds for this version")
    return Cell(older.asked, dtype, scales, UNKNOWN, newer.warned, (*lines, line))


def _probed(cell: Cell, ask: Ask) -> Cell:
    """Outside the table the probe alone decides: what it did not answer stays unknown."""
    probe = ask.probe
    # What a backend does with scales no probe answers.
    silent = probe is None or probe.algo is None or probe.shows is None or probe.loads is None
    # Nor what a version rewrites before anything is loaded, which grows from one to the next.
    open_auto = cell.asked == AUTO and cell.verdict == "safe"
    settled = cell.scales in ("no", "ignored") or cell.verdict == "refused"
    if not silent and settled and not open_auto:
        return cell
    what = "what the probe leaves open" if silent else "what its backend does with loaded scales"
    if not silent and settled:
        what = "whether it rewrites auto for this class before anything is loaded"
    line = Evidence(NOT_ASKED, what)
    dtype = UNKNOWN if silent or open_auto else cell.dtype
    return Cell(cell.asked, dtype, cell.scales, UNKNOWN, cell.warned, (*cell.evidence, line))
