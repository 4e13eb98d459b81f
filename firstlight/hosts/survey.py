"""What of ours is on a host: the answers of remote/survey.sh as one value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from firstlight.core.errors import HostError

MARK = "@@firstlight"


@dataclass(frozen=True)
class Deployed:
    """One profile's deployments on a host, by id; `manifest` and `proof` are the current one's.

    `started` is the one that was started last, whether or not it came to be the current one.
    `failed` is the last proof of any of them, where that was no pass.
    """

    profile: str
    current: str = ""
    previous: str = ""
    started: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """One look at a host's root folder.

    `route` is "", "host" or "controller" (who downloads); `jobs` have no end on record. Where we
    may not write, `blocked_at` is the folder that says no, `read_only` whether its disk does.
    """

    root: PurePosixPath
    user: str
    boot: str
    writable: bool
    blocked_at: str
    route: str
    releases: frozenset[str]
    artifacts: frozenset[str]
    models: frozenset[str]
    libraries: frozenset[str]
    wheels: frozenset[str]
    sources: frozenset[str]
    jobs: frozenset[str]
    deployments: Mapping[str, Deployed]
    read_only: bool = False


def require_writable(seen: Survey, host: str) -> None:
    """Raise HostError where nobody can write: on a file system that is mounted read-only."""
    if seen.read_only:
        raise HostError(
            f"{seen.blocked_at} is on a file system that is read-only",
            where=host,
            remedy="have it mounted for writing (Linux makes a disk with errors read-only: see "
            "`dmesg` there), or set another root for it in inventory/",
        )


def parse(output: str, host: str) -> Survey:
    """Read the answers; raises HostError where they are not whole, or a folder is closed to us."""
    answers = [line.split("\t")[1:] for line in output.splitlines() if line.startswith(MARK)]
    if not answers or answers[-1] != ["end"]:
        raise HostError(
            "the host did not answer our first question whole",
            where=host,
            remedy="is /bin/bash there, and does the login shell start at all? try `ssh` by hand",
        )
    one = {words[0]: words[1:] for words in answers}
    _require_open(one, host)
    return Survey(
        root=PurePosixPath(one["root"][0]),
        user=one["user"][0],
        boot=one["boot"][0],
        writable=one["writable"][0] == "yes",
        blocked_at=one["writable"][1] if len(one["writable"]) > 1 else "",
        read_only=one["writable"][2:] == ["read-only"],
        route=one.get("route", [""])[0],
        releases=_all(answers, "release"),
        artifacts=_all(answers, "artifact"),
        models=_all(answers, "model"),
        libraries=_all(answers, "library"),
        wheels=_all(answers, "wheel"),
        sources=_all(answers, "source"),
        jobs=_all(answers, "job"),
        deployments={found.profile: found for found in _deployments(answers)},
    )


def _require_open(one: Mapping[str, list[str]], host: str) -> None:
    """A folder of somebody else's must not pass for an empty one: what it serves would be lost."""
    if "closed" in one:
        raise HostError(
            f"user {one['user'][0]} may not look into {one['closed'][0]}",
            where=host,
            remedy="see whose it is (`ls -ld`) and have it opened to that account, "
            "or give the account a root of its own in inventory/",
        )


def _all(answers: list[list[str]], key: str) -> frozenset[str]:
    return frozenset(words[1] for words in answers if words[0] == key)


def _deployments(answers: list[list[str]]) -> Iterator[Deployed]:
    for _, profile, *ids in (words for words in answers if words[0] == "deployment"):
        current, previous, started = (*ids, "", "", "")[:3]
        manifest, proof, failed = (
            _json(answers, key, profile) for key in ("manifest", "proof", "failed")
        )
        yield Deployed(profile, current, previous, started, manifest, proof, failed)


def _json(answers: list[list[str]], key: str, profile: str) -> Mapping[str, Any]:
    texts = [words[2] for words in answers if words[:2] == [key, profile]]
    try:
        value = json.loads(texts[0]) if texts else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
