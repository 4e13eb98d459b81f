"""Faults of recipes: each has its place and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from firstlight.build.check import check_patches, check_stack
from firstlight.build.component import Component
from firstlight.build.componentcheck import check_component
from firstlight.build.recipe import PatchRegistry, Stack, patches_for, pin
from firstlight.core.errors import ConfigError
from firstlight.core.schema import load
from tests.build.small import COMPONENT, STACK, component, parts, stack

REGISTRY = """\
schema: 1
patches:
  - file: sglang/0001-start.patch
    component: sglang
    versions: ==0.5.23
    stacks: [tiny-cpu]
    reason: it does not start
    upstream: none yet
    drop_when: it starts
    load_bearing: true
"""
FILES = ("sglang/0001-start.patch",)


def faults_of(old: str, new: str) -> list[str]:
    assert old in STACK
    return [
        str(fault) for fault in check_stack(stack(STACK.replace(old, new, 1)), parts(), parts())
    ]


def test_a_good_stack_has_no_fault() -> None:
    assert check_stack(stack(), parts(), parts()) == ()
    assert check_component(component()) == ()


AT = "recipes/stacks/tiny-cpu.yaml"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("einops==0.8.2", "einops", "26:5: 'einops' is not pinned; write einops==version"),
        ("einops==0.8.2", "einops>=1", "26:5: 'einops>=1' is not pinned; write einops==version"),
        (
            "einops==0.8.2",
            "einops==0.*",
            "26:5: 'einops==0.*' is not pinned; write einops==version",
        ),
        ("einops==0.8.2", "a b", "26:5: 'a b' is no requirement; write name==version"),
        ("einops==0.8.2", "Torch==1", "26:5: torch is given twice"),
        (
            "uv==0.13.9",
            "pip==26.0",
            "28:3: needs uv==version, which resolves stacks and assembles releases",
        ),
        (
            "{sglang: {",
            "{sglan: {",
            "9:21: no component 'sglan'; did you mean 'sglang'?",
        ),
        (
            "version: 0.5.23}",
            "version: 0.5.24}",
            "9:32: sglang has no version '0.5.24'; did you mean '0.5.23'?",
        ),
        (
            "version: 0.5.23}",
            "version: 0.5.23, source: git}",
            "9:48: sglang 0.5.23 has no source 'git'; known: wheel",
        ),
        (
            "index: torch-cpu",
            "index: torch",
            "15:12: index 'torch' has no address; did you mean 'torch-cpu'?",
        ),
        ('glibc: "2.34"', "glibc: new", "7:8: 'new' is no glibc version; write for example '2.34'"),
        (
            '"3.12"]',
            '"3.12", "3.13"]',
            "18:7: torch has no wheel for Python 3.13, which the stack offers",
        ),
        (
            "[filelock]",
            "['file lock']",
            "16:13: 'file lock' is no requirement; write for example 'jinja2>=3'",
        ),
        (
            "version: 2.13.0+cpu",
            "version: two",
            "14:14: 'two' is no version; write for example '0.5.23'",
        ),
        (
            "SGLANG_USE",
            "SGLANG-USE",
            "30:26: not a name for an environment variable: 'SGLANG-USE_CPU_ENGINE'",
        ),
        (
            "file: torch-2.13.0+cpu-cp311-cp311",
            "file: torch-2.13.0+cpu-cp312-cp312",
            "19:15: torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl does not fit "
            "Python 3.11 on x86_64",
        ),
        (
            "file: torch-2.13.0+cpu-cp311-cp311",
            "file: torch-2.13.1+cpu-cp311-cp311",
            "19:15: torch-2.13.1+cpu-cp311-cp311-manylinux_2_28_x86_64.whl is not torch 2.13.0+cpu",
        ),
    ],
)
def test_a_fault_of_a_stack_is_shown_at_its_place(old: str, new: str, message: str) -> None:
    assert faults_of(old, new) == [f"{AT}:{message}"]


@pytest.mark.parametrize(("tag", "place"), [("tag: ''\n", "31:6"), ("", "9:22")])
def test_a_stack_without_a_tag_makes_no_half_version(tag: str, place: str) -> None:
    """`firstlight.` behind the plus is no version, and hours later nothing would install it."""
    message = "sglang 0.5.23 would be 0.5.23+firstlight., no version; give the stack a `tag`, like"
    assert faults_of("tag: cpu\n", tag) == [f"{AT}:{place}: {message} 'cu130.sm120'"]


def test_every_fault_is_told_at_once() -> None:
    text = STACK.replace("einops==0.8.2", "einops").replace("{sglang:", "{other:")
    assert len(check_stack(stack(text), parts(), parts())) == 2


def test_a_bad_hash_and_a_bad_file_name_are_no_wheel() -> None:
    text = STACK.replace("a1" * 32, "A1" * 32).replace("torch-2.13.0+cpu-cp312", "torch-cp312")
    with pytest.raises(ConfigError) as caught:
        stack(text)
    first, second = (str(fault) for fault in caught.value.faults)
    assert first == f"{AT}:20:17: {'A1' * 32!r} is no sha256; it has 64 digits 0-9, a-f"
    assert second.startswith(f"{AT}:23:15: 'torch-cp312-cp312-")
    assert second.endswith("is no name of a wheel")


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        component(COMPONENT.replace("kind: wheel", "kind: ftp"))
    found = str(caught.value)
    assert found.startswith("recipes/components/sglang.yaml:5:22: ")
    assert found.endswith("'sdist', 'archive', 'git'; got \"ftp\"")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.5.23", "new", "5:8: 'new' is no version; write for example '0.5.23'"),
        (
            "firstlight.${tag}",
            "first light",
            "6:16: 'first light' is no local version; letters, digits and dots only",
        ),
    ],
)
def test_a_component_has_a_version_that_a_package_can_have(
    old: str, new: str, message: str
) -> None:
    found = check_component(component(COMPONENT.replace(old, new)))
    assert [str(fault) for fault in found] == [f"recipes/components/sglang.yaml:{message}"]


def patch_faults(
    text: str, files: tuple[str, ...] = FILES, idle: tuple[str, ...] = ()
) -> list[str]:
    document = load(text, "patches/registry.yaml", PatchRegistry)
    held = dict.fromkeys(files, b"why\n\n--- a/x/y.py\n+++ b/x/y.py\n@@ -1 +1 @@\n-1\n+2\n")
    held |= dict.fromkeys(idle, b"--- of what it is for\n")
    return [str(fault) for fault in check_patches(document, ["sglang"], ["tiny-cpu"], held)]


def test_a_good_registry_has_no_fault() -> None:
    assert patch_faults(REGISTRY) == []


def test_a_patch_that_changes_no_file_is_told_without_a_host() -> None:
    (told,) = patch_faults(REGISTRY, idle=FILES[:1])
    assert f"patches/{FILES[0]} changes no file; make it with `diff -ru` or `git diff`" in told


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            "component: sglang",
            "component: sgl",
            ["4:16: no component 'sgl'; did you mean 'sglang'?"],
        ),
        (
            "==0.5.23",
            "0.5.23",
            ["5:15: '0.5.23' is no set of versions; write for example '==0.5.23'"],
        ),
        ("[tiny-cpu]", "[tiny]", ["6:13: no stack 'tiny'; did you mean 'tiny-cpu'?"]),
        (
            "0001-start",
            "0001-star",
            [
                "3:11: no file patches/sglang/0001-star.patch; "
                "did you mean 'sglang/0001-start.patch'?",
                "3:3: patch 'sglang/0001-start.patch' has no entry; "
                "say why it is there, or delete it",
            ],
        ),
    ],
)
def test_a_fault_of_the_registry_is_shown_at_its_place(
    old: str, new: str, messages: list[str]
) -> None:
    found = sorted(patch_faults(REGISTRY.replace(old, new)))
    assert found == [f"patches/registry.yaml:{message}" for message in messages]


def test_a_patch_is_listed_once() -> None:
    entry = REGISTRY.partition("patches:\n")[2]
    assert patch_faults(REGISTRY + entry) == [
        "patches/registry.yaml:11:11: patch 'sglang/0001-start.patch' is given twice"
    ]


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("", "", 1),
        ("==0.5.23", "'>=0.5,<0.6'", 1),
        ("==0.5.23", "<0.5.23", 0),
        ("    stacks: [tiny-cpu]\n", "", 1),
        ("[tiny-cpu]", "[other]", 0),
        ("component: sglang", "component: other", 0),
    ],
)
def test_a_patch_is_for_certain_versions_and_stacks(old: str, new: str, count: int) -> None:
    registry = load(REGISTRY.replace(old, new, 1), "registry.yaml", PatchRegistry).value
    assert len(patches_for(registry, "sglang", "0.5.23", "tiny-cpu")) == count


def test_a_pin_has_a_plain_name() -> None:
    assert pin("Prometheus_Client==0.26.0") == ("prometheus-client", "0.26.0")


@pytest.mark.parametrize("text", ["a @ file:///x", "a==1; python_version<'4'", "a==1,==2", "a===1"])
def test_what_is_looser_than_a_pin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not pinned"):
        pin(text)


def test_the_project_s_own_stack_names_no_index_but_torch_s() -> None:
    root = Path(__file__).parents[2] / "recipes" / "stacks"
    for path in root.glob("*.yaml"):
        for address in load(path.read_text(), str(path), Stack).value.indexes.values():
            assert address.startswith("https://download.pytorch.org/")


def test_what_a_build_hands_in_every_version_must_fetch() -> None:
    """Else the host would find out, after all has been downloaded."""
    path = Path(__file__).parents[2] / "recipes/components/sglang-kernel.yaml"
    data = yaml.safe_load(path.read_text())
    ((version, found),) = data["versions"].items()
    kept = [one for one in found["fetched"] if one["name"] != "repo-fmt"]
    data["versions"]["0.4.9"] = {**found, "fetched": kept}
    document = load(yaml.safe_dump(data, sort_keys=False), "c.yaml", Component)
    (fault,) = check_component(document)
    assert str(fault).endswith(": fetches no repo-fmt, which `build` hands in")
    data["versions"] = {version: found}
    assert check_component(load(yaml.safe_dump(data), "c.yaml", Component)) == ()
