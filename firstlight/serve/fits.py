"""Does a host have what a profile is made for?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstlight.hosts.gpus import Gpu
from firstlight.serve.profile import Match


def misfits(match: Match, gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Everything that the profile asks for and the host lacks, in words."""
    return tuple(_misfits(match, tuple(gpus)))


def _misfits(match: Match, gpus: tuple[Gpu, ...]) -> Iterator[str]:
    fit = gpus
    if match.sm is not None:
        fit = tuple(gpu for gpu in gpus if _sm(gpu) == match.sm)
        if not fit:
            yield f"it needs GPUs of SM{match.sm}; found: {_seen(gpus)}"
            return
    if match.gpus is not None and len(fit) < match.gpus:
        kind = f" of SM{match.sm}" if match.sm is not None else ""
        yield f"it needs {match.gpus} GPUs{kind}; found {len(fit)}"


def _seen(gpus: tuple[Gpu, ...]) -> str:
    kinds = {f"SM{sm}" if (sm := _sm(gpu)) else f"{gpu.name} of unknown SM" for gpu in gpus}
    return ", ".join(sorted(kinds)) or "none"


def _sm(gpu: Gpu) -> int | None:
    """12.0 is SM120."""
    found = gpu.compute_capability
    return found[0] * 10 + found[1] if found else None
