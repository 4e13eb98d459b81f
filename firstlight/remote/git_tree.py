"""Part of remote programs: the tree of one commit with its submodules, gathered without checkout.

Nothing of a repository is obeyed, neither filters nor hooks; what no good repository holds, a path
that leads out of the tree or into a .git, is refused.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import git_cache
from fetch_wheels import Fault
from git_cache import COMMIT, Origin, git
from mirrors import is_local, is_url, joined

DEEPEST = 8


@dataclass(frozen=True)
class Request:
    """What to pack."""

    url: str
    ref: str | None = None
    commit: str | None = None
    submodules: str | tuple[str, ...] = "none"
    mirrors: Mapping[str, str] | None = None

    def wants(self, path: str) -> bool:
        if isinstance(self.submodules, str):
            return self.submodules == "all"
        return path in self.submodules


@dataclass(frozen=True)
class Entry:
    """One thing of a tree: its mode in git, its object, the repository that holds it."""

    mode: str
    oid: str
    home: Path


@dataclass(frozen=True)
class Module:
    """A submodule: its path in the whole tree, where it comes from, and its commit."""

    path: str
    url: str
    commit: str


@dataclass(frozen=True)
class Walk:
    """A tree as it is gathered: entries by path, in git's bytes."""

    request: Request
    cache: Path
    entries: dict[bytes, Entry]
    modules: list[Module]
    seen: set[str]


def request_of(data: Any) -> Request:
    """Raises ValueError or TypeError where it makes no sense."""
    request = Request(**data)
    if not request.ref and not request.commit:
        raise ValueError("neither ref nor commit")
    if request.ref and (request.ref.startswith("-") or any(c in request.ref for c in " *?[^~:\\")):
        raise ValueError(f"{request.ref!r} is no ref")
    if request.commit and not COMMIT.fullmatch(request.commit):
        raise ValueError(f"{request.commit!r} is no commit")
    if isinstance(request.submodules, list):
        request = Request(**{**data, "submodules": tuple(request.submodules)})
    elif request.submodules not in ("none", "all"):
        raise ValueError(f"submodules: {request.submodules!r}")
    return request


def ask(where: Path, *words: str) -> bytes:
    """What git says of a repository that we hold."""
    ran = git(f"--git-dir={where}", *words)
    if ran.code != 0:
        fix = f"remove {where}, it is fetched again"
        raise Fault(f"git {words[0]} failed: {ran.err.strip()[-300:]}", fix)
    return ran.out


def safe(path: bytes, whole: str) -> None:
    """Refuse a path that no good repository has: it would lead out of the tree, or into a .git."""
    parts = path.split(b"/")
    if any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts):
        raise Fault(f"{whole} holds a hostile path: {path!r}", "do not build that source")


def gather(walk: Walk, where: Origin, commit: str, at: bytes = b"", depth: int = 0) -> None:
    """The files of a commit below `at`, and those of the submodules that are wanted."""
    links: list[tuple[bytes, str]] = []
    for row in ask(where.home, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]:
        head, _, path = row.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        safe(path, str(where))
        whole = at + path
        if whole in walk.entries:
            raise Fault(f"{where} holds {path!r} twice", "do not build that source")
        walk.entries[whole] = Entry(mode, oid, where.home)
        links += [(path, oid)] if mode == "160000" else []
    if links:
        urls = module_urls(where, commit)
        for path, oid in links:
            descend(walk, where, (at, path), oid, urls.get(os.fsdecode(path)), depth)


def descend(
    walk: Walk, where: Origin, place: tuple[bytes, bytes], oid: str, url: str | None, depth: int
) -> None:
    """One submodule, if it is wanted."""
    whole = os.fsdecode(b"".join(place))
    walk.seen.add(whole)
    if not walk.request.wants(whole):
        return
    if url is None:
        raise Fault(f"{where}: .gitmodules has no url for {whole}", "leave that submodule out")
    if depth == DEEPEST:
        raise Fault(f"{where}: submodules {DEEPEST} deep at {whole}", "name those that you need")
    inner = module_origin(walk, where, whole, url)
    git_cache.bring(inner, oid)
    walk.modules.append(Module(whole, inner.url, oid))
    gather(walk, inner, oid, b"".join(place) + b"/", depth + 1)


def module_origin(walk: Walk, where: Origin, path: str, url: str) -> Origin:
    """Where a submodule comes from; a repository from outside may not name this machine's disk."""
    full = joined(where.url, url)
    if not is_url(full):
        raise Fault(f"{where}: submodule {path} has the url {url!r}", "leave that submodule out")
    inner = git_cache.origin(full, walk.request.mirrors or {}, walk.cache)
    if is_local(full) and inner.at == full and not is_local(where.url):
        fix = "leave that submodule out, or map that url to a mirror"
        raise Fault(f"{where}: submodule {path} is {url!r}, a path of this machine", fix)
    return inner


def module_urls(where: Origin, commit: str) -> dict[str, str]:
    """Path to url, as .gitmodules of that commit says."""
    words = ("config", "--no-includes", f"--blob={commit}:.gitmodules", "-z", "--list")
    ran = git(f"--git-dir={where.home}", *words)
    if ran.code != 0:
        return {}
    found: dict[str, dict[str, str]] = {}
    for row in os.fsdecode(ran.out).split("\0")[:-1]:
        key, _, value = row.partition("\n")
        section, _, name = key.rpartition(".")
        found.setdefault(section, {})[name] = value
    return {m["path"].rstrip("/"): m["url"] for m in found.values() if {"path", "url"} <= m.keys()}


def check_named(walk: Walk, where: Origin) -> None:
    """A submodule that is asked for by name must be there."""
    if isinstance(walk.request.submodules, str):
        return
    lacking = sorted(set(walk.request.submodules) - walk.seen)
    if lacking:
        there = ", ".join(sorted(walk.seen)) or "none"
        told = f"{where} has no submodule {', '.join(lacking)}; it has: {there}"
        raise Fault(told, "correct the submodules in the recipe")


def with_folders(entries: Mapping[bytes, Entry]) -> dict[bytes, Entry | None]:
    """The entries and their folders (None), sorted; nothing may lie below a file or a link."""
    whole: dict[bytes, Entry | None] = dict(entries)
    for path in entries:
        above = posixpath.dirname(path)
        while above:
            entry = whole.setdefault(above, None)
            if entry is not None and entry.mode != "160000":
                raise Fault(f"{path!r} lies below a file", "do not build that source")
            above = posixpath.dirname(above)
    return dict(sorted(whole.items()))
