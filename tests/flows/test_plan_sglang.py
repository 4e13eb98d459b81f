"""`invoke build --dry-run` of the stack with SGLang's own kernels, whose repository is not needed.

Its lock takes GitHub; here files that do not exist stand for what that would find. The plan reads
nothing of them but their names.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from firstlight.build.choose import Choice, choose
from firstlight.build.component import Component
from firstlight.build.lock import LockFile, PythonLock, make_lock, render
from firstlight.build.recipe import Stack, pin
from firstlight.build.source import LockedSource
from firstlight.build.wheel import Wheel
from firstlight.core.schema import load
from firstlight.flows import recipes
from tests.flows.project import REPO, Project, make_project

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the stack is for x86_64")

STACK, KERNEL = "sglang-cu130-sm120", "sglang-kernel"
SHIPPED = "recipes/locks/kernels-cu130-sm120.lock.yaml"
RECIPE = "recipes/components/sglang-kernel.yaml"
# What the recipe names as the versions of FetchContent that its CMake files would download.
DEPENDENCIES = {
    "repo-cutlass", "repo-fmt", "repo-triton", "repo-flashinfer",
    "repo-flash-attention", "repo-flashmla", "repo-flashmla-cutlass",
}  # fmt: skip


def wheel(requirement: str, number: int) -> Wheel:
    """A wheel for every CPython that nobody has."""
    name, version = pin(requirement)
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, sha256=f"{number:064x}", size=1000)


def archives(choice: Choice, number: int) -> tuple[LockedSource, ...]:
    """The source of a component and what it would fetch, as a lock names them."""
    made_up = {"file": f"{choice.name}-{choice.version}.tar.gz", "sha256": f"{number:064x}"}
    own = locked(choice.name, choice.source, made_up)
    return (own, *(locked(one.name, one.source, {}) for one in choice.fetched))


def locked(name: str, source: Any, made_up: dict[str, str]) -> LockedSource:
    """A source as a lock has it; what its recipe pins is no other there."""
    pins = {key: one for key, one in source.model_dump(exclude_none=True).items() if key != "name"}
    row = {**made_up, "time": 1782000000, **pins, "name": name}
    if source.kind == "git":
        row = {"commit": "a" * 40, "tree": "b" * 40, **row}
    if source.kind == "archive":
        row["file"] = source.url.rpartition("/")[2]
    return LockedSource.model_validate(row)


def make_stack_lock(stack: Stack, components: dict[str, Component]) -> LockFile:
    """A lock of the stack that goes with it: the toolkit and the tools are real ones."""
    choices = choose(stack, components)
    shipped = load((REPO / SHIPPED).read_text(), SHIPPED, LockFile).value
    compiled = {name: one for name, one in choices.items() if one.from_source}
    as_is = [f"{one.name}=={one.version}" for one in choices.values() if one.as_is]
    installed = [wheel(text, 100 + n) for n, text in enumerate([*stack.requirements, *as_is])]
    build, check = {}, {}
    for name, one in compiled.items():
        assert one.build
        build[name] = tuple(wheel(text, 300 + n) for n, text in enumerate(one.build.requires))
        check[name] = tuple(w for w in installed if w.name in one.build.check.run)
    python = PythonLock(wheels=tuple(installed), build=build, check=check)
    sources = {name: archives(one, 500 + n) for n, (name, one) in enumerate(compiled.items())}
    found = dict.fromkeys(stack.python, python)
    return make_lock(stack, components, found, shipped.tools, shipped.toolkit, sources)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("plan")
    made = make_project(folder, [{"name": "local", "root": str(folder / "root")}])
    document, components = recipes.stack(made.root, STACK)
    text = render(make_stack_lock(document.value, components))
    made.write(f"recipes/locks/{STACK}.lock.yaml", text)
    yield made
    assert not (folder / "root").exists(), "a dry run has left something"


@pytest.fixture(scope="module")
def plan(project: Project) -> str:
    words = ("build", "--stack", STACK, "--arch", "12.0", "--dry-run")
    return project.invoke(*words, check=True).stdout


def request(plan: str) -> dict[str, Any]:
    """What the plan writes for build_component.py to read."""
    title = rf"^# \d+\. say how {KERNEL} is built\n[^\n]*\n[^\n]*<<'EOF'\n(.*?)^EOF$"
    (text,) = re.findall(title, plan, re.MULTILINE | re.DOTALL)
    asked: dict[str, Any] = json.loads(text)
    return asked


def test_every_source_is_fetched_and_every_component_built(plan: str) -> None:
    steps = re.findall(r"^# \d+\. (.*)$", plan, re.MULTILINE)
    assert "put the CUDA 13.0 toolkit together" in steps
    built = " ".join(step for step in steps if step.startswith("build "))
    for name in (f"{KERNEL} 0.4.10", "flashinfer-python 0.7.2", "sglang 0.5.23"):
        assert name in built
    assert steps[-2].startswith(f"assemble release {STACK}-py31")


def test_its_cmake_is_told_what_the_recipe_says(plan: str) -> None:
    asked = request(plan)
    assert asked["cmake"] == yaml.safe_load((REPO / RECIPE).read_text())["build"]["cmake"] | {
        "SGL_KERNEL_COMPILE_THREADS": "1"
    }
    cmake = asked["cmake"]
    assert cmake["CMAKE_CUDA_COMPILER_LAUNCHER"] == "${launcher}"
    assert cmake["FETCHCONTENT_FULLY_DISCONNECTED"] == "ON"
    assert cmake["CMAKE_POLICY_DEFAULT_CMP0170"] == "NEW"
    sources = {
        name.removeprefix("FETCHCONTENT_SOURCE_DIR_").lower(): text
        for name, text in cmake.items()
        if name.startswith("FETCHCONTENT_SOURCE_DIR_")
    }
    # Each name of FetchContent leads to the source of that name, and that one is brought.
    assert sources == {name: f"${{fetched:{name}}}" for name in DEPENDENCIES}
    assert {one["name"] for one in asked["fetched"]} == DEPENDENCIES


def test_only_code_for_the_card_is_kept_and_the_wheel_is_held_against_it(plan: str) -> None:
    asked = request(plan)
    assert asked["gencodes"] == ["120a"]
    assert asked["env"]["TORCH_CUDA_ARCH_LIST"] == "12.0a"
    expect = asked["expect"]
    assert (expect["targets"], expect["ptx"], expect["cuda_major"]) == (["sm_120a"], False, 13)
    assert expect["libraries"] == ["sgl_kernel/sm100/common_ops*.so"]
    assert expect["imports"] == ["sgl_kernel"]
    assert asked["project"] == "sglang-kernel" and asked["subdir"] == ""
    assert "/store/cuda-toolkit-13.0-" in asked["toolkit"]
    assert asked["refused"]["verify"].startswith("invoke verify --host local --arch 12.0 --wheel")


def test_it_is_for_no_other_card(project: Project) -> None:
    words = ("build", "--stack", STACK, "--arch", "12.1", "--dry-run")
    done = project.invoke(*words)
    assert done.returncode == 3
    assert f"stack {STACK} is built for 12.0, not for 12.1" in done.stderr
