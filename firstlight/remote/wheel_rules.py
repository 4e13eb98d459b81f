"""Beside a remote program: what a wheel may hold, judged by its name and by what was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_NAME = re.compile(
    r"(?P<name>[\w.]+)-(?P<version>[\w.!+]+)(?:-\d\w*)?"
    r"-(?P<python>[\w.]+)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+)\.whl"
)
# The manylinux names that came before PEP 600, by the glibc that they stand for.
_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_CUDA = re.compile(r"lib(cu\w+?|nvrtc|nvJitLink|nvjpeg|npp\w+|nvfatbin)\.so\.(\d+)(?:\.\d+)*")
# Libraries whose own major moves apart from CUDA's, by what theirs may stand for.
_APART: dict[str, dict[int, set[int]]] = {
    "cusparse": {11: {11}, 12: {12, 13}},
    "cusolver": {11: {11, 12}, 12: {13}},
    "cusolverMg": {11: {11, 12}, 12: {13}},
    "cufft": {10: {11}, 11: {12}, 12: {13}},
    "cufftw": {10: {11}, 11: {12}, 12: {13}},
}
# Numbered like CUDA itself; of any other library (cudnn, curand, cufile) the major says nothing.
_ALIKE = re.compile(r"cudart|cublas|cublasLt|cupti|nvblas|nvrtc|nvJitLink|nvjpeg|npp\w+|nvfatbin")
_TORCH = re.compile(r"lib(torch|c10)[\w-]*\.so")
_MODULE = re.compile(r"\.cpython-(\d)(\d+)[a-z]*-[\w-]+\.so\Z")


@dataclass(frozen=True)
class Fault:
    """One thing wrong: by which check, in which file of the wheel, and what."""

    check: str
    where: str
    what: str


@dataclass(frozen=True)
class WheelName:
    """What a wheel's file name says; tags are lists joined by dots."""

    name: str
    version: str
    python: str
    abi: str
    platform: str

    @property
    def info(self) -> str:
        return f"{self.name}-{self.version}.dist-info"

    @property
    def platforms(self) -> list[str]:
        return self.platform.split(".")


@dataclass(frozen=True)
class Expectation:
    """What a wheel is to hold; what is left out is not asked for.

    `targets`: each CUDA library holds machine code for one of them, and with `only` for nothing
    else; `except_` are patterns of libraries that need not. `glibc`: the newest that may be asked
    for. `preloaded`: libraries of site-packages whose symbols are there for everyone. `project`:
    whose wheel it is. `uncoupled`: of torch, cpython and cuda, what it must not be bound to.
    """

    targets: tuple[str, ...] = ()
    only: bool = False
    ptx: bool = False
    cuda_major: int | None = None
    libraries: tuple[str, ...] = ()
    except_: tuple[str, ...] = ()
    arch: str = ""
    glibc: str = ""
    python: str = ""
    imports: tuple[str, ...] = ()
    check_ignores: tuple[str, ...] = ()
    preloaded: tuple[str, ...] = ("libtvm_ffi.so",)
    project: str = ""
    uncoupled: tuple[str, ...] = ()

    @property
    def strict(self) -> bool:
        """True when GPU targets are asked for, and PTX thus counts as a fault."""
        return bool(self.targets)


def in_order(targets: Iterable[str]) -> list[str]:
    """Targets by the age of their cards: sm_90a before sm_100f."""
    return sorted(targets, key=lambda target: (int("0" + re.sub(r"\D", "", target)), target))


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_name(file: str) -> WheelName | None:
    """What a file name says; None for one that is no wheel's."""
    found = _NAME.fullmatch(file)
    return WheelName(**found.groupdict()) if found else None


def read_expectation(path: Path) -> Expectation:
    """The expectation of a JSON file; raises ValueError for what is none."""
    given = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object")
    kinds = {field.name.rstrip("_"): field for field in fields(Expectation)}
    if unknown := sorted(set(given) - set(kinds)):
        raise ValueError(f"unknown keys {', '.join(unknown)}; known are {', '.join(kinds)}")
    values = {kinds[key].name: _typed(key, kinds[key].default, given[key]) for key in given}
    for key in ("glibc", "python"):
        if not re.fullmatch(r"(\d+(\.\d+)+)?", values.get(key, "")):
            raise ValueError(f"{key} is {values[key]!r}, and should be like 2.34")
    return Expectation(**values)


def _typed(key: str, default: Any, value: Any) -> Any:
    if key == "cuda_major" and value is None:
        return None
    kind = int if key == "cuda_major" else list if isinstance(default, tuple) else type(default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{key} is {value!r}, and should be of type {kind.__name__}")
    return tuple(map(str, value)) if isinstance(value, list) else value


def check_name(name: WheelName, expect: Expectation, has_libraries: bool) -> Iterator[Fault]:
    """Whether the tags of the file name are those of the expectation, and of its content."""
    if expect.project and normal(name.name) != normal(expect.project):
        what = f"it is a wheel of {normal(name.name)}, wanted is {normal(expect.project)}"
        yield Fault("project", "", what)
    if has_libraries and "any" in name.platforms:
        yield Fault("tag", "", f"platform tag {name.platform}, and there are compiled libraries")
    if expect.python and not _takes(name, expect.python):
        tag = f"{name.python}-{name.abi}"
        yield Fault("tag", "", f"tag {tag} cannot be installed for Python {expect.python}")
    for platform in name.platforms:
        if platform != "any" and "linux" not in platform:
            yield Fault("tag", "", f"platform tag {platform} is of another system than Linux")
        asked = glibc_of(platform)
        if expect.glibc and asked and asked > _numbers(expect.glibc):
            yield Fault(
                "tag", "", f"platform tag {platform} asks for more than glibc {expect.glibc}"
            )
        if expect.arch and platform != "any" and not platform.endswith(f"_{expect.arch}"):
            yield Fault("tag", "", f"platform tag {platform} is not for {expect.arch}")


def _takes(name: WheelName, python: str) -> bool:
    major, minor = _numbers(python)[:2]
    for tag in name.python.split("."):
        found = re.fullmatch(r"(cp|py)(\d)(\d*)", tag)
        if not found or int(found[2]) != major:
            continue
        floor = int(found[3] or 0)
        open_ended = found[1] == "py" or "abi3" in name.abi.split(".")
        if floor == minor or (open_ended and floor <= minor):
            return True
    return False


def glibc_of(platform: str) -> tuple[int, ...] | None:
    """The glibc that a platform tag promises to be enough; None where it promises none."""
    for legacy, version in _LEGACY.items():
        if platform.startswith(f"{legacy}_"):
            return version
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return (int(found[1]), int(found[2])) if found else None


def check_platform(path: str, machine: str, glibc: str, name: WheelName) -> Iterator[Fault]:
    """Whether a library runs where the platform tag says that the wheel does."""
    if not any(tag.endswith(f"_{machine}") or tag == "any" for tag in name.platforms):
        yield Fault("tag", path, f"it is for {machine}, the platform tag is {name.platform}")
    promised = [version for tag in name.platforms if (version := glibc_of(tag))]
    if glibc and promised and min(promised) < _numbers(glibc):
        what = f"it needs glibc {glibc}; platform tag {name.platform} promises less"
        yield Fault("tag", path, what)


def check_expected_host(
    path: str, machine: str, glibc: str, expect: Expectation
) -> Iterator[Fault]:
    """Whether a library runs on the host of the expectation."""
    if expect.arch and machine != expect.arch:
        yield Fault("host", path, f"it is for {machine}, wanted is {expect.arch}")
    if expect.glibc and glibc and _numbers(glibc) > _numbers(expect.glibc):
        yield Fault("host", path, f"it needs glibc {glibc}, wanted is {expect.glibc} or older")


def check_module(path: str, name: WheelName) -> tuple[str, bool]:
    """What is to be said of a module's CPython, and whether it is a fault."""
    found = _MODULE.search(path)
    if not found:
        return "", False
    own, tags = f"cp{found[1]}{found[2]}", name.python.split(".")
    if "abi3" in name.abi.split("."):
        return f"a module for {own} alone in a wheel that says {name.python}-{name.abi}", False
    wrong = own not in tags and not any(tag.startswith("py") for tag in tags)
    return (f"a module for {own} in a wheel for {name.python}", True) if wrong else ("", False)


def check_targets(
    path: str, sass: Mapping[str, int], ptx: Iterable[str], expect: Expectation
) -> Iterator[Fault]:
    """Whether a CUDA library holds the targets that are wanted; says what it holds."""
    if matches(path, expect.except_) or not expect.strict:
        return
    machine, portable = in_order(sass), in_order(ptx)
    wanted = " or ".join(expect.targets)
    if not set(machine) & set(expect.targets):
        held = f"holds {', '.join(machine)}" if machine else "holds no machine code"
        with_ptx = f" and PTX for {', '.join(portable)}" if portable else ""
        yield Fault("targets", path, f"{held}{with_ptx}; wanted is {wanted}")
    elif expect.only and (more := in_order(set(machine) - set(expect.targets))):
        yield Fault("targets", path, f"holds {', '.join(more)} beside {wanted}")
    if portable and not expect.ptx:
        what = f"holds PTX for {', '.join(portable)}, which a driver may compile or refuse"
        yield Fault("ptx", path, what)


def check_any_code(has_code: bool, expect: Expectation) -> Iterator[Fault]:
    """Whether there is GPU code at all: of a wheel without any, each library is as it should be."""
    if expect.strict and not has_code:
        wanted = " or ".join(expect.targets)
        yield Fault("targets", "", f"no library of it holds GPU code; wanted is {wanted}")


def matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def check_libraries(paths: Iterable[str], expect: Expectation) -> Iterator[Fault]:
    """Whether every library that must be there is."""
    there = sorted(paths)
    libraries = [path for path in there if ".so" in path]
    for pattern in expect.libraries:
        if not any(fnmatchcase(path, pattern) for path in there):
            yield Fault("libraries", pattern, f"no such library; there are {some(libraries)}")


def cuda_majors(soname: str) -> set[int] | None:
    """The CUDA majors that a library may belong to; None where its name does not tell."""
    found = _CUDA.fullmatch(soname)
    if not found:
        return None
    name, major = found[1], int(found[2])
    if name in _APART:
        return _APART[name].get(major)
    return {major} if _ALIKE.fullmatch(name) else None


def check_cuda(needed: Mapping[str, Iterable[str]], expect: Expectation) -> Iterator[Fault]:
    """Whether all that libraries (by path) need belongs to the wanted CUDA, or to one at all."""
    known = [(path, soname, cuda_majors(soname)) for path in needed for soname in needed[path]]
    told = [(path, soname, majors) for path, soname, majors in known if majors is not None]
    if expect.cuda_major is not None:
        for path, soname, majors in told:
            if expect.cuda_major not in majors:
                what = f"it needs {soname}, which is not of CUDA {expect.cuda_major}"
                yield Fault("cuda", path, what)
    elif told and not set.intersection(*(majors for _, _, majors in told)):
        sonames = sorted({soname for _, soname, _ in told})
        yield Fault("cuda", "", f"libraries of two CUDA majors are needed: {', '.join(sonames)}")


def check_couplings(
    name: WheelName, needed: Mapping[str, Iterable[str]], cuda: Iterable[str], expect: Expectation
) -> Iterator[Fault]:
    """Whether it is bound to what its recipe does not name; `cuda` are libraries with GPU code."""
    for path, sonames in needed.items():
        for soname in sonames:
            if "torch" in expect.uncoupled and _TORCH.match(soname):
                yield _coupling("torch", path, f"it needs {soname}")
            if "cuda" in expect.uncoupled and _CUDA.fullmatch(soname):
                yield _coupling("cuda", path, f"it needs {soname}")
    for path in cuda if "cuda" in expect.uncoupled else ():
        yield _coupling("cuda", path, "it holds GPU code")
    tags = name.python.split(".")
    bound = "abi3" not in name.abi.split(".") and all(tag.startswith("cp") for tag in tags)
    if bound and "cpython" in expect.uncoupled:
        yield _coupling("cpython", "", f"it is for {name.python}-{name.abi}")


def _coupling(to: str, path: str, why: str) -> Fault:
    return Fault("couples", path, f"{why}, and `couples` of its recipe does not say {to}")


def some(names: Iterable[str], most: int = 8, between: str = ", ") -> str:
    """A list for a message, not too long."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (between.join(listed[:most]) + more) or "none"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
