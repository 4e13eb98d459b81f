"""compare_wheels.py on wheels that differ in one thing each, with libraries from real compilers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import compare_wheels
import elftools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.twice import Comparison, read_comparison, render_comparison
from tests.remote.programs import Ended, run

INFO = "pkg-1.0.dist-info"
NVCC = shutil.which("nvcc") or "/usr/local/cuda-13.0/bin/nvcc"
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here")
needs_nvcc = pytest.mark.skipif(not Path(NVCC).exists(), reason="nvcc is not here")


def wheel(
    path: Path,
    files: Mapping[str, bytes],
    *,
    time: tuple[int, int, int, int, int, int] = (2026, 1, 2, 3, 4, 6),
    mode: int = 0o100644,
    level: int = 6,
) -> Path:
    """A wheel of these members, in their order, with a RECORD that says their sizes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = "".join(f"{n},sha256={hashlib.sha256(d).hexdigest()}\n" for n, d in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{INFO}/RECORD": record.encode()}.items():
            entry = zipfile.ZipInfo(name, time)
            entry.external_attr = mode << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, level)
    return path


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pyelftools as the zip file that its wheel is."""
    target = tmp_path_factory.mktemp("reader") / "pyelftools.whl"
    source = Path(elftools.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*.py")):
            archive.write(file, file.relative_to(source.parent))
    return target


Compare = Callable[[Path, Path], Comparison]


@pytest.fixture
def compare(reader: Path) -> Compare:
    """What the program says on a Python that has nothing but pyelftools' wheel."""

    def compare(one: Path, two: Path) -> Comparison:
        ended = bare(one, two, env={"PYTHONPATH": str(reader)})
        told = read_comparison(ended.out, "here")
        assert (ended.code, ended.err) == (0 if told.equal else 1, "")
        return told

    return compare


def bare(*words: object, env: Mapping[str, str] | None = None) -> Ended:
    python = getattr(sys, "_base_executable", sys.executable)
    return run("compare_wheels.py", *words, env=env, python=python)


def only(told: Comparison) -> Any:
    (one,) = told.differences
    return one


def test_equal_wheels_have_one_digest_and_nothing_else(tmp_path: Path, compare: Compare) -> None:
    files = {"pkg/a.py": b"a = 1\n"}
    one, two = wheel(tmp_path / "a.whl", files), wheel(tmp_path / "b.whl", files)
    told = compare(one, two)
    assert told.equal and told.differences == ()
    digest = hashlib.sha256(one.read_bytes()).hexdigest()
    assert render_comparison(told, ("one", "two")).endswith(f"the same bytes: sha256 {digest}")


def test_times_modes_and_packing_are_told_with_their_cause(
    tmp_path: Path, compare: Compare
) -> None:
    files = {"pkg/a.py": b"a = 1\n" * 500}
    base = wheel(tmp_path / "a.whl", files)
    later = wheel(tmp_path / "b.whl", files, time=(2026, 1, 2, 3, 4, 8))
    assert {(d.differs, d.cause) for d in compare(base, later).differences} == {
        (("mtime",), compare_wheels.EPOCH)
    }
    loose = wheel(tmp_path / "c.whl", files, mode=0o100664)
    assert compare(base, loose).differences[0].differs == ("mode",)
    packed = only(compare(base, wheel(tmp_path / "d.whl", files, level=1)))
    assert (packed.member, packed.differs) == ("pkg/a.py", ("zip",))


def test_a_changed_file_is_told_with_its_place_and_record_follows(
    tmp_path: Path, compare: Compare
) -> None:
    one = wheel(tmp_path / "a.whl", {"pkg/a.py": b"x = 1\nbuilt = '/tmp/one'\n"})
    two = wheel(tmp_path / "b.whl", {"pkg/a.py": b"x = 1\nbuilt = '/tmp/two'\n"})
    source, record = compare(one, two).differences
    assert (source.member, source.differs, source.offset) == ("pkg/a.py", ("content",), 20)
    assert source.shown == ("built = '/tmp/one'", "built = '/tmp/two'")
    assert (record.member, record.cause) == (f"{INFO}/RECORD", compare_wheels.RECORD)


def test_members_that_only_one_has_and_members_in_another_order(
    tmp_path: Path, compare: Compare
) -> None:
    a, b, c = {"pkg/a.py": b"a"}, {"pkg/b.py": b"b"}, {"pkg/c.py": b"c"}
    told = compare(wheel(tmp_path / "a.whl", a | b), wheel(tmp_path / "b.whl", b | c))
    found = {d.member: d.differs for d in told.differences}
    assert found["pkg/a.py"] == ("missing in b",) and found["pkg/c.py"] == ("missing in a",)
    assert "pkg/a.py: not in second" in render_comparison(told, ("first", "second"))
    told = compare(wheel(tmp_path / "c.whl", a | b), wheel(tmp_path / "d.whl", b | a))
    turned = {d.member: d for d in told.differences}
    assert turned["pkg/a.py"].differs == ("order",)
    assert turned["pkg/a.py"].shown == ("pkg/a.py", "pkg/b.py")
    assert turned[f"{INFO}/RECORD"].cause == compare_wheels.ORDER


def library(folder: Path, name: str = "k.c", text: str = "", *flags: str) -> bytes:
    """A library of C that gcc makes in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text or "const char *where(void) { return __FILE__; }\n")
    argv = ["gcc", "-shared", "-fPIC", "-Wl,--build-id", *flags, "-o", "k.so", str(folder / name)]
    subprocess.run(argv, cwd=folder, check=True)
    return (folder / "k.so").read_bytes()


@needs_gcc
def test_a_build_path_in_a_library_is_told_by_section(tmp_path: Path, compare: Compare) -> None:
    one, two = (library(tmp_path / name, "k.c", "", "-s") for name in ("one", "two"))
    files = [wheel(tmp_path / f"{n}.whl", {"pkg/k.so": d}) for n, d in ((1, one), (2, two))]
    found = compare(*files).differences[0]
    names = {section.name for section in found.sections or ()}
    assert names == {".rodata", ".note.gnu.build-id"}
    assert found.cause == compare_wheels.BUILD_PATH
    (text,) = (section for section in found.sections or () if section.name == ".rodata")
    assert text.shown[0].endswith("/one/k.c") and text.size == (text.size[0],) * 2
    said = render_comparison(compare(*files), ("first", "second"))
    assert "section .rodata:" in said and "build both at one fixed path" in said


@needs_gcc
def test_names_that_only_a_debugger_reads_are_to_be_stripped(
    tmp_path: Path, compare: Compare
) -> None:
    text = "static int local(int x) { return x * 3; } int f(int x) { return local(x); }\n"
    flags = ("-O0", "-Wl,--build-id=none")
    one = library(tmp_path / "d", "tmpxft_0001.c", text, *flags)
    two = library(tmp_path / "d", "tmpxft_0002.c", text, *flags)
    files = [wheel(tmp_path / f"{n}.whl", {"pkg/k.so": d}) for n, d in ((1, one), (2, two))]
    found = compare(*files).differences[0]
    assert {section.name for section in found.sections or ()} == {".strtab"}
    assert found.cause == compare_wheels.TMPXFT
    assert found.sections and "tmpxft_0001.c" in found.sections[0].shown[0]


KERNEL = """\
namespace { __global__ void twice(float *x) { x[threadIdx.x] *= 2; } }
extern "C" void run(float *x) { twice<<<1, 32>>>(x); }
"""


@needs_nvcc
@pytest.mark.slow
def test_what_nvcc_does_with_the_build_path(tmp_path: Path, compare: Compare) -> None:
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "k.cu").write_text(KERNEL)
        argv = [NVCC, "-gencode=arch=compute_120a,code=sm_120a", "-shared", "-Xcompiler=-fPIC"]
        argv += ["-Xlinker=-s", "-o", "k.so", str(folder / "k.cu")]
        subprocess.run(argv, cwd=folder, check=True, env={**os.environ, "TMPDIR": str(folder)})
        made.append(wheel(tmp_path / f"{name}.whl", {"pkg/k.so": (folder / "k.so").read_bytes()}))
    found = compare(*made).differences[0]
    assert ".nv_fatbin" in {section.name for section in found.sections or ()}
    assert found.cause == compare_wheels.BUILD_PATH


@needs_gcc
def test_elf_files_are_not_guessed_at_without_pyelftools(tmp_path: Path) -> None:
    one, two = (library(tmp_path / name) for name in ("one", "two"))
    a, b = wheel(tmp_path / "a.whl", {"k.so": one}), wheel(tmp_path / "b.whl", {"k.so": two})
    ended = bare(a, b)
    assert (ended.code, ended.out) == (2, "")
    assert "fix: put the wheel of pyelftools on PYTHONPATH" in ended.err


def test_a_damaged_library_is_still_a_member_that_differs(tmp_path: Path, compare: Compare) -> None:
    a = wheel(tmp_path / "a.whl", {"k.so": b"\x7fELF" + b"a" * 9})
    b = wheel(tmp_path / "b.whl", {"k.so": b"\x7fELF" + b"b" * 9})
    found = compare(a, b).differences[0]
    assert (found.sections, found.offset) == (None, 4)


@pytest.mark.parametrize("words", [(), ("a.whl",), ("none.whl", "none.whl"), ("no.whl", "a.whl")])
def test_what_is_no_pair_of_wheels_is_refused_with_a_fix(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    wheel(tmp_path / "a.whl", {"a": b""})
    (tmp_path / "no.whl").write_text("no zip")
    ended = bare(*(tmp_path / word for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ") and "\nfix: " in ended.err


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from([0, 65530, 131072]))
def test_the_first_difference_is_the_first(one: bytes, two: bytes, before: int) -> None:
    left, right = b"=" * before + one, b"=" * before + two
    found = compare_wheels.first_difference(left, right)
    if found is None:
        assert left == right
    else:
        assert left[:found] == right[:found]
        assert left[found : found + 1] != right[found : found + 1]


@given(st.binary(min_size=1, max_size=200), st.integers(0, 250))
def test_an_excerpt_is_always_printable(data: bytes, offset: int) -> None:
    assert compare_wheels.excerpt(data, offset).isprintable()
