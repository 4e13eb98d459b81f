"""`invoke lock`: what it would run, and a small stack resolved for real."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from firstlight.build.lock import LockFile
from firstlight.build.lockcheck import check_lock
from firstlight.build.locking import failure
from firstlight.build.recipe import Stack
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError, StepError
from firstlight.core.plan import Run, Step
from firstlight.core.schema import load
from firstlight.effects.console import Console
from firstlight.flows import recipes
from firstlight.flows.lock import default_stack, run
from firstlight.hosts.inventory import UnknownName

STACK = """\
schema: 1
name: small
title: A small stack
engine: sglang
python: ["3.12", "3.11"]
arch: x86_64
glibc: "2.34"
disk_gib: 1
components: {part: {version: 2.1.0}}
indexes:
  own: https://torch.example/cpu
prebuilt:
  - name: torch
    version: 2.13.0+cpu
    index: own
    needs: [filelock]
    wheels:
      "3.11": {file: torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl, sha256: "{a}"}
      "3.12": {file: torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl, sha256: "{b}"}
requirements: [markupsafe==3.0.2]
tools: [uv==0.13.9]
""".replace("{a}", "a" * 64).replace("{b}", "b" * 64)

COMPONENT = """\
schema: 1
name: {name}
title: A part
versions: {{2.1.0: {{sources: [{{kind: wheel}}]}}}}
local_version: ours
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one stack, whose component's name is a real package's."""
    for folder in ("components", "stacks"):
        (tmp_path / "recipes" / folder).mkdir(parents=True)
    component = COMPONENT.format(name="iniconfig")
    (tmp_path / "recipes" / "components" / "iniconfig.yaml").write_text(component)
    write(tmp_path, STACK.replace("{part:", "{iniconfig:"))
    return tmp_path


def write(project: Path, text: str) -> None:
    (project / "recipes" / "stacks" / "small.yaml").write_text(text)


def console() -> Console:
    return Console(io.StringIO())


def test_a_dry_run_shows_every_script_and_writes_nothing(project: Path) -> None:
    text = run(project, console(), stack="small", dry_run=True).text
    titles = [line for line in text.splitlines() if line.startswith("# ") and ". " in line]
    assert titles == [
        "# 1. get uv (on the controller)",
        "# 2. resolve the tools (on the controller)",
        "# 3. resolve the requirements for Python 3.12 (on the controller)",
        "# 4. resolve the components for Python 3.12 (on the controller)",
        "# 5. resolve the requirements for Python 3.11 (on the controller)",
        "# 6. resolve the components for Python 3.11 (on the controller)",
    ]
    assert not (project / "recipes" / "locks").exists()


def test_the_only_stack_needs_no_name(project: Path) -> None:
    assert run(project, console(), dry_run=True).text.count("--python-version") == 5


def test_one_of_several_stacks_must_be_named(project: Path) -> None:
    (project / "recipes" / "stacks" / "other.yaml").write_text(STACK)
    with pytest.raises(FirstlightError) as caught:
        run(project, console(), dry_run=True)
    assert str(caught.value) == "which stack? there are: other, small\n  -> say --stack NAME"


def test_an_unknown_stack_is_told_with_the_nearest_name(project: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'small'"):
        run(project, console(), stack="smal")


def test_without_an_index_it_is_told_what_to_do(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(StepError, match="cannot get uv") as caught:
        run(project, console(), stack="small")
    assert "-> pin a uv in `tools` of recipes/stacks/small.yaml that" in str(caught.value)


def test_of_several_stacks_the_default_profile_names_one(project: Path) -> None:
    """As the help of --stack says, for `lock` and for `fetch`."""
    (project / "recipes" / "stacks" / "other.yaml").write_text(STACK)
    (project / "recipes" / "profiles").mkdir()
    profile = Path(__file__).parents[2] / "recipes/profiles/smollm2-cpu.yaml"
    text = profile.read_text().replace("stack: sglang-cpu", "stack: small")
    (project / "recipes" / "profiles" / profile.name).write_text(text)
    (project / "inventory").mkdir()
    hosts = "schema: 1\ndefaults: {profile: smollm2-cpu}\nhosts: [{name: local}]\n"
    (project / "inventory" / "hosts.yaml").write_text(hosts)
    assert default_stack(project) == "small"
    (project / "inventory" / "hosts.yaml").write_text(
        hosts.replace("profile: smollm2-cpu", "host: local")
    )
    with pytest.raises(UnknownName, match="which stack"):
        default_stack(project)


@pytest.mark.parametrize(
    ("said", "what", "remedy", "log"),
    [
        (
            "looking\nerror: v1 of x is at 12\nfix: pin the one that you want\n",
            "cannot look up: v1 of x is at 12",
            "pin the one that you want",
            "looking",
        ),
        (
            "error: Failed to fetch: `https://h/simple/x/`\n  Caused by: dns error",
            "cannot look up: Failed to fetch: `https://h/simple/x/`",
            "let this machine reach a package index (UV_DEFAULT_INDEX, or a uv.toml)",
            "  Caused by: dns error",
        ),
        (
            "  x No solution found when resolving: a==1 and b==2",
            "cannot look up",
            "change what it names, in recipes/stacks/small.yaml or in a component's recipe, until"
            " it goes together",
            "x No solution found when resolving: a==1 and b==2",
        ),
    ],
)
def test_every_failure_says_what_to_do(said: str, what: str, remedy: str, log: str) -> None:
    stack = load(STACK, "small.yaml", Stack).value
    error = failure(Step("tools", "look up", Run(Script(""))), stack, said)
    assert (error.what, error.log) == (what, log)
    assert error.remedy == f"{remedy}; then run: invoke lock --stack small"


def test_a_source_out_of_reach_is_locked_elsewhere_or_mirrored() -> None:
    """What locks is this machine: no other could fetch for it."""
    stack = load(STACK, "small.yaml", Stack).value
    said = "error: no route to https://h/x\nfix: let the controller fetch (fetch: controller)\n"
    error = failure(Step("source", "look up", Run(Script(""))), stack, said)
    assert error.what == "cannot look up: no route to https://h/x"
    assert error.remedy == (
        "run `invoke lock --stack small` on a machine that reaches it and commit"
        " recipes/locks/small.lock.yaml, or map that url under `mirrors:` in inventory/hosts.yaml"
        " (docs/builds.md)"
    )


def test_a_project_without_a_stack_is_told_to_write_one(project: Path) -> None:
    (project / "recipes" / "stacks" / "small.yaml").unlink()
    with pytest.raises(UnknownName, match=r"which stack\? there are: none") as caught:
        run(project, console())
    assert caught.value.remedy == "write one: recipes/stacks/NAME.yaml"


@pytest.mark.slow
def test_a_stack_is_resolved_to_files_that_go_with_it(project: Path) -> None:
    report = run(project, console(), stack="small")
    assert report.text == "wrote recipes/locks/small.lock.yaml"
    text = (project / "recipes" / "locks" / "small.lock.yaml").read_text()
    lock = load(text, "small.lock.yaml", LockFile)
    stack, components = recipes.stack(project, "small")
    assert isinstance(stack.value, Stack)
    assert check_lock(stack, lock, components) == ()
    assert "://" not in text
    names = {python: [w.name for w in found.wheels] for python, found in lock.value.pythons.items()}
    wanted = ["filelock", "markupsafe", "torch"]
    assert names == {"3.11": wanted, "3.12": wanted}
    (source,) = lock.value.pythons["3.12"].sources
    assert source.file == "iniconfig-2.1.0-py3-none-any.whl"
    assert "-cp312-cp312-manylinux" in lock.value.pythons["3.12"].wheels[1].file
    # The same stack gives the same text; uv now comes by the hash that the lock holds.
    run(project, console(), stack="small")
    assert (project / "recipes" / "locks" / "small.lock.yaml").read_text() == text


@pytest.mark.slow
def test_what_cannot_be_resolved_is_told_in_uv_s_words_and_writes_nothing(project: Path) -> None:
    text = STACK.replace("{part:", "{iniconfig:")
    write(project, text.replace("markupsafe==3.0.2", "markupsafe==0.0.99"))
    with pytest.raises(StepError) as caught:
        run(project, console(), stack="small")
    assert "cannot resolve the requirements for Python 3.12" in str(caught.value)
    assert "markupsafe==0.0.99" in caught.value.log
    assert "change what it names, in recipes/stacks/small.yaml" in caught.value.remedy
    assert caught.value.remedy.endswith("; then run: invoke lock --stack small")
    assert not (project / "recipes" / "locks").exists()
