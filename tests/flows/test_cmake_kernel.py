"""The recipe of sglang-kernel, locked and built: a CMake project of its shape, by mirrors alone."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.flows.cmake import (
    HUNGRY,
    NEWER,
    OLDER,
    RECIPE,
    RELEASES,
    SGLANG,
    Kernels,
    make_kernels,
    stack_of,
)
from tests.flows.kernel import Pantry, share_toolkit
from tests.flows.tiny import refused
from tests.remote.repos import commit, git, write
from tests.remote.toolkit_wheels import real_wheels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the lock's wheels are for x86_64"),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    """A project in which every release is locked and nothing is built."""
    folder = tmp_path_factory.mktemp("aot")
    toolkit = real_wheels(tmp_path_factory.mktemp("toolkit"))
    share_toolkit(Pantry(folder, toolkit[0].parent), folder / "root")
    made = make_kernels(folder, folder / "root")
    for version in RELEASES:
        done = made.lock(version)
        assert done.returncode == 0, done
    yield made
    made.end()
    # Gigabytes, and nobody waits for that.
    subprocess.Popen(["rm", "-rf", "--", str(made.root)], start_new_session=True)


@pytest.fixture(scope="module")
def built(kernels: Kernels) -> Kernels:
    """The project once the newer release is built."""
    done = kernels.build(NEWER)
    assert done.returncode == 0, done
    return kernels


def wheel(kernels: Kernels, version: str) -> zipfile.ZipFile:
    """The wheel of a release."""
    (home,) = kernels.made(version)
    (found,) = home.glob("*.whl")
    return zipfile.ZipFile(found)


def targets(kernels: Kernels, version: str) -> dict[str, list[str]]:
    """The targets of each library of a release, as its receipt tells them."""
    (home,) = kernels.made(version)
    told = yaml.safe_load((home / "receipt.json").read_text())
    assert told["sandbox"]["offline"] is True
    return {
        Path(lib["path"]).name.partition(".")[0]: [*lib["targets"]] for lib in told["libraries"]
    }


def test_a_lock_holds_commits_and_hashes_under_their_real_addresses(kernels: Kernels) -> None:
    text = kernels.project.read(f"recipes/locks/{stack_of(NEWER)}.lock.yaml")
    own, *fetched = yaml.safe_load(text)["archives"]["sglang-kernel"]
    repository = kernels.mirror / "sgl-project/sglang"
    assert (own["url"], own["ref"]) == (SGLANG, "v0.5.23")
    assert own["commit"] == git(repository, "rev-parse", "v0.5.23^{commit}")
    assert len(fetched) == 7 and {one["kind"] for one in fetched} == {"git", "archive"}
    assert str(kernels.mirror) not in text


def test_only_our_target_is_left_where_ours_is_among_them(built: Kernels) -> None:
    assert targets(built, NEWER) == {"common_ops": ["sm_120a"], "flashmla_ops": ["sm_90a"]}
    with wheel(built, NEWER) as packed:
        assert [name for name in packed.namelist() if name.endswith(".so")] == [
            "sgl_kernel/flashmla_ops.abi3.so",
            "sgl_kernel/sm100/common_ops.abi3.so",
        ]
        assert str(packed.filename).endswith("-0.4.10+cu130-cp310-abi3-linux_x86_64.whl")


def test_what_it_would_have_downloaded_came_from_the_recipe(built: Kernels, tmp_path: Path) -> None:
    with wheel(built, NEWER) as packed:
        packed.extractall(tmp_path)
    (toolkit,) = (built.root / "store").glob("cuda-toolkit-*/cuda/lib64")
    words = [sys.executable, "-c", "import sgl_kernel; print(sgl_kernel.told)"]
    env = {"LD_LIBRARY_PATH": str(toolkit)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout == "7 stars, cutlass of the recipe and edited, fmt of the recipe\n", done


def test_a_project_is_found_by_its_name_in_an_older_tree_too(built: Kernels) -> None:
    done = built.build(OLDER)
    assert done.returncode == 0, done
    assert targets(built, OLDER) == {"common_ops": ["sm_120a"], "flashmla_ops": ["sm_90a"]}
    (newer, older) = (
        yaml.safe_load((built.made(version)[0] / "receipt.json").read_text())["command"][-1]
        for version in (NEWER, OLDER)
    )
    assert newer.endswith("/work/src/python/sglang/kernels/aot")
    assert older.endswith("/work/src/sgl-kernel")


def test_a_download_that_the_recipe_does_not_name_is_told(kernels: Kernels) -> None:
    message = refused(kernels.build(HUNGRY), 4)
    assert kernels.made(HUNGRY) == []
    cause = "CMake may fetch nothing, and repo-mscclpp, which it wants, was not handed in"
    assert f"  cause: {cause}\n" in message and "as ${fetched:repo-mscclpp}\n" in message
    done = kernels.project.invoke("explain", "--log", str(kernels.log(HUNGRY)))
    assert done.returncode == 0 and f"cause: {cause}\n" in done.stdout


def test_a_tag_that_was_moved_is_not_locked(kernels: Kernels) -> None:
    repository = kernels.mirror / "sgl-project/sglang"
    before = kernels.project.read(f"recipes/locks/{stack_of(NEWER)}.lock.yaml")
    pinned = git(repository, "rev-parse", "v0.5.23^{commit}")
    object_of_tag = git(repository, "rev-parse", "v0.5.23")
    write(repository, {"later": "more"})
    moved = commit(repository)
    git(repository, "tag", "--force", "v0.5.23", moved)
    try:
        message = refused(kernels.lock(NEWER), 4)
    finally:
        git(repository, "tag", "--force", "v0.5.23", object_of_tag)
    assert "cannot look up the source of sglang-kernel" in message
    assert f"v0.5.23 of {SGLANG} " in message
    assert f"is at {moved}, the recipe pins {pinned}" in message
    assert kernels.project.read(f"recipes/locks/{stack_of(NEWER)}.lock.yaml") == before


def test_what_moved_since_a_lock_is_named(kernels: Kernels) -> None:
    assert kernels.lock(NEWER, "--check").returncode == 0
    file, lock = (
        f"recipes/stacks/{stack_of(NEWER)}.yaml",
        f"recipes/locks/{stack_of(NEWER)}.lock.yaml",
    )
    before = kernels.project.read(file), kernels.project.read(RECIPE)
    try:
        kernels.project.change(file, (f"version: {NEWER}", f"version: {OLDER}"))
        message = refused(kernels.lock(NEWER, "--check"), 2)
        said = (
            f"{lock} has sglang-kernel with ref v0.5.23; sglang-kernel {OLDER} asks for ref v0.5.16"
        )
        assert said in message
        assert f"-> run: invoke lock --stack {stack_of(NEWER)}" in message
        kernels.project.write(file, before[0])
        kernels.project.change(RECIPE, ("ref: 12.0.0", "ref: 12.1.0"))
        said = (
            f"{lock} has repo-fmt for sglang-kernel with ref 12.0.0; sglang-kernel {NEWER} asks for"
        )
        assert said in refused(kernels.build(NEWER), 2)
    finally:
        kernels.project.write(file, before[0])
        kernels.project.write(RECIPE, before[1])
