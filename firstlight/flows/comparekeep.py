"""What a comparison keeps on this machine: each precision's scores as they come, then the evidence.

evidence/<profile>/compare-<utc>.json, .svg     one comparison, to be kept
evidence/<profile>/scores/<kv>-<key>.json       one precision, taken up again by the next
evidence/<profile>/<kv>.log                     the server of a precision that failed
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from firstlight.accuracy.comparejson import to_json
from firstlight.accuracy.comparison import Comparison
from firstlight.accuracy.driftplot import svg
from firstlight.accuracy.scores import Measured
from firstlight.core.errors import HostError
from firstlight.flows import evidence


@dataclass(frozen=True)
class Keeping:
    """The folder of one profile's evidence."""

    folder: Path

    def scores(self, kv: str, key: str) -> Measured | None:
        """What was measured before under this key; a file that cannot be read counts as none."""
        try:
            found = Measured.model_validate_json(self._scores(kv, key).read_bytes())
        except (OSError, ValidationError):
            return None
        return found if (found.kv, found.key) == (kv, key) else None

    def keep(self, measured: Measured) -> None:
        """Write one precision's scores, whole or not at all."""
        text = measured.model_dump_json(by_alias=True) + "\n"
        evidence.write(self._scores(measured.kv, measured.key), text)

    def keep_log(self, kv: str, text: str) -> Path:
        """Write the log of a server that failed; the next one of that precision replaces it."""
        return evidence.write(self.folder / f"{kv}.log", text)

    def evidence(self, found: Comparison) -> tuple[Path, Path]:
        """Write a comparison: its JSON and its picture."""
        stem = f"compare-{found.at.replace('-', '').replace(':', '')}"
        text = json.dumps(to_json(found), indent=2, ensure_ascii=False) + "\n"
        data = evidence.write(self.folder / f"{stem}.json", text)
        return data, evidence.write(self.folder / f"{stem}.svg", svg(found))

    @contextlib.contextmanager
    def alone(self, host: str) -> Iterator[None]:
        """Hold this profile's comparison on that host; raises HostError while another does."""
        path = self.folder / "scores" / f"{host}.lock"
        with evidence.opened(path) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(
                    f"another comparison of profile {self.folder.name} runs",
                    where=host,
                    remedy="wait for its end, or end it with Ctrl-C where it runs",
                ) from None
            yield

    def _scores(self, kv: str, key: str) -> Path:
        return self.folder / "scores" / f"{kv}-{key}.json"


def keeping(root: Path, profile: str) -> Keeping:
    """Where the evidence of a profile lies, below the project's folder."""
    return Keeping(evidence.folder(root, profile))


def now() -> str:
    """The time as evidence states it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
