"""Part of remote programs: http as this machine's pip is set up for it, and downloads that go on.

`pip config list` is asked for index, proxy, certificates and trusted hosts; a login stands in the
url or in ~/.netrc. A download that was cut goes on where it was, as long as its server allows that.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import errno
import fcntl
import hashlib
import http.client
import netrc
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fetch_wheels import PASSWORD, TRIES, Fault, megabytes, no_space, say, wrong_sha256
from mirrors import is_local, local_path

BLOCK = 1 << 20
TELL_SECONDS = 5
PATIENCE_SECONDS = 30
# A server that is asked too much, or waited too long for the question, may answer the next time.
BUSY = (408, 425, 429)
DEFAULT_INDEX = "https://pypi.org/simple"
# pip's sections from the weakest to the strongest.
SECTIONS = ("global", "download", ":env:")


@dataclass(frozen=True)
class Settings:
    """What pip on this machine is set up for; lists are words with spaces between, as pip has."""

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, key: str) -> str:
        return self.values.get(key, "")

    def words(self, key: str) -> list[str]:
        return self.text(key).split()

    def indexes(self) -> list[str]:
        if self.text("no-index").lower() in ("1", "true", "yes", "on"):
            return []
        return [self.text("index-url") or DEFAULT_INDEX, *self.words("extra-index-url")]


def pip_settings(python: str) -> Settings:
    """What `pip config list` says, the sections that a download obeys laid over each other."""
    argv = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    ran = subprocess.run(argv, capture_output=True, text=True)
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in ran.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            with contextlib.suppress(ValueError, SyntaxError):
                found[section][key.replace("_", "-")] = str(ast.literal_eval(value))
    merged: dict[str, str] = {}
    for section in SECTIONS:
        merged |= found[section]
    return Settings(merged)


def trusted(settings: Settings, url: str) -> bool:
    parts = urlsplit(url)
    return bool(
        {parts.hostname, parts.netloc.rpartition("@")[2]} & {*settings.words("trusted-host")}
    )


def tls(settings: Settings, url: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.text("cert") or None)
        if settings.text("client-cert"):
            context.load_cert_chain(settings.text("client-cert"))
    except OSError as error:
        files = " and ".join(filter(None, map(settings.text, ("cert", "client-cert"))))
        fix = "put the right file there, or correct it: `pip config list` says where it is set"
        raise Fault(f"pip's certificates cannot be read ({files}): {error}", fix) from None
    if trusted(settings, url):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def login(url: str) -> tuple[str, str] | None:
    """User and password for a url: its own, else those of ~/.netrc."""
    parts = urlsplit(url)
    if parts.username:
        return unquote(parts.username), unquote(parts.password or "")
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        if found := netrc.netrc().authenticators(parts.hostname or ""):
            return found[0], found[2] or ""
    return None


def request(url: str, head: Mapping[str, str]) -> urllib.request.Request:
    asked = urllib.request.Request(
        PASSWORD.sub("", url), headers={"User-Agent": "firstlight", **head}
    )
    if known := login(url):
        coded = base64.b64encode(":".join(known).encode()).decode()
        # Unredirected: a login is for the host that it was given for.
        asked.add_unredirected_header("Authorization", f"Basic {coded}")
    return asked


@contextlib.contextmanager
def opened(settings: Settings, url: str, head: Mapping[str, str]) -> Iterator[Any]:
    """The answer to GET; raises Fault for a refusal, OSError or HTTPException for a broken link."""
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=tls(settings, url))
    ]
    if proxy := settings.text("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    try:
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request(url, head), timeout=PATIENCE_SECONDS) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        if error.code == 416:
            raise TooFar from None
        if error.code >= 500 or error.code in BUSY:
            raise ConnectionError(f"the server answered {error.code}") from None
        raise refused(url, error.code) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            fix = "give pip on this machine your certificate authority (pip config set global.cert)"
            raise Fault(f"{plain(url)}: certificate not trusted here", fix) from None
        raise Fault(f"no route to {plain(url)}: {error.reason}", NO_WAY, code=75) from None


NO_WAY = "let the controller fetch (fetch: controller), or map that url to a mirror in reach"


def plain(url: str) -> str:
    return PASSWORD.sub("", url)


def refused(url: str, code: int) -> Fault:
    if code in (401, 403):
        fix = "put a login for that host into ~/.netrc of this machine, or check the url"
        return Fault(f"{plain(url)} asks for a login ({code})", fix)
    return Fault(f"{plain(url)} answers {code}", "check the url and the mirrors")


class TooFar(ConnectionError):
    """What came is as long as the file, or longer."""


@contextlib.contextmanager
def part_of(dest: Path, sha256: str) -> Iterator[BufferedRandom]:
    """The file that a download grows in, for this run alone; it stays until it is whole."""
    path = dest / ".parts" / f"{sha256}.part"
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("  another run is fetching it; waiting")
                fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever had it before may have moved it away, whole or as rubbish.
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield file
                if path.exists() and path.stat().st_size == 0:
                    path.unlink()
                return


def download(settings: Settings, url: str, file: str, sha256: str, dest: Path) -> int:
    """Bring a url to DEST/<sha256>/<file>, checked; its size in bytes."""
    home = dest / sha256 / file
    with part_of(dest, sha256) as part:
        if not home.exists():
            went_on = part.seek(0, os.SEEK_END) > 0
            fill(settings, url, part, dest)
            if went_on and digest(part) != sha256:
                say("  what was here of it was not of that file; once again from the start")
                part.truncate(0)
                fill(settings, url, part, dest)
            settle(part, file, sha256, dest)
    return home.stat().st_size


def fill(settings: Settings, url: str, part: BufferedRandom, dest: Path) -> None:
    if is_local(url):
        copy(url, part)
    else:
        grow(settings, url, part, dest)


def digest(part: BufferedRandom) -> str:
    part.flush()
    part.seek(0)
    return hashlib.file_digest(part, "sha256").hexdigest()


def copy(url: str, part: BufferedRandom) -> None:
    part.truncate(0)
    try:
        with local_path(url).open("rb") as source:
            shutil.copyfileobj(source, part, BLOCK)
    except (FileNotFoundError, IsADirectoryError):
        raise Fault(f"{plain(url)} is no file", "check the url and the mirrors") from None


def grow(settings: Settings, url: str, part: BufferedRandom, dest: Path) -> None:
    """Have the rest of a url in the part; a link that breaks is taken up again while it helps."""
    failures = 0
    while failures < TRIES:
        begun = part.seek(0, os.SEEK_END)
        try:
            return receive(settings, url, part, dest)
        except TooFar:
            return None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise no_space(dest) from None
            # As long as something comes each time, it gets there.
            failures = 0 if part.seek(0, os.SEEK_END) > begun else failures + 1
            say(f"  the link broke ({plain(str(error))}); going on")
            time.sleep(failures)
    raise Fault(f"the link to {plain(url)} breaks again and again", "run it again: what came stays")


def receive(settings: Settings, url: str, part: BufferedRandom, dest: Path) -> None:
    start = part.seek(0, os.SEEK_END)
    # An encoding would make bytes that are not those of the hash.
    head = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    with opened(settings, url, head) as answer:
        if start and answer.status != 206:
            start = 0
            part.truncate(0)
        left = answer.length or 0
        if left > shutil.disk_usage(dest).free:
            raise no_space(dest, left)
        said = time.monotonic()
        while block := answer.read(BLOCK):
            part.write(block)
            if time.monotonic() - said > TELL_SECONDS:
                said = time.monotonic()
                whole = f" of {megabytes(start + left)}" if left else ""
                say(f"  {megabytes(part.tell())}{whole}")
        if left and part.tell() < start + left:
            raise ConnectionError(f"ended at {part.tell()} of {start + left} bytes")


def settle(part: BufferedRandom, file: str, sha256: str, dest: Path) -> None:
    """Check what came and rename it into its home; what is wrong is not kept."""
    got, path = digest(part), Path(part.name)
    os.fsync(part.fileno())
    if got != sha256:
        path.unlink()
        raise wrong_sha256(file, sha256, got)
    (dest / sha256).mkdir(exist_ok=True)
    path.rename(dest / sha256 / file)
    (dest / sha256 / file).chmod(0o644)
