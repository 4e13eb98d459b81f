"""The build room: all that a host holds of builds, with sizes and what names what.

The answers of remote/holdings.sh as one value. An item is a path below the root, such as
`releases/ID`, `store/NAME`, `wheels/SHA256` or `cache/uv/archive-v0/ENTRY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.build.hold import Hold
from firstlight.core.errors import HostError
from firstlight.hosts.survey import MARK


@dataclass(frozen=True)
class Extent:
    """Bytes on disk that are free again when all their holders are gone."""

    bytes: int
    holders: frozenset[str]


@dataclass(frozen=True)
class Use:
    """A link of a deployment and the release that it runs: current, previous, started or coming."""

    profile: str
    link: str
    release: str


@dataclass(frozen=True)
class Holdings:
    """What is below a host's root; times are seconds since 1970.

    `items` have the time at which they were made, `names` the digests and items that the papers
    of an item name; `holds` are of builds that go on. `husks` are items of releases that are gone
    but for what a server wrote there, `odd` names that no answer can carry, quoted.
    """

    root: PurePosixPath
    now: int
    items: Mapping[str, int]
    extents: tuple[Extent, ...]
    names: Mapping[str, frozenset[str]]
    uses: tuple[Use, ...]
    holds: tuple[Hold, ...] = ()
    husks: frozenset[str] = frozenset()
    odd: tuple[str, ...] = ()


def parse(output: str, host: str) -> Holdings:
    """Read the answers; raises HostError for cut ones, and for a deployment that tells nothing."""
    answers = [line.split("\t")[1:] for line in output.splitlines() if line.startswith(MARK)]
    if not answers or answers[-1] != ["end"]:
        raise HostError("the host did not say whole what it holds", where=host, remedy="run again")
    names: dict[str, set[str]] = {}
    for _, item, name in _all(answers, "names"):
        names.setdefault(item, set()).add(name)
    return Holdings(
        root=PurePosixPath(next(words[1] for words in _all(answers, "root"))),
        now=int(next(words[1] for words in _all(answers, "now"))),
        items={item: int(made) for _, item, made in _all(answers, "item")},
        extents=tuple(
            Extent(int(count), frozenset(holders)) for _, count, *holders in _all(answers, "bytes")
        ),
        names={item: frozenset(found) for item, found in names.items()},
        uses=tuple(_use(words, host) for words in _all(answers, "uses")),
        holds=tuple(Hold(item, int(sign), text) for _, item, sign, text in _all(answers, "hold")),
        husks=frozenset(words[1] for words in _all(answers, "husk")),
        odd=tuple(words[1] for words in _all(answers, "odd")),
    )


def _all(answers: list[list[str]], key: str) -> list[list[str]]:
    return [words for words in answers if words[0] == key]


def _use(words: list[str], host: str) -> Use:
    _, profile, link, release = words
    if not release:
        raise HostError(
            f"it cannot be told which release the {link} deployment of {profile} runs",
            where=host,
            remedy=f"look at {link}/manifest.json of that deployment; deploying again writes it",
        )
    return Use(profile, link, release)


def weight(holdings: Holdings, item: str) -> int:
    """Bytes of an item, also those that it shares with others."""
    return sum(extent.bytes for extent in holdings.extents if item in extent.holders)


def freed(holdings: Holdings, gone: Iterable[str]) -> int:
    """Bytes that are free once these items are gone: what others hold too stays."""
    gone = frozenset(gone)
    return sum(extent.bytes for extent in holdings.extents if extent.holders <= gone)
