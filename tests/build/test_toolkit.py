"""What makes a CUDA toolkit, which one of a host's own serves, and what a build is told of it."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from firstlight.build.toolkit import (
    COMPILER,
    NEEDED,
    PARTS,
    Toolkit,
    host_toolkit,
    lacks,
    pin_faults,
    probe,
    read_probe,
    require_toolkit,
    requirements,
)
from firstlight.core.errors import HostError
from firstlight.hosts.tools import Cuda
from tests.remote.toolkit_wheels import nvcc, pins


def cuda(path: str, version: str | None, real: str = "") -> Cuda:
    return Cuda(PurePosixPath(path), PurePosixPath(real or path), version)


def toolkit(folder: Path, version: str = "13.0.88") -> Path:
    for need in NEEDED:
        (folder / need).parent.mkdir(parents=True, exist_ok=True)
        (folder / need).touch()
    (folder / "bin/nvcc").write_text(nvcc(version, "echo 'nvcc: NVIDIA (R) Cuda compiler driver'"))
    (folder / "bin/nvcc").chmod(0o755)
    return folder


def ask(folder: Path) -> Toolkit:
    script = probe(PurePosixPath(folder))
    words = ["bash", "-c", script.text, "probe", *script.args]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stderr == ""
    return read_probe(PurePosixPath(folder), done.stdout)


def objection(told: Toolkit) -> str:
    with pytest.raises(HostError) as caught:
        require_toolkit(told, "13.0", "gpu01")
    return str(caught.value)


def test_what_is_resolved_is_of_one_release() -> None:
    first, second = requirements("13.0")
    assert first.startswith("cuda-toolkit[nvcc,crt,nvvm,cccl,cudart,")
    assert first.endswith("]==13.0.*")
    assert second == "nvidia-nvjitlink==13.0.*"


def test_the_pins_of_cuda_13_0_make_a_toolkit() -> None:
    assert list(pin_faults(pins(), "13.0")) == []


def test_pins_that_make_no_toolkit() -> None:
    mixed = {**pins(), "nvidia-cuda-crt": "13.3.33", "nvidia-nvvm": "13.3.33"}
    assert list(pin_faults(mixed, "13.0")) == [
        "mixed toolkit: nvidia-cuda-nvcc 13.0.88"
        " with nvidia-cuda-crt 13.3.33 and nvidia-nvvm 13.3.33",
        "nvidia-cuda-crt 13.3.33 is not of CUDA 13.0",
        "nvidia-nvvm 13.3.33 is not of CUDA 13.0",
    ]
    without = {name: version for name, version in pins().items() if name != "nvidia-cublas"}
    (told,) = pin_faults(without, "13.0")
    assert told.startswith("nvidia-cublas is missing: torch's headers; cublasLt.h")


@pytest.mark.parametrize("name", COMPILER)
def test_a_compiler_of_two_builds_of_one_release_is_mixed(name: str) -> None:
    (told,) = pin_faults({**pins(), name: "13.0.48"}, "13.0")
    assert told.startswith("mixed toolkit: nvidia-cuda-nvcc 13.0.")


def test_a_library_that_counts_its_own_releases_is_not_of_another() -> None:
    names = {name for name, _ in PARTS.values()}
    own = {name for name in names if not list(pin_faults({**pins(), name: "99.1"}, "13.0"))}
    assert own == {
        *("nvidia-cublas", "nvidia-cuda-cccl", "nvidia-cufft", "nvidia-cufile"),
        *("nvidia-curand", "nvidia-cusolver", "nvidia-cusparse"),
    }


def test_the_hosts_own_of_that_release_by_its_real_path() -> None:
    there = (
        cuda("/usr/local/cuda", "13.3.33", "/usr/local/cuda-13.3"),
        cuda("/usr/local/cuda-13", "13.0.88", "/usr/local/cuda-13.0"),
    )
    assert host_toolkit(there, "13.0", "gpu01") == PurePosixPath("/usr/local/cuda-13.0")


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ((), "the host has no CUDA toolkit"),
        ((cuda("/usr/local/cuda", "13.3.33"),), "the host has 13.3.33 at /usr/local/cuda"),
        ((cuda("/usr/local/cuda", None),), "the host has no nvcc at /usr/local/cuda"),
        ((cuda("/a", "12.9.86"), cuda("/b", "1.3.0")), "the host has 12.9.86 at /a, 1.3.0 at /b"),
    ],
)
def test_a_host_without_that_release(there: tuple[Cuda, ...], told: str) -> None:
    with pytest.raises(HostError) as caught:
        host_toolkit(there, "13.0", "gpu01")
    assert str(caught.value) == (
        f"gpu01: the stack is built with CUDA 13.0; {told}\n"
        "  -> install CUDA 13.0 there, or take the pinned toolkit, which needs none"
    )


def test_a_whole_toolkit_serves(tmp_path: Path) -> None:
    told = ask(toolkit(tmp_path / "cuda's own"))
    assert told.nvcc == "13.0.88"
    require_toolkit(told, "13.0", "gpu01")
    assert lacks(told, "13.0") == ""


def test_what_is_missing_is_listed(tmp_path: Path) -> None:
    folder = toolkit(tmp_path / "cuda")
    for gone in ("include/cublasLt.h", "lib64/stubs/libcuda.so"):
        (folder / gone).unlink()
    told = ask(folder)
    # A build that takes none of that does with it.
    require_toolkit(told, "13.0", "gpu01")
    assert lacks(told, "13.0") == (
        f"{folder} lacks include/cublasLt.h, lib64/stubs/libcuda.so; install CUDA 13.0 whole, or "
        "take the pinned toolkit, where something does not compile"
    )


def test_a_link_is_no_place_for_a_toolkit(tmp_path: Path) -> None:
    folder = toolkit(tmp_path / "cuda-13.0")
    (tmp_path / "cuda").symlink_to(folder)
    message = objection(ask(tmp_path / "cuda"))
    assert f"{tmp_path}/cuda leads over a symbolic link to {folder}" in message
    assert f"-> name {folder}: builds compare the text of that path" in message


def test_another_release_and_an_nvcc_that_does_not_start(tmp_path: Path) -> None:
    folder = toolkit(tmp_path / "cuda", "13.3.33")
    told = "is CUDA 13.3.33; the stack is built with CUDA 13.0"
    assert told in objection(ask(folder))
    (folder / "bin/nvcc").chmod(0o644)
    assert "has no nvcc that starts" in objection(ask(folder))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    told = ask(tmp_path / "cuda")
    assert told.missing == NEEDED
    assert "has no nvcc that starts" in objection(told)
