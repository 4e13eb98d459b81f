"""Builds that cannot be: patches, hashes, disks, Pythons, rights; nothing half-made is left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.project import INVOKE
from tests.flows.tiny import Tiny, make_tiny, make_tiny_lock, refused

PATCH = "patches/sglang/0001-say-so.patch"
LOCK = "recipes/locks/tiny.lock.yaml"
STACK = "recipes/stacks/tiny.yaml"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk takes root")


def build_fails(tiny: Tiny, code: int = 4) -> str:
    """The message of a build that fails; nothing is finished, and nothing half-finished left."""
    message = refused(tiny.project.invoke("build"), code)
    assert tiny.made("releases") == [] and tiny.unfinished() == []
    return message


def test_a_patch_that_does_not_apply_stops_with_file_and_hunk(tiny: Tiny) -> None:
    tiny.project.change(PATCH, ('-BUILT = "as published"', '-BUILT = "of another version"'))
    message = build_fails(tiny)
    assert message.startswith(
        "error: local: cannot patch sglang 0.5.23 into 0.5.23+firstlight.tiny:"
        " 0001-say-so.patch does not apply: sglang/launch_server.py, hunk 1 of 1"
    )
    assert "-> write the patch again for this version" in message
    assert "expected: 'BUILT = \"of another version\"\\n'" in message
    assert tiny.made("store") == []
    # With the patch put right the build goes on from the wheels that it has.
    tiny.project.change(PATCH, ('-BUILT = "of another version"', '-BUILT = "as published"'))
    said = tiny.project.invoke("build", check=True).stdout
    assert "in place: 2 of 2 wheels" in said


def test_a_patch_that_the_wheel_holds_already(tiny: Tiny) -> None:
    edits = ('-BUILT = "as published"', '-BUILT = "x"'), ("with our patch", "as published")
    tiny.project.change(PATCH, *edits)
    message = build_fails(tiny)
    assert "0001-say-so.patch is in this wheel already" in message
    assert "-> drop it from patches/registry.yaml" in message
    assert tiny.made("store") == []


def test_a_wheel_that_is_not_what_the_lock_says(tiny: Tiny) -> None:
    wheel = "sglang-0.5.23-py3-none-any.whl"
    right = tiny.project.read(LOCK).partition(f"{wheel}, sha256: ")[2][:64]
    wrong = "a" * 64
    tiny.project.change(LOCK, (right, wrong))
    for verb in (("build",), ("check",), ("lock", "--stack", "tiny", "--check")):
        done = tiny.project.invoke(*verb)
        assert done.returncode == 2
        assert f"{LOCK}:6:11: something in this lock was changed" in done.stdout + done.stderr
    # As a lock from before its contents were kept.
    tiny.project.write(LOCK, re.sub(r"contents: .*\n", "", tiny.project.read(LOCK)))
    message = build_fails(tiny)
    assert f"{wheel}: sha256 is {right}, wanted {wrong}" in message
    assert "-> do not use that file; find out what changed it" in message
    assert tiny.made("wheels") == []


def test_a_wheel_that_was_changed_after_it_came(tiny: Tiny) -> None:
    tiny.project.invoke("build", check=True)
    (release,) = tiny.made("releases")
    subprocess.run(["rm", "-r", str(tiny.root / "releases"), str(tiny.root / "store")], check=True)
    (wheel,) = tiny.root.glob("wheels/*/sglang*.whl")
    data = bytearray(wheel.read_bytes())
    data[200] ^= 1
    wheel.write_bytes(data)
    message = build_fails(tiny)
    assert "cannot patch sglang 0.5.23" in message
    assert tiny.made("store") == []
    # What the message says to do helps.
    assert "fetch it again" in message
    wheel.unlink()
    tiny.project.invoke("build", check=True)
    assert tiny.made("releases") == [release]


def test_more_space_is_needed_than_there_is(tiny: Tiny) -> None:
    tiny.project.change(STACK, ("disk_gib: 1", "disk_gib: 1000000"))
    message = build_fails(tiny)
    assert f"no space: {tiny.root} has " in message
    assert " MiB free, this step needs 10240000" in message
    assert "-> make room, or give the host another root in the inventory" in message


@contextlib.contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A small disk, for as long as it is needed."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "disk", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("files", [25, 60, 90])
def test_a_disk_that_fills_up_on_the_way(tmp_path: Path, pantry: Path, files: int) -> None:
    """A disk that takes so many files is full while it fetches, patches or assembles."""
    with disk(tmp_path / "disk", f"size=3g,nr_inodes={files}") as place:
        tiny = make_tiny(tmp_path, pantry, root=str(place / "root"))
        try:
            done = tiny.project.invoke("build")
            message = refused(done, done.returncode)
            # A job that cannot even begin is the host's matter, one that fails is the step's.
            assert done.returncode in (3, 4)
            assert "o space left on " in message or "is the disk full?" in message, message
            assert tiny.made("releases") == []
            subprocess.run(["mount", "-o", "remount,nr_inodes=0", str(place)], check=True)
            tiny.project.invoke("build", check=True)
            assert tiny.unfinished() == []
        finally:
            tiny.end()


def lacking(tiny: Tiny) -> str:
    """A series of CPython that this machine does not have."""
    said = tiny.project.invoke("facts", check=True).stdout
    missing = [series for series in ("3.11", "3.12", "3.13") if f" {series}." not in said]
    if not missing:
        pytest.skip("this machine has every CPython that a stack may ask for")
    return missing[0]


def test_a_host_without_the_python_of_the_stack(tiny: Tiny) -> None:
    series = lacking(tiny)
    tiny.project.change(STACK, ('["3.11", "3.12", "3.13"]', f'["{series}"]'))
    tiny.project.write(LOCK, make_tiny_lock(tiny.project, tiny.pantry))
    message = build_fails(tiny, 3)
    assert f"no Python that a release can use: needed is CPython {series}; found: " in message
    assert f"python{series}" in message.partition("-> ")[2]
    assert not tiny.root.exists()


def test_a_host_whose_glibc_is_too_old(tiny: Tiny) -> None:
    tiny.project.change(STACK, ('glibc: "2.17"', 'glibc: "2.99"'))
    tiny.project.write(LOCK, make_tiny_lock(tiny.project, tiny.pantry))
    message = build_fails(tiny, 3)
    assert "local: stack tiny needs glibc 2.99 or newer; the host has 2." in message
    assert not tiny.root.exists()


def test_a_root_below_something_that_is_no_folder(tmp_path: Path, pantry: Path) -> None:
    (tmp_path / "file").write_text("")
    tiny = make_tiny(tmp_path, pantry, root=str(tmp_path / "file" / "root"))
    message = refused(tiny.project.invoke("build"), 3)
    assert str(tmp_path / "file") in message


@needs_root
def test_a_root_on_a_disk_that_takes_no_writing(tmp_path: Path, pantry: Path) -> None:
    with disk(tmp_path / "disk", "size=1g,ro") as place:
        tiny = make_tiny(tmp_path, pantry, root=str(place / "root"))
        message = refused(tiny.project.invoke("build"), 3)
        assert str(place) in message and "inventory" in message


@needs_root
def test_a_root_where_this_user_may_not_write(tmp_path: Path, pantry: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    os.chown(closed, 65534, 65534)
    tiny = make_tiny(tmp_path, pantry, root=str(closed / "root"))
    # Root without its capabilities is a user like any other.
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", str(INVOKE), "build"],
        cwd=tiny.project.root,
        env=tiny.project.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    message = refused(done, 3)
    assert f"user root may not write in {closed}, where {closed}/root would be" in message
    assert f"install -d -o root {closed}/root" in message
    assert list(closed.iterdir()) == []


def test_a_home_that_cannot_be_written(tiny: Tiny) -> None:
    """What is remembered of a verb is only a shortcut."""
    env = {"HOME": "/proc/1", "XDG_STATE_HOME": "/proc/1/state"}
    done = tiny.project.invoke("up", env=env)
    assert done.returncode == 0, done.stderr
    assert tiny.project.invoke("up", env=env).stdout.count("deployment") == 1
