"""`invoke verify`: what a wheel holds, and whether that is what was asked for."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from firstlight.build import verdict
from firstlight.core.command import Script, typed
from firstlight.core.errors import ConfigError, HostError, ProofError
from firstlight.core.plan import ShipFile
from firstlight.core.report import Report
from firstlight.effects import catalog, library
from firstlight.effects.console import Console
from firstlight.effects.shell import Result, Shell
from firstlight.flows import programs
from firstlight.flows.facts import ask_facts
from firstlight.flows.reach import look, opener, reached
from firstlight.hosts.facts import python_for
from firstlight.hosts.finding import Finding
from firstlight.hosts.inventory import UnknownName

_PROGRAM = "verify_wheel.py"
_PYTHONS = ("3.11", "3.12", "3.13")
# A minute a gigabyte, on a host whose cores are busy with a build.
_PATIENCE_S = 1800.0
# -B: the programs' folder is read-only in spirit; nobody wants our bytecode beside them.
_VERIFY = 'PYTHONPATH="$1" "$2" -B "$3" --wheel "$4" --expect <(printf %s "$5")'
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def run(root: Path, console: Console, *, wheel: str = "", arch: str = "", host: str = "") -> Report:
    """Verify a wheel of this machine, or of a host; exit code 5 for faults, 2 for no wheel."""
    if not wheel:
        given = typed("verify", {"arch": arch, "host": host})
        raise UnknownName("which wheel?", remedy=f"{given} --wheel FILE")
    expect = verdict.expectation(arch)
    inventory = catalog.inventory(root)
    target = inventory.host(host) if host else inventory.hosts["local"]
    with reached(opener(inventory, target, console), console) as shell:
        verify = _here if target.is_local else _there
        result = verify(shell, console, wheel, expect)
    found = verdict.read(result.out, result.error_text, target.name)
    code = 0 if found.holds else ConfigError.exit_code if found.error else ProofError.exit_code
    return Report(verdict.text(found, arch), verdict.to_json(found), code)


def _here(shell: Shell, console: Console, wheel: str, expect: str) -> Result:
    # A shell writes ~/ out by itself; what it left, as after an =, is done here.
    path = (Path.home() / wheel[2:] if wheel.startswith("~/") else Path(wheel)).absolute()
    console.note(f"reading {path.name}")
    program = library.programs()[_PROGRAM]
    args = ("", sys.executable, str(program), str(path), expect)
    return shell.run(Script(_VERIFY, args), _PATIENCE_S)


def _there(shell: Shell, console: Console, wheel: str, expect: str) -> Result:
    """On a host: our programs go there, and pyelftools as one file."""
    seen = look(shell)
    python = python_for(ask_facts(shell, seen.root), _PYTHONS)
    if isinstance(python, Finding):
        raise HostError(python.what, where=shell.host.name, remedy=python.fix)
    shipped = programs.shipped(seen.root)
    with tempfile.TemporaryDirectory() as folder:
        parser = elftools(Path(folder), seen.root)
        shell.send([*shipped.values(), parser], console.note)
    console.note(f"reading {PurePosixPath(wheel).name} on {shell.host.name}")
    program = str(shipped[_PROGRAM].target)
    args = (str(parser.target), str(python.path), program, wheel, expect)
    return shell.run(Script(_VERIFY, args), _PATIENCE_S)


def elftools(folder: Path, root: PurePosixPath) -> ShipFile:
    """Our own pyelftools, packed into `folder` as a zip file that Python can import from."""
    spec = find_spec("elftools")
    if spec is None or spec.origin is None:
        raise HostError("pyelftools is not installed", where="local", remedy="pip install -e .")
    package = Path(spec.origin).parent
    packed = folder / "elftools.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*.py")):
            entry = zipfile.ZipInfo(str(path.relative_to(package.parent)), _NO_TIME)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    digest = library.sha256(packed)
    return ShipFile(packed, root / "lib" / f"elftools-{digest[:16]}" / packed.name, digest)
