"""Beside a remote program: is every symbol that a library leaves open defined by what it needs.

What a library needs is looked for where it will be found later: in the wheel itself, in the
site-packages that hold torch, in the system's libraries; and what those need, in turn.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import elf_needs
from elf_needs import Damaged, Library
from wheel_rules import Fault, some

Unpack = Callable[[str], contextlib.AbstractContextManager[Path]]

_IN_SITE = (
    "torch/lib/*.so*",
    "nvidia/*/lib/*.so*",
    "tvm_ffi/lib/*.so*",
    "*.libs/*.so*",
)
_SYSTEM = ("/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/usr/local/lib")
_LDCONFIG = re.compile(r"\s+(\S+) \(([^)]*)\) => (/.*)")
_LDCONFIG_ARCH = {"x86_64": "x86-64", "aarch64": "AArch64"}
# An interpreter defines these itself; a module of CPython does not say that it needs one.
_PYTHON = re.compile(rb"_?Py[A-Z_]")
# They come with the driver, which a host that only builds does not have.
_DRIVER = {
    "libcuda.so.1": re.compile(rb"cu[A-Z]"),
    "libnvidia-ml.so.1": re.compile(rb"nvml"),
}
_TORCH = re.compile(r"\b(c10|at|torch|caffe2|executorch)::|\b(aoti_)?torch_|THP")
_MOST = 20


@dataclass(frozen=True)
class Unresolved:
    """The symbols that nothing defines, as a person reads them, and the faults to tell."""

    symbols: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """A library that is needed, as far as the wheel's own libraries care."""

    provided: frozenset[bytes]
    needed: tuple[str, ...]
    defines: frozenset[str]


@dataclass
class Closure:
    """Resolves the libraries of one wheel (`libraries`, by path) against a site-packages."""

    libraries: Mapping[str, Library]
    site: Path
    unpack: Unpack
    preloaded: tuple[str, ...]
    _read: dict[str, _Found | None] = field(default_factory=dict)

    @cached_property
    def wanted(self) -> frozenset[bytes]:
        return frozenset().union(*(library.undefined for library in self.libraries.values()))

    @cached_property
    def inside(self) -> dict[str, str]:
        """The wheel's own libraries: member by the name that others need it by."""
        named = {path.rpartition("/")[2]: path for path in self.libraries}
        return named | {lib.soname: path for path, lib in self.libraries.items() if lib.soname}

    @cached_property
    def outside(self) -> dict[str, Path]:
        """All other libraries by name; site-packages come before the system."""
        found = dict(system_libraries())
        for pattern in _IN_SITE:
            found |= {path.name: path for path in sorted(self.site.glob(pattern))}
        return found

    def find(self, soname: str) -> _Found | None:
        """A library by the name that others need it by; None where there is none."""
        if soname not in self._read:
            self._read[soname] = self._look(soname)
        return self._read[soname]

    def _look(self, soname: str) -> _Found | None:
        if soname in self.inside:
            with self.unpack(self.inside[soname]) as own:
                return self._examine(own)
        path = self.outside.get(soname)
        return self._examine(path) if path is not None and path.exists() else None

    def _examine(self, path: Path) -> _Found | None:
        try:
            with elf_needs.mapped(path) as data:
                library = elf_needs.read(data)
                given = elf_needs.provided(data, self.wanted)
        except (Damaged, OSError):
            return None
        return _Found(given, library.needed, library.defines)

    def resolve(self, path: str) -> Unresolved:
        """What a library of the wheel leaves open; raises nothing for what is not there."""
        library = self.libraries[path]
        left, missing = set(library.undefined), []
        for soname in self._all_needed(library):
            found = self.find(soname)
            if found is not None:
                left -= found.provided
            elif soname in library.needed:
                missing.append(soname)
        open_ = sorted(name for name in left if not _excused(name, missing))
        absent = [soname for soname in missing if soname not in _DRIVER]
        faults = [Fault("needs", path, f"it needs {name}, which is nowhere") for name in absent]
        faults += self._too_new(path, library)
        names = demangled(open_)
        faults += self._told(path, library, names, bool(absent))
        notes = [
            f"{name} comes with the driver, and is not here" for name in _DRIVER if name in missing
        ]
        return Unresolved(tuple(names), tuple(faults), tuple(notes))

    def _all_needed(self, library: Library) -> Iterator[str]:
        """Every library that is loaded with this one, the nearest first."""
        queue = [*library.needed, *self.preloaded]
        seen = set(queue)
        for soname in queue:
            yield soname
            found = self.find(soname)
            more = [name for name in found.needed if name not in seen] if found else []
            seen |= set(more)
            queue += more

    def _too_new(self, path: str, library: Library) -> Iterator[Fault]:
        for soname, version in library.requires:
            found = self.find(soname)
            if found and found.defines and version not in found.defines:
                what = f"it needs {version} of {soname}, which the one here does not have"
                yield Fault("needs", path, what)

    def _told(
        self, path: str, library: Library, names: list[str], lacking: bool
    ) -> Iterator[Fault]:
        torch = [name for name in names if _TORCH.search(name)]
        others = [name for name in names if name not in set(torch)]
        by_torch = any(name.startswith(("libtorch", "libc10")) for name in library.needed)
        if torch and by_torch and not lacking:
            what = f"{_count(torch)} of torch's, not in torch {torch_version(self.site)}: "
            what += f"it was built against another torch: {some(torch, 3, '; ')}"
            yield Fault("symbols", path, what)
        elif torch:
            others = names
        if others:
            what = f"{_count(others)} defined in no library that it needs: {some(others, 3, '; ')}"
            yield Fault("symbols", path, what)


def _count(names: list[str]) -> str:
    return f"{len(names)} symbol{'s' if len(names) > 1 else ''}"


def _excused(name: bytes, missing: Iterable[str]) -> bool:
    drivers = (_DRIVER[soname] for soname in missing if soname in _DRIVER)
    return bool(_PYTHON.match(name)) or any(driver.match(name) for driver in drivers)


def torch_version(site: Path) -> str:
    """The version of the torch in a site-packages, as it says itself; "?" where none is."""
    try:
        text = (site / "torch" / "version.py").read_text(encoding="utf-8")
    except OSError:
        return "?"
    found = re.search(r"__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)", text)
    return found[1] if found else "?"


def system_libraries() -> Iterator[tuple[str, Path]]:
    """What the dynamic linker of this machine would find, by name."""
    mark = _LDCONFIG_ARCH.get(platform.machine(), platform.machine())
    for folder in _SYSTEM:
        for place in sorted(Path("/").glob(folder[1:])):
            yield from ((path.name, path) for path in place.glob("*.so*"))
    tool = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if tool is None:
        return
    listed = subprocess.run([tool, "-p"], capture_output=True, text=True, errors="replace")
    for line in listed.stdout.splitlines():
        if (found := _LDCONFIG.fullmatch(line)) and mark in found[2]:
            yield found[1], Path(found[3])


def demangled(names: Iterable[bytes]) -> list[str]:
    """C++ names as people write them, where this machine has a tool for it."""
    plain = [name.decode("utf-8", "replace") for name in names]
    tool = shutil.which("c++filt")
    if tool is None or not plain:
        return plain
    text = "\n".join(plain)
    done = subprocess.run([tool], input=text, capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines()
    return lines if done.returncode == 0 and len(lines) == len(plain) else plain
