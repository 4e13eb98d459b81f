"""Does a host have what a profile is made for?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from firstlight.hosts.gpus import Gpu
from firstlight.serve.profile import Match


def misfits(match: Match, gpus: Iterable[Gpu], machine: Iterable[str] = ()) -> tuple[str, ...]:
    """Everything that the profile asks for and the host lacks, in words.

    `machine` are the names of the host as a whole, such as `DGX Spark 7.5.0`.
    """
    return tuple(_misfits(match, tuple(gpus), tuple(machine)))


def within_reach(gpus: Iterable[Gpu], visible: str | None, first: int = 0) -> tuple[Gpu, ...]:
    """The cards that a server may take: from `first` on, those that CUDA_VISIBLE_DEVICES shows by
    number or UUID; all, where that cannot be read."""
    shown = tuple(gpus)
    if visible is not None:
        words = [word.strip() for word in visible.split(",") if word.strip()]
        found = [[gpu for gpu in shown if _is_called(gpu, word)] for word in words]
        if all(len(cards) == 1 for cards in found):
            shown = tuple(card for (card,) in found)
    return shown[first:]


def _is_called(gpu: Gpu, word: str) -> bool:
    return word == str(gpu.index) or (word.startswith("GPU-") and (gpu.uuid or "").startswith(word))


def _misfits(match: Match, gpus: tuple[Gpu, ...], machine: tuple[str, ...]) -> Iterator[str]:
    if match.nodes > 1:
        yield f"it is for {match.nodes} nodes, and a deploy starts a server on one"
    fit = gpus
    hw = match.hw or "cpu"
    if hw.casefold() != "cpu" and not any(_is(hw, name) for name in machine):
        fit = tuple(gpu for gpu in gpus if _is(hw, gpu.name or ""))
        if not fit:
            yield f"it is made for {hw}; found: {_names(gpus, machine)}"
            return
    if match.sm is not None:
        named, fit = fit, tuple(gpu for gpu in fit if _sm(gpu) == match.sm)
        if not fit:
            yield f"it needs GPUs of SM{match.sm}; found: {_seen(named)}"
            return
    if match.gpus is not None and len(fit) < match.gpus:
        kind = f" of SM{match.sm}" if match.sm is not None else ""
        yield f"it needs {match.gpus} GPUs{kind}; found {len(fit)}"


def _is(hw: str, name: str) -> bool:
    """True when every word and number of `hw` stands in the name: `rtx5090`, but no A10 in A100."""
    return _parts(hw) <= _parts(name)


def _parts(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+|\d+", text.casefold()))


def _names(gpus: tuple[Gpu, ...], machine: tuple[str, ...]) -> str:
    found = sorted({gpu.name for gpu in gpus if gpu.name})
    return ", ".join([*found, *machine]) or "nothing of that kind"


def _seen(gpus: tuple[Gpu, ...]) -> str:
    kinds = {f"SM{sm}" if (sm := _sm(gpu)) else f"{gpu.name} of unknown SM" for gpu in gpus}
    return ", ".join(sorted(kinds)) or "none"


def _sm(gpu: Gpu) -> int | None:
    """12.0 is SM120."""
    found = gpu.compute_capability
    return found[0] * 10 + found[1] if found else None
