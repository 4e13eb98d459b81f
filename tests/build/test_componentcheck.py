"""Mistakes in what is built from source: each is told when the recipe is read, not after hours."""

from __future__ import annotations

import re

import pytest

from firstlight.build.check import check_stack
from firstlight.build.choose import choose
from firstlight.build.component import Component
from firstlight.build.componentcheck import check_component
from firstlight.build.lock import LockFile, PythonLock, make_lock, render
from firstlight.build.lockcheck import check_lock
from firstlight.build.recipe import Stack
from firstlight.build.source import LockedSource
from firstlight.build.wheel import Wheel
from firstlight.core.errors import ConfigError
from firstlight.core.schema import load

KERNELS = """\
schema: 1
name: kernels
title: Some kernels
versions:
  "1.0":
    sources: [{kind: sdist}]
    fetched:
      - name: cutlass
        source: {kind: archive, url: https://e.example/a.tar.gz, sha256: "{digest}"}
build:
  backend: setuptools
  requires: [setuptools==84.2.1]
  needs: [other]
  subdir: csrc
  env: {A: "${arch_list} ${fetched:cutlass}"}
  arch: {spelling: {"12.0": "120"}, gencodes: {"12.0": 120a}}
  check: {targets: {"12.0": [sm_120a]}}
""".replace("{digest}", "a1" * 32)
OTHER = """\
schema: 1
name: other
title: Another
versions: {"1.0": {sources: [{kind: sdist}]}}
build: {backend: setuptools, requires: [setuptools==84.2.1], needs: []}
"""
TOOLKIT = """\
schema: 1
name: cuda-toolkit
title: The toolkit
versions: {"13.0": {sources: [{kind: toolkit}]}}
"""
STACK = """\
schema: 1
name: small
title: A small stack
engine: none
python: ["3.11"]
arch: x86_64
glibc: "2.34"
cuda: "13.0"
arch_list: ["12.0"]
disk_gib: 1
components:
  cuda-toolkit: {version: "13.0"}
  kernels: {version: "1.0"}
  other: {version: "1.0"}
tools: [uv==0.13.9, pyelftools==0.33]
"""


def of_component(text: str) -> list[str]:
    try:
        faults = check_component(load(text, "k.yaml", Component))
    except ConfigError as error:
        faults = error.faults
    return [str(fault) for fault in faults]


def of_stack(text: str = STACK, *, other: str = OTHER) -> list[str]:
    parts = [load(one, "c.yaml", Component).value for one in (KERNELS, other, TOOLKIT)]
    known = {part.name: part for part in parts}
    try:
        faults = check_stack(load(text, "s.yaml", Stack), known, known)
    except ConfigError as error:
        faults = error.faults
    return [str(fault) for fault in faults]


def test_without_a_mistake_nothing_is_said() -> None:
    assert of_component(KERNELS) == of_component(OTHER) == of_stack() == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('${fetched:cutlass}"', '${arch_list"', "15:12: a ${ has no end; write ${word}"),
        (
            "subdir: csrc",
            "subdir: a/${tag}",
            "14:11: placeholders are filled in `env`, `config` and `cmake` only",
        ),
        ("subdir: csrc", "subdir: ../x", "14:11: '../x' leads out of the source"),
        ("subdir: csrc", "subdir: /etc", "14:11: '/etc' leads out of the source"),
        (
            "[setuptools==84.2.1]",
            "[setuptools==84.2.1, Setuptools==80.0]",
            "12:34: setuptools is given twice",
        ),
        ("[setuptools==84.2.1]", "[]", "12:13: it is empty, and needs one at least"),
        (
            "subdir: csrc",
            "job_gib: .inf",
            "14:12: input should be less than or equal to 4096",
        ),
        (
            "{kind: sdist}",
            "{kind: toolkit}",
            "6:15: only cuda-toolkit is a toolkit: needs and builds know it by that name",
        ),
        ("env: {A:", "env: {PATH:", "15:15: PATH is set for every build, and is not for a recipe"),
        ("subdir: csrc", "cmake: {A: b}", "14:10: setuptools has no use for `cmake`"),
        (
            "subdir: csrc",
            "subdir: csrc\n  project: x",
            "14:11: `project` says already where to build; keep one of the two",
        ),
        ("name: cutlass", "name: kernels", "8:15: 'kernels' is given twice"),
        (
            "name: cutlass",
            "name: ../cutlass",
            "8:15: '../cutlass' is no name: letters, digits, '.', '_' and '-' only",
        ),
        (
            'spelling: {"12.0"',
            'spelling: {"120"',
            "16:28: '120' is no capability of a card; write it like '12.0'",
        ),
        (
            "120a}}",
            "sm_120a}}",
            "16:56: 'sm_120a' is no gencode; write what follows compute_, like '120a'",
        ),
        ("[sm_120a]", '["120a"]', "17:30: '120a' is no target; write it like 'sm_120a'"),
    ],
)
def test_a_mistake_in_a_component(old: str, new: str, message: str) -> None:
    assert old in KERNELS
    assert f"k.yaml:{message}" in of_component(KERNELS.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '["12.0"]',
            '["12.0a"]',
            "9:13: '12.0a' is no capability of a card; write it like '12.0'",
        ),
        ('["12.0"]', '["12.0", "12.0"]', "9:21: 12.0 is given twice"),
        (
            '["12.0"]',
            '["12.0", "12.1"]',
            "13:12: kernels has `gencodes`, and none for 12.1; did you mean '12.0'?",
        ),
        (
            "disk_gib: 1",
            "tag: a b/c\ndisk_gib: 1",
            "10:6: 'a b/c' is no part of a version; write it like 'cu130.sm120'",
        ),
        (
            'cuda: "13.0"',
            "cuda: thirteen",
            "8:7: 'thirteen' is no release of CUDA; write it like '13.0'",
        ),
        (
            'cuda: "13.0"\n',
            "",
            "8:12: needs `cuda` beside it, the release of CUDA, like '13.0'",
        ),
        (
            'cuda: "13.0"',
            'cuda: "12.8"',
            "12:27: the toolkit is of CUDA 13.0; the stack says 12.8",
        ),
        (
            ", pyelftools==0.33",
            "",
            "15:8: needs pyelftools==version, by which kernels is verified",
        ),
    ],
)
def test_a_mistake_in_a_stack(old: str, new: str, message: str) -> None:
    assert old in STACK
    assert f"s.yaml:{message}" in of_stack(STACK.replace(old, new))


def test_needs_that_go_in_a_circle() -> None:
    other = OTHER.replace("needs: []", "needs: [kernels]")
    (fault,) = of_stack(other=other)
    assert fault.partition("circle: ")[2] in (
        "kernels -> other -> kernels",
        "other -> kernels -> other",
    )
    alone = OTHER.replace("needs: []", "needs: [other]")
    assert of_stack(other=alone) == ["s.yaml:14:10: needs go in a circle: other -> other"]
    # As a wheel it needs nothing to be made.
    wheel = other.replace("kind: sdist", "kind: wheel")
    assert of_stack(other=wheel) == []


def wheel(name: str, version: str) -> Wheel:
    file = f"{name}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, sha256="a1" * 32)


def lock_faults(build: tuple[Wheel, ...], archives: tuple[str, ...]) -> list[str]:
    """What is said of a lock of `other` alone that was edited by hand."""
    text = re.sub(r"  (cuda-toolkit|kernels): .*\n|cuda: .*\n|arch_list: .*\n", "", STACK)
    stack, parts = load(text, "s.yaml", Stack), {"other": load(OTHER, "c.yaml", Component).value}
    assert check_stack(stack, parts, parts) == ()
    held = tuple(
        LockedSource(name=name, kind="sdist", file=f"{name}-1.0.tar.gz", sha256="b1" * 32)
        for name in archives
    )
    found = PythonLock(wheels=(), build={"other": build})
    tools = (wheel("uv", "0.13.9"), wheel("pyelftools", "0.33"))
    lock = make_lock(stack.value, parts, {"3.11": found}, tools, archives={"other": held})
    document = load(render(lock), "l.yaml", LockFile)
    return [str(fault) for fault in check_lock(stack, document, parts)]


@pytest.mark.parametrize(
    "source, project, wanted",
    [
        ("{kind: sdist}", "", "my-kernel"),
        ("{kind: sdist, name: Other_Name}", "", "other-name"),
        ("{kind: git, url: 'https://h/x', ref: v1}", "sgl_kernel", "sgl-kernel"),
        ("{kind: git, url: 'https://h/x', ref: v1}", "", "my-kernel"),
    ],
)
def test_a_component_says_whose_wheel_it_makes(source: str, project: str, wanted: str) -> None:
    text = f"""\
schema: 1
name: my_kernel
title: Kernels
versions: {{"1.0": {{sources: [{source}]}}}}
build: {{backend: pep517, project: "{project}", requires: [ninja==1.13.0]}}
"""
    part = load(text, "recipes/components/my_kernel.yaml", Component).value
    picks = 'components: {my_kernel: {version: "1.0"}}\n'
    alone = re.sub(r"components:\n(  .*\n)+", picks, STACK)
    made = choose(load(alone, "s.yaml", Stack).value, {"my_kernel": part})
    assert made["my_kernel"].project == wanted


def test_a_lock_holds_what_a_component_is_built_with_and_its_source_first() -> None:
    good = (wheel("setuptools", "84.2.1"),)
    assert lock_faults(good, ("other", "cutlass")) == []
    asked = "s.yaml:10:20: asks for setuptools 84.2.1; to build it l.yaml for Python 3.11 has"
    assert lock_faults((), ("other",)) == [f"{asked} none"]
    assert lock_faults((wheel("setuptools", "80.0"),), ("other",)) == [f"{asked} 80.0"]
    first = "s.yaml:10:20: l.yaml has cutlass before other itself"
    assert lock_faults(good, ("cutlass", "other")) == [first]
