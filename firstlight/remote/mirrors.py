"""Part of remote programs: where a url is really fetched from, and what a relative one means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
# user@host:path, as ssh writes it.
SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!/?/)[^\s]+")


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """The longest prefix that ends at a name's end counts; a path that climbs is left alone."""
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


def is_local(url: str) -> bool:
    """True when a url means this machine's own disk."""
    return url.startswith(("/", "file://"))


def is_url(url: str) -> bool:
    """True for what we hand to git; `ext::command` and words that look like flags are none."""
    known = url.startswith(SCHEMES) or url.startswith("/") or SCP.fullmatch(url)
    return bool(known) and "::" not in url and not re.search(r"[\s\0]", url)


def local_path(url: str) -> Path:
    """The file that a local url means."""
    return Path(unquote(urlsplit(url).path)) if url.startswith("file://") else Path(url)


def joined(base: str, url: str) -> str:
    """A submodule's url as git reads it: `../name` counts from the repository that names it."""
    if not url.startswith(("./", "../")):
        return url
    base = base.rstrip("/")
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        if step == "..":
            base = base[: max(base.rfind("/"), base.rfind(":") + 1, 0)]
    return base + ("" if base.endswith(("/", ":")) else "/") + url
