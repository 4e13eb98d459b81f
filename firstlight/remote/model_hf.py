"""Remote program: bring a model from a Hugging Face hub, at one commit, every file checked.

    model_hf.py --repo OWNER/NAME --revision COMMIT --out DIR [--allow PATTERN]...

Run by the release's own python, which has huggingface_hub. DIR is the caller's `.partial`
directory. A broken link is taken up again near where it broke; a second run keeps the files that
are whole. Each file must have the size and the digest that the hub lists for that commit. A
token comes from the environment (HF_TOKEN) alone.
Exit codes: 0 all there, 1 it could not be had, 2 a request that makes no sense, 75 no route.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPO = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
BLOCK = 1 << 20
TELL_SECONDS = 5
# Where huggingface_hub keeps what it needs to go on where it was.
BOOKKEEPING = ".cache"


class Fault(Exception):
    """What went wrong and what to do about it, and the exit code that says it to a program."""

    def __init__(self, error: str, fix: str, code: int = 1) -> None:
        super().__init__(error)
        self.fix, self.code = fix, code


@dataclass(frozen=True)
class Listed:
    """A file as the hub lists it: large ones by sha256, small ones by the id of their git blob."""

    path: str
    size: int
    sha256: str | None
    blob: str

    def digest(self) -> tuple[str, str]:
        """Which digest proves it, and its value."""
        return ("sha256", self.sha256) if self.sha256 else ("git blob", self.blob)


def say(line: str) -> None:
    print(line, flush=True)


def amount(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 10**9 else f"{size / 1e6:.1f} MB"


def digest_of(path: Path, kind: str) -> str:
    """git names a blob by the sha1 of its kind, its size and its bytes."""
    digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
    if kind == "git blob":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def wrong(out: Path, file: Listed) -> str | None:
    """Why a file is not what the hub lists, or None."""
    path = out / file.path
    if not path.is_file():
        return "is not there"
    if path.stat().st_size != file.size:
        return f"has {path.stat().st_size} bytes, the hub lists {file.size}"
    kind, wanted = file.digest()
    got = digest_of(path, kind)
    return None if got == wanted else f"has {kind} {got}, the hub lists {wanted}"


def check(out: Path, files: list[Listed]) -> None:
    """Check every file; a wrong one is removed, so that the next run fetches it again."""
    faults = []
    for number, file in enumerate(files, start=1):
        if reason := wrong(out, file):
            (out / file.path).unlink(missing_ok=True)
            faults.append(f"{file.path} {reason}")
        else:
            say(f"[{number}/{len(files)}] {file.path} {amount(file.size)} is right")
    if faults:
        raise Fault("; ".join(faults), "run it again: what was wrong is fetched anew")


def allowed(path: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def listed(api: Any, repo: str, revision: str, patterns: list[str]) -> list[Listed]:
    """The files of that commit which are wanted; a path that leads out of DIR is refused."""
    found = []
    for entry in api.list_repo_tree(repo, revision=revision, recursive=True):
        # Folders are listed too; they have no size.
        if hasattr(entry, "size") and allowed(entry.path, patterns):
            sha256 = entry.lfs.sha256 if entry.lfs else None
            found.append(Listed(entry.path, entry.size, sha256, entry.blob_id))
    if any(file.path.startswith("/") or ".." in file.path.split("/") for file in found):
        raise Fault(f"{repo} lists a path that leads out of its folder", "do not use it")
    if not found:
        wanted = " or ".join(patterns) or "any file"
        raise Fault(f"{repo} at {revision} has no {wanted}", "look at its file list", code=2)
    return found


def held(out: Path) -> int:
    """Bytes in DIR so far, those of unfinished files as well."""
    sizes = 0
    for path in out.rglob("*"):
        # A file may be renamed between being seen and being asked.
        with contextlib.suppress(OSError):
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


@contextlib.contextmanager
def progress(out: Path, total: int) -> Iterator[None]:
    """Say every few seconds how much is there, for one file can take an hour."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(TELL_SECONDS):
            say(f"  {amount(held(out))} of {amount(total)}")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def check_room(out: Path, files: list[Listed]) -> None:
    need, free = sum(file.size for file in files) - held(out), shutil.disk_usage(out).free
    if need > free:
        raise Fault(
            f"no space left on the disk of {out}: {amount(free)} free, {amount(need)} needed",
            "free some space there, or choose another root for this host",
        )


def download(repo: str, revision: str, out: Path, patterns: list[str]) -> list[Listed]:
    """List, fetch and check; huggingface_hub takes up a broken link a few times."""
    import huggingface_hub as hub

    # False forbids a token that lies about in a home directory.
    token = os.environ.get("HF_TOKEN") or False
    files = listed(hub.HfApi(token=token), repo, revision, patterns)
    total = sum(file.size for file in files)
    out.mkdir(parents=True, exist_ok=True)
    # A killed run leaves these; no later run would go on with one.
    for torn in (out / BOOKKEEPING).rglob("*.incomplete"):
        torn.unlink()
    check_room(out, files)
    say(f"{repo} at {revision[:12]}: {len(files)} files, {amount(total)}")
    with progress(out, total):
        hub.snapshot_download(
            repo,
            revision=revision,
            local_dir=out,
            token=token,
            # The very files that are listed, not what its reading of a pattern would make of it.
            allow_patterns=[glob.escape(file.path) for file in files],
        )
    check(out, files)
    return files


def make(repo: str, revision: str, out: Path, patterns: list[str]) -> None:
    """Everything; source.json says where the files came from and what proved them."""
    if not REPO.fullmatch(repo):
        raise Fault(f"{repo!r} is not like owner/name", "copy it from the hub", code=2)
    if not COMMIT.fullmatch(revision):
        fix = "pin a commit: 40 hexadecimal digits; a branch or a tag can move"
        raise Fault(f"{revision!r} is no commit of {repo}", fix, code=2)
    files = download(repo, revision, out, patterns)
    shutil.rmtree(out / BOOKKEEPING, ignore_errors=True)
    record = {"kind": "hf", "repo": repo, "revision": revision, "allow": patterns}
    told = {**record, "files": [asdict(file) for file in files]}
    (out / "source.json").write_text(json.dumps(told, indent=2) + "\n")
    say(f"done: {out}")


def explain(fault: Exception, repo: str, revision: str) -> Fault | None:
    """A refusal of the hub, or a broken way to it, as one of ours; None when it is neither."""
    from httpx import ConnectError, ConnectTimeout, ProxyError, TransportError
    from huggingface_hub import errors

    token = (
        "the token in HF_TOKEN" if os.environ.get("HF_TOKEN") else "no token (HF_TOKEN is unset)"
    )
    if isinstance(fault, errors.GatedRepoError):
        return Fault(f"{repo} is gated, and {token} opens it", "accept its terms on the hub")
    if isinstance(fault, errors.RevisionNotFoundError):
        return Fault(f"{repo} has no commit {revision}", "copy the commit from its history")
    if isinstance(fault, errors.RepositoryNotFoundError):
        return Fault(f"the hub shows no {repo} to {token}", "check the name, or set HF_TOKEN")
    if isinstance(fault, errors.HfHubHTTPError):
        status, place = fault.response.status_code, fault.response.url.path
        return Fault(f"the hub answered {status} to {place}", "try again later")
    no_route = ConnectError, ConnectTimeout, ProxyError, errors.LocalEntryNotFoundError
    if isinstance(fault, no_route):
        fix = "set HF_ENDPOINT to a mirror in reach, or put the model on the host (kind: path)"
        return Fault(f"no route to the hub: {type(fault).__name__}", fix, code=75)
    if isinstance(fault, TransportError):
        told = f"the link to the hub broke: {type(fault).__name__}"
        return Fault(told, "run it again: files that are whole stay")
    return None


def attempt(options: argparse.Namespace) -> None:
    """The work, with every foreseeable fault told as one of ours."""
    try:
        make(options.repo, options.revision, options.out, options.allow)
    except Fault:
        raise
    except ModuleNotFoundError as fault:
        told = f"{sys.executable} lacks {fault.name}"
        raise Fault(told, "run this with the python of a release") from None
    except Exception as fault:
        if known := explain(fault, options.repo, options.revision):
            raise known from None
        if not isinstance(fault, OSError):
            raise
        fix = "free some space" if fault.errno == errno.ENOSPC else "check that path"
        raise Fault(f"{fault.filename or options.out}: {fault.strerror}", fix) from None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repo", required=True, help="owner/name")
    parser.add_argument("--revision", required=True, help="a commit, 40 hexadecimal digits")
    parser.add_argument("--out", type=Path, required=True, help="directory to write into")
    parser.add_argument("--allow", action="append", default=[], help="only files like this")
    # A release is served offline, but this program is the one that goes out.
    os.environ.update({"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"})
    options = parser.parse_args(argv)
    # Whatever it keeps, it keeps in DIR, and nothing of a person's own is read.
    os.environ.update({"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(options.out / BOOKKEEPING)})
    try:
        attempt(options)
    except Fault as fault:
        print(f"error: {fault}\nfix: {fault.fix}", file=sys.stderr)
        return fault.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
