"""verify_wheel.py on wheels of real CUDA libraries, each with one thing wrong, and hostile ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import wheel_rules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verify_wheel import hold

from tests.remote import cuda
from tests.remote.cuda import code, wheel
from tests.remote.programs import PROGRAMS, run

MANYLINUX = "cp310-abi3-manylinux_2_17_x86_64"
LIBRARY = "kern/ops.abi3.so"

Make = Callable[..., Path]


@dataclass(frozen=True)
class Told:
    """What the program said: its exit status and its document."""

    code: int
    data: dict[str, Any]

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        return [(f["check"], f["where"], f["what"]) for f in self.data["faults"]]

    @property
    def library(self) -> dict[str, Any]:
        (found,) = self.data["libraries"]
        assert isinstance(found, dict)
        return found

    @property
    def notes(self) -> list[str]:
        return [*self.data["notes"], *(n for lib in self.data["libraries"] for n in lib["notes"])]


def verify(
    path: Path,
    *words: object,
    expect: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Told:
    if expect is not None:
        file = path.with_suffix(".expect.json")
        file.write_text(json.dumps(expect))
        words = (*words, "--expect", file)
    ended = run("verify_wheel.py", "--wheel", path, *words, env=env)
    assert ended.err == ""
    return Told(ended.code, json.loads(ended.out))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Compiles a library once for all tests, by flags and source."""
    known: dict[tuple[str, ...], Path] = {}

    def library(*flags: str, source: str = "kernel") -> Path:
        key = (*flags, source)
        if key not in known:
            known[key] = cuda.library(tmp_path_factory.mktemp("cuda"), *flags, source=source)
        return known[key]

    return library


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library without CUDA, for what has nothing to do with GPUs."""
    return cuda.shared(tmp_path_factory.mktemp("plain"), "libplain.so", "int one(void){return 1;}")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages with CUDA's runtime and a torch that has one symbol of its own."""
    folder = tmp_path / "site-packages"
    (folder / "nvidia/cu13/lib").mkdir(parents=True)
    (folder / "nvidia/cu13/lib/libcudart.so.13").symlink_to(cuda.cudart().resolve())
    cuda.shared(folder / "torch/lib", "libc10.so", "int c10_one(void){return 1;}")
    (folder / "torch/version.py").write_text("__version__ = '2.14.1+cu130'\n")
    return folder


def test_a_wheel_that_holds_what_was_asked_for(tmp_path: Path, made: Make, site: Path) -> None:
    path = wheel(tmp_path, {LIBRARY: made(*code("sm_120a"))})
    expect = {"targets": ["sm_120a", "sm_120f"], "only": True, "cuda_major": 13, "python": "3.11"}
    expect |= {"arch": "x86_64", "libraries": ["kern/*.so"], "glibc": "2.43"}
    told = verify(path, "--torch", site, expect=expect)
    assert (told.code, told.faults) == (0, [])
    assert told.library["targets"] == {"sm_120a": 1}
    assert told.library["ptx"] == []
    assert told.library["needed"][0] == "libcudart.so.13"
    assert told.library["glibc"].startswith("2.")
    assert told.library["size"] == made(*code("sm_120a")).stat().st_size
    assert (told.data["name"], told.data["version"]) == ("kern", "1.0")
    assert told.data["symbols"] == f"checked against torch 2.14.1+cu130 in {site}"
    tag = "platform tag linux_x86_64 promises nothing of the host's glibc"
    assert told.notes == [tag]


WRONG_TARGETS = [
    (["sm_120"], "targets", "holds sm_120; wanted is sm_120a"),
    (["sm_120f"], "targets", "holds sm_120f; wanted is sm_120a"),
    (["sm_121a"], "targets", "holds sm_121a; wanted is sm_120a"),
    (
        ["compute_120"],
        "targets",
        "holds no machine code and PTX for compute_120; wanted is sm_120a",
    ),
    (["sm_120a", "compute_120a"], "ptx", "holds PTX for compute_120a, which a driver may compile"),
    (["sm_90a", "sm_120a"], "targets", "holds sm_90a beside sm_120a"),
]


@pytest.mark.parametrize("held, check, what", WRONG_TARGETS, ids=str)
def test_a_wrong_target_is_told_with_what_is_there(
    tmp_path: Path, made: Make, held: list[str], check: str, what: str
) -> None:
    path = wheel(tmp_path, {LIBRARY: made(*code(*held))})
    told = verify(path, expect={"targets": ["sm_120a"], "only": True})
    assert told.code == 1
    fault = next(fault for fault in told.faults if fault[0] == check)
    assert fault[1] == LIBRARY
    assert fault[2].startswith(what)
    assert check in [f["check"] for f in told.library["faults"]]


def test_ptx_and_other_targets_may_be_allowed(tmp_path: Path, made: Make) -> None:
    path = wheel(tmp_path, {LIBRARY: made(*code("sm_90a", "compute_90"))})
    expect = {"targets": ["sm_120a"], "except": ["kern/o*.so"]}
    assert verify(path, expect=expect).faults == []
    assert verify(path, expect={"targets": ["sm_90a"], "ptx": True}).faults == []
    assert verify(path).code == 0
    assert verify(path).library["ptx"] == ["compute_90"]


def test_an_empty_cubin_of_the_device_link_counts_for_nothing(tmp_path: Path) -> None:
    """Code for sm_90 that was linked for sm_120a runs nowhere but on sm_90."""
    source, unit, linked = (tmp_path / name for name in ("k.cu", "k.o", "k.so"))
    source.write_text(cuda.KERNEL)
    common = [cuda.nvcc(), "-Xcompiler=-fPIC", "-cudart=shared"]
    cuda.call([*common, "-c", *code("sm_90"), "-o", unit, source])
    cuda.call([*common, "-shared", *code("sm_120a"), "-o", linked, unit])
    told = verify(wheel(tmp_path, {LIBRARY: linked}), expect={"targets": ["sm_120a"]})
    assert told.faults == [("targets", LIBRARY, "holds sm_90; wanted is sm_120a")]


def test_code_for_a_device_link_is_told_apart(tmp_path: Path, made: Make) -> None:
    told = verify(wheel(tmp_path, {LIBRARY: made("-rdc=true", *code("sm_120a"))}))
    assert told.library["targets"] == {"sm_120a": 1}
    assert told.library["relocatable"] == {"sm_120a": 1}


def test_what_a_recipe_does_not_couple_it_to_is_named(
    tmp_path: Path, made: Make, plain: Path
) -> None:
    kernel = made(*code("sm_120a"))
    torch = cuda.shared(tmp_path / "torch", "libtorch_cpu.so", "int t(void){return 1;}")
    bound = cuda.shared(
        tmp_path, "b.so", "int b(void){return 1;}", "-Wl,--no-as-needed", str(torch)
    )
    path = wheel(tmp_path, {LIBRARY: kernel, "kern/b.so": bound}, tag="cp311-cp311-linux_x86_64")
    every = ["torch", "cpython", "cuda"]
    say = "and `couples` of its recipe does not say"
    assert sorted(verify(path, expect={"uncoupled": every}).faults) == [
        ("couples", "", f"it is for cp311-cp311, {say} cpython"),
        ("couples", "kern/b.so", f"it needs libtorch_cpu.so, {say} torch"),
        ("couples", LIBRARY, f"it holds GPU code, {say} cuda"),
        ("couples", LIBRARY, f"it needs libcudart.so.13, {say} cuda"),
    ]
    assert verify(path, expect={"uncoupled": []}).faults == []
    stable = wheel(tmp_path, {"kern/p.so": plain}, tag="cp310-abi3-linux_x86_64")
    assert verify(stable, expect={"uncoupled": every}).faults == []


def test_a_library_of_another_cuda_is_named(tmp_path: Path, made: Make) -> None:
    old = cuda.shared(tmp_path / "old", "libcudart.so.12", "int old(void){return 1;}")
    both = made(*code("sm_120a"), f"-Xlinker=--no-as-needed,{old}")
    path = wheel(tmp_path, {LIBRARY: both})
    fault = ("cuda", LIBRARY, "it needs libcudart.so.12, which is not of CUDA 13")
    assert verify(path, expect={"cuda_major": 13}).faults == [fault]
    what = "libraries of two CUDA majors are needed: libcudart.so.12, libcudart.so.13"
    assert verify(path).faults == [("cuda", "", what)]


SONAMES = [
    ("libcudart.so.13", {13}),
    ("libcudart.so.11.0", {11}),
    ("libcublasLt.so.12", {12}),
    ("libnvrtc.so.13", {13}),
    ("libnppc.so.13", {13}),
    ("libcusparse.so.12", {12, 13}),
    ("libcusolver.so.12", {13}),
    ("libcufft.so.11", {12}),
    ("libcurand.so.10", None),
    ("libcudnn.so.9", None),
    ("libcusparseLt.so.0", None),
    ("libcuda.so.1", None),
    ("libc.so.6", None),
]


@pytest.mark.parametrize("soname, majors", SONAMES)
def test_the_cuda_that_a_library_belongs_to(soname: str, majors: set[int] | None) -> None:
    assert wheel_rules.cuda_majors(soname) == majors


def test_an_undefined_symbol_is_named(tmp_path: Path, made: Make, site: Path) -> None:
    path = wheel(tmp_path, {LIBRARY: made(*code("sm_120a"), source="missing")})
    assert verify(path).code == 0
    told = verify(path, "--torch", site)
    assert told.library["unresolved"] == ["nowhere"]
    what = "1 symbol defined in no library that it needs: nowhere"
    assert (told.code, told.faults) == (1, [("symbols", LIBRARY, what)])


def test_a_missing_symbol_of_torch_means_another_torch(
    tmp_path: Path, made: Make, site: Path
) -> None:
    link = f"-Xlinker=--no-as-needed,{site / 'torch/lib/libc10.so'}"
    library = made(*code("sm_120a"), link, source="torch")
    told = verify(wheel(tmp_path, {LIBRARY: library}), "--torch", site)
    (fault,) = told.faults
    assert fault[:2] == ("symbols", LIBRARY)
    said = "1 symbol of torch's, not in torch 2.14.1+cu130: it was built against another torch: "
    assert fault[2] == f"{said}c10::gone(int)"


def test_a_symbol_may_be_in_the_wheel_or_weak_or_pythons(tmp_path: Path, site: Path) -> None:
    helper = cuda.shared(tmp_path, "libhelper.so", "int help(void){return 1;}")
    source = "int help(void); void PyErr_Clear(void); int may(void) __attribute__((weak));"
    source += "int use(void){PyErr_Clear(); return help() + (may ? may() : 0);}"
    user = cuda.shared(tmp_path, "libuser.so", source, str(helper))
    told = verify(wheel(tmp_path, {"a/libhelper.so": helper, "a/b.so": user}), "--torch", site)
    assert told.faults == []
    told = verify(wheel(tmp_path / "alone", {"a/b.so": user}), "--torch", site)
    assert [fault[::2] for fault in told.faults] == [
        ("needs", "it needs libhelper.so, which is nowhere"),
        ("symbols", "1 symbol defined in no library that it needs: help"),
    ]


def test_a_driver_that_is_not_here_is_no_fault(tmp_path: Path, site: Path) -> None:
    driver = cuda.shared(tmp_path, "libcuda.so.1", "int cuInit(int n){return n;}")
    user = cuda.shared(
        tmp_path, "u.so", "int cuInit(int); int u(void){return cuInit(0);}", str(driver)
    )
    told = verify(wheel(tmp_path, {LIBRARY: user}), "--torch", site)
    assert told.faults == []
    if not told.notes[1:]:
        pytest.skip("this machine has a driver")
    assert told.notes[-1] == "libcuda.so.1 comes with the driver, and is not here"


def test_a_platform_tag_must_be_honest(tmp_path: Path, plain: Path) -> None:
    new = cuda.shared(
        tmp_path, "new.so", "#include <pthread.h>\nint n(void*t){return pthread_create(t,0,0,0);}"
    )
    path = wheel(tmp_path, {LIBRARY: new}, tag="cp310-abi3-manylinux2014_x86_64")
    needs = verify(path).library["glibc"]
    if needs == "2.2.5":
        pytest.skip("this system's glibc is older than 2.34")
    what = f"it needs glibc {needs}; platform tag manylinux2014_x86_64 promises less"
    assert verify(path).faults == [("tag", LIBRARY, what)]
    what = f"it needs glibc {needs}, wanted is 2.31 or older"
    assert ("host", LIBRARY, what) in verify(path, expect={"glibc": "2.31"}).faults
    assert verify(wheel(tmp_path, {LIBRARY: plain}, tag=MANYLINUX)).faults == []
    foreign = verify(wheel(tmp_path, {"kern/a.pyd": plain}, tag="cp311-cp311-win_amd64"))
    what = "platform tag win_amd64 is of another system than Linux"
    assert foreign.faults == [("tag", "", what)]
    pure = verify(wheel(tmp_path, {LIBRARY: plain}, tag="py3-none-any"))
    what = "platform tag any, and there are compiled libraries"
    assert pure.faults == [("tag", "", what)]


def test_a_library_for_another_machine_is_told(tmp_path: Path, plain: Path, site: Path) -> None:
    foreign = bytearray(plain.read_bytes())
    foreign[18:20] = (183).to_bytes(2, "little")
    path = wheel(tmp_path, {LIBRARY: bytes(foreign)}, tag=MANYLINUX)
    told = verify(path, "--torch", site)
    what = "it is for aarch64, the platform tag is manylinux_2_17_x86_64"
    assert told.faults == [("tag", LIBRARY, what)]
    assert told.data["symbols"] == "not checked: this machine is no aarch64"


TAGS = [
    ("cp310-abi3-linux_x86_64", {"python": "3.12"}, ""),
    ("cp312-cp312-linux_x86_64", {"python": "3.12"}, ""),
    ("py3-none-linux_x86_64", {"python": "3.12"}, ""),
    ("cp311-cp311-linux_x86_64", {"python": "3.12"}, "tag cp311-cp311 cannot be installed"),
    ("cp313-abi3-linux_x86_64", {"python": "3.12"}, "tag cp313-abi3 cannot be installed"),
    ("cp310-abi3-manylinux_2_34_x86_64", {"glibc": "2.31"}, "asks for more than glibc 2.31"),
    ("cp310-abi3-linux_x86_64", {"arch": "aarch64"}, "linux_x86_64 is not for aarch64"),
]


@pytest.mark.parametrize("tag, expect, told", TAGS)
def test_tags_are_held_against_the_host(
    tmp_path: Path, tag: str, expect: dict[str, Any], told: str
) -> None:
    faults = verify(wheel(tmp_path, {"kern/a.py": b""}, tag=tag), expect=expect).faults
    assert [f for f in faults if told not in f[2]] == []
    assert bool(faults) == bool(told)


def test_a_wheel_is_of_the_project_that_was_asked_for(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"kern/a.py": b""}, tag="py3-none-any")
    assert verify(path, expect={"project": "Kern"}).faults == []
    told = verify(path, expect={"project": "sgl_kern"})
    assert told.faults == [("project", "", "it is a wheel of kern, wanted is sgl-kern")]
    assert told.code == 1


def test_a_module_of_one_python_in_a_wheel_of_many(tmp_path: Path, plain: Path) -> None:
    module = "kern/ops.cpython-310-x86_64-linux-gnu.so"
    told = verify(wheel(tmp_path, {module: plain}, tag=MANYLINUX))
    assert (told.code, told.notes) == (
        0,
        ["a module for cp310 alone in a wheel that says cp310-abi3"],
    )
    told = verify(wheel(tmp_path, {module: plain}, tag="cp312-cp312-linux_x86_64"))
    assert told.faults == [("tag", module, "a module for cp310 in a wheel for cp312")]


def test_record_and_metadata_are_held_against_the_wheel(tmp_path: Path) -> None:
    files = {"kern/a.py": b"a", "kern/b.py": b"b", "kern/c.py": b"c", "kern/d.py": b"d"}
    record = {
        "kern/a.py": "kern/a.py,sha256=wrong,1",
        "kern/b.py": "",
        "kern/x": "kern/x,sha256=y,1",
    }
    record |= {"kern/c.py": "kern/c.py,md5=abc,1", "kern/d.py": "kern/d.py,,"}
    metadata = "Metadata-Version: 2.1\nName: other\nVersion: 2.0\n"
    told = verify(wheel(tmp_path, files, record=record, metadata=metadata, tag="py3-none-any"))
    assert [fault for fault in told.faults if fault[0] == "record"] == [
        (
            "record",
            "kern/a.py",
            "RECORD gives another sha256: it was changed after the wheel was built",
        ),
        ("record", "kern/b.py", "RECORD does not list it"),
        ("record", "kern/c.py", "RECORD gives md5 where sha256 is asked for"),
        ("record", "kern/d.py", "RECORD gives no hash where sha256 is asked for"),
        ("record", "kern/x", "RECORD lists it, and the wheel has no such file"),
    ]
    what = "it says other 2.0, the file name kern 1.0"
    assert told.faults[-1] == ("metadata", "kern-1.0.dist-info/METADATA", what)


def test_libraries_that_must_be_there(tmp_path: Path, plain: Path) -> None:
    path = wheel(tmp_path, {"kern/a.so": plain, "kern/a.py": b""}, tag=MANYLINUX)
    told = verify(path, expect={"libraries": ["kern/*.so", "kern/sm100/ops*.so"]})
    what = "no such library; there are kern/a.so"
    assert told.faults == [("libraries", "kern/sm100/ops*.so", what)]


EXPECTATIONS = [
    ('{"target": ["sm_120a"]}', "unknown keys target; known are targets, only"),
    ('{"targets": "sm_120a"}', "targets is 'sm_120a', and should be of type list"),
    ('{"cuda_major": "13"}', "cuda_major is '13', and should be of type int"),
    ('{"glibc": "new"}', "glibc is 'new', and should be like 2.34"),
    ("[]", "it is no JSON object"),
    ("{", "Expecting property name"),
]


@pytest.mark.parametrize("text, told", EXPECTATIONS)
def test_an_expectation_that_is_none_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "e.json").write_text(text)
    ended = verify(wheel(tmp_path, {"a.py": b""}), "--expect", tmp_path / "e.json")
    assert ended.code == 2
    assert told in ended.data["error"]


# What is hostile or broken: a document with the reason, never a traceback.


def test_what_is_no_wheel_says_why(tmp_path: Path) -> None:
    noise = tmp_path / "a-1-py3-none-any.whl"
    noise.write_bytes(b"PK\3\4 no zip")
    (tmp_path / "a.zip").write_bytes(b"")
    for path, what in (
        (noise, "it is no zip file: File is not a zip file"),
        (tmp_path / "a.zip", "that is no name of a wheel"),
        (tmp_path / "b-1-py3-none-any.whl", "No such file or directory"),
    ):
        told = verify(path)
        assert told.code == 2
        assert what in told.data["error"]
        assert told.data["fix"]
        assert told.faults == [("wheel", "", told.data["error"])]


def test_names_that_lead_outside_and_doubles(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"../evil.so": b"x", "/etc/evil": b"y", "C:\\evil": b"z", "a\nb": b""})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning):
        archive.writestr("a\nb", b"twice")
    told = verify(path)
    archive_faults = [fault[1:] for fault in told.faults if fault[0] == "archive"]
    outside = "its name leads out of the folder where the wheel is installed"
    assert {name for name, what in archive_faults if what == outside} == {
        *("../evil.so", "/etc/evil", "C:\\evil")
    }
    assert ("a\nb", "it is in the wheel 2 times") in archive_faults
    assert not (tmp_path.parent / "evil.so").exists()


def damaged(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    return path


def test_a_member_that_cannot_be_unpacked(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"kern/a.bin": os.urandom(4096)})
    data = bytearray(path.read_bytes())
    data[2000] ^= 0xFF
    path.write_bytes(data)
    told = verify(path)
    assert told.code == 1
    (fault, *_) = told.faults
    assert fault[:2] == ("archive", "kern/a.bin")
    assert fault[2].startswith("it cannot be unpacked: ")


def test_a_wheel_that_claims_to_be_enormous(tmp_path: Path) -> None:
    size, claim = (n.to_bytes(4, "little") for n in (0xABCDE, 0xFFFFFFFE))
    one = damaged(wheel(tmp_path, {"kern/a.bin": b"\0" * 0xABCDE}), size, claim)
    what = "it cannot be unpacked: it has 703710 bytes and claims 4294967294"
    assert verify(one).faults[0] == ("archive", "kern/a.bin", what)
    many = wheel(tmp_path, {f"kern/{n}.bin": b"\0" * 0xABCDE for n in range(17)})
    told = verify(damaged(many, size, claim))
    assert (told.code, told.data["error"]) == (2, "it claims to unpack to more than 64 GiB")


BROKEN = [
    (lambda _: b"", "it is empty"),
    (lambda _: b"INPUT(libreal.so)", "it is no ELF file"),
    (lambda data: data[:100], "it is truncated or damaged"),
    (lambda data: data[: len(data) // 2], "it is truncated"),
    (lambda data: data[:4] + b"\1" + data[5:], "it is no 64-bit little-endian ELF file"),
    (lambda data: data[:60] + b"\0\0" + data[62:], "it has no section headers"),
]


@pytest.mark.parametrize("spoil, told", BROKEN)
def test_a_broken_library_is_a_fault_of_that_library(
    tmp_path: Path, plain: Path, spoil: Callable[[bytes], bytes], told: str
) -> None:
    bad = spoil(plain.read_bytes())
    found = verify(wheel(tmp_path, {"kern/bad.so": bad, "kern/good.so": plain}, tag=MANYLINUX))
    ((check, where, what),) = found.faults
    assert (found.code, check, where) == (1, "elf", "kern/bad.so")
    assert what.startswith(told)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=12), st.data())
def test_no_byte_of_a_library_stops_the_program(
    tmp_path: Path, plain: Path, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    spoilt = bytearray(plain.read_bytes())
    for at, value in changes:
        # Half of them in the headers, where a byte means most.
        spoilt[at % (len(spoilt) if at % 2 else 1024)] = value
    path = tmp_path / "spoilt.so"
    path.write_bytes(spoilt[: data.draw(st.integers(0, len(spoilt)))])
    found = hold(path, "spoilt.so", len(spoilt))
    assert found.library is not None or found.faults


def test_a_large_library_is_never_in_memory(tmp_path: Path, plain: Path) -> None:
    large = tmp_path / "large.so"
    large.write_bytes(plain.read_bytes())
    os.truncate(large, 400 << 20)
    path = wheel(tmp_path, {LIBRARY: large}, tag=MANYLINUX)
    # A process begins with the high-water mark of the one that started it, and ours is high.
    measure = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], stdout=s.DEVNULL, "
    measure += "check=True); print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    program = (sys.executable, PROGRAMS / "verify_wheel.py", "--wheel", path)
    words = [sys.executable, "-c", measure, *map(str, program)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 << 10  # KiB


# An environment where the wheel is installed.


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A venv without pip; its site-packages."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (found,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    return found


def install(path: Path, site: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(site)


def python_of(site: Path) -> Path:
    return site.parents[2] / "bin/python"


def test_an_environment_is_asked_by_importing(tmp_path: Path, environment: Path) -> None:
    files = {
        "kern/__init__.py": b"import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == ''",
        "kern/broken.py": b"raise ImportError('undefined symbol: run_mha_bwd_')",
        "kern/crash.py": b"import os; os.abort()",
    }
    path = wheel(tmp_path, files, tag="py3-none-any")
    install(path, environment)
    told = verify(path, "--venv", python_of(environment), expect={"imports": ["kern"]})
    assert (told.code, told.faults) == (0, [])
    assert told.notes == ["`pip check` was not run: there is no pip, and UV names no uv"]
    expect = {"imports": ["kern.broken", "kern.crash", "kern.none"]}
    told = verify(path, "--venv", python_of(environment), expect=expect)
    assert [fault[:2] for fault in told.faults] == [("import", name) for name in expect["imports"]]
    assert [fault[2] for fault in told.faults] == [
        "ImportError: undefined symbol: run_mha_bwd_",
        "signal 6",
        "ModuleNotFoundError: No module named 'kern.none'",
    ]


def test_a_bare_library_is_imported_after_torch(tmp_path: Path, environment: Path) -> None:
    """As its package does: alone it would not find libc10.so."""
    source = tmp_path / "kern.c"
    source.write_text(BARE)
    include = sysconfig.get_path("include")
    library = tmp_path / "bare.so"
    words = ["gcc", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
    subprocess.run(words, check=True)
    files = {"bare.so": library.read_bytes(), "kern.py": b"import bare"}
    path = wheel(tmp_path, files, tag="cp311-cp311-linux_x86_64")
    install(path, environment)
    expect = {"imports": ["bare"]}
    alone = verify(path, "--venv", python_of(environment), expect=expect)
    assert ("import", "bare", "ImportError: torch was not imported") in alone.faults
    (environment / "torch.py").write_text("")
    told = verify(path, "--venv", python_of(environment), expect={"imports": ["bare", "kern"]})
    # What a package forgets its users would miss too.
    assert [fault[:2] for fault in told.faults if fault[0] == "import"] == [("import", "kern")]


BARE = """\
#include <Python.h>
static struct PyModuleDef it = {PyModuleDef_HEAD_INIT, "bare", 0, -1, 0};
PyMODINIT_FUNC PyInit_bare(void) {
  PyObject *loaded = PySys_GetObject("modules");
  if (!PyMapping_HasKeyString(loaded, "torch")) {
    PyErr_SetString(PyExc_ImportError, "torch was not imported");
    return 0;
  }
  return PyModule_Create(&it);
}
"""


def test_what_an_import_leaves_running_is_not_waited_for(tmp_path: Path, environment: Path) -> None:
    code = "import pathlib, subprocess\nchild = subprocess.Popen(['sleep', '94'])\n"
    code += f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
    path = wheel(tmp_path, {"kern.py": code.encode()}, tag="py3-none-any")
    install(path, environment)
    begin = time.monotonic()
    told = verify(path, "--venv", python_of(environment), expect={"imports": ["kern"]})
    took = time.monotonic() - begin
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert told.faults == [] and took < 60


def test_an_environment_without_the_wheel(tmp_path: Path, environment: Path) -> None:
    path = wheel(tmp_path, {"kern.py": b""}, version="1.1", tag="py3-none-any")
    python = python_of(environment)
    told = verify(path, "--venv", python)
    assert told.faults == [("venv", "", "kern is not installed there")]
    install(wheel(tmp_path, {"kern.py": b""}, tag="py3-none-any"), environment)
    assert verify(path, "--venv", python).faults == [
        ("venv", "", "kern 1.0 is installed there, not 1.1")
    ]
    told = verify(path, "--venv", tmp_path / "no/python")
    assert told.faults == [
        ("venv", "", f"{tmp_path}/no/python cannot list what is installed there")
    ]


@pytest.mark.parametrize(
    "others, told",
    [
        ({"flashinfer-jit-cache": "0.7.2+cu130"}, []),
        ({"flashinfer-cubin": "0.7.2"}, []),
        (
            {"flashinfer-jit-cache": "0.7.1+cu130"},
            ["flashinfer-jit-cache 0.7.1+cu130 is installed beside flashinfer-python 0.7.2"],
        ),
        (
            {"flashinfer-cubin": "0.6.13"},
            ["flashinfer-cubin 0.6.13 is installed beside flashinfer-python 0.7.2"],
        ),
    ],
)
def test_parts_of_flashinfer_are_of_one_version(
    tmp_path: Path, environment: Path, others: dict[str, str], told: list[str]
) -> None:
    own = wheel(tmp_path, {}, name="flashinfer_python", version="0.7.2", tag="py3-none-any")
    install(own, environment)
    for name, version in others.items():
        files: dict[str, bytes | Path] = {}
        install(wheel(tmp_path, files, name=name.replace("-", "_"), version=version), environment)
    faults = verify(own, "--venv", python_of(environment)).faults
    assert [fault[2] for fault in faults] == told


def test_requirements_that_are_not_met(tmp_path: Path, environment: Path) -> None:
    # A pip of its own takes a venv half a minute; ours does as well.
    pip = find_spec("pip")
    assert pip and pip.origin
    (environment / "pip").symlink_to(Path(pip.origin).parent)
    metadata = "Metadata-Version: 2.1\nName: kern\nVersion: 1.0\nRequires-Dist: not-there\n"
    path = wheel(tmp_path, {"kern.py": b""}, tag="py3-none-any", metadata=metadata)
    install(path, environment)
    line = "kern 1.0 requires not-there, which is not installed."
    python = python_of(environment)
    assert verify(path, "--venv", python).faults == [("pip check", "", line)]
    told = verify(path, "--venv", python, expect={"check_ignores": ["requires not-there"]})
    assert (told.code, told.notes[-1]) == (0, f"allowed: {line}")


def test_requirements_are_asked_of_uv_where_there_is_one(tmp_path: Path, environment: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("no uv")
    metadata = "Metadata-Version: 2.1\nName: kern\nVersion: 1.0\nRequires-Dist: not-there\n"
    path = wheel(tmp_path, {"kern.py": b""}, tag="py3-none-any", metadata=metadata)
    install(path, environment)
    told = verify(path, "--venv", python_of(environment), env={"UV": uv, "HOME": str(tmp_path)})
    ((check, _, what),) = told.faults
    assert check == "pip check"
    assert "`kern`" in what and "`not-there`" in what
