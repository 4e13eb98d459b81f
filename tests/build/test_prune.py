"""What may be pruned: never what is deployed, never the newest, never what a keeper names."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.hold import STALE_S, Hold
from firstlight.build.holdings import Extent, Holdings, Use, freed, parse, weight
from firstlight.build.prune import GONE, choose, going_on, prune_step, render_cut, stack_of
from firstlight.core.errors import HostError
from firstlight.core.plan import Job

ROOT = PurePosixPath("/srv/first light")
A1, A2, A3 = (f"releases/a-py311-00000000000{n}" for n in (1, 2, 3))
B1 = "releases/b-cu130-py312-0000000000b1"


def holdings(**changes: object) -> Holdings:
    """Three releases of stack a, one of b, which shares a wheel with the first of a."""
    items = {A1: 100, A2: 200, A3: 300, B1: 50, "store/k-1-aaa": 1, "store/k-2-bbb": 1}
    items |= {"store/cuda-1-ccc": 1, f"wheels/{'d1' * 32}": 1, f"wheels/{'d2' * 32}": 1}
    items |= {f"sources/{'e1' * 32}": 1, "lib/now": 1, "lib/old": 1}
    items |= {"cache/uv/archive-v0/x": 1, "cache/uv/archive-v0/y": 1}
    extents = [
        (1000, {A1, "cache/uv/archive-v0/x"}),
        (2000, {A3, "cache/uv/archive-v0/y"}),
        (10, {A1}),
        (30, {A3}),
        (7, {A2, "elsewhere"}),
        (500, {"store/k-1-aaa"}),
    ]
    names = {
        A1: {"store/k-1-aaa", "d1" * 32},
        A3: {"store/k-2-bbb"},
        B1: {"d1" * 32},
        "store/k-2-bbb": {"store/cuda-1-ccc", "e1" * 32},
    }
    whole: dict[str, object] = {
        "root": ROOT,
        "now": 400,
        "items": items,
        "extents": tuple(Extent(count, frozenset(who)) for count, who in extents),
        "names": {item: frozenset(found) for item, found in names.items()},
        "uses": (),
    }
    return Holdings(**(whole | changes))  # type: ignore[arg-type]


def test_the_newest_of_each_stack_stay() -> None:
    assert choose(holdings(), 1).gone == (A1, A2)
    assert choose(holdings(), 2).gone == (A1,)
    assert choose(holdings(), 3).gone == ()
    assert choose(holdings(), 0).gone == (A1, A2, A3, B1)


def test_a_stack_is_what_stands_before_python_and_key() -> None:
    assert stack_of("sglang-0.5.9-cu130-sm120-py312-0123456789ab") == "sglang-0.5.9-cu130-sm120"


@pytest.mark.parametrize("link", ["current", "previous", "started"])
def test_what_is_deployed_stays_however_old(link: str) -> None:
    cut = choose(holdings(uses=(Use("p", link, A1.removeprefix("releases/")),)), 1)
    assert cut.gone == (A2,)
    assert {kept.release: kept.why for kept in cut.kept}[A1[9:]] == f"{link} of p"


def test_only_what_no_keeper_names_goes_from_the_store() -> None:
    cut = choose(holdings(), 1, store=True, wanted=("now",))
    assert cut.gone == (
        A1, A2, "cache/uv/archive-v0/x", "store/k-1-aaa", f"wheels/{'d2' * 32}", "lib/old",
    )  # fmt: skip
    # What a kept artifact was made with stays too.
    assert {"store/cuda-1-ccc", f"sources/{'e1' * 32}"}.isdisjoint(cut.gone)
    assert choose(holdings(), 1, store=True, wanted=("now", "old", "d2" * 32)).gone == cut.gone[:4]


def test_bytes_are_free_when_the_last_holder_goes() -> None:
    assert choose(holdings(), 1).freed == 10
    assert choose(holdings(), 1, store=True).freed == 1510
    assert weight(holdings(), A1) == 1010
    # A file that has a link outside the root is never freed.
    assert freed(holdings(), [A2]) == 0


def test_caches_are_shown_and_go_only_when_they_are_named() -> None:
    caches = {"cache/ccache": 1, "sources/git": 1}
    more = (*holdings().extents, Extent(3 << 30, frozenset(["cache/ccache"])))
    here = holdings(items={**holdings().items, **caches}, extents=more)
    cut = choose(here, 3, store=True, wanted=("now", "old"))
    assert not set(caches) & set(cut.gone)
    assert "stays: compiler cache cache/ccache, 3.0 GiB (--caches)" in render_cut(here, cut)
    cut = choose(here, 3, caches=True)
    assert cut.gone == tuple(caches) and cut.freed == 3 << 30
    told = "goes: 1 compiler cache and 1 cache of repositories, 3.0 GiB"
    assert render_cut(here, cut).endswith(told) and "stays: compiler" not in render_cut(here, cut)


def test_what_was_left_half_done_goes_and_is_no_release() -> None:
    left = {A1 + GONE: 1, "releases/c-py311-1.partial": 999, f"wheels/x{GONE}": 1}
    left |= {"wheels/y.partial": 1}
    cut = choose(holdings(items={**holdings().items, **left}), 3)
    assert set(cut.gone) == {A1 + GONE, "releases/c-py311-1.partial", f"wheels/x{GONE}"}


def test_what_is_being_sent_is_given_a_day() -> None:
    coming = {"store/k-1.ship.partial": 400, "store/r.incoming.partial": 400}
    here = holdings(items={**holdings().items, **coming})
    assert not set(coming) & set(choose(here, 3, store=True).gone)
    late = holdings(items=here.items, now=400 + 25 * 3600)
    assert set(choose(late, 3).gone) == set(coming)


def test_the_hold_of_a_build_is_over_when_it_is_lost_or_has_made_what_it_wanted() -> None:
    late = 500 + STALE_S
    held = {
        "holds/new": Hold("holds/new", late, "build of new, from desk"),
        "holds/lost": Hold("holds/lost", 400, "the build of lost, from desk"),
        f"holds/{A3[9:]}@m1": Hold(f"holds/{A3[9:]}@m1", 99 * late, "the build of a release"),
        "holds/k-1-aaa@m2": Hold("holds/k-1-aaa@m2", late, "the build of k-1-aaa"),
    }
    here = holdings(now=late, holds=tuple(held.values()))
    assert going_on(here) == (held["holds/new"],)
    cut = choose(here, 3)
    assert set(cut.gone) == set(held) - {"holds/new"}
    told = render_cut(here, cut).splitlines()[-2:]
    assert told == [
        "taken over: the hold of the build of lost, from desk; no sign of it for a day",
        "goes: 3 old holds, 0 B",
    ]


def test_what_a_server_left_of_a_release_that_is_gone_goes_and_is_no_release() -> None:
    husks = frozenset({A3})
    used = (Use("p", "coming", A2.removeprefix("releases/")), Use("q", "current", A3[9:]))
    hold = Hold(f"holds/{A3[9:]}@m1", 400, "the build of it")
    here = holdings(husks=husks, uses=used, holds=(hold,))
    cut = choose(here, 2)
    assert cut.gone == (A3,)
    assert {kept.release: kept.why for kept in cut.kept}[A2[9:]] == "coming of p"
    assert render_cut(here, cut).splitlines()[1].endswith("goes: its release is gone")
    # A build that makes it again is not over.
    assert going_on(here) == (hold,)


def test_what_was_passed_over_is_told() -> None:
    here = holdings(odd=("releases/$'a\\tb'",))
    told = "passed over: releases/$'a\\tb'; no name of ours: remove it by hand"
    assert told in render_cut(here, choose(here, 3)).splitlines()


def test_a_time_to_come_keeps_nothing_for_ever() -> None:
    coming = {"store/k-1.ship.partial": 10**6}
    assert set(choose(holdings(items={**holdings().items, **coming}), 3).gone) == set(coming)


def test_the_step_is_one_job_that_runs_beside_no_other() -> None:
    cut = choose(holdings(), 1, store=True, wanted=("now",))
    step = prune_step(cut, ROOT, 400)
    assert isinstance(step.action, Job)
    assert step.action.lock == "all"
    assert step.action.script.args == (str(ROOT), "400", *cut.gone)
    assert step.title == (
        "remove 2 releases, 1 unpacked wheel, 1 artifact, 1 wheel and 1 program folder: 1.5 KiB"
    )


def test_a_person_sees_each_release_and_why_it_stays() -> None:
    used = holdings(uses=(Use("p", "current", A1.removeprefix("releases/")),))
    lines = render_cut(used, choose(used, 1)).splitlines()
    assert lines[1].split() == [A3[9:], "1", "min", "40", "s", "2.0", "KiB", *_why("1 of 1 newest")]
    assert lines[3].endswith("stays: current of p")
    assert lines[2].endswith("goes")
    assert lines[-1] == "goes: 1 release, 0 B"


def _why(text: str) -> list[str]:
    return f"stays: {text}".split()


def answers(*rows: tuple[str, ...]) -> str:
    head = (("root", "/srv/x"), ("now", "9"))
    return "".join("\t".join(("@@firstlight", *row)) + "\n" for row in (*head, *rows))


def test_an_answer_cut_short_prunes_nothing() -> None:
    with pytest.raises(HostError, match="did not say whole"):
        parse(answers(("item", A1, "1")), "gpu01")


def test_a_deployment_that_does_not_tell_its_release_prunes_nothing() -> None:
    with pytest.raises(HostError, match="which release the current deployment of p runs"):
        parse(answers(("uses", "p", "current", ""), ("end",)), "gpu01")


NAMES = [f"{stack}-py311-{n:012}" for stack in ("a", "b-c") for n in range(6)]
OTHERS = [f"store/s{n}" for n in range(6)] + [f"wheels/{n}{'f' * 63}" for n in range(6)]
releases = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 99), max_size=12)
others = st.sets(st.sampled_from(OTHERS))
any_item = st.sampled_from([*(f"releases/{name}" for name in NAMES), *OTHERS])
names_of = st.dictionaries(
    any_item,
    st.frozensets(st.sampled_from([*OTHERS, *(name[7:] for name in OTHERS[6:])])),
    max_size=8,
)
extents = st.lists(st.builds(Extent, st.integers(0, 1000), st.frozensets(any_item, min_size=1)))
uses = st.lists(
    st.builds(Use, st.just("p"), st.sampled_from(["current", "started"]), st.sampled_from(NAMES))
)


@given(releases, others, names_of, extents, uses, st.integers(0, 7), st.booleans())
def test_whatever_a_host_holds(
    made: dict[str, int],
    more: set[str],
    names: dict[str, frozenset[str]],
    shared: list[Extent],
    used: list[Use],
    keep: int,
    store: bool,
) -> None:
    items = {f"releases/{name}": at for name, at in made.items()} | dict.fromkeys(more, 0)
    here = Holdings(ROOT, 100, items, tuple(shared), names, tuple(used))
    cut = choose(here, keep, store=store)
    gone = set(cut.gone)
    assert gone <= set(items) and len(cut.gone) == len(gone)
    assert {f"releases/{use.release}" for use in used}.isdisjoint(gone)
    for stack in {stack_of(name) for name in made}:
        ages = sorted((made[n] for n in made if stack_of(n) == stack), reverse=True)
        left = [n for n in made if stack_of(n) == stack and f"releases/{n}" not in gone]
        assert len(left) >= min(keep, len(ages))
        # None that goes is newer than the newest `keep`.
        assert all(
            made[n[9:]] <= min(ages[:keep] or [100]) for n in gone if stack_of(n[9:]) == stack
        )
    stay = set(items) - gone
    if not store:
        assert all(item.startswith("releases/") for item in gone)
    named = {name for item in stay for name in names.get(item, ())}
    assert not store or not [i for i in gone if i in named or i.rpartition("/")[2] in named]
    assert cut.freed == sum(e.bytes for e in shared if not e.holders - gone)


@given(releases, uses, st.integers(0, 6))
def test_keeping_more_removes_no_more(made: dict[str, int], used: list[Use], keep: int) -> None:
    items = {f"releases/{name}": at for name, at in made.items()}
    here = Holdings(ROOT, 100, items, (), {}, tuple(used))
    assert set(choose(here, keep + 1).gone) <= set(choose(here, keep).gone)
