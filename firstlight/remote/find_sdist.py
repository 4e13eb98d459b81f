"""Remote program: say which file the sdist of a release is, without running anything in it.

    find_sdist.py REQUEST.json

REQUEST is {"name", "version", "sha256", "mirrors"}; a sha256 that is not null must be that file's.
The indexes and find-links that this machine's pip is set up for are asked, the simple API as JSON
or HTML; `pip download` would run setup.py. Prints a line of JSON: {"name", "version", "file",
"sha256", "size", "time", "url"}, where size and time (Unix seconds) may be null.
Exit codes: 0 found, 1 there is none, 2 a request that makes no sense, 75 no route.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import html.parser
import http.client
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import web
from fetch_wheels import Fault, python_with_pip, say
from mirrors import is_local, local_path, mirrored
from web import NO_WAY, Settings, plain

ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2,"
    " text/html;q=0.01"
)
NAME, VERSION = re.compile(r"[A-Za-z0-9._-]+"), re.compile(r"[A-Za-z0-9.+!_-]+")
ENDS = (".tar.gz", ".zip")


@dataclass(frozen=True)
class Link:
    """A file that an index lists; `sha256`, `size` (bytes) and `time` may be unknown."""

    file: str
    url: str
    sha256: str | None = None
    size: int | None = None
    time: int | None = None
    yanked: str | None = None


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_sdist(file: str, name: str, version: str) -> bool:
    """True for the sdist of that release; a project name may hold dashes, a version none."""
    for end in ENDS:
        if file.endswith(end):
            project, _, found = file.removesuffix(end).rpartition("-")
            return (canonical(project), same(found)) == (canonical(name), same(version))
    return False


def same(version: str) -> str:
    """Two spellings of a version that file names use: `1.0-post1` is `1.0.post1`."""
    return re.sub(r"[-_]", ".", version.lower().removeprefix("v"))


class Anchors(html.parser.HTMLParser):
    """The links of a page, with what PEP 503 and 592 add to them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page, self.links = page, list[Link]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        seen = dict(attrs)
        if tag == "base" and seen.get("href"):
            self.page = urljoin(self.page, str(seen["href"]))
        if tag == "a" and seen.get("href"):
            url, _, fragment = urljoin(self.page, str(seen["href"])).partition("#")
            found = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
            yanked = seen["data-yanked"] or "no reason given" if "data-yanked" in seen else None
            file = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
            self.links.append(Link(file, url, found[1] if found else None, yanked=yanked))


def links_of_html(text: str, page: str) -> list[Link]:
    parser = Anchors(page)
    parser.feed(text)
    return parser.links


def links_of_json(text: str, page: str) -> list[Link]:
    return [link_of(row, page) for row in json.loads(text)["files"]]


def link_of(row: Mapping[str, Any], page: str) -> Link:
    yanked = row.get("yanked") or None
    return Link(
        file=row["filename"],
        url=urljoin(page, row["url"]).partition("#")[0],
        sha256=row.get("hashes", {}).get("sha256"),
        size=row.get("size"),
        time=seconds(row.get("upload-time")),
        yanked="no reason given" if yanked is True else yanked,
    )


def seconds(text: str | None) -> int | None:
    with contextlib.suppress(ValueError, TypeError):
        return int(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp())
    return None


def page_links(settings: Settings, page: str) -> list[Link]:
    """The links of a page; a page that is not there has none."""
    if is_local(page):
        return folder_links(local_path(page))
    try:
        with web.opened(settings, page, {"Accept": ACCEPT}) as answer:
            text, kind = answer.read().decode(errors="replace"), answer.headers.get_content_type()
            return (links_of_json if kind.endswith("+json") else links_of_html)(text, answer.url)
    except Fault as fault:
        if str(fault).endswith(" answers 404"):
            return []
        raise
    except (OSError, http.client.HTTPException, ValueError, KeyError) as fault:
        raise Fault(f"{plain(page)} gives no list of files: {fault}", "try again later") from None


def folder_links(path: Path) -> list[Link]:
    """The files of a folder, or the links of a page on this disk."""
    page = path / "index.html" if path.is_dir() and (path / "index.html").exists() else path
    if page.is_file():
        return links_of_html(page.read_text(errors="replace"), page.absolute().as_uri())
    files = sorted(path.iterdir()) if path.is_dir() else []
    return [Link(file.name, file.absolute().as_uri()) for file in files if file.is_file()]


def places(settings: Settings, name: str, mirrors: Mapping[str, str]) -> Iterator[str]:
    """Every page that may list the project, in pip's order."""
    for index in settings.indexes():
        base = mirrored(index, mirrors) if "://" in index else local(index)
        yield f"{base.rstrip('/')}/{canonical(name)}/"
    for link in settings.words("find-links"):
        yield mirrored(link, mirrors) if "://" in link else local(link)


def local(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def releases(
    settings: Settings, name: str, version: str, mirrors: Mapping[str, str]
) -> Iterator[Link]:
    """The sdists of a release on each page, with hashes; pages out of reach are told at the end."""
    lost: list[Fault] = []
    for page in places(settings, name, mirrors):
        try:
            links = page_links(settings, page)
        except Fault as fault:
            lost.append(fault)
            continue
        for link in links:
            if is_sdist(link.file, name, version):
                url = mirrored(link.url, mirrors)
                yield replace(link, url=url, sha256=link.sha256 or sha256_of(settings, url))
    if lost:
        raise lost[0]


def sha256_of(settings: Settings, url: str) -> str:
    """The digest of a file whose index does not tell it."""
    if is_local(url):
        with local_path(url).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    try:
        with web.opened(settings, url, {"Accept-Encoding": "identity"}) as answer:
            while block := answer.read(web.BLOCK):
                digest.update(block)
    except (OSError, http.client.HTTPException) as fault:
        raise Fault(f"the link to {plain(url)} broke: {fault}", "run it again") from None
    return digest.hexdigest()


def find(
    settings: Settings, name: str, version: str, sha256: str | None, mirrors: Mapping[str, str]
) -> Link:
    """The sdist of a release, the first page of pip's order first; with a sha256, that file."""
    others = []
    for link in releases(settings, name, version, mirrors):
        if sha256 in (None, link.sha256):
            if link.yanked:
                say(f"note: {link.file} was withdrawn by its authors: {link.yanked}")
            size = local_path(link.url).stat().st_size if is_local(link.url) else link.size
            return replace(link, size=size)
        others.append(f"{link.file} with sha256 {link.sha256}")
    if others:
        told = f"no index has {name} {version} with sha256 {sha256}; there is {', '.join(others)}"
        raise Fault(told, "find out what changed it: the index, a mirror, or the pin")
    asked = [plain(page) for page in places(settings, name, mirrors)]
    fix = "take the source from git, or name an index that has it in pip's settings"
    raise Fault(f"no sdist of {name} {version} at {' '.join(asked) or 'any index'}", fix)


def settings_here() -> Settings:
    """pip's settings; a python without pip makes itself one for the question."""
    with tempfile.TemporaryDirectory(prefix="firstlight-pip-") as area:
        return web.pip_settings(python_with_pip(Path(area)))


def work(path: Path) -> dict[str, Any]:
    try:
        asked = json.loads(path.read_text())
        name, version, mirrors = asked["name"], asked["version"], dict(asked["mirrors"])
        if not (NAME.fullmatch(name) and VERSION.fullmatch(version)):
            raise ValueError(f"{name} {version} is no release")
    except (OSError, ValueError, KeyError, TypeError) as fault:
        text = f"{path}: {type(fault).__name__}: {fault}"
        raise Fault(text, "write the request again from the recipe", code=2) from None
    try:
        found = find(settings_here(), name, version, asked.get("sha256"), mirrors)
    except OSError as fault:
        raise Fault(str(fault), NO_WAY) from None
    own = {key: value for key, value in vars(found).items() if key != "yanked"}
    return {"name": name, "version": version, **own}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("request", type=Path)
    options = parser.parse_args(argv)
    try:
        # Standard output is for the answer alone.
        with contextlib.redirect_stdout(sys.stderr):
            found = work(options.request)
    except Fault as fault:
        print(f"error: {fault}\nfix: {fault.fix}", file=sys.stderr)
        return fault.code
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
