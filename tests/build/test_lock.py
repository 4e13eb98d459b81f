"""Locks: what they are made from, what moved since, and what is written down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.check import check_patches
from firstlight.build.component import Component
from firstlight.build.lock import LockFile, lock_inputs, render
from firstlight.build.lockcheck import check_lock, require_lock
from firstlight.build.recipe import PatchRegistry, Stack
from firstlight.core.errors import ConfigError
from firstlight.core.schema import Document, load
from tests.build.small import COMPONENT, STACK, component, lock, parts, stack

ROOT = Path(__file__).parents[2]
FILE = "recipes/locks/tiny-cpu.lock.yaml"
AT = "recipes/stacks/tiny-cpu.yaml"


def written(text: str | None = None) -> Document[LockFile]:
    return load(text or render(lock()), FILE, LockFile)


def moved(old: str, new: str) -> list[str]:
    assert old in STACK
    return [
        str(fault) for fault in check_lock(stack(STACK.replace(old, new, 1)), written(), parts())
    ]


def test_a_lock_survives_being_written_and_read() -> None:
    assert written().value == lock()
    assert render(written().value) == render(lock())


def test_a_lock_holds_a_wheel_a_line_and_says_what_made_it() -> None:
    lines = render(lock()).splitlines()
    assert lines[1] == "# Made by: invoke lock --stack tiny-cpu"
    assert sum(".whl" in line for line in lines) == 2 * (3 + 1) + 1
    assert all(line.count(".whl") < 2 for line in lines)
    assert "http" not in render(lock())


def test_a_lock_goes_with_the_stack_it_was_made_from() -> None:
    assert check_lock(stack(), written(), parts()) == ()
    assert require_lock(stack(), written(), parts()) == lock()


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            "einops==0.8.2",
            "einops==0.8.3",
            [
                f"26:5: asks for einops 0.8.3; {FILE} for Python 3.11 has 0.8.2",
                f"26:5: asks for einops 0.8.3; {FILE} for Python 3.12 has 0.8.2",
            ],
        ),
        ("uv==0.13.9", "uv==0.14.0", [f"28:5: asks for uv 0.14.0; {FILE} has 0.13.9"]),
        (
            'python: ["3.11", "3.12"]',
            'python: ["3.12"]',
            [f"1:1: changed since {FILE} was made from it"],
        ),
        (
            "a1" * 32,
            "a3" * 32,
            [
                "19:9: torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl is not what "
                f"{FILE} for Python 3.11 has"
            ],
        ),
    ],
)
def test_what_moved_is_named(old: str, new: str, messages: list[str]) -> None:
    assert moved(old, new) == [f"{AT}:{message}" for message in messages]


def test_a_new_requirement_is_not_in_the_lock() -> None:
    found = moved("  - einops==0.8.2", "  - einops==0.8.2\n  - dill==0.4.1")
    assert found[0] == f"{AT}:27:5: asks for dill 0.4.1; {FILE} for Python 3.11 has none"


def test_a_component_that_moved_is_named() -> None:
    newer = {"sglang": component(COMPONENT.replace("0.5.23", "0.5.24")).value}
    document = stack(STACK.replace("version: 0.5.23", "version: 0.5.24"))
    found = [str(fault) for fault in check_lock(document, written(), newer)]
    assert found[0] == f"{AT}:9:32: asks for sglang 0.5.24; {FILE} for Python 3.11 has 0.5.23"


def test_the_remedy_is_the_command() -> None:
    with pytest.raises(ConfigError) as caught:
        require_lock(stack(STACK.replace("0.8.2", "0.8.3")), written(), parts())
    assert str(caught.value).endswith("\n  -> run: invoke lock --stack tiny-cpu")


def test_a_stack_with_faults_of_its_own_is_not_compared() -> None:
    assert moved("einops==0.8.2", "einops") == []
    assert moved('glibc: "2.34"', "glibc: new") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "file: einops-0.8.2",
            "file: einops-0.8.1",
            "12:44: einops-0.8.1-py3-none-any.whl is not einops 0.8.2",
        ),
        (
            "sglang-0.5.23-cp311-cp311",
            "sglang-0.5.23-cp310-cp310",
            "16:45: sglang-0.5.23-cp310-cp310-manylinux_2_34_x86_64.whl does not fit Python 3.11 "
            "on x86_64",
        ),
        (
            "stack: tiny-cpu\ninputs",
            "stack: other\ninputs",
            "4:8: this is the lock of 'other', not of 'tiny-cpu'",
        ),
    ],
)
def test_a_lock_that_was_edited_by_hand_is_told(old: str, new: str, message: str) -> None:
    text = render(lock())
    assert old in text
    found = [str(f) for f in check_lock(stack(), written(text.replace(old, new, 1)), parts())]
    assert found == [f"{FILE}:{message}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("size: 1000000", "size: 1000001"), ("b1" * 32, "b0" * 32), ("f1" * 32, "f0" * 32)],
)
def test_no_value_of_a_lock_changes_unseen(old: str, new: str) -> None:
    """What only a download could tell, hours later or never, is seen when the lock is read."""
    text = render(lock())
    assert old in text
    (fault,) = check_lock(stack(), written(text.replace(old, new, 1)), parts())
    assert str(fault).startswith(f"{FILE}:6:11: something in this lock was changed after it was")


def test_a_lock_from_before_its_contents_were_kept_still_goes() -> None:
    text = re.sub(r"contents: .*\n", "", render(lock()))
    assert check_lock(stack(), written(text.replace("size: 1000000", "size: 5")), parts()) == ()


def test_a_lock_names_only_indexes_of_its_stack() -> None:
    text = render(lock()).replace("index: torch-cpu", "index: torch-gpu", 1)
    found = [str(fault) for fault in check_lock(stack(), written(text), parts())]
    assert any("index 'torch-gpu' has no address in stack tiny-cpu" in fault for fault in found)


FIELDS = st.sampled_from(["0.8.2", "0.13.9", "2.13.0+cpu", "filelock", "a2a2", "2.34"])


@given(FIELDS)
def test_whatever_is_asked_for_changes_the_inputs(field: str) -> None:
    changed = {"a2a2": "a2a3", "2.34": "2.35", "filelock": "filelock>3"}.get(field, "9.9.9")
    new = stack(STACK.replace(field, changed)).value
    assert lock_inputs(new, parts()) != lock_inputs(stack().value, parts())


@given(
    st.permutations(["einops==0.8.2", "dill==0.4.1", "numpy==2.4.6"]), st.text("abc ", max_size=9)
)
def test_order_and_words_for_people_do_not_change_the_inputs(pins: list[str], title: str) -> None:
    def inputs(pins: list[str], title: str) -> str:
        text = STACK.replace("einops==0.8.2", "\n  - ".join(pins))
        return lock_inputs(stack(text.replace("A tiny stack", f"'{title}'")).value, parts())

    assert inputs(pins, title) == inputs(sorted(pins), "A tiny stack")


def test_the_lock_of_every_stack_of_the_project_goes_with_it() -> None:
    folder = ROOT / "recipes" / "components"
    components = {
        path.stem: load(path.read_text(), str(path), Component).value
        for path in folder.glob("*.yaml")
    }
    stacks = sorted((ROOT / "recipes" / "stacks").glob("*.yaml"))
    assert stacks
    for path in stacks:
        lock_path = ROOT / "recipes" / "locks" / f"{path.stem}.lock.yaml"
        if not lock_path.exists():
            # Resolving it takes a place from which its sources can be reached.
            continue
        document = load(path.read_text(), str(path), Stack)
        locked = load(lock_path.read_text(), str(lock_path), LockFile)
        assert check_lock(document, locked, components) == ()
        assert render(locked.value) == lock_path.read_text()


def test_every_patch_of_the_project_is_in_its_registry() -> None:
    folder = ROOT / "patches"
    registry = load((folder / "registry.yaml").read_text(), "patches/registry.yaml", PatchRegistry)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.patch")}
    parts, stacks = (
        [path.stem for path in (ROOT / "recipes" / kind).glob("*.yaml")]
        for kind in ("components", "stacks")
    )
    assert check_patches(registry, parts, stacks, files) == ()
