"""Flags of the build verbs that do not go together, and a machine where nothing was built yet."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.flows.project import make_project
from tests.flows.tiny import Tiny, refused
from tests.flows.watching import wait_for

KERNELS = ("build", "--stack", "kernels-cu130-sm120")
ARCH = ("--arch", "12.0")
TOGETHER = [
    (("--cancel", "--component", "sglang"), "--cancel ends every build of a host"),
    (("--cancel", "--twice"), "--cancel ends every build of a host"),
    (("--component", "sglang", "--arch", "12.0"), "stack tiny is built for no GPU"),
    (("--component", "sglang", "--twice"), "sglang is not built from source"),
    (("--twice",), "--twice builds one component in two places"),
]


@pytest.mark.parametrize(("flags", "told"), TOGETHER)
def test_flags_that_do_not_go_together(tiny: Tiny, flags: tuple[str, ...], told: str) -> None:
    assert told in refused(tiny.project.invoke("build", *flags), 2)
    assert tiny.made("store") == []


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--component", "torch", "--arch", "12.0"), "takes torch as it is published: there is"),
        (("--component", "torch", "--twice", "--arch", "12.0"), "there is nothing to build"),
        (("--component", "cuda-toolkit", "--twice", "--arch", "12.0"), "is not built from source"),
        (("--arch", "12"), "--arch '12' is no capability of a card"),
        (("--arch", "sm_120"), "--arch 'sm_120' is no capability of a card"),
    ],
)
def test_what_cannot_be_built(tmp_path: Path, flags: tuple[str, ...], told: str) -> None:
    project = make_project(tmp_path, [{"name": "local", "root": str(tmp_path / "root")}])
    assert told in refused(project.invoke(*KERNELS, *flags, "--dry-run"), 2)


def test_an_arch_is_read_where_all_is_in_place_too(tiny: Tiny) -> None:
    tiny.project.invoke("build", check=True)
    assert "stack tiny is built for no GPU" in refused(tiny.project.invoke("build", *ARCH), 2)


def test_a_question_that_is_no_text_is_told_as_that(tmp_path: Path) -> None:
    project = make_project(tmp_path, [{"name": "local"}])
    asked = project.invoke("ask", "--question", "\udcff")
    assert "the question is no text: it has bytes that are no UTF-8" in refused(asked, 2)


def test_a_stack_may_be_named_where_there_is_no_profile(tmp_path: Path) -> None:
    project = make_project(tmp_path, [{"name": "local"}], defaults={"host": "local"})
    assert "or --stack NAME" in refused(project.invoke("build"), 2)


def test_a_dry_run_of_cancel_ends_nothing(tiny: Tiny) -> None:
    idle = tiny.project.invoke("build", "--cancel", "--dry-run", check=True).stdout
    assert idle == "# local: no build runs\n"
    tiny.gate.touch()
    with tiny.project.start("build") as process:
        wait_for(lambda: any(tiny.root.glob("jobs/release-*/pid")), "the release", 60)
        said = tiny.project.invoke("build", "--cancel", "--dry-run", check=True).stdout
        assert "# would end release-tiny-" in said and "would end 1 job(s)" in said
        tiny.gate.unlink()
        process.communicate(timeout=60)
    assert process.returncode == 0 and len(tiny.made("releases")) == 1


def test_who_leaves_a_build_is_told_its_flags(tiny: Tiny) -> None:
    """Of --host, --profile and the others, those that were given, whatever they hold."""
    tiny.gate.touch()
    with tiny.project.start("build", "--stack=tiny", "--host", "local", "--debug") as process:
        wait_for(lambda: any(tiny.root.glob("jobs/release-*/pid")), "the release", 60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    tiny.gate.unlink()
    assert process.returncode == 130, out + err
    assert "-> `invoke build --host local --stack tiny --debug` again watches it; " in err
    ask = tiny.project.invoke("ask", "--host", "local", "--question", " ")
    assert '-> invoke ask --host local --question "..."' in ask.stderr


def test_fetching_comes_before_anything_was_built(tiny: Tiny) -> None:
    assert tiny.made("lib") == []
    said = tiny.project.invoke("fetch", "--stack", "tiny", check=True).stdout
    assert "every source and wheel of tiny is on this machine" in said
    assert len(tiny.made("wheels")) == 2
    again = tiny.project.invoke("fetch", "--stack", "tiny", check=True).stdout
    assert "download" not in again
