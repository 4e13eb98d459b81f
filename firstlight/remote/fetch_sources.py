"""Remote program: bring the source archives of a request onto this machine, each checked.

    fetch_sources.py REQUEST.json DEST

REQUEST is {"sources": [{"name", "kind", "file", "sha256", "size", "url", "commit", "submodules",
...}], "mirrors": {prefix: prefix or folder}} as a lock has them. Each source ends up as
DEST/<sha256>/<file>; one that lies there is left alone. An sdist is looked up on the indexes of
this machine's pip, an archive comes from its url, a git tree is fetched at its commit and packed.
What came of a download stays, so that the next run goes on with it.
Exit codes: 0 all there, 1 a source could not be had, 2 a request that makes no sense, 75 no route.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import web
from ending import clear_up_when_ended
from fetch_wheels import BAD_LOCK, Fault, megabytes, no_space, say
from find_sdist import find, settings_here
from git_tree import Request, request_of
from mirrors import is_local, mirrored
from pack_git import pack, told_as

STALE_SECONDS = 7 * 24 * 3600
FILE = re.compile(r"[\w+][\w.+!-]*\.(tar|tar\.(gz|xz|bz2)|tgz|zip)")


@dataclass(frozen=True)
class Source:
    """One archive to have."""

    name: str
    kind: str
    file: str
    sha256: str
    size: int | None = None
    url: str | None = None
    commit: str | None = None
    tree: str | None = None
    submodules: Any = "none"

    def require(self, size: int, tree: str | None = None) -> None:
        """Raises Fault where its content is right, and something else is said of it wrongly."""
        told = [("size", self.size, size), ("tree", self.tree, tree)]
        for key, said, found in told:
            if None not in (said, found) and said != found:
                raise Fault(f"{self.file}: its {key} is {found}, the lock says {said}", BAD_LOCK)

    def request(self, mirrors: Mapping[str, str]) -> Request:
        """A git tree as pack_git reads it."""
        own = {"url": self.url, "commit": self.commit, "submodules": self.submodules}
        return request_of({**own, "mirrors": mirrors})


@dataclass(frozen=True)
class Depot:
    """Where sources go, and how this machine reaches out."""

    dest: Path
    mirrors: Mapping[str, str]

    @cached_property
    def settings(self) -> web.Settings:
        """pip's settings, asked for once and only where they are needed."""
        return settings_here()

    def place(self, source: Source) -> Path:
        return self.dest / source.sha256 / source.file

    def has(self, source: Source) -> bool:
        return self.place(source).exists()


def source_of(entry: Mapping[str, Any]) -> Source:
    """Raises ValueError or TypeError where it makes no sense."""
    known = {field.name for field in fields(Source)}
    source = Source(**{key: value for key, value in entry.items() if key in known})
    # They become paths here.
    if not (FILE.fullmatch(source.file) and re.fullmatch(r"[0-9a-f]{64}", source.sha256)):
        raise ValueError(f"{entry} is no source")
    if source.kind == "git":
        source.request({})
    elif source.kind == "archive":
        if not str(source.url).startswith(("https://", "http://", "file://", "/")):
            raise ValueError(f"{source.url!r} is no url of an archive")
    elif source.kind != "sdist":
        raise ValueError(f"{source.kind!r} is no kind of source")
    return source


def read_request(path: Path) -> tuple[dict[str, str], list[Source]]:
    try:
        asked = json.loads(path.read_text())
        return dict(asked["mirrors"]), [source_of(entry) for entry in asked["sources"]]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        text = f"{path}: {type(fault).__name__}: {fault}"
        raise Fault(text, "write the request again from the lock", code=2) from None


def bring(source: Source, depot: Depot) -> int:
    """Have one source in its place; its size in bytes."""
    if source.kind == "git":
        return bring_tree(source, depot)
    if source.kind == "archive":
        url = mirrored(str(source.url), depot.mirrors)
    else:
        project, version = release(source.file)
        url = find(depot.settings, project, version, source.sha256, depot.mirrors).url
    settings = web.Settings() if is_local(url) else depot.settings
    return web.download(settings, url, source.file, source.sha256, depot.dest)


def release(file: str) -> tuple[str, str]:
    """Project and version of an sdist, as its file name says."""
    project, _, version = re.sub(r"\.(tar\.gz|zip)$", "", file).rpartition("-")
    return project, version


def bring_tree(source: Source, depot: Depot) -> int:
    packed = pack(source.request(depot.mirrors), depot.dest)
    if (packed.sha256, packed.file) != (source.sha256, source.file):
        raise Fault(
            f"{source.file}: sha256 of the packed tree is {packed.sha256}, wanted {source.sha256}",
            "lock again: the submodules or the program that packs are others than the lock's",
        )
    source.require(packed.size, packed.tree)
    return packed.size


def fetch(depot: Depot, sources: list[Source]) -> None:
    missing = [source for source in sources if not depot.has(source)]
    for source in sources:
        if source not in missing:
            source.require(depot.place(source).stat().st_size)
    expected = sum(source.size or 0 for source in missing)
    here, total = len(sources) - len(missing), 0
    say(f"{here} of {len(sources)} sources are here, {megabytes(expected)} to fetch")
    if shutil.disk_usage(depot.dest).free < 1.5 * expected:
        raise no_space(depot.dest, int(1.5 * expected))
    for number, source in enumerate(missing, start=here + 1):
        size_of = f", {megabytes(source.size)}" if source.size else ""
        say(f"fetching {source.name} ({source.kind}{size_of})")
        size = bring(source, depot)
        source.require(size)
        total += size
        say(f"[{number}/{len(sources)}] {source.file} {megabytes(size)}")
    say(f"{len(missing)} sources fetched, {megabytes(total)}")


def clear(dest: Path) -> None:
    """Remove what came of downloads that nobody went on with."""
    for part in (dest / ".parts").glob("*.part"):
        if time.time() - part.stat().st_mtime > STALE_SECONDS:
            part.unlink(missing_ok=True)


def work(options: argparse.Namespace) -> None:
    mirrors, sources = read_request(options.request)
    options.dest.mkdir(parents=True, exist_ok=True)
    clear(options.dest)
    fetch(Depot(options.dest, mirrors), sources)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("request", type=Path)
    parser.add_argument("dest", type=Path)
    options = parser.parse_args(argv)
    clear_up_when_ended()
    try:
        work(options)
    except (Fault, OSError, KeyboardInterrupt) as fault:
        told = told_as(fault, options.dest)
        print(f"error: {told}\nfix: {told.fix}", file=sys.stderr)
        return told.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
