"""The scripts of a build, run for real: bash, our programs, small wheels made here, and uv."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from firstlight.build.lock import LockFile
from firstlight.build.scripts import ASSEMBLE, FETCH, REPACK, UV_ENV
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.schema import load

PROJECT = Path(__file__).parents[2]
PROGRAMS = PROJECT / "firstlight" / "remote"
PATCH = """\
Say two.

--- a/tiny/__init__.py
+++ b/tiny/__init__.py
@@ -1 +1 @@
-VALUE = 1
+VALUE = 2
"""


def bash(script: Script) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-s"], input=script.source(), capture_output=True, text=True
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_wheel(folder: Path, name: str, value: int, more: str = "") -> Path:
    """A wheel of one module that holds a value, and does more."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": f"VALUE = {value}\n{more}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},{recorded(text)},{len(text)}\n" for path, text in files.items()]
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    if wheel.exists():
        return wheel
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return wheel


def recorded(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root whose name holds what shells trip over."""
    made = tmp_path / "it's a $root"
    made.mkdir()
    return made


def repack(root: Path, home: Path, patch: str = PATCH) -> subprocess.CompletedProcess[str]:
    wheel = make_wheel(root / "wheels" / "x", "tiny", 1)
    (root / "0001-two.patch").write_text(patch)
    program = str(PROGRAMS / "repack_wheel.py")
    flags = ("--required", str(root / "0001-two.patch"))
    return bash(Script(REPACK, (str(home), sys.executable, program, str(wheel), "ours", *flags)))


def test_a_patched_wheel_is_put_into_the_store_with_its_receipt(root: Path) -> None:
    home = root / "store" / "tiny-1.0-abc"
    done = repack(root, home)
    assert done.returncode == 0, done.stderr
    made = json.loads((home / "receipt.json").read_text())
    assert (made["name"], made["version"]) == ("tiny", "1.0+ours")
    assert sha256(home / made["file"]) == made["sha256"]
    assert not home.with_name(f"{home.name}.partial").exists()


def test_what_is_in_the_store_is_left_alone(root: Path) -> None:
    home = root / "store" / "tiny-1.0-abc"
    home.mkdir(parents=True)
    assert repack(root, home).returncode == 0
    assert list(home.iterdir()) == []


def test_a_required_patch_that_does_not_fit_leaves_nothing_in_the_store(root: Path) -> None:
    home = root / "store" / "tiny-1.0-abc"
    done = repack(root, home, PATCH.replace("-VALUE = 1", "-VALUE = 7"))
    assert done.returncode == 1
    assert "0001-two.patch does not apply" in done.stderr
    assert not home.exists()
    assert repack(root, home).returncode == 0
    assert home.exists()


def test_a_full_disk_is_told_before_anything_is_downloaded(root: Path) -> None:
    place = root / "not there yet"
    done = bash(Script(FETCH, (str(place), "999999999", "false", "x", "y")))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no space: {place} has ")
    assert done.stderr.endswith(
        " this step needs 999999999 MiB\n"
        "fix: make room, or give the host another root in the inventory\n"
    )
    assert not place.exists()


@pytest.fixture(scope="session")
def uv_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv's wheel as the project's lock has it, brought by the program that brings all wheels."""
    path = PROJECT / "recipes" / "locks" / "sglang-cpu.lock.yaml"
    uv = load(path.read_text(), str(path), LockFile).value.tools[0]
    folder = tmp_path_factory.mktemp("uv")
    request = {"python": "3.11", "wheels": [request_of(uv)]}
    (folder / "request.json").write_text(json.dumps(request))
    program = [sys.executable, str(PROGRAMS / "fetch_wheels.py"), str(folder / "request.json")]
    done = subprocess.run([*program, str(folder)], capture_output=True, text=True)
    if done.returncode == 75:
        pytest.skip("there is no way out to a package index, and this test needs uv")
    assert done.returncode == 0, done.stderr
    return folder / uv.sha256 / uv.file


def request_of(wheel: Wheel) -> dict[str, str | int | None]:
    keys = ("name", "version", "file", "sha256", "size", "index")
    return {key: getattr(wheel, key) for key in keys}


def assemble(
    root: Path, uv_wheel: Path, home: Path, *, need: int = 1, spoil: str = "", imports: str = ""
) -> subprocess.CompletedProcess[str]:
    """Assemble a release of one plain wheel and one patched one."""
    made = root / "store" / "tiny-1.0-abc"
    assert repack(root, made).returncode == 0
    plain = make_wheel(root / "wheels" / "y", "plain", 5)
    digest = spoil or sha256(plain)
    (root / "listed.txt").write_text(f"plain @ {plain.as_uri()} --hash=sha256:{digest}\n")
    (root / "told.json").write_text('{"schema": 1}\n')
    (root / "describe.py").write_text("import sys, tiny; print(sys.argv[1], tiny.VALUE)\n")
    args = [root, home, need, sys.executable, uv_wheel, root / "listed.txt", root / "told.json"]
    args += [root / "describe.py", "the-engine", made]
    env = {"UV_CACHE_DIR": str(root / "cache" / "uv"), **UV_ENV, "IMPORTS": imports}
    return bash(Script(ASSEMBLE, tuple(map(str, args)), env))


@pytest.mark.slow
def test_a_release_is_complete_where_it_stands(root: Path, uv_wheel: Path) -> None:
    home = root / "releases" / "r1"
    # A server that started while its release was removed left its caches there.
    (home / "cache/triton").mkdir(parents=True)
    done = assemble(root, uv_wheel, home)
    assert done.returncode == 0, done.stderr
    assert not list(home.glob("cache/*"))
    assert done.stdout.splitlines()[-1] == "release r1 is in place"
    left = sorted(path.name for path in home.iterdir())
    assert left == [
        "cache", "capabilities.json", "manifest.json", "receipts", "requirements.txt", "venv",
    ]  # fmt: skip
    assert (home / "capabilities.json").read_text() == "the-engine 2\n"
    assert (home / "manifest.json").read_text() == '{"schema": 1}\n'
    code = "import tiny, plain; print(tiny.VALUE, plain.VALUE)"
    python = str(home / "venv" / "bin" / "python")
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "2 5\n"
    assert not home.with_name("r1.partial").exists()


KERNEL_LACKS = """\
import ctypes
ctypes.CDLL("libcublas.so.13")
"""
LACKS = {
    "library": (KERNEL_LACKS, "OSError: libcublas.so.13: cannot open shared object file: No such"),
    "module": ("import tvm_ffi\n", "ModuleNotFoundError: No module named 'tvm_ffi'"),
    "crash": ("import os; os.abort()\n", "nothing was said (exit status 134)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lack", LACKS)
def test_a_release_that_cannot_import_what_was_built_is_not_made(
    root: Path, uv_wheel: Path, lack: str
) -> None:
    """The error names the module, and the library or the module that it lacks there."""
    home, (text, told) = root / "releases" / "r1", LACKS[lack]
    make_wheel(root / "wheels" / "y", "plain", 5, text)
    done = assemble(root, uv_wheel, home, imports="tiny plain tiny.never")
    assert done.returncode == 1
    error, fix = done.stderr.splitlines()[-2:]
    assert error.startswith(f"error: the release cannot import plain: {told}"), done
    assert fix == (
        "fix: add what it lacks to requirements or requires_of of the stack, then lock and build"
    )
    # The one before it was imported, the one after it is not tried any more.
    assert "importing tiny, which was built" in done.stdout and "tiny.never" not in done.stdout
    assert not home.exists() and not list((root / "releases").iterdir())
    (root / "wheels/y/plain-1.0-py3-none-any.whl").unlink()
    assert assemble(root, uv_wheel, home, imports="tiny plain").returncode == 0


@pytest.mark.slow
def test_a_second_release_shares_its_files_with_the_first(root: Path, uv_wheel: Path) -> None:
    for name in ("r1", "r2"):
        assert assemble(root, uv_wheel, root / "releases" / name).returncode == 0
    first, second = (
        next((root / "releases" / name).glob("venv/lib/*/site-packages/plain/__init__.py"))
        for name in ("r1", "r2")
    )
    assert first.samefile(second)


@pytest.mark.slow
def test_a_wheel_that_is_not_what_was_locked_stops_the_release(root: Path, uv_wheel: Path) -> None:
    home = root / "releases" / "r1"
    done = assemble(root, uv_wheel, home, spoil="0" * 64)
    assert done.returncode != 0
    assert "Hash mismatch" in done.stderr
    assert not home.exists()
    assert assemble(root, uv_wheel, home).returncode == 0


@pytest.mark.slow
def test_a_full_disk_is_told_before_anything_is_assembled(root: Path, uv_wheel: Path) -> None:
    home = root / "releases" / "r1"
    done = assemble(root, uv_wheel, home, need=999999999)
    assert done.returncode == 1
    assert "no space: " in done.stderr
    assert not (root / "releases").exists()
