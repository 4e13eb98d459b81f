"""Small CUDA libraries made by the real nvcc, and wheels of them, for programs to judge."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.remote.programs import record_hash

KERNEL = """\
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" void go(float *x) { twice<<<1, 32>>>(x); }
"""
SOURCES = {
    "kernel": KERNEL,
    "missing": 'extern "C" void nowhere(); ' + KERNEL.replace("{ twice", "{ nowhere(); twice"),
    "torch": "namespace c10 { void gone(int); } "
    + KERNEL.replace("{ twice", "{ c10::gone(1); twice"),
}


@cache
def nvcc() -> str:
    """The compiler of a CUDA 13 toolkit of this machine; skips the test where there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), *map(str, Path("/usr/local").glob("cuda-13*"))]
    found = shutil.which("nvcc", path=os.pathsep.join(f"{home}/bin" for home in homes if home))
    if found is None:
        pytest.skip("no nvcc of CUDA 13 in CUDA_HOME or /usr/local/cuda-13*")
    return found


def cudart() -> Path:
    """The runtime that belongs to the compiler."""
    return Path(nvcc()).parents[1] / "lib64" / "libcudart.so.13"


def code(*targets: str) -> list[str]:
    """nvcc's flags for these targets, of which `compute_...` means PTX."""
    pairs = ((f"compute_{target.partition('_')[2]}", target) for target in targets)
    return [f"-gencode=arch={virtual},code={real}" for virtual, real in pairs]


def library(folder: Path, *flags: str, source: str = "kernel") -> Path:
    """A shared library with the runtime outside of it, as torch's extensions have it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / f"{source}.cu"
    text.write_text(SOURCES[source])
    made = folder / f"{source}.so"
    call([nvcc(), "-shared", "-cudart=shared", "-Xcompiler=-fPIC", *flags, "-o", made, text])
    return made


def shared(folder: Path, name: str, source: str = "", *flags: str) -> Path:
    """A library of C without CUDA, by its soname; skips the test where no gcc is."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder.mkdir(parents=True, exist_ok=True)
    text, made = folder / f"{name}.c", folder / name
    text.write_text(source)
    call(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", made, text, *flags])
    return made


def call(argv: list[object]) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def wheel(
    folder: Path,
    files: Mapping[str, bytes | Path],
    *,
    name: str = "kern",
    version: str = "1.0",
    tag: str = "cp310-abi3-linux_x86_64",
    metadata: str = "",
    record: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of these members; `record` replaces or (by "") removes rows of RECORD."""
    info = f"{name}-{version}.dist-info"
    head = metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    members = {path: p.read_bytes() if isinstance(p, Path) else p for path, p in files.items()}
    members |= {
        f"{info}/METADATA": head.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
    }
    rows = {
        path: f"{path},sha256={record_hash(data)},{len(data)}" for path, data in members.items()
    }
    rows |= {f"{info}/RECORD": f"{info}/RECORD,,", **(record or {})}
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        text = "".join(f"{row}\n" for row in rows.values() if row)
        archive.writestr(f"{info}/RECORD", text)
    return made
