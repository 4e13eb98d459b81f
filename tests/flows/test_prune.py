"""`invoke prune` on the tiny stack: releases, hard links and a real uv cache."""

from __future__ import annotations

import io
import os
import re
import subprocess
import time
from pathlib import Path, PurePosixPath

import pytest

from firstlight.build.hold import TAKE
from firstlight.build.prune import Cut, prune_step
from firstlight.core.command import Script
from firstlight.core.plan import Job, Run
from firstlight.effects import holder, jobs
from firstlight.effects.console import Console
from firstlight.effects.local import LocalShell
from firstlight.flows.hold import held, hold_steps
from firstlight.hosts.inventory import Host
from tests.flows.project import REPO
from tests.flows.tiny import Tiny, refused
from tests.flows.watching import wait_for

STACK = "recipes/stacks/tiny.yaml"
SUPERVISE = PurePosixPath(REPO / "firstlight/remote/supervise.sh")
FOLDERS = ("releases", "store", "wheels", "lib", "cache")


def build_variant(tiny: Tiny, number: int) -> str:
    """Build a release of its own, the newest; its name."""
    before = set(tiny.made("releases"))
    kept = re.sub(r"  TINY_VARIANT.*\n", "", tiny.project.read(STACK))
    tiny.project.write(STACK, f'{kept}  TINY_VARIANT: "{number}"\n')
    tiny.project.invoke("build", check=True)
    (made,) = set(tiny.made("releases")) - before
    # Built within a second of each other, they would be of one age.
    age = 1_700_000_000 + number
    os.utime(tiny.root / "releases" / made / "manifest.json", (age, age))
    return made


def on_disk(root: Path) -> int:
    """Bytes of all files that can be pruned, each file once however many links it has."""
    files = {}
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                info = path.stat()
                files[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(files.values())


def listing(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*"))


@pytest.mark.slow
def test_old_releases_go_and_what_is_deployed_stays(tiny: Tiny) -> None:
    first = build_variant(tiny, 1)
    tiny.project.invoke("deploy", check=True)
    second, third = build_variant(tiny, 2), build_variant(tiny, 3)
    before = listing(tiny.root)
    plan = tiny.project.invoke("prune", "--keep", "1", "--dry-run", check=True).stdout
    assert listing(tiny.root) == before
    assert f"releases/{second}" in plan and f"releases/{first}" not in plan
    used = on_disk(tiny.root)
    said = tiny.project.invoke("prune", "--keep", "1", check=True).stdout
    assert tiny.made("releases") == sorted([first, third]) and tiny.unfinished() == []
    assert re.search(rf"{first} .*stays: current of tiny", said)
    assert re.search(rf"{third} .*stays: 1 of 1 newest", said)
    assert on_disk(tiny.root) < used
    tiny.project.invoke("smoke", check=True)
    again = tiny.project.invoke("prune", "--keep", "1", check=True).stdout
    assert "local: nothing was removed" in again


@pytest.mark.slow
def test_with_store_all_goes_that_no_release_names_and_a_build_brings_it_back(tiny: Tiny) -> None:
    release = build_variant(tiny, 1)
    assert tiny.made("store") and len(tiny.made("wheels")) == 2
    tiny.project.invoke("prune", "--store", check=True)
    # A release that stays keeps its artifact, its source and the tools of the next build.
    assert tiny.made("store") and len(tiny.made("wheels")) == 2
    used = on_disk(tiny.root)
    said = tiny.project.invoke("prune", "--keep", "0", "--store", check=True).stdout
    goes = "goes: 1 release, 1 unpacked wheel, 1 artifact, 1 wheel and 1 program folder, "
    assert goes in said
    assert tiny.made("releases") == [] == tiny.made("store")
    (left,) = tiny.root.glob("wheels/*/*")
    assert left.name.startswith("uv-")
    freed = float(re.search(r"local: freed ([\d.]+) KiB", said)[1])  # type: ignore[index]
    assert abs((used - on_disk(tiny.root)) / 1024 - freed) < 0.1
    tiny.project.invoke("build", check=True)
    assert tiny.made("releases") == [release]


def test_nothing_goes_while_a_build_runs(tiny: Tiny) -> None:
    tiny.gate.touch()
    with tiny.project.start("build") as process:
        wait_for(lambda: any(assembling(tiny)), "the release", 60)
        before = tiny.made("store"), tiny.made("wheels")
        pruned = tiny.project.invoke("prune", "--keep", "0", "--store")
        after = tiny.made("store"), tiny.made("wheels")
        # Before anything is asserted: a build that waits for ever would hide what was wrong.
        tiny.gate.unlink()
        process.communicate(timeout=60)
    message = refused(pruned, 3)
    assert "local: a build runs there: release-tiny-py3" in message
    assert "-> wait for it, or: invoke build --cancel --host local" in message
    assert after == before
    assert process.returncode == 0 and len(tiny.made("releases")) == 1


def hold_of(tiny: Tiny, age_s: float = 0) -> Path:
    """The only hold of the host, as old as that."""
    (hold,) = (tiny.root / "holds").iterdir()
    then = time.time() - age_s
    os.utime(hold, (then, then))
    return hold


def assembling(tiny: Tiny) -> list[Path]:
    """The folders of jobs that assemble a release just now."""
    folders = [path.parent for path in tiny.root.glob("jobs/release-*/pid")]
    return [path for path in folders if path.suffix == "" and not (path / "exit").exists()]


def lose_the_builder(tiny: Tiny) -> str:
    """Kill `invoke build` itself before its last job, which another kill ends; its release."""
    tiny.gate.touch()
    with tiny.project.start("build") as process:
        wait_for(lambda: any(assembling(tiny)), "the release", 60)
        process.kill()
    (job,) = assembling(tiny)
    supervise = str(job / "supervise.sh")
    subprocess.run(["bash", supervise, "cancel", str(job), "1"], check=True, capture_output=True)
    tiny.gate.unlink()
    return job.name.removeprefix("release-")


def test_nothing_goes_between_two_jobs_of_a_build_whose_planner_was_lost(tiny: Tiny) -> None:
    release = lose_the_builder(tiny)
    before = tiny.made("store"), tiny.made("wheels")
    message = refused(tiny.project.invoke("prune", "--keep", "0", "--store"), 3)
    assert re.match(
        rf"error: local: held there: the build of release {release}, from \S+, process \d+, since "
        r"\S+\n  -> wait for its end, or run that build again; if nobody goes on with it: "
        r"invoke build --cancel --host local\n",
        message,
    )
    assert (tiny.made("store"), tiny.made("wheels")) == before
    # Who comes back goes on with it, says so, and ends it.
    said = tiny.project.invoke("build", check=True).stdout
    assert f"local: took over the hold of the build of release {release}, from " in said
    assert tiny.made("holds") == []
    tiny.project.invoke("prune", "--store", check=True)


def test_the_hold_of_a_lost_build_ends_by_hand_or_with_a_day(tiny: Tiny) -> None:
    release = lose_the_builder(tiny)
    hold, day_s = hold_of(tiny), 24 * 3600
    told = tiny.project.invoke("build", "--cancel", "--dry-run", check=True).stdout
    assert f"# would let go: the build of release {release}, from" in told and hold.exists()
    told = tiny.project.invoke("build", "--cancel", check=True).stdout
    assert f"\nlet go: the build of release {release}, from" in f"\n{told}" and not hold.exists()
    release = lose_the_builder(tiny)
    # The job that ended a moment ago is a sign as well.
    for end in tiny.root.glob("jobs/*/exit"):
        os.utime(end, (time.time() - 2 * day_s,) * 2)
    hold_of(tiny, day_s + 60)
    said = tiny.project.invoke("prune", "--store", check=True).stdout
    assert f"taken over: the hold of the build of release {release}, from" in said
    assert tiny.made("holds") == [] == tiny.made("store")


def test_a_build_that_fails_holds_nothing(tiny: Tiny) -> None:
    tiny.project.change("patches/sglang/0001-say-so.patch", ('"as published"', '"as we know"'))
    refused(tiny.project.invoke("build"), 4)
    assert tiny.made("holds") == []


def test_who_ends_leaves_others_their_hold_and_takes_over_only_what_the_dead_left(
    tmp_path: Path,
) -> None:
    """`ship` and the build in it hold the same, and so may two controllers."""
    shell, root, said = LocalShell(Host(name="local")), PurePosixPath(tmp_path), io.StringIO()
    what, machine = ("r-1", "build of release r-1"), holder.mark().partition("-")[0]

    def left_by(mark: str, who: str) -> None:
        assert shell.run(Script(TAKE, (str(root), what[0], mark, what[1], who))).ok

    left_by(f"{machine}-{os.getpid()}-1-aa", "a dead one")
    left_by("0123456789ab-1-1-bb", "another desk")
    with held(shell, root, *what, Console(said)):
        with held(shell, root, *what, Console(said)):
            assert len(list((tmp_path / "holds").iterdir())) == 3
        assert len(list((tmp_path / "holds").iterdir())) == 2
    (left,) = (tmp_path / "holds").iterdir()
    assert "from another desk, since" in left.read_text()
    told = said.getvalue()
    assert told.count("local: took over the hold of the build of release r-1, from a dead one") == 1
    assert "local: held there too: the build of release r-1, from another desk, since" in told
    assert f"process {os.getpid()}" not in told


def test_a_hold_that_begins_after_the_look_is_seen_by_the_removing(tmp_path: Path) -> None:
    shell, root = LocalShell(Host(name="local")), PurePosixPath(tmp_path)
    item = tmp_path / "store/k-1-0123"
    item.mkdir(parents=True)
    take, _ = hold_steps(root, "r-1", "build of release r-1")
    assert isinstance(take.action, Run)
    assert shell.run(take.action.script).ok
    job = pruning(root, time.time() - 60)
    jobs.start(shell, root, SUPERVISE, job)
    said: list[bytes] = []
    assert jobs.follow(shell, root, job.id, said.append, lambda _: None).rc == 1
    assert b"error: a build has begun meanwhile: the build of release r-1, from" in b"".join(said)
    assert item.exists()


def test_what_was_seen_or_a_clock_that_was_ahead_stops_no_removing(tmp_path: Path) -> None:
    """A time to come is no sign of a build that began since the host was looked at."""
    shell, root = LocalShell(Host(name="local")), PurePosixPath(tmp_path)
    item, ahead = tmp_path / "store/k-1-0123", time.time() + 400 * 24 * 3600
    for path in (item, tmp_path / "jobs/build-x", tmp_path / "holds"):
        path.mkdir(parents=True)
    for name in ("jobs/build-x/pid", "jobs/build-x/exit", "holds/k-1-0123@m1", "holds/a\tb"):
        (tmp_path / name).write_text("0 done\n")
        os.utime(tmp_path / name, (ahead, ahead))
    cut = Cut(("store/k-1-0123", "holds/k-1-0123@m1"), (), 0)
    action = prune_step(cut, root, int(time.time())).action
    assert isinstance(action, Job)
    jobs.start(shell, root, SUPERVISE, action)
    said: list[bytes] = []
    assert jobs.follow(shell, root, action.id, said.append, lambda _: None).rc == 0, said
    assert not item.exists()
    assert [path.name for path in (tmp_path / "holds").iterdir()] == ["a\tb"]


def test_a_release_that_is_coming_stays_and_its_caches_alone_do_not(tmp_path: Path) -> None:
    shell, root = LocalShell(Host(name="local")), PurePosixPath(tmp_path)
    for number, folder in enumerate(("venv", "cache"), 1):
        home = tmp_path / f"deployments/p{number}/1"
        home.mkdir(parents=True)
        (home / "manifest.json").write_text(f'{{\n "release": "r{number}"\n}}\n')
        (home.parent / "coming").symlink_to("1")
        (tmp_path / f"releases/r{number}" / folder).mkdir(parents=True)
    action = prune_step(Cut(("releases/r1", "releases/r2"), (), 0), root, int(time.time())).action
    assert isinstance(action, Job)
    jobs.start(shell, root, SUPERVISE, action)
    said: list[bytes] = []
    assert jobs.follow(shell, root, action.id, said.append, lambda _: None).rc == 0
    assert b"note: releases/r1 is deployed meanwhile; it stays" in b"".join(said)
    assert [path.name for path in (tmp_path / "releases").iterdir()] == ["r1"]


def pruning(root: PurePosixPath, looked_s: float) -> Job:
    action = prune_step(Cut(("store/k-1-0123",), (), 0), root, int(looked_s)).action
    assert isinstance(action, Job)
    return action


def test_what_a_component_s_build_uses_stays(tmp_path: Path) -> None:
    """Its lock is its own: pruning waits for it, and then counts on nothing that it saw before."""
    shell, root = LocalShell(Host(name="local")), PurePosixPath(tmp_path)
    item, go = tmp_path / "store/k-1-0123", tmp_path / "go"
    item.mkdir(parents=True)
    build = Script('until [ -e "$1" ]; do sleep 0.1; done', (str(go),))
    jobs.start(shell, root, SUPERVISE, Job("build-x", build, "build-x"))
    wait_for(lambda: (tmp_path / "lock/build-x").exists(), "the build")
    early, late = pruning(root, time.time() - 60), pruning(root, time.time() + 60)
    jobs.start(shell, root, SUPERVISE, early)
    wait_for(lambda: bool(jobs.poll(shell, root, early.id, 0).lock_holder), "the pruning")
    go.touch()
    said: list[bytes] = []
    end = jobs.follow(shell, root, early.id, said.append, lambda _: None)
    assert end.rc == 1 and b"error: a build has begun meanwhile: build-x\n" in b"".join(said)
    assert item.exists()
    jobs.start(shell, root, SUPERVISE, late)
    assert jobs.follow(shell, root, late.id, said.append, lambda _: None).rc == 0
    assert not item.exists()


def test_nothing_goes_while_a_deploy_brings_its_model(tiny: Tiny) -> None:
    """Hours may pass before the deployment is written that names the release."""
    shell, root, go = LocalShell(Host(name="local")), PurePosixPath(tiny.root), tiny.root / "go"
    script = Script('until [ -e "$1" ]; do sleep 0.1; done', (str(go),))
    jobs.start(shell, root, SUPERVISE, Job("model-m-1", script, "model-m-1"))
    (tiny.root / "releases/x-py311-1.partial").mkdir(parents=True)
    pruned = tiny.project.invoke("prune", "--keep", "0")
    go.touch()
    jobs.follow(shell, root, "model-m-1", lambda _: None, lambda _: None)
    assert "local: a deploy brings its model there: model-m-1" in refused(pruned, 3)
    tiny.project.invoke("prune", check=True)
    assert tiny.made("releases") == []


def test_what_a_killed_build_or_pruning_left_goes_too(tiny: Tiny) -> None:
    for left in ("releases/x-py311-1.partial/venv", "store/k.partial.old/a", "wheels/w/a.partial"):
        (tiny.root / left).mkdir(parents=True)
    for left in ("build/k-1.0-0123/src", "twice/k-1.0-0123-first"):
        (tiny.root / left).mkdir(parents=True)
    tiny.project.invoke("prune", check=True)
    assert tiny.made("build") == [] and tiny.made("twice") == []
    assert tiny.unfinished() == ["wheels/w/a.partial"]


def test_an_empty_host_and_a_bad_number(tiny: Tiny) -> None:
    assert "nothing was removed" in tiny.project.invoke("prune", check=True).stdout
    for bad in ("-1", "\u00b2", "1.5"):
        refused(tiny.project.invoke("prune", "--keep", bad), 2)
    message = refused(tiny.project.invoke("prune", "--keep", "some"), 2)
    assert message.startswith("error: --keep takes a whole number; got 'some'")
