"""The plan of a build: what is missing is done, what is there is left alone."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from firstlight.build.order import artifacts, release_of
from firstlight.build.steps import build_done, build_steps
from firstlight.core.plan import Job, Plan, Ship, ShipFile, Step, WriteFile, preview
from tests.build.small import UV, engine, lock, order, pure, site

GOLDEN = Path(__file__).parent / "golden"
INSTALLED = frozenset(f"{w.sha256}/{w.file}" for w in lock().pythons["3.11"].wheels)
TOOL = f"{UV.sha256}/{UV.file}"
SOURCE = f"{'c1' * 32}/{engine('3.11', 'c1' * 32).file}"
MADE = frozenset({artifacts(order())["sglang"].path.name})


def ids(steps: tuple[Step, ...]) -> list[str]:
    return [step.id for step in steps]


@pytest.mark.parametrize("route", ["host", "controller"])
def test_the_plan_reads_like_this(route: str) -> None:
    place = site(route="host" if route == "host" else "controller")
    plan = Plan("build", "gpu01", build_steps(order(), place), build_done(order(), place))
    expected = GOLDEN / f"build-{route}.sh"
    assert preview(plan) == expected.read_text()


def test_a_release_that_is_there_leaves_nothing_to_do() -> None:
    there = site(releases=frozenset({release_of(order())}))
    assert build_steps(order(), there) == ()
    assert build_done(order(), there) == (f"release {release_of(order())}",)


def test_a_bare_host_gets_every_step() -> None:
    assert ids(build_steps(order(), site())) == [
        "programs", "wheel-list", "fetch",
        "repack-sglang", "requirements", "manifest", "release",
    ]  # fmt: skip


def test_wheels_that_are_there_are_not_fetched_again() -> None:
    place = site(wheels=INSTALLED | {TOOL, SOURCE})
    assert ids(build_steps(order(), place)) == [
        "programs", "repack-sglang", "requirements", "manifest", "release",
    ]  # fmt: skip
    assert build_done(order(), place) == ("5 of 5 wheels",)


def test_an_artifact_that_is_there_needs_neither_source_nor_patch() -> None:
    place = site(artifacts=MADE, wheels=INSTALLED)
    steps = build_steps(order(), place)
    assert ids(steps) == [
        "programs", "wheel-list", "fetch", "requirements", "manifest", "release",
    ]  # fmt: skip
    assert requested(steps) == [UV.file]
    assert all("patch" not in str(file.target) for file in shipped(steps[0]))
    assert build_done(order(), place) == (f"artifact {next(iter(MADE))}", "3 of 4 wheels")


def requested(steps: tuple[Step, ...]) -> list[str]:
    action = next(step for step in steps if step.id == "wheel-list").action
    assert isinstance(action, WriteFile)
    return [wheel["file"] for wheel in json.loads(action.content)["wheels"]]


def shipped(step: Step) -> list[ShipFile]:
    assert isinstance(step.action, Ship)
    return list(step.action.files)


def test_the_controller_downloads_what_neither_has_and_sends_what_the_host_lacks() -> None:
    place = site(route="controller", wheels=INSTALLED, cached=frozenset({SOURCE}))
    steps = build_steps(order(), place)
    assert ids(steps)[1:4] == ["wheel-list", "fetch", "wheels"]
    assert [step.where for step in steps[1:4]] == ["controller", "controller", "host"]
    assert requested(steps) == [UV.file]
    files = steps[3].action
    assert isinstance(files, Ship)
    assert [file.sha256 for file in files.files] == ["c1" * 32, UV.sha256]
    assert files.files[0].source == Path("/home/ann/fl/wheels") / SOURCE
    assert files.files[0].target == PurePosixPath("/srv/first light/wheels") / SOURCE


def test_the_controller_downloads_nothing_that_it_has() -> None:
    place = site(route="controller", cached=INSTALLED | {TOOL, SOURCE})
    assert "fetch" not in ids(build_steps(order(), place))


def test_a_request_names_the_address_of_a_prebuilt_and_no_other() -> None:
    action = build_steps(order(), site())[1].action
    assert isinstance(action, WriteFile)
    found = {wheel["name"]: wheel["index"] for wheel in json.loads(action.content)["wheels"]}
    assert found.pop("torch") == "https://torch.example/cpu"
    assert set(found.values()) == {None}


def test_every_job_holds_the_lock_and_keeps_values_out_of_its_text() -> None:
    jobs = [step.action for step in build_steps(order(), site()) if isinstance(step.action, Job)]
    assert [job.lock for job in jobs] == ["fetch", "build", "build"]
    for job in jobs:
        assert "first light" not in job.script.text
        assert str(order().layout.root) in " ".join(job.script.args)


def test_the_same_order_has_the_same_jobs() -> None:
    def jobs() -> list[str]:
        steps = build_steps(order(), site())
        return [step.action.id for step in steps if isinstance(step.action, Job)]

    assert jobs() == jobs()
    assert len(set(jobs())) == 3


def test_every_file_to_install_has_its_hash() -> None:
    action = next(s for s in build_steps(order(), site()) if s.id == "requirements").action
    assert isinstance(action, WriteFile)
    lines = action.content.splitlines()
    einops = pure("einops", "0.8.2", "b1" * 32)
    assert lines[0] == (
        f"einops @ file:///srv/first%20light/wheels/{einops.sha256}/{einops.file}"
        f" --hash=sha256:{einops.sha256}"
    )
    assert len(lines) == 3
    assert all(" --hash=sha256:" in line for line in lines)


def test_steps_say_what_they_leave_behind() -> None:
    created = {step.id: step.creates for step in build_steps(order(), site())}
    assert created["release"] == order().layout.release(release_of(order()))
    assert created["repack-sglang"] == artifacts(order())["sglang"].path
