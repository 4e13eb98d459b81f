"""The build room: where a source comes from, what a lock keeps of it, and by which mirror.

Every source ends as one archive, `sources/<sha256>/<file>`, on the controller and on hosts alike:
an sdist, a tarball, or the tree of a git commit packed so that equal trees are equal bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field

from firstlight.build.wheel import Sha256
from firstlight.core.errors import FirstlightError
from firstlight.core.schema import Model
from firstlight.core.words import size

_URL = re.compile(r"(https?|ssh|git|file)://[^/\s][^\s]*|file:///\S+|[\w.-]+@[\w.-]+:\S+|/\S*")
_ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar", ".zip")


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError(f"{text!r} is no url; write https://..., ssh://..., or an absolute path")
    return text


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text):
        raise ValueError(f"{text!r} is no commit; write all 40 digits")
    return text


def _ref(text: str) -> str:
    if not re.fullmatch(r"[^\s~^:?*\[\\-][^\s~^:?*\[\\]*", text) or ".." in text:
        raise ValueError(f"{text!r} is no git ref; write a tag, a branch or a commit")
    return text


def _inside(text: str) -> str:
    parts = text.split("/")
    if not text or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{text!r} is no path inside a source; write it like csrc/cutlass")
    return text


def _archive_name(text: str) -> str:
    if not re.fullmatch(r"[\w.+!-]+", text) or not text.endswith(_ARCHIVES) or text[0] in ".-":
        raise ValueError(f"{text!r} is no file name of an archive ({', '.join(_ARCHIVES)})")
    return text


def _source_name(text: str) -> str:
    # It becomes a folder of a build, and a word of ${fetched:NAME}.
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", text):
        raise ValueError(f"{text!r} is no name: letters, digits, '.', '_' and '-' only")
    return text


Url = Annotated[str, AfterValidator(_url)]
Commit = Annotated[str, AfterValidator(_commit)]
Ref = Annotated[str, AfterValidator(_ref)]
SourceName = Annotated[str, AfterValidator(_source_name)]
ArchiveName = Annotated[str, AfterValidator(_archive_name)]
Submodules = Literal["none", "all"] | tuple[Annotated[str, AfterValidator(_inside)], ...]

# From a prefix of urls to another prefix, or to a folder of the machine that fetches.
Mirrors = Mapping[Url, Url]


class SdistSource(Model):
    """A release on the package index that the fetching machine's pip is set up for.

    `name` is the project there where the component is called otherwise; `sha256` pins its file.
    """

    kind: Literal["sdist"]
    name: str | None = None
    sha256: Sha256 | None = None


class ArchiveSource(Model):
    """A tarball or zip at a url, by its content; `file` where the url's end is no good name."""

    kind: Literal["archive"]
    url: Url
    sha256: Sha256
    file: ArchiveName | None = None


class GitSource(Model):
    """A commit of a git repository.

    `ref` is a tag, a branch or a commit; `commit` pins it, so that a tag that moves is a fault.
    `submodules` are none, all (those of submodules as well), or exactly the paths that are named.
    """

    kind: Literal["git"]
    url: Url
    ref: Ref
    commit: Commit | None = None
    submodules: Submodules = "none"


Source = Annotated[SdistSource | ArchiveSource | GitSource, Field(discriminator="kind")]


class LockedSource(Model):
    """One archive of a lock; `size` in bytes, `time` in Unix seconds, as SOURCE_DATE_EPOCH wants.

    An sdist has no `url`: its index is asked for `file`. A git tree has `url`, `commit`, `tree`
    (git's own digest of it, without submodules) and `submodules`, so that it can be made again;
    `ref` is what led to the commit.
    """

    name: SourceName
    kind: Literal["sdist", "archive", "git"]
    file: ArchiveName
    sha256: Sha256
    size: int | None = Field(default=None, ge=1)
    url: Url | None = None
    ref: Ref | None = None
    commit: Commit | None = None
    tree: Commit | None = None
    submodules: Submodules = "none"
    time: int | None = Field(default=None, ge=0)


def source_path(sources: PurePosixPath, locked: LockedSource) -> PurePosixPath:
    """Where a machine keeps a source; `sources` is that folder of its root."""
    return sources / locked.sha256 / locked.file


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """Where a url is really fetched from: the longest prefix that ends at a name's end counts.

    The programs that fetch have this rule too (remote/mirrors.py); a test holds them together.
    """
    if ".." in url.split("/"):
        return url
    for prefix in sorted(mirrors, key=len, reverse=True):
        rest = url.removeprefix(prefix) if url.startswith(prefix) else None
        if rest in ("", "/", ".git"):
            return mirrors[prefix]
        if rest and (prefix[-1] in "/:" or rest[0] == "/"):
            target = mirrors[prefix]
            return target + ("" if target[-1] in "/:" else "/") + rest.lstrip("/")
    return url


def sdist_request(name: str, version: str, source: SdistSource, mirrors: Mapping[str, str]) -> str:
    """What find_sdist.py reads."""
    asked = {"name": source.name or name, "version": version, "sha256": source.sha256}
    return _text({**asked, "mirrors": dict(mirrors)})


def pack_request(source: GitSource, mirrors: Mapping[str, str]) -> str:
    """What pack_git.py reads."""
    asked = source.model_dump(mode="json", exclude={"kind"})
    return _text({**asked, "mirrors": dict(mirrors)})


def fetch_request(sources: Iterable[LockedSource], mirrors: Mapping[str, str]) -> str:
    """What fetch_sources.py reads, one source a line."""
    rows = (json.dumps(source.model_dump(mode="json")) for source in sources)
    lines = ",\n".join(f"  {row}" for row in rows)
    return f'{{"mirrors": {json.dumps(dict(mirrors))}, "sources": [\n{lines}\n]}}\n'


def locked_sdist(name: str, answer: str) -> LockedSource:
    """A source of a lock from what find_sdist.py printed."""
    found = json.loads(answer)
    kept = {key: found[key] for key in ("file", "sha256", "size", "time")}
    return _locked({"name": name, "kind": "sdist", **kept})


def locked_git(name: str, source: GitSource, answer: str) -> LockedSource:
    """A source of a lock from what pack_git.py printed."""
    found = json.loads(answer)
    kept = {key: found[key] for key in ("file", "sha256", "size", "commit", "tree", "time")}
    own = {"url": source.url, "ref": source.ref, "submodules": source.submodules}
    return _locked({"name": name, "kind": "git", **own, **kept})


def locked_archive(name: str, source: ArchiveSource) -> LockedSource:
    """A source of a lock; nothing is fetched for it, so its size and time are not known."""
    file = source.file or archive_name(name, source.url)
    return LockedSource(name=name, kind="archive", file=file, sha256=source.sha256, url=source.url)


def archive_name(name: str, url: str) -> str:
    """The file name at the end of a url, with what it is in front where that says little.

    Forges name an archive by its ref alone (`v1.2.tar.gz`), which says nothing in a cache.
    """
    last = unquote(PurePosixPath(urlsplit(url).path).name)
    plain = re.sub(r"[^\w.+!-]", "-", last)
    if not plain.endswith(_ARCHIVES):
        raise FirstlightError(
            f"{url} does not end in the name of an archive", remedy="give that source a `file`"
        )
    return plain if plain.lower().startswith(name.lower()) else f"{name}-{plain}"


def check_sdist(locked: LockedSource, name: str, version: str) -> str | None:
    """Why a locked sdist is not that release, or None."""
    for end in (".tar.gz", ".zip"):
        stem = locked.file.removesuffix(end)
        project, _, found = stem.rpartition("-")
        if stem != locked.file and canonicalize_name(project) == canonicalize_name(name):
            return None if _same(found, version) else f"{locked.file} is not version {version}"
    return f"{locked.file} is no sdist of {name}"


def moved(
    locked: LockedSource, source: SdistSource | ArchiveSource | GitSource
) -> Iterator[tuple[str, str]]:
    """In what a locked source is another than its recipe's: what the lock has, what is asked.

    A recipe that leaves a value open, or a lock from before values were kept, is no difference.
    """
    held = locked.model_dump(mode="json", exclude_none=True)
    asked = source.model_dump(mode="json", exclude_none=True, exclude={"name", "file"})
    for key, value in asked.items():
        if value != held.get(key, value):
            yield f"{key} {held[key]}", f"{key} {value}"


def told(locked: LockedSource) -> str:
    """A source in a few words: what a plan prints of it."""
    amount = f", {size(locked.size)}" if locked.size else ""
    origin = f" {locked.url} at {locked.commit[:12]}" if locked.url and locked.commit else ""
    return f"{locked.kind}{origin or ' ' + (locked.url or locked.file)}{amount}"


def _same(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def _locked(data: Mapping[str, Any]) -> LockedSource:
    return LockedSource.model_validate_json(json.dumps(data))


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
