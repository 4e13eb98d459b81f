"""repack_wheel.py on small wheels: what comes out, what is refused, and in which words."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.remote.programs import Ended, run, sha256, small_wheel
from tests.remote.test_unified_diff import difference

CODE = "".join(f"x{n} = {n}\n" for n in range(20))
CHANGED = CODE.replace("x10 = 10\n", "x10 = 'ten'\n")


def patch(tmp: Path, name: str, text: str) -> Path:
    path = tmp / name
    path.write_text(f"Why this is.\n\n{text}")
    return path


def repack(tmp: Path, wheel: Path, *patches: object, out: str = "out") -> Ended:
    words = ("--wheel", wheel, "--local-version", "firstlight.cpu", *patches)
    ends = ("--out", tmp / out, "--receipt", tmp / out / "receipt.json")
    return run("repack_wheel.py", *words, *ends)


def engine(tmp: Path, code: str = CODE) -> Path:
    return small_wheel(tmp, "engine", "0.5.23", {"engine/a.py": code, "engine/b.py": "b\n"})


def receipt(tmp: Path, out: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp / out / "receipt.json").read_text())
    return found


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def assert_record_holds(wheel: Path) -> None:
    """Read RECORD as an installer does, without a word of the program that wrote it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names)
        for path, digest, size in rows:
            data = archive.read(path)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert path == record or (digest, size) == (f"sha256={wanted}", str(len(data)))


def test_the_new_wheel_holds_the_patch_and_its_version(tmp_path: Path) -> None:
    wheel = engine(tmp_path)
    change = patch(tmp_path, "0001-ten.patch", difference(CODE, CHANGED, "engine/a.py"))
    more = patch(tmp_path, "0002-new.patch", difference(None, "n = 1\n", "engine/new.py"))
    gone = patch(tmp_path, "0003-gone.patch", difference("b\n", None, "engine/b.py"))
    ended = repack(tmp_path, wheel, "--required", change, "--patch", more, "--required", gone)
    assert (ended.code, ended.err) == (0, "")
    made = tmp_path / "out" / "engine-0.5.23+firstlight.cpu-py3-none-any.whl"
    info = "engine-0.5.23+firstlight.cpu.dist-info"
    inside = contents(made)
    assert inside["engine/a.py"] == CHANGED
    assert set(inside) == {
        *("engine/a.py", "engine/new.py"),
        *(f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"),
    }
    assert "\nVersion: 0.5.23+firstlight.cpu\n" in inside[f"{info}/METADATA"]
    assert_record_holds(made)
    told = receipt(tmp_path)
    assert (told["file"], told["sha256"]) == (made.name, sha256(made))
    assert told["source"] == {"file": wheel.name, "sha256": sha256(wheel)}
    assert [p["file"] for p in told["patches"]] == [change.name, more.name, gone.name]
    assert told["patches"][0]["sha256"] == sha256(change)
    assert {p["state"] for p in told["patches"]} == {"applied"}
    assert told["files_changed"] == ["engine/a.py", "engine/b.py", "engine/new.py"]


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    wheel = engine(tmp_path)
    change = patch(tmp_path, "0001-ten.patch", difference(CODE, CHANGED, "engine/a.py"))
    for out in ("one", "two"):
        assert repack(tmp_path, wheel, "--required", change, out=out).code == 0
    assert receipt(tmp_path, "one") == receipt(tmp_path, "two")


def test_a_patch_builds_on_the_one_before_it(tmp_path: Path) -> None:
    twice = CHANGED.replace("'ten'", "'TEN'")
    first = patch(tmp_path, "0001.patch", difference(CODE, CHANGED, "engine/a.py"))
    second = patch(tmp_path, "0002.patch", difference(CHANGED, twice, "engine/a.py"))
    assert repack(tmp_path, engine(tmp_path), "--patch", first, "--required", second).code == 0
    made = next((tmp_path / "out").glob("*.whl"))
    assert contents(made)["engine/a.py"] == twice
    assert repack(tmp_path, engine(tmp_path), "--required", second, "--patch", first).code == 1


def test_a_required_patch_that_does_not_apply_says_where(tmp_path: Path) -> None:
    change = patch(tmp_path, "0001-ten.patch", difference(CODE, CHANGED, "engine/a.py"))
    wheel = engine(tmp_path, CODE.replace("x9 = 9\n", "x9 = 'nine'\n"))
    ended = repack(tmp_path, wheel, "--required", change)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "error: 0001-ten.patch does not apply: engine/a.py, hunk 1 of 1 (@@ -8,7 +8,7 @@)\n"
        "  line 10\n"
        "  expected: 'x9 = 9\\n'\n"
        "  found:    \"x9 = 'nine'\\n\"\n"
        "fix: write the patch again for this version, or build the version it was made for\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_required_patch_that_is_there_already_can_be_dropped(tmp_path: Path) -> None:
    change = patch(tmp_path, "0001-ten.patch", difference(CODE, CHANGED, "engine/a.py"))
    ended = repack(tmp_path, engine(tmp_path, CHANGED), "--required", change)
    assert ended.code == 1
    assert ended.err == (
        "error: 0001-ten.patch is in this wheel already\nfix: drop it from patches/registry.yaml\n"
    )


def test_any_other_patch_is_left_out_with_a_note(tmp_path: Path) -> None:
    there = patch(tmp_path, "0001-ten.patch", difference(CODE, CHANGED, "engine/a.py"))
    astray = patch(tmp_path, "0002-b.patch", difference("other\n", "new\n", "engine/b.py"))
    ended = repack(tmp_path, engine(tmp_path, CHANGED), "--patch", there, "--patch", astray)
    assert ended.code == 0
    assert "note: 0001-ten.patch is in this wheel already; going on without it\n" in ended.out
    assert "note: 0002-b.patch does not apply: engine/b.py, hunk 1 of 1" in ended.out
    states = [made["state"] for made in receipt(tmp_path)["patches"]]
    assert states == ["already there", "does not apply"]
    assert receipt(tmp_path)["files_changed"] == []


def damage(wheel: Path, **changes: str | None) -> None:
    """Change members behind RECORD's back; None leaves one out."""
    inside: dict[str, str | None] = {**contents(wheel), **changes}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in inside.items():
            if text is not None:
                archive.writestr(name, text)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"engine/a.py": "other\n"}, "  engine/a.py\n"),
        ({"engine/more.py": "more\n"}, "  engine/more.py\n"),
        ({"engine/b.py": None}, "  engine/b.py\n"),
    ],
)
def test_a_wheel_that_is_not_what_its_record_says(
    tmp_path: Path, changes: dict[str, str | None], shown: str
) -> None:
    wheel = engine(tmp_path)
    damage(wheel, **changes)
    ended = repack(tmp_path, wheel)
    assert ended.code == 1
    assert ended.err == (
        f"error: {wheel.name} is not what its RECORD says\n{shown}"
        "fix: remove that file and fetch it again\n"
    )


def test_what_is_no_wheel(tmp_path: Path) -> None:
    torn = tmp_path / "engine-1.0-py3-none-any.whl"
    torn.write_bytes(b"PK\x03\x04 torn off")
    ended = repack(tmp_path, torn)
    assert (ended.code, ended.err.count("\n")) == (1, 2)
    assert "is no wheel" in ended.err
    ended = repack(tmp_path, tmp_path / "engine-2.0-py3-none-any.whl")
    assert ended.code == 1
    assert "No such file or directory" in ended.err


def test_the_patches_for_the_engine_apply_to_nothing_but_the_engine(tmp_path: Path) -> None:
    root = Path(__file__).parents[2] / "patches" / "sglang"
    for found in sorted(root.glob("*.patch")):
        ended = repack(tmp_path, engine(tmp_path), "--required", found)
        assert ended.code == 1
        assert f"error: {found.name} does not apply: sglang/" in ended.err
