"""Part of a remote program: libraries of the driver to link against where there is no driver.

No package on PyPI holds NVIDIA's own stubs. These are made by the host's C compiler out of the
toolkit's headers, so that they hold every function for which code that was compiled with these
headers can ask, and only those. Linking takes nothing else of them than the names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from unified_diff import Fault

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class Stub:
    """One library: its file, its name for the loader, and how its headers declare a function.

    Every function answers `code`, the driver's own number for a library that is not the real one.
    """

    file: str
    soname: str
    headers: str
    declared: re.Pattern[str]
    renamed: re.Pattern[str]
    code: int


STUBS = (
    Stub(
        "libcuda.so",
        "libcuda.so.1",
        "cuda*.h",
        re.compile(r"\bCUresult\s+CUDAAPI\s+(cu\w+)\s*\("),
        # `#define cuMemcpy2D __CUDA_API_PTDS(cuMemcpy2D_v2)`: code with a default stream for each
        # thread asks for cuMemcpy2D_v2_ptds.
        re.compile(r"#[ \t]*define\s+cu\w+\s+(?:__CUDA_API_(PTDS|PTSZ)\()?(cu[A-Z]\w*)"),
        code=34,
    ),
    Stub(
        "libnvidia-ml.so",
        "libnvidia-ml.so.1",
        "nvml.h",
        re.compile(r"\bnvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\("),
        re.compile(r"#[ \t]*define\s+nvml\w+\s+()(nvml[A-Z]\w*)"),
        code=12,
    ),
)


def make_stubs(include: Path, folder: Path) -> tuple[str, dict[str, int]]:
    """Fill a folder; returns the compiler's name for itself, and the functions in each library.

    A library whose header is not there is not made.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        fix = "install one; nvcc needs it too (Debian, Ubuntu: apt install build-essential)"
        raise Fault("this host has no C compiler", fix)
    folder.mkdir(parents=True)
    counts = {}
    for stub in STUBS:
        names = functions(stub, include)
        if names:
            compile_stub(compiler, stub, names, folder)
            counts[stub.file] = len(names)
    words = [compiler, "--version"]
    told = subprocess.run(words, capture_output=True, text=True).stdout
    return told.partition("\n")[0], counts


def functions(stub: Stub, include: Path) -> list[str]:
    """Every name by which code may ask for a function of the library."""
    names: set[str] = set()
    for header in include.glob(stub.headers):
        text = COMMENT.sub(" ", header.read_text("utf-8", "replace"))
        names |= set(stub.declared.findall(text))
        for way, name in stub.renamed.findall(text):
            names |= {name, f"{name}_{way.lower()}"} if way else {name}
    return sorted(names)


def compile_stub(compiler: str, stub: Stub, names: list[str], folder: Path) -> None:
    """Make one library. The loader looks for another file name, so it never finds this one."""
    code = "".join(f"int {name}(void) {{ return {stub.code}; }}\n" for name in names)
    target = str(folder / stub.file)
    words = [compiler, "-shared", "-fPIC", "-nostdlib", "-O1", "-s", "-x", "c", "-"]
    words += ["-Wl,--build-id=none", f"-Wl,-soname,{stub.soname}", "-o", target]
    done = subprocess.run(words, input=code, capture_output=True, text=True)
    if done.returncode:
        shown = tuple(f"  {line}" for line in done.stderr.splitlines()[:5])
        raise Fault(f"{compiler} made no {stub.file}", "repair that compiler", shown)
