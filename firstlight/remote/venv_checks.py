"""Beside a remote program: does a wheel work in the environment where it is installed.

Everything is asked of the environment's own interpreter, in processes of their own: a library
that crashes on import must not take the check with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from wheel_rules import Expectation, Fault, WheelName, normal

# A library at the top level finds torch's own ones once torch is there: packages import it first.
_IMPORT = """\
import importlib, importlib.util, sys
found = None if "." in sys.argv[1] else importlib.util.find_spec(sys.argv[1])
if found and str(found.origin).endswith(".so") and importlib.util.find_spec("torch"):
    import torch
importlib.import_module(sys.argv[1])
"""
_LIST = """\
import importlib.metadata as m, json
print(json.dumps({d.metadata["Name"]: d.version for d in m.distributions() if d.metadata["Name"]}))
"""
_IMPORT_S = 600
_CHECK_S = 300
# A library that only works with a GPU must not pass on a host that has one.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
_OFFLINE = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "PIP_NO_INPUT": "1"}

Ended = subprocess.CompletedProcess[str]


def check(python: Path, name: WheelName, expect: Expectation) -> tuple[list[Fault], list[str]]:
    """All that can be asked of an environment: faults, and notes on what was not asked."""
    try:
        listed = _run([str(python), "-I", "-c", _LIST], _CHECK_S)
        installed = {normal(key): str(value) for key, value in json.loads(listed.stdout).items()}
    except (OSError, ValueError, AttributeError, subprocess.TimeoutExpired):
        return [Fault("venv", "", f"{python} cannot list what is installed there")], []
    faults = [*_installed(name, installed), *_flashinfer(installed), *_imports(python, expect)]
    notes = [] if expect.imports else ["the expectation lists nothing to import"]
    found, told = _consistent(python, expect)
    return [*faults, *found], [*notes, *told]


def _installed(name: WheelName, installed: Mapping[str, str]) -> Iterator[Fault]:
    own = normal(name.name)
    if own not in installed:
        yield Fault("venv", "", f"{own} is not installed there")
    elif installed[own] != name.version:
        yield Fault("venv", "", f"{own} {installed[own]} is installed there, not {name.version}")


def _flashinfer(installed: Mapping[str, str]) -> Iterator[Fault]:
    """Its three packages load each other's files, and only of one version."""
    python = installed.get("flashinfer-python", "")
    for part in ("flashinfer-jit-cache", "flashinfer-cubin"):
        found = installed.get(part, "")
        if found and _release(found) != _release(python):
            beside = f"beside flashinfer-python {python}" if python else "without flashinfer-python"
            yield Fault("flashinfer", "", f"{part} {found} is installed {beside}")


def _release(version: str) -> str:
    return version.partition("+")[0]


def _imports(python: Path, expect: Expectation) -> Iterator[Fault]:
    for module in expect.imports:
        try:
            done = _run([str(python), "-I", "-c", _IMPORT, module], _IMPORT_S)
        except subprocess.TimeoutExpired:
            yield Fault("import", module, f"it is not imported within {_IMPORT_S} s")
            continue
        if done.returncode:
            yield Fault("import", module, _last(done))


def _consistent(python: Path, expect: Expectation) -> tuple[list[Fault], list[str]]:
    """What `pip check` finds, or uv's where UV names one."""
    uv = os.environ.get("UV")
    of_uv = [uv or "", "pip", "check", "--python", str(python)]
    of_pip = [str(python), "-I", "-m", "pip", "check", "--disable-pip-version-check"]
    try:
        done = _run(of_uv if uv else of_pip, _CHECK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Fault("pip check", "", f"it cannot be run: {error}")], []
    if "No module named pip" in done.stderr:
        return [], ["`pip check` was not run: there is no pip, and UV names no uv"]
    lines = [line.strip() for line in (done.stdout if not uv else done.stderr).splitlines()]
    found = [line for line in lines if line and not _is_talk(line)] if done.returncode else []
    if done.returncode and not found:
        found = [_last(done)]
    allowed = [line for line in found if any(text in line for text in expect.check_ignores)]
    faults = [Fault("pip check", "", line) for line in found if line not in allowed]
    return faults, [f"allowed: {line}" for line in allowed]


def _is_talk(line: str) -> bool:
    return line.startswith(("Using Python", "Checked ", "Found ", "warning:", "WARNING:"))


def _run(argv: list[str], timeout_s: int) -> Ended:
    env = {**os.environ, **_NO_GPU, **_OFFLINE}
    # Our own path is for our own program: its modules must not hide the environment's.
    env.pop("PYTHONPATH", None)
    # Files and no pipes: what it leaves running would hold those open, and we would wait for it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ended = subprocess.run(
            argv, env=env, timeout=timeout_s, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        told = [(file.seek(0), file.read().decode("utf-8", "replace"))[1] for file in (out, err)]
    return Ended(ended.args, ended.returncode, *told)


def _last(done: Ended) -> str:
    """The line that says why a process failed."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    signal = f"signal {-done.returncode}" if done.returncode < 0 else ""
    return signal or (lines[-1] if lines else f"exit status {done.returncode}")
