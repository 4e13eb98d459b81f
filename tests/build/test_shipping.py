"""What is sent to a host: what it lacks and the other has, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from firstlight.build.order import artifacts, lock_of, release_of, sources
from firstlight.build.recipe import Python
from firstlight.build.release import Layout
from firstlight.build.shipping import (
    Parcel,
    accept_script,
    built_for,
    files,
    incoming_of,
    lacking,
    list_script,
    of_items,
    read_list,
    shared_python,
    ship_steps,
    with_arrived,
)
from firstlight.build.wheel import Wheel
from firstlight.core.errors import HostError
from firstlight.core.plan import Run, Ship
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import Survey
from tests.build.small import order

NONE: frozenset[str] = frozenset()
(MADE,) = (one.path.name for one in artifacts(order()).values())
THERE = PurePosixPath("/srv/first light")


def name(wheel: Wheel) -> str:
    return f"{wheel.sha256}/{wheel.file}"


INSTALLED = frozenset(map(name, lock_of(order()).wheels))
TOOLS = frozenset(map(name, order().lock.tools))
SOURCES = frozenset(map(name, sources(order()).values()))


def survey(root: PurePosixPath = THERE, **has: frozenset[str]) -> Survey:
    """A host with these things of ours, and nothing else."""
    empty: dict[str, Any] = dict.fromkeys(
        ("releases", "artifacts", "models", "libraries", "wheels", "sources", "jobs"), NONE
    )
    return Survey(
        root=root, user="ann", boot="b", writable=True, blocked_at="", route="",
        deployments={}, **(empty | has),
    )  # fmt: skip


HERE = survey(PurePosixPath("/home/ann/fl"), artifacts=frozenset({MADE}), wheels=INSTALLED | TOOLS)


def sent(target: Survey, source: Survey = HERE) -> set[str]:
    return set(lacking(order(), source, target, "/usr/bin/python3.11"))


def test_a_bare_host_lacks_the_artifact_and_every_wheel_that_is_installed() -> None:
    assert sent(survey()) == {f"store/{MADE}", *(f"wheels/{w}" for w in INSTALLED | TOOLS)}


def test_what_is_there_is_not_sent() -> None:
    one = next(iter(INSTALLED))
    assert f"wheels/{one}" not in sent(survey(wheels=frozenset({one})))
    assert f"store/{MADE}" not in sent(survey(artifacts=frozenset({MADE})))
    assert sent(survey(releases=frozenset({release_of(order())}))) == set()


def test_what_the_other_has_not_either_is_left_to_the_build() -> None:
    assert sent(survey(), replace(HERE, artifacts=NONE)) == {
        f"wheels/{w}" for w in INSTALLED | TOOLS
    }
    # Of a component that is patched there, the published wheel is sent.
    more = replace(HERE, artifacts=NONE, wheels=HERE.wheels | SOURCES)
    assert {f"wheels/{w}" for w in SOURCES} <= sent(survey(), more)


def test_the_one_that_has_it_says_for_which_python() -> None:
    orders = {"3.12": replace(order(), python="3.12"), "3.11": order()}
    have = survey(releases=frozenset({release_of(order())}))
    assert built_for(orders, have, "gpu01") == ("3.11",)  # type: ignore[arg-type]
    assert built_for({"3.11": order()}, HERE, "gpu01") == ("3.11",)
    both = replace(have, releases=frozenset(map(release_of, orders.values())))
    assert built_for(orders, both, "gpu01") == ("3.12", "3.11")  # type: ignore[arg-type]
    with pytest.raises(HostError, match="is not built there, so there is nothing to send") as told:
        built_for({"3.11": order()}, survey(), "gpu01")
    assert told.value.remedy == "invoke build --host gpu01 --stack tiny-cpu"


def test_a_host_gets_what_is_for_a_python_that_it_has() -> None:
    """Not the one that the stack wants most, when the other host has nothing for that."""
    sent: tuple[Python, ...] = ("3.12", "3.11")
    assert shared_python(sent, ("3.11", "3.13"), "gpu01", "gpu02", "tiny") == "3.11"
    assert shared_python(sent, ("3.11", "3.12"), "gpu01", "gpu02", "tiny") == "3.12"
    assert shared_python(("3.11",), ("3.12", "3.11"), "gpu01", "gpu02", "tiny") == "3.11"


@pytest.mark.parametrize(
    ("there", "has"),
    [(("3.13",), "the host has 3.13"), ((), "the host has none that the stack takes")],
)
def test_another_python_does_not_fit(there: tuple[Python, ...], has: str) -> None:
    with pytest.raises(HostError) as told:
        shared_python(("3.12", "3.11"), there, "gpu01", "gpu02", "tiny")
    assert told.value.what == f"what gpu01 has is for CPython 3.12 and 3.11; {has}"
    build = "invoke build --host gpu02 --stack tiny"
    assert told.value.remedy == f"install CPython 3.12 there, or build there: {build}"


PARCELS = (
    Parcel("store/k-1-aa/k.whl", 3000, "aa" * 32),
    Parcel("store/k-1-aa/receipt.json", 72, "ab" * 32),
    Parcel(f"wheels/{'b1' * 32}/e.whl", 1024, "b1" * 32),
)


def test_an_artifact_arrives_beside_its_place_and_a_wheel_in_it() -> None:
    send, place = ship_steps(PARCELS, HERE, survey(), "gpu01")
    assert send.title == "send 1 artifact and 1 wheel from gpu01: 4.0 KiB"
    assert isinstance(send.action, Ship) and isinstance(place.action, Run)
    assert [str(file.target) for file in send.action.files] == [
        "/srv/first light/store/k-1-aa.ship.partial/k.whl",
        "/srv/first light/store/k-1-aa.ship.partial/receipt.json",
        f"/srv/first light/wheels/{'b1' * 32}/e.whl",
    ]
    assert send.action.files[0].source == Path("/home/ann/fl/store/k-1-aa/k.whl")
    assert place.action.script.args == (str(THERE), "store/k-1-aa")
    assert ship_steps((), HERE, survey(), "gpu01") == ()
    assert len(ship_steps(PARCELS[2:], HERE, survey(), "gpu01")) == 1


def test_a_plan_can_be_made_for_what_will_have_arrived() -> None:
    then = with_arrived(survey(), PARCELS)
    assert then.artifacts == {"k-1-aa"} and then.wheels == {f"{'b1' * 32}/e.whl"}


def test_a_name_that_begins_like_another_is_another() -> None:
    others = (Parcel("store/k-1-aaa/k.whl", 1, "cc" * 32),)
    assert of_items((*PARCELS, *others), ["store/k-1-aa"]) == PARCELS[:2]
    assert of_items(PARCELS, [PARCELS[2].path]) == PARCELS[2:]


def test_what_comes_by_rsync_is_hidden_until_it_is_checked() -> None:
    assert incoming_of(survey(), "r").parent == Layout(THERE).store
    assert incoming_of(survey(), "r").name.endswith(".partial")
    assert all(".ship.partial/" in str(f.target) for f in files(PARCELS[:2], HERE, survey()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one artifact, a toolkit, and a wheel."""
    made = tmp_path / "a root"
    for path, text in {
        "store/k-1-aa/k.whl": "k", "store/k-1-aa/receipt.json": "{}",
        "store/cuda-toolkit-13.0-bb/cuda/bin/nvcc": "n",
        "store/cuda-toolkit-13.0-bb/receipt.json": "",
        "wheels/18ac3e7343f016890c510e93f935261169d9e3f565436429830faf0934f4f8e4/d.whl": "d",
    }.items():  # fmt: skip
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    return made


def ask(root: Path, *items: str) -> tuple[Parcel, ...]:
    script = list_script(PurePosixPath(root), items)
    return read_list(LocalShell(Host(name="local")).run(script).text, "local")


def test_a_host_lists_what_it_has_with_the_digest_of_each_file(root: Path) -> None:
    (wheel,) = root.glob("wheels/*/*")
    path = str(wheel.relative_to(root))
    found = {one.path: one for one in ask(root, "store/k-1-aa", "store/cuda-toolkit-13.0-bb", path)}
    assert set(found) == {"store/k-1-aa/k.whl", "store/k-1-aa/receipt.json", path}
    assert found[path] == Parcel(path, 1, wheel.parent.name)
    assert found["store/k-1-aa/receipt.json"].bytes == 2


def test_a_damaged_wheel_is_not_sent(root: Path) -> None:
    (wheel,) = root.glob("wheels/*/*")
    wheel.write_text("e")
    with pytest.raises(HostError, match="it is damaged") as told:
        ask(root, str(wheel.relative_to(root)))
    assert told.value.remedy == "remove that file there and build there again"


def test_what_is_gone_meanwhile_is_an_answer_cut_short(root: Path) -> None:
    with pytest.raises(HostError, match="did not say whole"):
        ask(root, "store/none/k.whl")


def test_only_what_came_whole_is_put_in_place(tmp_path: Path) -> None:
    target = survey(PurePosixPath(tmp_path / "there"))
    good, bad = (hashlib.sha256(text).hexdigest() for text in (b"good", b"whole"))
    parcels = (Parcel("store/k-1/k.whl", 4, good), Parcel(f"wheels/{bad}/b.whl", 5, bad))
    incoming = tmp_path / "in coming"
    for parcel, data in zip(parcels, (b"good", b"who"), strict=True):
        (incoming / parcel.path).parent.mkdir(parents=True)
        (incoming / parcel.path).write_bytes(data)
    placed = files(parcels, HERE, target)
    shell = LocalShell(Host(name="local"))
    assert shell.run(accept_script(PurePosixPath(incoming), parcels, placed)).ok
    assert [Path(file.target).exists() for file in placed] == [True, False]
    # What was cut stays, for the next try to go on with.
    assert [path.name for path in incoming.rglob("*.whl")] == ["b.whl"]
    _, place = ship_steps(parcels, HERE, target, "gpu01")
    assert isinstance(place.action, Run)
    assert shell.run(place.action.script).ok
    assert [path.name for path in (tmp_path / "there" / "store").iterdir()] == ["k-1"]
