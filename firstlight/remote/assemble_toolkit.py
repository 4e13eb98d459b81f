"""Remote program: put a CUDA toolkit together from NVIDIA's own wheels, laid out as builds expect.

    assemble_toolkit.py --out DIR --version 13.0 [--need PATH]... --wheel FILE [--wheel FILE]...

Each wheel has been checked against its hash before. DIR/cuda is the toolkit and DIR/receipt.json
says what it was made from; the two come whole or not at all, and a DIR that holds them is left
alone. What the wheels lack is made here: lib64, names of libraries without a version, version.json,
and stubs of the driver's libraries.
nvcc must start and be of that CUDA release, and each --need be there, before DIR is in place.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver_stubs import make_stubs
from ending import clear_up_when_ended
from unified_diff import Fault

WHEEL = re.compile(r"(?P<name>\w+)-(?P<version>[\w.]+)-py3-none-(?P<platform>[\w.]+)\.whl")
COMPILER = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
# These count their own releases, so their numbers say nothing of a CUDA release.
OWN_NUMBERS = {
    f"nvidia-{name}"
    for name in ("cublas", "cuda-cccl", "cufft", "cufile", "curand", "cusolver", "cusparse")
}
RELEASE = re.compile(r"release [\d.]+, V(\d+(?:\.\d+)+)")
SPARE = 64 * 1024 * 1024
ROOM = "make room, or give the host another root in the inventory"


@dataclass(frozen=True)
class Wheel:
    """One wheel by its file name."""

    path: Path
    name: str
    version: str
    platform: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def say(line: str) -> None:
    print(line, flush=True)


def minor(version: str) -> str:
    """`13.0` of `13.0.88`."""
    return ".".join(version.split(".")[:2])


def wheel_of(path: Path) -> Wheel:
    found = WHEEL.fullmatch(path.name)
    if not found or not path.is_file():
        raise Fault(f"{path} is no wheel of a CUDA toolkit", "give the files nvidia_*.whl")
    return Wheel(path, found["name"].replace("_", "-"), found["version"], found["platform"])


def check_versions(wheels: list[Wheel], wanted: str) -> None:
    """Raise Fault unless nvcc, crt and nvvm are one release, and all wheels are of `wanted`."""
    parts = [wheel for name in COMPILER for wheel in wheels if wheel.name == name]
    lacking = sorted(set(COMPILER) - {wheel.name for wheel in parts})
    names = [wheel.name for wheel in wheels]
    fix = f"take every wheel from one release of CUDA {wanted}"
    if lacking:
        raise Fault(f"a compiler needs {', '.join(lacking)} as well", fix)
    if len(set(names)) < len(names):
        twice = sorted({str(wheel) for wheel in wheels if names.count(wheel.name) > 1})
        raise Fault(f"one wheel is there twice: {', '.join(twice)}", fix)
    others = [str(part) for part in parts if part.version != parts[0].version]
    if others:
        raise Fault(f"mixed toolkit: {parts[0]} with {' and '.join(others)}", fix)
    strays = [w for w in wheels if w.name not in OWN_NUMBERS and minor(w.version) != wanted]
    if strays:
        raise Fault(f"mixed toolkit: {', '.join(map(str, strays))} in CUDA {wanted}", fix)


def check_machine(wheels: list[Wheel]) -> None:
    machine = platform.machine()
    for wheel in wheels:
        if not wheel.platform.endswith(f"_{machine}") and wheel.platform != "any":
            fix = "give the wheels for this machine; a toolkit is put together where it is used"
            raise Fault(f"{wheel.path.name} is not for {machine}", fix)


def real(path: Path) -> Path:
    """The path as it is; one that leads over a link is refused, for builds compare its text."""
    absolute = path.absolute()
    if absolute.resolve() != absolute:
        fix = f"give the real path: {absolute.resolve()}"
        raise Fault(f"{absolute} leads over a symbolic link", fix)
    return absolute


def contents(archive: zipfile.ZipFile, major: str) -> dict[str, zipfile.ZipInfo]:
    """What one wheel brings, by its place in the toolkit."""
    name = Path(archive.filename or "").name
    prefix = f"nvidia/cu{major}/"
    found = {}
    for entry in archive.infolist():
        place = entry.filename.removeprefix(prefix)
        if entry.is_dir() or entry.filename.split("/")[0].endswith(".dist-info"):
            continue
        if place == entry.filename or place.startswith("/") or ".." in place.split("/"):
            error = f"{name} holds {entry.filename}, which has no place in CUDA {major}"
            raise Fault(error, f"give the wheels of CUDA {major}, whose files are in {prefix}")
        if not place.startswith("."):  # notes that its makers left
            found[place] = entry
    return found


def check_space(need: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < need + SPARE:
        told = f"no space: {folder} has {free >> 20} MiB free"
        raise Fault(f"{told}, this toolkit needs {(need + SPARE) >> 20} MiB", ROOM)


def unpack(wheels: list[Wheel], cuda: Path, major: str) -> None:
    """Put all files in their places; no file comes from two wheels."""
    owner: dict[str, Wheel] = {}
    size = 0
    for wheel in wheels:
        with opened(wheel) as archive:
            for place, entry in contents(archive, major).items():
                if owner.setdefault(place, wheel) != wheel:
                    error = f"{owner[place]} and {wheel} both hold {place}"
                    raise Fault(error, "take every wheel from one release of CUDA")
                size += entry.file_size
    check_space(size, cuda.parent)
    for wheel in wheels:
        with opened(wheel) as archive:
            plan = contents(archive, major)
            for place, entry in plan.items():
                put(archive, entry, cuda / place)
        say(f"unpacked {wheel}: {len(plan)} files")


@contextlib.contextmanager
def opened(wheel: Wheel) -> Iterator[zipfile.ZipFile]:
    """The wheel as an archive; one that is cut off or damaged is named."""
    try:
        with zipfile.ZipFile(wheel.path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError) as fault:
        error = f"{wheel.path.name} is no whole wheel: {fault}"
        raise Fault(error, f"remove {wheel.path} and fetch it again") from None


def put(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)
    runs = (entry.external_attr >> 16) & 0o111
    target.chmod(0o755 if runs else 0o644)


def link(cuda: Path) -> None:
    """lib64, and each library by the name that a linker looks for."""
    lib = cuda / "lib"
    lib.mkdir(exist_ok=True)
    (cuda / "lib64").symlink_to("lib")
    for library in sorted(lib.glob("lib*.so.*"), key=lambda path: (len(path.name), path.name)):
        plain = lib / f"{library.name.partition('.so.')[0]}.so"
        if not os.path.lexists(plain):
            plain.symlink_to(library.name)


def check_nvcc(cuda: Path, wheels: list[Wheel]) -> str:
    """nvcc's version, as it says itself."""
    words = [str(cuda / "bin" / "nvcc"), "--version"]
    try:
        done = subprocess.run(words, env={}, capture_output=True, text=True, timeout=60)
        told = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as fault:
        told = str(fault)
    found = RELEASE.search(told)
    wanted = next(wheel.version for wheel in wheels if wheel.name == COMPILER[0])
    if not found or found[1] != wanted:
        shown = tuple(f"  {line}" for line in told.splitlines()[-5:])
        fix = "check that this host can run it; else remove those wheels and fetch them again"
        raise Fault(f"nvcc does not say that it is {wanted}", fix, shown)
    return wanted


def write_version(cuda: Path, wheels: list[Wheel], version: str) -> None:
    """version.json as NVIDIA's own installer writes it."""
    told = {"cuda": {"name": "CUDA SDK", "version": version}}
    for wheel in wheels:
        told[wheel.name.removeprefix("nvidia-").replace("-", "_")] = {
            "name": wheel.name,
            "version": wheel.version,
        }
    (cuda / "version.json").write_text(json.dumps(told, indent=2) + "\n")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def receipt(wheels: list[Wheel], version: str, nvcc: str, compiler: str) -> dict[str, Any]:
    return {
        **{"name": "cuda-toolkit", "version": version, "nvcc": nvcc, "stubs_by": compiler},
        "machine": platform.machine(),
        "wheels": [
            {
                **{"name": wheel.name, "version": wheel.version, "file": wheel.path.name},
                **{"sha256": sha256(wheel.path), "size": wheel.path.stat().st_size},
            }
            for wheel in wheels
        ],
    }


def assemble(partial: Path, wheels: list[Wheel], version: str, needs: list[str]) -> None:
    """Make the toolkit and its receipt in a folder that is of no use to anybody else."""
    began = time.monotonic()
    cuda = partial / "cuda"
    unpack(wheels, cuda, version.split(".")[0])
    link(cuda)
    compiler, stubs = make_stubs(cuda / "include", cuda / "lib" / "stubs")
    for name, count in stubs.items():
        say(f"made lib64/stubs/{name}: {count} functions")
    write_version(cuda, wheels, version)
    lacking = [need for need in needs if not (cuda / need).exists()]
    if lacking:
        fix = "add the wheels that hold it to the toolkit's recipe"
        raise Fault(f"these wheels make no whole toolkit: no {', '.join(lacking)}", fix)
    made = receipt(wheels, version, check_nvcc(cuda, wheels), compiler)
    made["wall_s"] = round(time.monotonic() - began, 1)
    (partial / "receipt.json").write_text(json.dumps(made, indent=2) + "\n")


def place(out: Path, wheels: list[Wheel], version: str, needs: list[str]) -> None:
    """Everything at once; nothing is left of an attempt that failed or was ended."""
    if (out / "receipt.json").exists() and (out / "cuda" / "bin" / "nvcc").exists():
        return say(f"{out} is there already")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Fault(f"{out} is there and is no toolkit of ours", "remove it, or give another --out")
    check_versions(wheels, minor(version))
    check_machine(wheels)
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        assemble(partial, wheels, version, needs)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return say(f"{out / 'cuda'} is in place")


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", required=True, help="the CUDA release: 13.0, or 13.0.3")
    parser.add_argument("--wheel", type=Path, action="append", default=[])
    parser.add_argument("--need", action="append", default=[], help="a path that must be there")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    clear_up_when_ended()
    try:
        wheels = sorted(map(wheel_of, options.wheel), key=str)
        place(real(options.out), wheels, options.version, options.need)
        return 0
    except Fault as fault:
        told = fault
    except OSError as fault:
        fix = ROOM if fault.errno == errno.ENOSPC else "check that path"
        told = Fault(f"{fault.filename or options.out}: {fault.strerror}", fix)
    print("\n".join((f"error: {told}", *told.shown, f"fix: {told.fix}")), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
