"""assemble_toolkit.py: small wheels for its layout and refusals, NVIDIA's own for a build."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from fatbin import entries

from firstlight.build.toolkit import assemble_args
from tests.remote.programs import PROGRAMS, Ended, run, sha256
from tests.remote.toolkit_wheels import PINS, nvcc, real_wheels, small_toolkit, toolkit_wheel

FETCH_AGAIN = "and fetch it again\n"


def words(out: Path, wheels: list[Path], version: str = "13.0") -> list[object]:
    return ["--out", out, "--version", version, *(w for one in wheels for w in ("--wheel", one))]


def assemble(out: Path, wheels: list[Path], *more: str) -> Ended:
    env = {"PATH": os.environ["PATH"]}
    return run("assemble_toolkit.py", *words(out, wheels), *more, env=env)


def refused(tmp: Path, wheels: list[Path], *more: str) -> str:
    """The message of a refusal that left nothing behind."""
    out = tmp / "out"
    ended = assemble(out, wheels, *more)
    assert ended.code == 1
    assert not out.exists()
    assert not out.with_name("out.partial").exists()
    return ended.err


def symbols(library: Path) -> set[str]:
    words = ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(library)]
    return set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


def dynamic(library: Path, tag: str) -> list[str]:
    words = ["readelf", "--dynamic", "--wide", str(library)]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [line.partition("[")[2].rstrip("]") for line in told.splitlines() if f"({tag})" in line]


def test_the_layout_that_builds_expect(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = assemble(out, small_toolkit(tmp_path / "w"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(f"{out}/cuda is in place\n")
    cuda = out / "cuda"
    assert os.access(cuda / "bin/nvcc", os.X_OK)
    assert os.access(cuda / "nvvm/bin/cicc", os.X_OK)
    assert not os.access(cuda / "include/cuda.h", os.X_OK)
    links = {path.name: str(path.readlink()) for path in cuda.glob("lib/*") if path.is_symlink()}
    assert links == {
        "libcudart.so": "libcudart.so.13",
        "libcublas.so": "libcublas.so.13",
        "libcublasLt.so": "libcublasLt.so.13",
        "libnvrtc-builtins.so": "libnvrtc-builtins.so.13.0",
        "libnvvm.so": "libnvvm.so.4",
    }
    assert (cuda / "lib64").readlink() == Path("lib")
    assert not (cuda / ".metadata").exists()


def test_the_stub_holds_what_compiled_code_may_ask_for(tmp_path: Path) -> None:
    assert assemble(tmp_path / "out", small_toolkit(tmp_path / "w")).code == 0
    stubs = tmp_path / "out/cuda/lib64/stubs"
    assert [path.name for path in stubs.iterdir()] == ["libcuda.so"]
    assert dynamic(stubs / "libcuda.so", "SONAME") == ["libcuda.so.1"]
    assert dynamic(stubs / "libcuda.so", "NEEDED") == []
    assert symbols(stubs / "libcuda.so") == {
        *("cuInit", "cuCtxAttach", "cuMemAlloc_v2"),
        *("cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds", "cuLaunchKernel", "cuLaunchKernel_ptsz"),
    }


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    wheels = small_toolkit(tmp_path / "w")
    assert assemble(tmp_path / "out", wheels).code == 0
    version = json.loads((tmp_path / "out/cuda/version.json").read_text())
    assert version["cuda"]["version"] == "13.0"
    assert version["cuda_nvcc"]["version"] == "13.0.88"
    receipt = json.loads((tmp_path / "out/receipt.json").read_text())
    assert (receipt["name"], receipt["version"], receipt["nvcc"]) == (
        *("cuda-toolkit", "13.0"),
        "13.0.88",
    )
    told = {wheel["file"]: (wheel["sha256"], wheel["size"]) for wheel in receipt["wheels"]}
    assert told == {path.name: (sha256(path), path.stat().st_size) for path in wheels}


def test_a_toolkit_that_is_there_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert assemble(out, small_toolkit(tmp_path / "w")).code == 0
    before = (out / "receipt.json").stat().st_mtime_ns
    ended = assemble(out, [])
    assert (ended.code, ended.out) == (0, f"{out} is there already\n")
    assert (out / "receipt.json").stat().st_mtime_ns == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes").write_text("mine")
    ended = assemble(tmp_path / "out", small_toolkit(tmp_path / "w"))
    assert ended.code == 1
    assert "is there and is no toolkit of ours" in ended.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes"]


def test_nvcc_with_the_parts_of_another_release(tmp_path: Path) -> None:
    message = refused(tmp_path, small_toolkit(tmp_path / "w", crt="13.3.33", nvvm="13.3.33"))
    assert message == (
        "error: mixed toolkit: nvidia-cuda-nvcc 13.0.88"
        " with nvidia-cuda-crt 13.3.33 and nvidia-nvvm 13.3.33\n"
        "fix: take every wheel from one release of CUDA 13.0\n"
    )


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"nvvm": "13.0.48"}, "nvidia-cuda-nvcc 13.0.88 with nvidia-nvvm 13.0.48"),
        ({"nvtx": "13.3.29"}, "mixed toolkit: nvidia-nvtx 13.3.29 in CUDA 13.0"),
        ({"nvvm": ""}, "a compiler needs nvidia-nvvm as well"),
        ({"version": "13.3.33"}, "nvidia-cuda-nvcc 13.3.33, nvidia-cuda-runtime 13.3.33, nvid"),
    ],
)
def test_wheels_of_different_releases(tmp_path: Path, others: dict[str, str], told: str) -> None:
    assert told in refused(tmp_path, small_toolkit(tmp_path / "w", **others))


def test_one_package_twice(tmp_path: Path) -> None:
    wheels = small_toolkit(tmp_path / "w")
    wheels.append(toolkit_wheel(tmp_path / "w", "nvidia-cublas", "13.4.0.1", {"lib/x": "x"}))
    message = refused(tmp_path, wheels)
    assert "one wheel is there twice: nvidia-cublas 13.1.1.3, nvidia-cublas 13.4.0.1" in message


def test_one_file_from_two_wheels(tmp_path: Path) -> None:
    files = {"include/cuda.h": "other\n"}
    wheels = small_toolkit(tmp_path / "w")
    wheels.append(toolkit_wheel(tmp_path / "w", "nvidia-cuda-more", "13.0.1", files))
    message = refused(tmp_path, wheels)
    assert "nvidia-cuda-more 13.0.1 and nvidia-cuda-runtime 13.0.88 both hold " in message
    assert "include/cuda.h" in message


@pytest.mark.parametrize(
    "place", ["/nvidia/cublas/lib/libcublas.so.12", "/../escape", "../../../escape"]
)
def test_a_file_without_a_place(tmp_path: Path, place: str) -> None:
    wheels = small_toolkit(tmp_path / "w")
    wheels.append(toolkit_wheel(tmp_path / "w", "nvidia-cuda-more", "13.0.1", {place: "x"}))
    message = refused(tmp_path, wheels)
    assert "which has no place in CUDA 13\n" in message
    assert list(tmp_path.parent.glob("**/escape")) == []


def test_wheels_for_another_machine(tmp_path: Path) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    tag = f"manylinux2014_{other}.manylinux_2_17_{other}"
    more = toolkit_wheel(tmp_path / "w", "nvidia-cufft", "12.0.0.61", {"lib/x": "x"}, tag)
    message = refused(tmp_path, [*small_toolkit(tmp_path / "w"), more])
    assert f"{more.name} is not for {platform.machine()}\n" in message


def test_a_path_over_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ended = assemble(tmp_path / "link/out", small_toolkit(tmp_path / "w"))
    assert ended.code == 1
    assert ended.err == (
        f"error: {tmp_path}/link/out leads over a symbolic link\n"
        f"fix: give the real path: {tmp_path}/real/out\n"
    )
    assert list((tmp_path / "real").iterdir()) == []


def test_a_wheel_that_is_cut_off(tmp_path: Path) -> None:
    *wheels, torn = small_toolkit(tmp_path / "w")
    torn.write_bytes(torn.read_bytes()[:-40])
    message = refused(tmp_path, [*wheels, torn])
    assert f"error: {torn.name} is no whole wheel: " in message
    assert message.endswith(f"fix: remove {torn} {FETCH_AGAIN}")


def test_a_wheel_that_is_damaged(tmp_path: Path) -> None:
    *wheels, torn = small_toolkit(tmp_path / "w")
    data = torn.read_bytes()
    place = data.index(b"libcublas.so.13") + len("libcublas.so.13")
    torn.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
    assert f"error: {torn.name} is no whole wheel: " in refused(tmp_path, [*wheels, torn])


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    gone = tmp_path / "nvidia_cufft-12.0.0.61-py3-none-any.whl"
    message = refused(tmp_path, [*small_toolkit(tmp_path / "w"), gone])
    assert f"error: {gone} is no wheel of a CUDA toolkit\n" in message


def test_more_than_fits_on_the_disk(tmp_path: Path) -> None:
    large = tmp_path / "nvidia_cufft-12.0.0.61-py3-none-any.whl"
    with zipfile.ZipFile(large, "w") as archive:
        archive.writestr("nvidia/cu13/lib/libcufft.so.12", "x")
        archive.infolist()[0].file_size = 1 << 50
    message = refused(tmp_path, [*small_toolkit(tmp_path / "w"), large])
    assert message.startswith(f"error: no space: {tmp_path}/out.partial has ")
    assert " MiB free, this toolkit needs 1073741888 MiB\nfix: make room, or give " in message


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        (nvcc("13.3.33"), "  Cuda compilation tools, release 13.3, V13.3.33\n"),
        ("#!/nowhere/sh\n", "No such file or directory"),
        ("\x7fELF of another machine", "Exec format error"),
    ],
)
def test_an_nvcc_that_is_not_what_its_wheel_says(tmp_path: Path, program: str, shown: str) -> None:
    wheels = small_toolkit(tmp_path / "w")
    toolkit_wheel(tmp_path / "w", "nvidia-cuda-nvcc", "13.0.88", {"bin/nvcc": program})
    message = refused(tmp_path, wheels)
    assert "error: nvcc does not say that it is 13.0.88\n" in message
    assert shown in message


def test_what_a_build_needs_is_missing(tmp_path: Path) -> None:
    needs = ("--need", "lib64/libcublasLt.so", "--need", "include/cublasLt.h")
    message = refused(tmp_path, small_toolkit(tmp_path / "w"), *needs)
    assert "error: these wheels make no whole toolkit: no include/cublasLt.h\n" in message


def test_a_host_without_a_compiler(tmp_path: Path) -> None:
    argv = words(tmp_path / "out", small_toolkit(tmp_path / "w"))
    ended = run("assemble_toolkit.py", *argv, env={"PATH": str(tmp_path)})
    assert ended.code == 1
    assert "error: this host has no C compiler\nfix: install one; nvcc needs it too" in ended.err
    assert not (tmp_path / "out").exists()


def test_ended_from_outside_it_leaves_nothing(tmp_path: Path) -> None:
    wheels = small_toolkit(tmp_path / "w")
    slow = {"bin/nvcc": nvcc("13.0.88", f"echo here >{tmp_path}/started\nexec /bin/sleep 60")}
    slow |= {f"include/{number}.h": "" for number in range(500)}
    toolkit_wheel(tmp_path / "w", "nvidia-cuda-nvcc", "13.0.88", slow)
    argv = [sys.executable, PROGRAMS / "assemble_toolkit.py", *words(tmp_path / "out", wheels)]
    with subprocess.Popen([str(word) for word in argv]) as program:
        until = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < until:
            time.sleep(0.02)
        # A job that is cancelled is asked more than once, also while it clears up.
        while program.poll() is None:
            program.send_signal(signal.SIGTERM)
        assert program.returncode == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["started", "w"]


# -- NVIDIA's own wheels -----------------------------------------------------------------------

KERNEL = """\
#include <cuda/std/array>
#include <cuda_fp4.h>
#include <cuda_runtime.h>
__global__ void pack(const float2* in, __nv_fp4x2_storage_t* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __nv_cvt_float2_to_fp4x2(in[i], __NV_E2M1, cudaRoundNearest);
}
extern "C" int run(const float2* in, __nv_fp4x2_storage_t* out, int n) {
  pack<<<n / 256 + 1, 256>>>(in, out, n);
  return cudaDeviceSynchronize();
}
"""
CALLS = """\
#include <cublasLt.h>
#include <cuda.h>
#include <curand_kernel.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <nvml.h>
extern "C" int ask() {
  cublasLtHandle_t handle;
  CUdeviceptr memory;
  CUresult (*encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
    const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = cuTensorMapEncodeTiled;
  return int(cublasLtCreate(&handle)) + int(cuMemAlloc(&memory, 1)) + int(nvmlInit()) + !encode;
}
"""


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """CUDA 13.0 from PyPI, with all that a build asks for."""
    wheels = real_wheels(tmp_path_factory.mktemp("wheels"))
    out = tmp_path_factory.mktemp("toolkit").resolve() / "out"
    places = [PurePosixPath(wheel) for wheel in wheels]
    argv = assemble_args(PurePosixPath(out), "13.0", places)
    ended = run("assemble_toolkit.py", *argv)
    assert (ended.code, ended.err) == (0, "")
    receipt = json.loads((out / "receipt.json").read_text())
    assert [wheel["name"] for wheel in receipt["wheels"] if wheel["sha256"] not in PINS] == []
    yield out / "cuda"
    shutil.rmtree(out)  # 2 GB


def compile_library(cuda: Path, folder: Path, code: str, *libraries: str) -> Path:
    """A shared object, made as torch's builds make one, with this toolkit and no other.

    nvcc compiles and g++ links. Where nvcc links it leaves the toolkit's path in the library.
    """
    folder.mkdir(exist_ok=True)
    (folder / "code.cu").write_text(code)
    compiling = [str(cuda / "bin/nvcc"), "-std=c++20", "-O3", "-c", "code.cu"]
    compiling += ["-gencode=arch=compute_120a,code=sm_120a", "-Xcompiler=-fPIC", "-o", "code.o"]
    linking = ["g++", "-shared", "-Wl,-s,--no-undefined", "-o", "made.so", "code.o"]
    linking += [f"-L{cuda}/lib64", f"-L{cuda}/lib64/stubs", "-lcudart", *libraries]
    for argv in (compiling, linking):
        argv = ["env", "-i", "PATH=/usr/bin:/bin", *argv]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    return folder / "made.so"


def targets(library: Path) -> set[str]:
    """What device code there is, by the headers that nvcc wrote."""
    raw = library.with_suffix(".fatbin")
    words = ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", str(library), str(raw)]
    subprocess.run(words, check=True)
    data = raw.read_bytes()
    return {entry.target for entry in entries(data, 0, len(data))}


@pytest.mark.slow
def test_a_real_toolkit_links_the_driver_and_the_libraries(cuda: Path, tmp_path: Path) -> None:
    made = compile_library(cuda, tmp_path, CALLS, "-lcublasLt", "-lcuda", "-lnvidia-ml")
    needed = dynamic(made, "NEEDED")
    assert {"libcublasLt.so.13", "libcuda.so.1", "libnvidia-ml.so.1"} <= set(needed)


@pytest.mark.slow
def test_a_real_toolkit_makes_the_bytes_of_an_installed_one(cuda: Path, tmp_path: Path) -> None:
    made = compile_library(cuda, tmp_path / "build", KERNEL)
    assert "libcudart.so.13" in dynamic(made, "NEEDED")
    assert targets(made) == {"sm_120a"}
    installed = Path("/usr/local/cuda-13.0")
    if not (installed / "bin/nvcc").exists():
        pytest.skip(f"no {installed} to compare with")
    ours = sha256(made)
    assert sha256(compile_library(installed, tmp_path / "build", KERNEL)) == ours
