"""The build of a small CUDA package: a PEP 517 backend as many have one, with nvcc and ninja.

Its targets are hard-coded, as they are in many CMake files. KERNEL_FAULT plants what a test wants
to see go wrong; without it the wheel is a good one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
FAULT = os.environ.get("KERNEL_FAULT", "")
TARGETS = ("80", "90a", "120a")
TAG = "py3-none-linux_x86_64"

NINJA = """\
rule nvcc
  command = {nvcc} -c $in -o $out -O2 -std=c++17 -Xcompiler=-fPIC {gencodes}
rule link
  command = g++ -shared {ldflags} -o $out $in {libraries} '-Wl,-rpath,$$ORIGIN/../nvidia/cu13/lib'
rule hog
  command = {python} -c '{hog}' && touch $out
build twice.o: nvcc {here}/csrc/twice.cu
build add.o: nvcc {here}/csrc/add.cu
build libkernels.so: link twice.o add.o
"""
# Each holds so much memory that two at once are too much.
HOG = 'import time; held = bytearray(b"x") * (200 << 20); time.sleep(2)'
HOGS = """\
build hog1: hog
build hog2: hog
"""


def get_requires_for_build_wheel(_settings: object = None) -> list[str]:
    return []


def build_wheel(folder: str, _settings: object = None, _metadata: object = None) -> str:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    prepare()
    build = HERE / "build"
    # It is there already when memory ran out the first time.
    build.mkdir(exist_ok=True)
    (build / "build.ninja").write_text(rules(build))
    jobs = os.environ["MAX_JOBS"]
    done = subprocess.run(["ninja", "-C", str(build), "-j", jobs], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return pack(Path(folder), project["name"].replace("-", "_"), project["version"], build)


def prepare() -> None:
    """What goes wrong before anything is compiled."""
    gate = Path(os.environ.get("KERNEL_GATE", HERE / "no gate"))
    if FAULT == "grandchild":
        # A session of its own, and no signal but SIGKILL ends it.
        words = "trap '' TERM HUP INT; while :; do sleep 1; done"
        subprocess.Popen(["setsid", "bash", "-c", words, os.environ["KERNEL_MARK"]])
    if gate.exists():
        print(f"waiting for {gate}", flush=True)
        while gate.exists():
            time.sleep(0.1)
    if FAULT == "download":
        urllib.request.urlopen(os.environ["KERNEL_URL"], timeout=5).read()
    if FAULT == "fill":
        with (HERE / "large").open("wb") as large:
            while True:
                large.write(bytes(16 << 20))


def rules(build: Path) -> str:
    """What ninja is to do."""
    targets = ("90a",) if FAULT == "arch" else TARGETS
    gencodes = [f"-gencode arch=compute_{one},code=sm_{one}" for one in targets]
    gencodes += ["-gencode arch=compute_120a,code=compute_120a"] if FAULT == "ptx" else []
    gencodes += ["-DNOWHERE"] if FAULT == "symbol" else []
    # A name that is gone once the library is stripped.
    gencodes += [f"-DBUILT_AT=built_at_{int(time.time())}"] if FAULT == "stamp" else []
    libraries = f"-L{os.environ['CUDA_HOME']}/lib64 -lcudart"
    if FAULT == "cudart12":
        libraries += f" -Wl,--no-as-needed {other_runtime(build)}"
    text = NINJA.format(
        nvcc=os.environ["KERNEL_NVCC"],
        gencodes=" ".join(gencodes),
        ldflags=os.environ.get("LDFLAGS", ""),
        libraries=libraries,
        python=sys.executable,
        hog=HOG,
        here=HERE,
    )
    return text + (HOGS if FAULT == "hog" else "")


def other_runtime(build: Path) -> Path:
    """What stands for the runtime of CUDA 12."""
    made = build / "libcudart.so.12"
    words = ["g++", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{made.name}", "-o", str(made)]
    subprocess.run(words, check=True)
    return made


def pack(folder: Path, name: str, version: str, build: Path) -> str:
    """The wheel: its members sorted, each with the time of the source."""
    info = f"{name}-{version}.dist-info"
    needs = "Requires-Dist: nvidia-cuda-runtime\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    built = int(time.time()) if FAULT == "stamp" else os.environ["SOURCE_DATE_EPOCH"]
    files = {
        f"{name}/built.py": f"BUILT = {built}\n".encode(),
        f"{name}/__init__.py": (HERE / "package/__init__.py").read_bytes(),
        f"{name}/libkernels.so": (build / "libkernels.so").read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
    }
    rows = [f"{path},sha256={encoded(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    wheel = folder / f"{name}-{version}-{TAG}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(moment)[:6])
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel.name


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
