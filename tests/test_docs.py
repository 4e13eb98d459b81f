"""What README and docs promise, held against the code: links, verbs, flags, keys, examples."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from firstlight.build.choose import choose
from firstlight.build.component import Component
from firstlight.build.recipe import Stack
from firstlight.core.schema import load
from firstlight.hosts.inventory import Host, InventoryFile
from firstlight.serve.profile import (
    GgufModel,
    HubModel,
    Match,
    PathModel,
    Policy,
    Profile,
    Question,
    Service,
    Smoke,
    Workload,
)

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
PROFILES = ROOT / "docs" / "profiles.md"
HOSTS = ROOT / "docs" / "hosts.md"
FOLDERS = r"(?:docs|recipes|inventory|templates|patches|firstlight|tests|benchmarks|\.ci)"

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def verbs() -> dict[str, set[str]]:
    """Every verb of tasks.py with its flags."""
    found = {}
    for node in ast.parse((ROOT / "tasks.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name != "verb":
            names = (arg.arg.strip("_").replace("_", "-") for arg in node.args.args[1:])
            found[node.name] = {f"--{name}" for name in names}
    return found


def keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def section(page: Path, title: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", page.read_text(), re.M | re.S)
    assert found, f"{page.name} has no heading {title!r}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables of a text by each word in quotes of the first cell."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {name: line[1:] for line in cells for name in re.findall(r"`(\w+)`", line[0])}


def examples(text: str) -> list[Any]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    return [yaml.safe_load(block) for block in blocks]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every `invoke VERB ...` that is written as code, with the flags that follow it."""
    for found in re.finditer(r"(?:`|^ {4}|^\$ |bin/)invoke ([a-z]+)([^`\n#]*)", text, re.M):
        yield found[1], re.findall(r"(?<= )--[a-z-]+", found[2])


@pages
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if not link.startswith(("https://", "http://"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pages
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    named = re.findall(rf"`({FOLDERS}/[\w./-]*)`", page.read_text())
    real = [name for name in named if not re.search(r"NAME|NNNN", name)]
    assert [name for name in real if not (ROOT / name).exists()] == []


@pages
def test_verbs_and_flags_that_are_named_exist(page: Path) -> None:
    known = verbs()
    for verb, flags in commands(page.read_text()):
        assert verb in known, f"{page.name}: invoke {verb}"
        assert set(flags) <= known[verb], f"{page.name}: invoke {verb} {' '.join(flags)}"


def test_the_readme_names_every_verb_and_no_flag_that_is_none() -> None:
    text, known = README.read_text(), verbs()
    assert {verb for verb, _ in commands(text)} == set(known)
    alone = re.findall(r"`(--[a-z-]+)`", text)
    assert set(alone) <= set(chain(*known.values()))


def test_the_test_line_is_what_ci_runs() -> None:
    _, tests = re.findall(r"^ {4}(python3 -m venv .*)$", README.read_text(), re.M)
    assert tests in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_key_of_a_profile_is_told_and_no_other() -> None:
    assert set(rows(section(PROFILES, "Every key"))) == keys(Profile)
    parts: dict[str, type[BaseModel]] = {"match": Match, "policy": Policy}
    for title, model in (parts | {"workload": Workload, "service": Service}).items():
        assert set(rows(section(PROFILES, f"`{title}`"))) == keys(model)


def test_defaults_of_the_service_are_told_as_they_are() -> None:
    for name, cells in rows(section(PROFILES, "`service`")).items():
        default = Service.model_fields[name].default
        assert cells[-1] == (f"`{default}`" if default not in (None, ()) else "none"), name


def test_kinds_of_kv_policy_are_all_told() -> None:
    told = re.findall(r"`(\w+)`", rows(section(PROFILES, "`policy`"))["kv"][0])
    assert set(told) == set(get_args(Policy.model_fields["kv"].annotation))


def test_examples_of_models_show_every_key() -> None:
    shown = {e["model"]["kind"]: set(e["model"]) for e in examples(section(PROFILES, "`model`"))}
    gguf, path, hub = keys(GgufModel), keys(PathModel), keys(HubModel)
    assert shown == {"pypi-gguf": gguf, "path": path, "hf": hub}


def test_examples_of_questions_show_every_key() -> None:
    (shown,) = examples(section(PROFILES, "`smoke`"))
    assert set(shown["smoke"]) == keys(Smoke)
    assert set(chain(*shown["smoke"]["questions"])) == keys(Question)


def test_examples_of_a_profile_can_be_loaded() -> None:
    model = {"kind": "path", "path": "/m"}
    base = {"schema": 1, "name": "a", "stack": "b", "served_model_name": "c", "model": model}
    for example in examples(PROFILES.read_text()):
        load(json.dumps(base | example), "example.yaml", Profile)


def test_every_key_of_a_host_is_told_and_the_example_can_be_loaded() -> None:
    assert set(rows(HOSTS.read_text())) == keys(Host)
    (example,) = examples(HOSTS.read_text())
    inventory = load(json.dumps(example), "hosts.yaml", InventoryFile).value
    assert keys(Host) == set().union(*(host.model_fields_set for host in inventory.hosts))


def test_examples_of_a_component_and_its_stack_go_together() -> None:
    shown = examples(section(ROOT / "docs" / "builds.md", "Add a component"))
    component = load(json.dumps(shown[0]), "colorama.yaml", Component)
    stack = load(json.dumps(shown[1]), "tried.yaml", Stack)
    assert choose(stack.value, {component.value.name: component.value})["colorama"].build


def test_decisions_are_numbered_without_a_gap() -> None:
    found = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:3] for path in found] == [f"{n:03}" for n in range(1, len(found) + 1)]
    for path in found:
        assert path.read_text().startswith(f"# {path.name[:3]}: ")
