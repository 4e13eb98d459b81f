"""Remote program: does a wheel hold what was asked for; prints one JSON document.

    PYTHONPATH=pyelftools-*.whl verify_wheel.py --wheel W [--expect E.json]
        [--torch SITE_PACKAGES] [--venv PYTHON]

E says what is wanted (wheel_rules.Expectation); without it the wheel is described, and held
against its own name and RECORD. --torch: every symbol must be defined there, in the wheel or in
this system. --venv: the interpreter of an environment where the wheel is installed; modules are
imported there, with no GPU to be seen. Exit status: 0 it does, 1 faults, 2 it cannot be read.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import platform
import resource
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import elf_needs
import fatbin
import venv_checks
import wheel_archive
import wheel_rules
from elf_needs import Damaged, Library
from symbol_closure import Closure, torch_version
from wheel_archive import Broken, Digests, Unreadable
from wheel_rules import Expectation, Fault, WheelName

# The largest wheel that is known takes a few hundred MiB; a hostile one gets no further than this.
_MEMORY = 4 << 30
_MOST_SYMBOLS = 20


@dataclass
class Held:
    """What one library of the wheel is and holds; counts are of GPU code by target."""

    path: str
    size: int
    library: Library | None = None
    sass: Counter[str] = field(default_factory=Counter)
    ptx: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    relocatable: Counter[str] = field(default_factory=Counter)
    compression: Counter[str] = field(default_factory=Counter)
    is_cuda: bool = False
    unresolved: tuple[str, ...] = ()
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, entry: fatbin.Entry, linked: bool) -> None:
        """Add one piece of GPU code; what the driver cannot load counts apart."""
        self.is_cuda = True
        if entry.empty:
            return
        kinds = {"sass": self.sass, "ptx": self.ptx}
        (kinds.get(entry.kind, self.other) if linked else self.relocatable)[entry.target] += 1
        self.compression[entry.compression] += 1

    def to_json(self) -> dict[str, Any]:
        library = self.library
        return {
            "path": self.path,
            "size": self.size,
            "machine": library.machine if library else "",
            "cuda": self.is_cuda,
            "targets": counted(self.sass),
            "ptx": wheel_rules.in_order(self.ptx),
            "other": counted(self.other),
            "relocatable": counted(self.relocatable),
            "compression": dict(sorted(self.compression.items())),
            "needed": list(library.needed) if library else [],
            "glibc": library.newest("GLIBC") if library else "",
            "glibcxx": library.newest("GLIBCXX") if library else "",
            "rpath": list(library.rpath) if library else [],
            "unresolved": list(self.unresolved[:_MOST_SYMBOLS]),
            "unresolved_count": len(self.unresolved),
            "faults": [asdict(fault) for fault in self.faults],
            "notes": self.notes,
        }


def counted(code: Counter[str]) -> dict[str, int]:
    return {target: code[target] for target in wheel_rules.in_order(code)}


@dataclass
class Found:
    """All that is known of a wheel so far."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    libraries: list[Held] = field(default_factory=list)
    symbols: str = "not checked: no site-packages was given"
    environment: str = "not checked: no interpreter was given"

    @property
    def all_faults(self) -> list[Fault]:
        return [*self.faults, *(fault for held in self.libraries for fault in held.faults)]


def hold(path: Path, name: str, size: int) -> Held:
    """One library, as far as its own bytes tell."""
    held = Held(name, size)
    try:
        with elf_needs.mapped(path) as data:
            held.library = elf_needs.read(data)
            for section in held.library.sections:
                if section.name in (fatbin.LINKED, fatbin.RELOCATABLE):
                    end = section.offset + section.size
                    for entry in fatbin.entries(data, section.offset, end):
                        held.count(entry, section.name == fatbin.LINKED)
    except Damaged as error:
        held.faults.append(Fault("elf", name, str(error)))
    except fatbin.Malformed as error:
        held.faults.append(Fault("fatbin", name, f"its GPU code cannot be read: {error}"))
    return held


def judge(held: Held, name: WheelName, expect: Expectation) -> None:
    """Hold one library against its wheel's name and the expectation."""
    if held.library is None:
        return
    machine, glibc = held.library.machine, held.library.newest("GLIBC")
    held.faults += wheel_rules.check_platform(held.path, machine, glibc, name)
    held.faults += wheel_rules.check_expected_host(held.path, machine, glibc, expect)
    if held.is_cuda:
        held.faults += wheel_rules.check_targets(held.path, held.sass, held.ptx, expect)
        if not any(soname.startswith("libcudart.") for soname in held.library.needed):
            held.notes.append("the CUDA runtime is linked into it, or not used")
    said, wrong = wheel_rules.check_module(held.path, name)
    if wrong:
        held.faults.append(Fault("tag", held.path, said))
    elif said:
        held.notes.append(said)
    fixed = [folder for folder in held.library.rpath if folder.startswith("/")]
    held.notes += [f"it looks for libraries in {folder}, whatever lies there" for folder in fixed]


def read_members(archive: zipfile.ZipFile, found: Found) -> Digests:
    """Read every member once: its digest, and of a library all that its bytes tell."""
    digests: Digests = {}
    for info in wheel_archive.members(archive, found.faults):
        name = info.filename
        try:
            if wheel_archive.is_library(name):
                with wheel_archive.unpacked(archive, info) as (path, digest):
                    found.libraries.append(hold(path, name, info.file_size))
            else:
                digest = wheel_archive.copy(archive, info, None)
        except Broken as error:
            found.faults.append(Fault("archive", name, str(error)))
            continue
        digests[name] = (digest, info.file_size)
    return digests


def check_tags(archive: zipfile.ZipFile, name: WheelName, found: Found) -> None:
    """What the WHEEL file says of tags; tools that rename wheels leave it behind."""
    said = wheel_archive.headers(archive, f"{name.info}/WHEEL").get("tag", [])
    tags = {
        f"{python}-{abi}-{platform_}"
        for python in name.python.split(".")
        for abi in name.abi.split(".")
        for platform_ in name.platforms
    }
    if not said:
        found.faults.append(Fault("metadata", f"{name.info}/WHEEL", "it says no tag"))
    elif set(said) != tags:
        found.notes.append(f"WHEEL says {', '.join(said)}, the file name {', '.join(sorted(tags))}")
    if any(tag.startswith("linux_") for tag in name.platforms):
        found.notes.append(f"platform tag {name.platform} promises nothing of the host's glibc")


def check_symbols(archive: zipfile.ZipFile, site: Path, expect: Expectation, found: Found) -> None:
    """Look for every symbol of every library in what it needs."""
    libraries = {held.path: held.library for held in found.libraries if held.library}
    foreign = {lib.machine for lib in libraries.values()} - {platform.machine()}
    if foreign:
        found.symbols = f"not checked: this machine is no {', '.join(sorted(foreign))}"
        return

    @contextlib.contextmanager
    def unpack(member: str) -> Iterator[Path]:
        with wheel_archive.unpacked(archive, archive.getinfo(member)) as (path, _):
            yield path

    closure = Closure(libraries, site, unpack, expect.preloaded)
    for held in found.libraries:
        if held.library:
            told = closure.resolve(held.path)
            held.unresolved = told.symbols
            held.faults += told.faults
            held.notes += told.notes
    found.symbols = f"checked against torch {torch_version(site)} in {site}"


def examine(options: argparse.Namespace, expect: Expectation, name: WheelName) -> Found:
    """All checks that were asked for."""
    found = Found()
    with wheel_archive.opened(options.wheel) as archive:
        digests = read_members(archive, found)
        found.faults += wheel_archive.check_record(archive, name.info, digests)
        found.faults += wheel_archive.check_metadata(archive, name)
        check_tags(archive, name, found)
        found.faults += wheel_rules.check_name(name, expect, bool(found.libraries))
        found.faults += wheel_rules.check_libraries(digests, expect)
        with_code = [held.path for held in found.libraries if held.is_cuda]
        found.faults += wheel_rules.check_any_code(bool(with_code), expect)
        for held in found.libraries:
            judge(held, name, expect)
        needed = {held.path: held.library.needed for held in found.libraries if held.library}
        found.faults += wheel_rules.check_cuda(needed, expect)
        found.faults += wheel_rules.check_couplings(name, needed, with_code, expect)
        if options.torch:
            check_symbols(archive, options.torch, expect, found)
    if options.venv:
        faults, notes = venv_checks.check(options.venv, name, expect)
        found.faults += faults
        found.notes += notes
        found.environment = f"checked in {options.venv}"
    return found


def described(wheel: Path, name: WheelName, found: Found) -> dict[str, Any]:
    """What was found, as JSON can carry it."""
    with wheel.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "name": wheel_rules.normal(name.name),
        "version": name.version,
        "tag": f"{name.python}-{name.abi}-{name.platform}",
        "size": wheel.stat().st_size,
        "sha256": digest,
        "libraries": [held.to_json() for held in found.libraries],
        "symbols": found.symbols,
        "environment": found.environment,
        "faults": [asdict(fault) for fault in found.all_faults],
        "notes": found.notes,
    }


def expectation(path: Path | None) -> Expectation:
    """What is wanted; raises Unreadable."""
    try:
        return wheel_rules.read_expectation(path) if path else Expectation()
    except ValueError as error:
        fix = "wheel_rules.py says what an expectation may hold"
        raise Unreadable(f"{path}: {error}", fix) from None


def verdict(options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """The document and the exit status."""
    document: dict[str, Any] = {"schema": 1, "file": options.wheel.name}
    try:
        options.wheel.stat()
        expect = expectation(options.expect)
        name = wheel_rules.wheel_name(options.wheel.name)
        if name is None:
            raise Unreadable(
                "that is no name of a wheel", "give it the name that it was built with"
            )
        found = examine(options, expect, name)
        return document | described(options.wheel, name, found), 1 if found.all_faults else 0
    except Unreadable as error:
        what, fix = str(error), error.fix
    except OSError as error:
        what, fix = f"{error.filename or options.wheel}: {error.strerror}", "check that path"
    faults = [asdict(Fault("wheel", "", what))]
    return {**document, "error": what, "fix": fix, "faults": faults}, 2


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--expect", type=Path, help="a JSON file: what it is to hold")
    parser.add_argument("--torch", type=Path, help="the site-packages that hold torch")
    parser.add_argument("--venv", type=Path, help="the python of a venv where it is installed")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    document, status = verdict(arguments(argv))
    print(json.dumps(document, indent=2))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
