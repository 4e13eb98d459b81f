"""Keys: what changes the bits changes them, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.base import require_base
from firstlight.build.digest import digest
from firstlight.build.lock import LockFile
from firstlight.build.order import (
    Manifest,
    Order,
    artifacts,
    manifest_of,
    release_of,
    render_manifest,
)
from firstlight.build.release import Layout, Patch, wheel_path
from firstlight.core.errors import HostError
from tests.build.small import order, pure, stack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), PLAIN), st.randoms(use_true_random=False))
def test_the_order_of_keys_is_no_matter(value: dict[str, Any], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert digest(dict(items)) == digest(value)


@given(PLAIN, PLAIN)
def test_different_data_have_different_digests(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) is same


def keys(made: Order) -> tuple[str, str]:
    return artifacts(made)["sglang"].key, release_of(made)


def with_patches(*patches: Patch) -> Order:
    return dataclasses.replace(order(), patches={"sglang": patches})


FIRST, SECOND = order().patches["sglang"]


def flipped(sha256: str, at: int) -> str:
    """The digest with one of its digits changed."""
    return f"{sha256[:at]}{'0' if sha256[at] != '0' else '1'}{sha256[at + 1 :]}"


@given(st.integers(0, 63))
def test_one_digit_of_a_patch_changes_the_artifact_and_the_release(at: int) -> None:
    changed = dataclasses.replace(FIRST, sha256=flipped(FIRST.sha256, at))
    new = keys(with_patches(changed, SECOND))
    assert new[0] != keys(order())[0]
    assert new[1] != keys(order())[1]


def test_the_order_and_the_weight_of_patches_count_and_their_names_do_not() -> None:
    known = keys(order())
    assert keys(with_patches(SECOND, FIRST)) != known
    assert keys(with_patches(FIRST)) != known
    assert keys(with_patches(dataclasses.replace(FIRST, load_bearing=False), SECOND)) != known
    renamed = dataclasses.replace(FIRST, file="sglang/0009-x.patch", source=Path("/elsewhere/x"))
    assert keys(with_patches(renamed, SECOND)) == known


def relocked(change: Any) -> Order:
    """The order with the lock of its Python changed by a function of its data."""
    data = order().lock.model_dump(mode="json", by_alias=True)
    change(data)
    return dataclasses.replace(order(), lock=LockFile.model_validate_json(json.dumps(data)))


@given(st.integers(0, 2), st.integers(0, 63))
def test_one_digit_of_a_wheel_changes_the_release_alone(wheel: int, at: int) -> None:
    def change(data: dict[str, Any]) -> None:
        entry = data["pythons"]["3.11"]["wheels"][wheel]
        entry["sha256"] = flipped(entry["sha256"], at)

    new, known = keys(relocked(change)), keys(order())
    assert new[0] == known[0]
    assert new[1] != known[1]


@given(st.permutations([0, 1, 2]))
def test_the_order_of_a_lock_is_no_matter(places: list[int]) -> None:
    def change(data: dict[str, Any]) -> None:
        wheels = data["pythons"]["3.11"]["wheels"]
        data["pythons"]["3.11"]["wheels"] = [wheels[place] for place in places]

    assert keys(relocked(change)) == keys(order())


def test_another_source_changes_the_artifact_and_another_tool_the_release() -> None:
    def source(data: dict[str, Any]) -> None:
        data["pythons"]["3.11"]["sources"][0]["sha256"] = "0" * 64

    def tool(data: dict[str, Any]) -> None:
        data["tools"][0]["sha256"] = "0" * 64

    known = keys(order())
    assert keys(relocked(source))[0] != known[0]
    assert keys(relocked(tool))[0] == known[0]
    assert keys(relocked(tool))[1] != known[1]


def test_another_python_s_wheels_do_not_count() -> None:
    def change(data: dict[str, Any]) -> None:
        data["pythons"]["3.12"]["wheels"].pop()

    assert keys(relocked(change)) == keys(order())


def test_our_own_version_the_root_and_words_for_people_do_not_count() -> None:
    moved = {
        name: dataclasses.replace(program, target=PurePosixPath("/x") / name)
        for name, program in order().programs.items()
    }
    titled = order().stack.model_copy(update={"title": "T", "notes": "N", "disk_gib": 9})
    other = dataclasses.replace(
        order(), version="9.9", layout=Layout(PurePosixPath("/x")), programs=moved, stack=titled
    )
    assert keys(other) == keys(order())


@pytest.mark.parametrize(
    ("program", "artifact", "release"),
    [
        ("repack_wheel.py", True, True),
        ("unified_diff.py", True, True),
        ("capabilities.py", False, True),
        ("fetch_wheels.py", False, False),
    ],
)
def test_a_program_counts_where_it_makes_something(
    program: str, artifact: bool, release: bool
) -> None:
    changed = dataclasses.replace(order().programs[program], sha256="9" * 64)
    new = keys(dataclasses.replace(order(), programs={**order().programs, program: changed}))
    assert (new[0] != keys(order())[0], new[1] != keys(order())[1]) == (artifact, release)


def test_a_release_is_named_by_stack_and_python() -> None:
    assert release_of(order()).startswith("tiny-cpu-py311-")
    assert release_of(dataclasses.replace(order(), python="3.12")).startswith("tiny-cpu-py312-")
    assert len(release_of(order()).rpartition("-")[2]) == 12


def test_everything_has_its_place_below_the_root() -> None:
    (artifact,) = artifacts(order()).values()
    assert artifact.path == PurePosixPath(f"/srv/first light/store/sglang-0.5.23-{artifact.key}")
    assert artifact.version == "0.5.23+firstlight.cpu"
    place = wheel_path(order().layout, pure("x", "1.0", "7" * 64))
    assert place == PurePosixPath(f"/srv/first light/wheels/{'7' * 64}/x-1.0-py3-none-any.whl")


def test_a_manifest_tells_what_a_release_is_made_of() -> None:
    text = render_manifest(manifest_of(order()))
    assert Manifest.model_validate_json(text) == manifest_of(order())
    data = json.loads(text)
    assert data["release"] == release_of(order())
    assert data["env"] == {"SGLANG_USE_CPU_ENGINE": "1"}
    assert [wheel["name"] for wheel in data["wheels"]] == ["einops", "filelock", "torch"]
    assert [patch["sha256"][:2] for patch in data["components"][0]["patches"]] == ["e1", "e2"]


@pytest.mark.parametrize(
    ("arch", "glibc", "message"),
    [
        ("aarch64", "2.39", "gpu01: stack tiny-cpu is for x86_64; the host is aarch64\n"),
        ("x86_64", "2.31", "gpu01: stack tiny-cpu needs glibc 2.34 or newer; the host has 2.31\n"),
        ("x86_64", "2.9", "gpu01: stack tiny-cpu needs glibc 2.34 or newer; the host has 2.9\n"),
    ],
)
def test_a_host_that_cannot_run_the_wheels_is_refused(arch: str, glibc: str, message: str) -> None:
    with pytest.raises(HostError) as caught:
        require_base(stack().value, arch, glibc, "gpu01")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("glibc", ["2.34", "2.41"])
def test_a_host_with_the_base_is_taken(glibc: str) -> None:
    require_base(stack().value, "x86_64", glibc, "gpu01")
