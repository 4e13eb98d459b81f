"""source_tree.py: archives of every shape, hostile ones, patches, and where a project lies."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import source_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from unified_diff import Fault

name = st.sampled_from(["a", "b", "csrc", "with space", "é", ".hidden", "x.cu"])
paths = st.lists(name, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(paths, st.binary(max_size=40), min_size=1, max_size=6).filter(
    lambda tree: not any(one.startswith(f"{other}/") for one in tree for other in tree)
)
crooked = st.lists(st.sampled_from(["..", ".", "a", "b", "link", ""]), max_size=6).map("/".join)


def tar(path: Path, files: Mapping[str, bytes], top: str = "", mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as packed:  # type: ignore[call-overload]
        for file, data in files.items():
            member = tarfile.TarInfo(top + file)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return path


def zipped(path: Path, files: Mapping[str, bytes], top: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for file, data in files.items():
            packed.writestr(top + file, data)
    return path


def content(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@given(trees, st.sampled_from(["w", "w:gz", "w:xz", "zip"]))
def test_a_tree_comes_out_as_it_went_in(files: dict[str, bytes], kind: str) -> None:
    """Below one folder, as sdists have it, which is left out."""
    with tempfile.TemporaryDirectory() as folder:
        archive, target = Path(folder, "archive"), Path(folder, "out")
        if kind == "zip":
            zipped(archive, files, "kern-1.0/")
        else:
            tar(archive, files, "kern-1.0/", kind)
        source_tree.unpack(archive, target)
        assert content(target) == files
        assert sorted(path.name for path in Path(folder).iterdir()) == ["archive", "out"]


def test_a_tree_without_one_folder_stays(tmp_path: Path) -> None:
    files = {"setup.py": b"1", "src/a.c": b"2"}
    source_tree.unpack(tar(tmp_path / "x.tar.gz", files), tmp_path / "out")
    assert content(tmp_path / "out") == files


def test_one_file_alone_is_no_folder(tmp_path: Path) -> None:
    source_tree.unpack(tar(tmp_path / "x.tar.gz", {"setup.py": b"1"}), tmp_path / "out")
    assert content(tmp_path / "out") == {"setup.py": b"1"}


def test_a_folder_of_the_same_name_inside(tmp_path: Path) -> None:
    source_tree.unpack(tar(tmp_path / "x.tar.gz", {"out/out/a": b"1"}), tmp_path / "out")
    assert content(tmp_path / "out") == {"out/a": b"1"}


def test_a_tar_that_ends_in_a_zip_file_is_a_tar(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {"x": b"1"}).read_bytes()
    files = {"k/a.c": b"2", "k/data.zip": inner}
    source_tree.unpack(tar(tmp_path / "x.tar", files, mode="w"), tmp_path / "out")
    assert content(tmp_path / "out") == {"a.c": b"2", "data.zip": inner}


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\3\4 cut off", b"\x1f\x8b cut off"])
def test_what_is_no_archive_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "kern.tar.gz").write_bytes(data)
    with pytest.raises(Fault, match=r"kern\.tar\.gz cannot be unpacked") as fault:
        source_tree.unpack(tmp_path / "kern.tar.gz", tmp_path / "out")
    assert fault.value.fix == "remove that file and fetch it again"


@settings(deadline=None)
@given(
    st.sampled_from(["w", "w:gz", "w:xz", "w:bz2", "zip"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 255),
    st.booleans(),
)
def test_a_damaged_archive_is_a_fault_or_still_whole(
    kind: str, where: float, byte: int, cut: bool
) -> None:
    files = {f"k/{n}.cu": os.urandom(20000) + bytes(20000) for n in range(4)}
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "x")
        zipped(archive, files) if kind == "zip" else tar(archive, files, mode=kind)
        data = bytearray(archive.read_bytes())
        at = int(where * len(data))
        data[at] = byte
        archive.write_bytes(data[:at] if cut else data)
        with contextlib.suppress(Fault):
            source_tree.unpack(archive, Path(folder, "out"))


def link(name: str, aim: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, aim
    return member


HOSTILE = {
    "a parent": [tarfile.TarInfo("top/../../stolen")],
    "a device": [link("top/null", "", tarfile.CHRTYPE)],
    "through a link": [link("top/out", "../.."), tarfile.TarInfo("top/out/stolen")],
    "through a link to /": [link("top/out", "{tmp}"), tarfile.TarInfo("top/out/stolen")],
    "a hard link": [link("top/kept", "../secret", tarfile.LNKTYPE), tarfile.TarInfo("top/a")],
    "a hard link to /": [link("top/kept", "{tmp}/secret", tarfile.LNKTYPE)],
    "a link of a link": [link("top/a", "b/.."), link("top/b", "../../x")],
}


@pytest.fixture(params=["filter", "older Python"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Python with and without the filter of tarfile, which came to 3.11 late."""
    if request.param == "older Python":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    yield request.param


@pytest.mark.parametrize("how", HOSTILE)
def test_nothing_leads_out_of_a_tar(tmp_path: Path, python: str, how: str) -> None:
    assert python
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        for member in HOSTILE[how]:
            member.linkname = member.linkname.replace("{tmp}", str(tmp_path))
            packed.addfile(member)
    with pytest.raises(Fault):
        source_tree.unpack(tmp_path / "x.tar", tmp_path / "deep" / "out")
    assert not (tmp_path / "stolen").exists() and not (tmp_path / "deep" / "stolen").exists()
    kept = tmp_path / "deep" / "out" / "top" / "kept"
    assert not kept.exists()


def test_links_that_stay_inside_are_kept(tmp_path: Path, python: str) -> None:
    assert python
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo("top/a/real"))
        packed.addfile(link("top/b", "a/real"))
        packed.addfile(link("top/a/up", "../b"))
        packed.addfile(link("top/hard", "top/a/real", tarfile.LNKTYPE))
    source_tree.unpack(tmp_path / "x.tar", tmp_path / "out")
    assert (tmp_path / "out/a/up").resolve() == tmp_path / "out/a/real"
    assert (tmp_path / "out/hard").samefile(tmp_path / "out/a/real")


def test_an_absolute_name_does_not_leave(tmp_path: Path, python: str) -> None:
    """Named so as the filter takes it: relative."""
    aim = tmp_path / "stolen"
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo(str(aim)))
    try:
        source_tree.unpack(tmp_path / "x.tar", tmp_path / "out")
        assert python == "filter"
    except Fault as fault:
        assert "leads out" in str(fault)
    assert not aim.exists()


@given(crooked)
def test_a_path_is_inside_or_refused(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        (tree / "a").mkdir(parents=True)
        (tree / "link").symlink_to("..")
        try:
            place = source_tree.inside(tree, path)
        except Fault as fault:
            assert "outside the source" in str(fault)
            assert not os.path.realpath(tree / path).startswith(f"{tree.resolve()}/")
        else:
            assert place == tree.resolve() or tree.resolve() in place.parents


DIFF = "--- a/k.cu\n+++ b/k.cu\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"


def entry(folder: Path, text: str = DIFF, load_bearing: bool = True) -> dict[str, Any]:
    file = folder / "0001-zwei.patch"
    file.write_text(text)
    return {"name": "kern/0001-zwei.patch", "file": str(file), "load_bearing": load_bearing}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "k.cu").write_text("one\ntwo\n")
    return folder


def test_a_patch_is_applied_and_told(tree: Path, tmp_path: Path) -> None:
    (tree / "k.cu").chmod(0o755)
    (told,) = source_tree.patch(tree, [entry(tmp_path)])
    assert told["state"] == "applied" and (tree / "k.cu").read_text() == "one\nzwei\n"
    assert (tree / "k.cu").stat().st_mode & 0o777 == 0o755


def test_bytes_that_are_no_utf8_pass_through(tree: Path, tmp_path: Path) -> None:
    (tree / "k.cu").write_bytes(b"one\ntwo\n\xff\xfe\n")
    source_tree.patch(tree, [entry(tmp_path)])
    assert (tree / "k.cu").read_bytes() == b"one\nzwei\n\xff\xfe\n"


def test_a_patch_that_must_apply_and_does_not(tree: Path, tmp_path: Path) -> None:
    (tree / "k.cu").write_text("one\nthree\n")
    with pytest.raises(Fault, match=r"kern/0001-zwei\.patch does not apply: k\.cu.*@@ -1,2 \+1,2"):
        source_tree.patch(tree, [entry(tmp_path)])
    assert (tree / "k.cu").read_text() == "one\nthree\n"
    (told,) = source_tree.patch(tree, [entry(tmp_path, load_bearing=False)])
    assert told["state"] == "does not apply"


def test_a_patch_that_is_there_already(tree: Path, tmp_path: Path) -> None:
    (tree / "k.cu").write_text("one\nzwei\n")
    with pytest.raises(Fault, match="is in this source already"):
        source_tree.patch(tree, [entry(tmp_path)])
    (told,) = source_tree.patch(tree, [entry(tmp_path, load_bearing=False)])
    assert told["state"] == "already there"


def test_a_patch_may_make_and_remove_files(tree: Path, tmp_path: Path) -> None:
    made = "--- /dev/null\n+++ b/new/x.h\n@@ -0,0 +1 @@\n+new\n"
    gone = "--- a/k.cu\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n"
    source_tree.patch(tree, [entry(tmp_path, made + gone)])
    assert content(tree) == {"new/x.h": b"new\n"}


def test_a_patch_does_not_follow_a_link_out(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("one\ntwo\n")
    (tree / "k.cu").unlink()
    (tree / "k.cu").symlink_to("../k.cu")
    with pytest.raises(Fault, match=r"names k\.cu, which is outside the source"):
        source_tree.patch(tree, [entry(tmp_path)])
    assert (tmp_path / "k.cu").read_text() == "one\ntwo\n"


def project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_a_project_is_found_by_its_name(tree: Path) -> None:
    project(tree / "docs", "[project]\nname = 'docs'\n")
    project(tree / "broken", "[project\n")
    project(tree / "odd", "project = 3\n")
    project(tree / "bytes", "").joinpath("pyproject.toml").write_bytes(b"\xff\xfe")
    wanted = project(tree / "python/aot", "[project]\nname = 'SGL_Kernel.x'\n")
    for spelled in ("sgl-kernel-x", "sgl_kernel_x", "SGL.Kernel-x"):
        assert source_tree.find_project(tree, spelled, "") == wanted
    assert source_tree.find_project(tree, "", "docs") == (tree / "docs").resolve()
    assert source_tree.find_project(tree, "", "") == tree.resolve()


def test_a_project_that_is_nowhere_or_twice(tree: Path) -> None:
    with pytest.raises(Fault, match=r"project kern must be in one place .* it is in: nowhere"):
        source_tree.find_project(tree, "kern", "")
    for folder in ("a", "b"):
        project(tree / folder, "[project]\nname = 'kern'\n")
    with pytest.raises(Fault, match="it is in: a, b"):
        source_tree.find_project(tree, "kern", "")
    with pytest.raises(Fault, match="outside the source"):
        source_tree.find_project(tree, "", "../elsewhere")
