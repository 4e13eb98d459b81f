"""The wheels of CUDA 13.0, with the hashes that PyPI gives; and small wheels of the same shape."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from firstlight.build.toolkit import PARTS
from tests.hosts.base import CACHE

# Name, version, sha256 for x86_64, sha256 for aarch64.
PINS = """\
nvidia-cublas 13.1.1.3 37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436 \
b7a210458267ac818974c53038fbec2e969d5c99f305ab15c72522fa9f001dd5
nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 \
6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c
nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 \
ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003
nvidia-cuda-nvcc 13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 \
c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f
nvidia-cuda-nvrtc 13.0.88 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575 \
d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b
nvidia-cuda-profiler-api 13.0.85 73d2671deac833db6686d6fbde4753fa3a3a497d87540fc246f081f375243f66 \
b307d61f574ab60666d0b2cb204738338dbd0e05a9fa609eaab198222f0a13c2
nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 \
ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
nvidia-cufft 12.0.0.61 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3 \
2708c852ef8cd89d1d2068bdbece0aa188813a0c934db3779b9b1faa8442e5f5
nvidia-cufile 1.15.1.6 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44 \
bdc0deedc61f548bddf7733bdc216456c2fdb101d020e1ab4b88d232d5e2f6d1
nvidia-curand 10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc \
133df5a7509c3e292aaa2b477afd0194f06ce4ea24d714d616ff36439cee349a
nvidia-cusolver 12.0.4.66 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112 \
02c2457eaa9e39de20f880f4bd8820e6a1cfb9f9a34f820eb12a155aa5bc92d2
nvidia-cusparse 12.6.3.3 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b \
80bcc4662f23f1054ee334a15c72b8940402975e0eab63178fc7e670aa59472c
nvidia-nvjitlink 13.0.88 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b \
e931536ccc7d467a98ba1d8b89ff7fa7f1fa3b13f2b0069118cd7f47bff07d0c
nvidia-nvml-dev 13.0.87 082871368275cf6620fc900f55d8eaf2563b263a38a00a5168e9650bce963ba1 \
f7aaa33d888da151c5902b39efdca16bc8a5535652075c2a02cd948a7a7100be
nvidia-nvtx 13.0.85 4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4 \
cb7780edb6b14107373c835bf8b72e7a178bac7367e23da7acb108f973f157a6
nvidia-nvvm 13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0 \
c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1
"""


def pins() -> dict[str, str]:
    """Version by name."""
    rows = [line.split() for line in PINS.splitlines()]
    assert sorted(row[0] for row in rows) == sorted(name for name, _ in PARTS.values())
    return {name: version for name, version, *_ in rows}


def real_wheels(fallback: Path) -> list[Path]:
    """Download them once, each by its hash; `fallback` serves where the cache may not be written.

    The folder is named after the pins, so that none of another release lies among them.
    """
    lines = [
        f"{name}=={version} {' '.join(f'--hash=sha256:{digest}' for digest in digests)}\n"
        for name, version, *digests in (line.split() for line in PINS.splitlines())
    ]
    folder = CACHE / f"toolkit-{hashlib.sha256(PINS.encode()).hexdigest()[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = fallback
    if len(found := sorted(folder.glob("*.whl"))) == len(lines):
        return found
    (folder / "requirements.txt").write_text("".join(lines))
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    words += ["--no-cache-dir", "--only-binary=:all:", "--dest", str(folder)]
    words += ["--requirement", str(folder / "requirements.txt")]
    subprocess.run(words, check=True)
    return sorted(folder.glob("*.whl"))


def toolkit_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], tag: str = ""
) -> Path:
    """A small wheel with these files below nvidia/cu13; what is in a bin may be run."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    tag = tag or f"manylinux_2_17_{platform.machine()}"
    wheel = folder / f"{stem}-py3-none-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, text in files.items():
            path = place.removeprefix("/") if place.startswith("/") else f"nvidia/cu13/{place}"
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o744 if "bin/" in place else 0o664) << 16
            archive.writestr(entry, text)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
    return wheel


def nvcc(version: str, more: str = "") -> str:
    """A program that says of itself what nvcc does."""
    minor = ".".join(version.split(".")[:2])
    return f"#!/bin/sh\n{more}\necho 'Cuda compilation tools, release {minor}, V{version}'\n"


CUDA_H = """\
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpy2D __CUDA_API_PTDS(cuMemcpy2D_v2)
#define cuLaunchKernel __CUDA_API_PTSZ(cuLaunchKernel)
/* CUresult CUDAAPI cuOnlyInAComment(int); */
typedef enum { CUDA_SUCCESS = 0 } CUresult;
CUresult CUDAAPI cuInit(unsigned int Flags);
__CUDA_DEPRECATED CUresult CUDAAPI cuCtxAttach(CUcontext *pctx);
"""


def small_toolkit(folder: Path, version: str = "13.0.88", **others: str) -> list[Path]:
    """Wheels that make a toolkit; `others` are versions of crt, nvvm, nvtx; "" leaves one out."""
    parts = {
        "nvcc": ("nvidia-cuda-nvcc", {"bin/nvcc": nvcc(version), "bin/nvcc.profile": "TOP\n"}),
        "crt": ("nvidia-cuda-crt", {"include/crt/host_config.h": "h\n"}),
        "nvvm": ("nvidia-nvvm", {"nvvm/bin/cicc": "c\n", "lib/libnvvm.so.4": "v\n"}),
        "runtime": ("nvidia-cuda-runtime", {"include/cuda.h": CUDA_H, "lib/libcudart.so.13": "r"}),
        "nvtx": ("nvidia-nvtx", {"include/nvtx3/nvToolsExt.h": "n\n", ".metadata/x": "x\n"}),
    }
    versions = {part: others.get(part, version) for part in parts}
    wheels = [
        toolkit_wheel(folder, name, versions[p], f) for p, (name, f) in parts.items() if versions[p]
    ]
    files = {f"lib/{name}": "x" for name in ("libcublas.so.13", "libcublasLt.so.13")}
    more = {"lib/libnvrtc-builtins.so.13.0": "b", "lib/libcheckpoint.so": "c"}
    return [*wheels, toolkit_wheel(folder, "nvidia-cublas", "13.1.1.3", {**files, **more})]
