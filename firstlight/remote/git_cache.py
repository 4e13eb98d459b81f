"""Part of remote programs: bare repositories, one a url, that hold the commits asked for.

CACHE/<name>-<digest of the url>.git. A commit that is all there has a ref of its own; one without
is fetched again, so that a run killed midway costs nothing but time. One run at a time fetches
into a repository: the lock is held by the run and by its git, whichever ends last.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fetch_wheels import PASSWORD, TRIES, Fault, no_space, say
from mirrors import is_url, mirrored

TELL_SECONDS = 5
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NO_ROUTE = re.compile(
    r"Could not resolve host|Failed to connect|Couldn't connect|Connection refused"
    r"|unable to connect|timed out|Network is unreachable|No route to host"
    r"|Proxy CONNECT aborted|from proxy after",
    re.IGNORECASE,
)
BROKEN = re.compile(
    r"early EOF|RPC failed|unexpected disconnect|hung up unexpectedly|Connection reset"
    r"|Operation too slow|error: 50[0234]",
    re.IGNORECASE,
)
# What stands in a bare repository when a fetch was killed; nobody else writes under the lock.
TORN = ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/incoming-*", "objects/tmp_*")
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Loose objects come one by one; a pack is there or not.
    "fetch.unpackLimit": "1",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    # Half a minute without a byte is a dead link, which git would wait for for ever.
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "30",
}
REASONS = (
    (
        r"could not read (Username|Password)|Authentication failed|Permission denied"
        r"|returned error: 40[13]|terminal prompts disabled|Host key verification failed",
        "asks for a login, which nobody is here to give",
        "check the url (a forge asks for a login where it has no such repository), or give git on"
        " this machine a credential helper, or an ssh key and the host's key",
    ),
    (
        r"not found|does not appear to be a git repository|does not exist|not exported"
        r"|returned error: 404|No such file or directory",
        "is no git repository",
        "check the url and the mirrors",
    ),
    (
        r"certificate",
        "has a certificate that this machine does not trust",
        "name your certificate authority: git config --global http.sslCAInfo FILE",
    ),
    (
        r"transport '.*' not allowed",
        "is of a kind that we do not use",
        "use https, http, ssh, git or file",
    ),
)


@dataclass(frozen=True)
class Ran:
    """How git ended, and its words."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class Origin:
    """A repository: its url as people write it, where that is really, what we keep of it."""

    url: str
    at: str
    home: Path

    def __str__(self) -> str:
        mirror = f" (by the mirror {self.at})" if self.at != self.url else ""
        return PASSWORD.sub("", f"{self.url}{mirror}")


def origin(url: str, mirrors: Mapping[str, str], cache: Path) -> Origin:
    """Raises Fault when git is not here or the url is none that we hand to it."""
    if not shutil.which("git"):
        fix = "install the package git here, or let the controller fetch (fetch: controller)"
        raise Fault("git is not on the PATH of this machine", fix)
    at = mirrored(url, mirrors)
    if not (is_url(url) and is_url(at)):
        raise Fault(f"{at!r} is no url of a git repository", "use https, ssh or a path", code=2)
    # A password in a url is no part of what the repository is.
    name = hashlib.sha256(PASSWORD.sub("", url).encode()).hexdigest()[:16]
    return Origin(url, at, cache / f"{short_name(url)}-{name}.git")


def short_name(url: str) -> str:
    """The last name of a url, fit for a file: `cutlass`."""
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^\w.+-]", "-", last).lstrip(".-") or "source"


def surroundings() -> dict[str, str]:
    """A person's own git settings hold (proxies, certificates, insteadOf); prompts are off."""
    kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    # Ours come after those that a person's environment gives, and so win.
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    numbered = {
        word: text
        for number, (key, value) in enumerate(SETTINGS.items(), start=first)
        for word, text in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value))
    }
    quiet = "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15"
    return {
        "GIT_SSH_COMMAND": quiet,
        **kept,
        **numbered,
        "GIT_CONFIG_COUNT": str(first + len(SETTINGS)),
        "GIT_TERMINAL_PROMPT": "0",
        # Empty is not absent: git then asks no program for a password either.
        "GIT_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }


# They would lead git to another repository than the one that it is told of.
UNWANTED = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_TEMPLATE_DIR"),
}


def git(*words: str, lock: int | None = None) -> Ran:
    """Run git to its end; where it tells its progress, that is passed on every few seconds."""
    with subprocess.Popen(
        ["git", *words],
        env=surroundings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(lock,) if lock is not None else (),
    ) as child:
        assert child.stdout and child.stderr
        if "--progress" in words:
            err = follow(child.stderr)
            out = child.stdout.read()
        else:
            out, told = child.communicate()
            err = told.decode(errors="replace")
    return Ran(child.returncode, out, PASSWORD.sub("", err))


def follow(stream: IO[bytes]) -> str:
    """git's words to the end; what it counts is said now and then, the rest is returned."""
    words, rest, said = [], b"", time.monotonic()
    while block := os.read(stream.fileno(), 65536):
        *lines, rest = re.split(rb"[\r\n]", rest + block)
        for line in (line.decode(errors="replace").strip() for line in lines):
            if re.search(r"\d+% \(", line):
                if time.monotonic() - said > TELL_SECONDS:
                    said = time.monotonic()
                    say(f"  {line}")
            elif line:
                words.append(line)
    return "\n".join([*words, rest.decode(errors="replace")])


def cause(ran: Ran, where: Origin) -> Fault:
    """Why git failed, as one of our faults; its own last words where we do not know better."""
    if "No space left on device" in ran.err:
        return no_space(where.home.parent)
    if NO_ROUTE.search(ran.err):
        fix = "let the controller fetch (fetch: controller), or map that url to a mirror in reach"
        return Fault(f"no route to {where}", fix, code=75)
    for pattern, reason, fix in REASONS:
        if re.search(pattern, ran.err):
            return Fault(f"{where} {reason}", fix)
    errors = [line for line in ran.err.splitlines() if line.startswith(("fatal:", "error:"))]
    last = errors[-1] if errors else f"exit code {ran.code}"
    return Fault(
        f"git failed on {where}: {last}", "read git's words; try it by hand: git ls-remote"
    )


def resolve(where: Origin, ref: str) -> tuple[str, str | None]:
    """The commit of a tag, a branch or a full ref, and the full ref; a commit is itself."""
    if COMMIT.fullmatch(ref):
        return ref, None
    narrow = ("--", where.at, ref, f"{ref}^{{}}")
    full = ref.startswith("refs/")
    words = narrow if full else ("--tags", "--heads", "--", where.at)
    ran = git("ls-remote", *words)
    if ran.code != 0:
        raise cause(ran, where)
    known = refs_of(ran.out.decode(errors="replace"))
    wanted = [ref] if full else [f"refs/tags/{ref}", f"refs/heads/{ref}"]
    found = [name for name in wanted if name in known]
    if not found:
        raise absent(where, ref, known)
    if len({known[name] for name in found}) > 1:
        raise Fault(f"{ref} is a tag and a branch of {where}", f"write {found[0]} or {found[1]}")
    return known[found[0]], found[0]


def refs_of(text: str) -> dict[str, str]:
    """Full ref to commit from what ls-remote prints; a tag's own object gives way to its commit."""
    rows = [line.split("\t", 1) for line in text.splitlines() if "\t" in line]
    plain = {name: commit for commit, name in rows if not name.endswith("^{}")}
    return plain | {name[:-3]: commit for commit, name in rows if name.endswith("^{}")}


def absent(where: Origin, ref: str, known: Mapping[str, str]) -> Fault:
    names = [re.sub(r"^refs/(tags|heads)/", "", name) for name in known]
    near = difflib.get_close_matches(ref, names, n=3, cutoff=0.5)
    hint = f"; near it: {', '.join(near)}" if near else f"; it has {len(names)} others"
    return Fault(f"{where} has no tag or branch {ref!r}{hint}", "correct the ref in the recipe")


@contextlib.contextmanager
def locked(where: Origin) -> Iterator[int]:
    """The repository, made if need be, for this run alone; what a killed run left is cleared."""
    where.home.parent.mkdir(parents=True, exist_ok=True)
    with where.home.with_suffix(".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is fetching {where}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        if not where.home.exists():
            make_bare(where.home)
        for pattern in TORN:
            for path in where.home.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield file.fileno()


def make_bare(home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".git-", suffix=".partial", dir=home.parent) as area:
        made = git("init", "--quiet", "--bare", "--template=", f"{area}/new")
        if made.code != 0:
            raise Fault(f"git init failed: {made.err.strip()}", "check that folder and its owner")
        Path(area, "new").rename(home)


def mark(commit: str) -> str:
    """The ref that says that a commit is all there."""
    return f"refs/firstlight/{commit}"


def has(where: Origin, commit: str) -> bool:
    words = ("rev-parse", "--quiet", "--verify", mark(commit))
    return where.home.exists() and git(f"--git-dir={where.home}", *words).code == 0


def bring(where: Origin, commit: str, ref: str | None = None) -> None:
    """Have a commit in our repository: alone if the server gives it so, else with all there is."""
    if has(where, commit):
        return
    with locked(where) as lock:
        # Whoever had the lock before may have brought it.
        if has(where, commit):
            return
        say(f"fetching {where} at {commit[:12]}")
        alone = [("--depth=1", "--no-tags", "--", where.at, want) for want in (commit, ref) if want]
        every = ("--no-tags", "--", where.at, "+refs/heads/*:refs/all/heads/*")
        for words in (*alone, (*every, "+refs/tags/*:refs/all/tags/*")):
            ran = fetch(where, words, lock)
            if ran.code == 0 and settle(where, commit):
                return
            if ran.code != 0 and NO_ROUTE.search(ran.err):
                break
        if ran.code != 0:
            raise cause(ran, where)
    fix = "a tag or branch may have been moved away from it: lock again, and look what changed"
    raise Fault(f"{where} has no commit {commit}", fix)


def fetch(where: Origin, words: tuple[str, ...], lock: int) -> Ran:
    """One way to fetch; a link that broke on the way is tried again."""
    for attempt in range(1, TRIES + 1):
        ran = git(f"--git-dir={where.home}", "fetch", "--progress", *words, lock=lock)
        if ran.code == 0 or not BROKEN.search(ran.err) or attempt == TRIES:
            break
        say(f"  the link broke; trying again ({attempt + 1} of {TRIES})")
    return ran


def settle(where: Origin, commit: str) -> bool:
    """Give the commit its ref, if it came."""
    there = git(f"--git-dir={where.home}", "cat-file", "-e", f"{commit}^{{commit}}")
    if there.code != 0:
        return False
    return git(f"--git-dir={where.home}", "update-ref", mark(commit), commit).code == 0
