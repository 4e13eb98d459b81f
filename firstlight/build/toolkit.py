"""The build room: what makes a CUDA toolkit, what it must hold, and how a build is told of it.

A pinned toolkit is put together on a host from NVIDIA's wheels (remote/assemble_toolkit.py); a
host's own is taken only when its nvcc is of the release that torch was built with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.hosts.tools import Cuda, nvcc_version

# Extras of the package `cuda-toolkit`, which knows what belongs to one CUDA release; the wheel that
# each brings; who needs it.
PARTS: Mapping[str, tuple[str, str]] = {
    "nvcc": ("nvidia-cuda-nvcc", "the compiler, ptxas, fatbinary"),
    "crt": ("nvidia-cuda-crt", "headers of nvcc's own release"),
    "nvvm": ("nvidia-nvvm", "cicc and libdevice, of nvcc's own release"),
    "cccl": ("nvidia-cuda-cccl", "cub, thrust, cuda::std: torch's headers, every kernel library"),
    "cudart": ("nvidia-cuda-runtime", "cuda.h, cuda_fp4.h, libcudart"),
    "nvrtc": ("nvidia-cuda-nvrtc", "flashinfer and torch's CMake files"),
    "cublas": ("nvidia-cublas", "torch's headers; cublasLt.h: flashinfer's norm, fp4, fmha_v2"),
    "cusparse": ("nvidia-cusparse", "torch's headers"),
    "cusolver": ("nvidia-cusolver", "torch's headers"),
    "curand": ("nvidia-curand", "curand_kernel.h: flashinfer's sampling, torch's headers"),
    "cufft": ("nvidia-cufft", "torch's headers and CMake files"),
    "cufile": ("nvidia-cufile", "torch's CMake files"),
    "nvjitlink": ("nvidia-nvjitlink", "cusparse and cusolver are linked against it"),
    "nvtx": ("nvidia-nvtx", "annotations, headers only"),
    "profiler": ("nvidia-cuda-profiler-api", "cudaProfiler.h"),
    "nvml": ("nvidia-nvml-dev", "nvml.h: torch's c10/cuda/driver_api.h"),
}
# These are one program in three wheels: any difference between them breaks compiling.
COMPILER = tuple(PARTS[extra][0] for extra in ("nvcc", "crt", "nvvm"))
# These count their own releases, so their numbers say nothing of a CUDA release.
_OWN_NUMBERS = ("cublas", "cccl", "cufft", "cufile", "curand", "cusolver", "cusparse")

# What a build of the stack asks of a toolkit, below its folder.
NEEDED = (
    *("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "bin/nvlink"),
    *("nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"),
    *("include/cuda.h", "include/cuda_runtime.h", "include/crt/host_config.h"),
    *("include/cuda_fp4.h", "include/cuda_fp8.h", "include/nvrtc.h", "include/curand_kernel.h"),
    *("include/cccl/cuda/std/cstdint", "include/cccl/cub/cub.cuh", "include/cccl/thrust/version.h"),
    *("include/cublas_v2.h", "include/cublasLt.h", "include/cusparse.h", "include/cusolverDn.h"),
    *("include/cufft.h", "include/nvtx3/nvToolsExt.h"),
    *("lib64/libcudart.so", "lib64/libcudart_static.a", "lib64/libcudadevrt.a"),
    *("lib64/libnvrtc.so", "lib64/libcublas.so", "lib64/libcublasLt.so"),
    "lib64/stubs/libcuda.so",
)

_PROBE = """\
set -u
home=$1
shift
printf 'real\\t%s\\n' "$(readlink -f -- "$home")"
"$home/bin/nvcc" --version 2>/dev/null | sed -n 's/^\\(.*release.*\\)$/nvcc\\t\\1/p'
for need in "$@"; do
  [ -e "$home/$need" ] || printf 'missing\\t%s\\n' "$need"
done
"""


@dataclass(frozen=True)
class Toolkit:
    """One toolkit as a host tells of it; `nvcc` is None where it does not start."""

    path: PurePosixPath
    real_path: PurePosixPath
    nvcc: str | None
    missing: tuple[str, ...]


def requirements(cuda: str) -> tuple[str, ...]:
    """What to resolve for the toolkit of CUDA `cuda` ("13.0"): one release, and nothing newer.

    cuda-toolkit itself lets nvjitlink be of any later release, so that is held here.
    """
    return (
        f"cuda-toolkit[{','.join(PARTS)}]=={cuda}.*",
        f"{PARTS['nvjitlink'][0]}=={cuda}.*",
    )


def pin_faults(pins: Mapping[str, str], cuda: str) -> Iterator[str]:
    """What is wrong with the wheels of a toolkit, by name and version."""
    for name, why in PARTS.values():
        if name not in pins:
            yield f"{name} is missing: {why}"
    parts = [f"{name} {pins[name]}" for name in COMPILER if name in pins]
    if len({pins[name] for name in COMPILER if name in pins}) > 1:
        yield f"mixed toolkit: {parts[0]} with {' and '.join(parts[1:])}"
    for name, version in sorted(pins.items()):
        if not name.endswith(_OWN_NUMBERS) and minor(version) != cuda:
            yield f"{name} {version} is not of CUDA {cuda}"


def minor(version: str) -> str:
    """`13.0` of `13.0.88`."""
    return ".".join(version.split(".")[:2])


def assemble_args(out: PurePosixPath, cuda: str, wheels: Iterable[PurePosixPath]) -> list[str]:
    """The arguments of assemble_toolkit.py."""
    words = ["--out", str(out), "--version", cuda]
    words += [word for need in NEEDED for word in ("--need", need)]
    return words + [word for wheel in wheels for word in ("--wheel", str(wheel))]


def host_toolkit(cudas: Iterable[Cuda], cuda: str, host: str) -> PurePosixPath:
    """The real path of the host's own toolkit of that release; raises HostError."""
    found = tuple(cudas)
    for one in found:
        if one.version and minor(one.version) == cuda:
            return one.real_path
    there = ", ".join(f"{one.version or 'no nvcc'} at {one.real_path}" for one in found)
    raise HostError(
        f"the stack is built with CUDA {cuda}; the host has {there or 'no CUDA toolkit'}",
        where=host,
        remedy=f"install CUDA {cuda} there, or take the pinned toolkit, which needs none",
    )


def probe(home: PurePosixPath) -> Script:
    """Ask a host about one toolkit."""
    return Script(_PROBE, (str(home), *NEEDED))


def read_probe(home: PurePosixPath, answer: str) -> Toolkit:
    """What the host said."""
    rows = [line.partition("\t")[::2] for line in answer.splitlines()]
    said = dict(rows)
    missing = tuple(value for key, value in rows if key == "missing")
    nvcc = nvcc_version(said.get("nvcc", ""))
    return Toolkit(home, PurePosixPath(said.get("real") or home), nvcc, missing)


def require_toolkit(toolkit: Toolkit, cuda: str, host: str) -> None:
    """Raise HostError unless a build can stand on this toolkit."""
    what = _objection(toolkit, cuda)
    if what:
        remedy = f"install CUDA {cuda} whole, or take the pinned toolkit"
        if toolkit.real_path != toolkit.path:
            remedy = f"name {toolkit.real_path}: builds compare the text of that path"
        raise HostError(f"{toolkit.path} {what}", where=host, remedy=remedy)


def _objection(toolkit: Toolkit, cuda: str) -> str:
    if toolkit.real_path != toolkit.path:
        return f"leads over a symbolic link to {toolkit.real_path}"
    if toolkit.nvcc is None:
        return "has no nvcc that starts"
    if minor(toolkit.nvcc) != cuda:
        return f"is CUDA {toolkit.nvcc}; the stack is built with CUDA {cuda}"
    return ""


def lacks(toolkit: Toolkit, cuda: str) -> str:
    """What a person should know who builds with a toolkit that is not whole; "" for a whole one.

    Not every build takes all of it, so it may do.
    """
    if not toolkit.missing:
        return ""
    rest = (
        f"install CUDA {cuda} whole, or take the pinned toolkit, where something does not compile"
    )
    return f"{toolkit.path} lacks {', '.join(toolkit.missing)}; {rest}"
