"""Asking a release's own engine what it makes of a checkpoint; the release keeps the answer."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any

from firstlight.accuracy.kvchoice import Probe
from firstlight.core.command import Script
from firstlight.core.errors import ConnectionLost, HostError
from firstlight.effects import library
from firstlight.effects.shell import Shell

_PROGRAM = "probe_engine.py"
# The engine is imported for its reading of quantisation, which takes long on a busy host.
_PATIENCE_S = 600.0
_ASK = """\
release=$1 program=$2; shift 2
models=("$release"/venv/lib/python*/site-packages/sglang/srt/models)
"$release/venv/bin/python" -I -B - "${models[0]}" "$release/cache" "$@" <<<"$program"
"""


def ask_engine(
    shell: Shell,
    release: PurePosixPath,
    architecture: str,
    folder: PurePosixPath | None,
    quantization: str = "",
    override: str = "",
) -> tuple[Probe | None, str]:
    """What the engine of a release says of a class and of the checkpoint in `folder` (None where
    that is on no host), and why something of it is missing, "" where nothing is.

    `quantization` and `override` (--json-model-override-args) are the engine's flags. A release
    that cannot answer, or does not end, is no error: its probe is None, and the rules decide
    alone. Raises ConnectionLost.
    """
    program = library.program(_PROGRAM)
    digest = hashlib.sha256(program.encode()).hexdigest()[:16]
    where = (str(folder), quantization, override) if folder is not None else ()
    args = (str(release), program, digest, architecture, *where)
    try:
        result = shell.run(Script(_ASK, args), _PATIENCE_S)
    except ConnectionLost:
        raise
    except HostError as error:
        return None, f"the engine could not be asked: {error.what}"
    if not result.ok:
        said = (result.error_text.strip().splitlines() or ["nothing was said"])[-1]
        return None, f"the engine could not be asked: {said}"
    return read_probe(result.text)


def read_probe(text: str) -> tuple[Probe | None, str]:
    """The program's answer as a value, and why something of it is missing."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return None, "the engine could not be asked: its answer is no JSON object"
    why, ignores = (_list(said.get(key)) for key in ("why", "ignores"))
    source = f"this release, {said['source']}" if said.get("source") else "this release"
    algo, shows, loads = (said.get(key) for key in ("algo", "shows", "loads"))
    return Probe(
        source=source,
        algo=algo if isinstance(algo, str) else None,
        shows=shows if isinstance(shows, bool) else None,
        loads=loads if isinstance(loads, bool) else None,
        ignores=tuple(map(str, ignores)),
    ), "; ".join(map(str, why))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
