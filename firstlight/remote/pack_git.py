"""Remote program: pack the tree of one commit, with its submodules, so that equal trees are equal.

    pack_git.py REQUEST.json DEST

REQUEST is {"url", "ref", "commit", "submodules", "mirrors"}: one of ref and commit is enough, with
both a ref that is elsewhere is a fault; submodules are "none", "all" or a list of paths. The tree
ends up as DEST/<sha256>/<repository>-<commit>.tar: names sorted, the time of the commit, owner 0,
no .git, symbolic links and executable bits kept. DEST/git keeps bare repositories for a next time.
No file is checked out, so no filter, hook or attribute of the repository is obeyed. Prints a line
of JSON: {"file", "sha256", "size", "commit", "tree", "time", "submodules"}, and progress to stderr.
Exit codes: 0 packed, 1 it could not be had, 2 a request that makes no sense, 75 no route.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import io
import json
import os
import posixpath
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import git_cache
from fetch_wheels import Fault, megabytes, no_space, say, staging_area
from git_cache import Origin
from git_tree import (
    Entry,
    Module,
    Request,
    Walk,
    ask,
    check_named,
    gather,
    request_of,
    with_folders,
)

# A file of at most this many bytes may be what Git LFS leaves in place of the real one.
POINTER_BYTES, POINTER = 1024, b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Packed:
    """What came out; `time` in Unix seconds, `size` in bytes."""

    file: str
    sha256: str
    size: int
    commit: str
    tree: str
    time: int
    modules: tuple[Module, ...]

    def told(self) -> dict[str, Any]:
        own = {key: value for key, value in vars(self).items() if key != "modules"}
        return {**own, "submodules": [vars(module) for module in self.modules]}


class Blobs:
    """The objects of some repositories, one git for each."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack, self.readers = stack, dict[Path, "subprocess.Popen[bytes]"]()

    def reader(self, home: Path) -> subprocess.Popen[bytes]:
        if home not in self.readers:
            words = ["git", f"--git-dir={home}", "cat-file", "--batch"]
            child = subprocess.Popen(
                words, env=git_cache.surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self.readers[home] = self.stack.enter_context(child)
        return self.readers[home]

    @contextlib.contextmanager
    def open(self, entry: Entry) -> Iterator[tuple[int, IO[bytes]]]:
        """Size and stream of one; the caller reads the stream to its end."""
        child = self.reader(entry.home)
        assert child.stdin and child.stdout
        child.stdin.write(entry.oid.encode() + b"\n")
        child.stdin.flush()
        head = child.stdout.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            fix = f"remove {entry.home}, it is fetched again"
            raise Fault(f"{entry.home} lacks object {entry.oid}", fix)
        yield int(head[2]), child.stdout
        child.stdout.read(1)


def member(name: str, mode: str, when: int) -> tarfile.TarInfo:
    """The head of one thing in the archive, with nothing of this machine in it."""
    info = tarfile.TarInfo(name)
    info.mtime = when
    kinds = {"040000": (tarfile.DIRTYPE, 0o755), "160000": (tarfile.DIRTYPE, 0o755)}
    kinds |= {"120000": (tarfile.SYMTYPE, 0o777), "100755": (tarfile.REGTYPE, 0o755)}
    info.type, info.mode = kinds.get(mode, (tarfile.REGTYPE, 0o644))
    return info


def link_target(path: bytes, target: bytes) -> str:
    """What a symbolic link says; refused where that leads out of the tree."""
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith(b"/") or there.split(b"/")[0] == b".." or not target:
        told = f"symbolic link {path!r} leads out of its tree, to {target!r}"
        raise Fault(told, "do not build that source, or take a ref without it")
    return target.decode("utf-8", "surrogateescape")


def write_tar(file: IO[bytes], walk: Walk, top: str, when: int) -> None:
    pointers = 0
    with (
        contextlib.ExitStack() as stack,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar,
    ):
        blobs = Blobs(stack)
        tar.addfile(member(top, "040000", when))
        for path, entry in with_folders(walk.entries).items():
            name = f"{top}/{path.decode('utf-8', 'surrogateescape')}"
            if entry is None or entry.mode == "160000":
                tar.addfile(member(name, "040000", when))
            else:
                pointers += add_blob(tar, member(name, entry.mode, when), path, blobs, entry)
    if pointers:
        say(f"note: {pointers} files are pointers of Git LFS, not what they point to")


def add_blob(
    tar: tarfile.TarFile, info: tarfile.TarInfo, path: bytes, blobs: Blobs, entry: Entry
) -> bool:
    """One file or link; True when it is a pointer of Git LFS."""
    with blobs.open(entry) as (size, stream):
        if info.issym():
            info.linkname = link_target(path, stream.read(size))
            tar.addfile(info)
            return False
        info.size = size
        if size > POINTER_BYTES:
            tar.addfile(info, stream)
            return False
        data = stream.read(size)
        tar.addfile(info, io.BytesIO(data))
        return data.startswith(POINTER)


def place(found: Path, sha256: str, file: str, dest: Path) -> None:
    """Rename a whole file into its home; a second run may have been quicker with the same."""
    (dest / sha256).mkdir(exist_ok=True)
    found.rename(dest / sha256 / file)


def pack(request: Request, dest: Path) -> Packed:
    """Everything: fetch what is lacking, gather the tree, write it, put it in its home."""
    where = git_cache.origin(request.url, request.mirrors or {}, dest / "git")
    commit, ref = pinned(request, where)
    git_cache.bring(where, commit, ref)
    walk = Walk(request, dest / "git", {}, [], set())
    gather(walk, where, commit)
    check_named(walk, where)
    when, tree = ask(where.home, "show", "-s", "--format=%ct %T", commit).decode().split()
    top = f"{git_cache.short_name(request.url)}-{commit[:12]}"
    say(f"packing {top}: {len(walk.entries)} files")
    with staging_area(dest) as staging:
        made = staging / f"{top}.tar"
        with made.open("w+b") as file:
            write_tar(file, walk, top, int(when))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        place(made, digest, made.name, dest)
    modules = tuple(sorted(walk.modules, key=lambda module: module.path))
    return Packed(f"{top}.tar", digest, size, commit, tree, int(when), modules)


def pinned(request: Request, where: Origin) -> tuple[str, str | None]:
    """The commit and, where it was asked, the full ref that leads to it."""
    if not request.ref:
        return str(request.commit), None
    commit, ref = git_cache.resolve(where, request.ref)
    if request.commit and request.commit != commit:
        raise Fault(
            f"{request.ref} of {where} is at {commit}, the recipe pins {request.commit}",
            "it was moved: look at what changed between the two, then pin the one that you want",
        )
    return commit, ref


def told_as(fault: Fault | OSError | KeyboardInterrupt, dest: Path) -> Fault:
    """A fault of the system as one of ours."""
    if isinstance(fault, Fault):
        return fault
    if isinstance(fault, KeyboardInterrupt):
        return Fault("stopped", "run it again; what was fetched stays", code=130)
    if fault.errno == errno.ENOSPC:
        return no_space(dest)
    text = f"{fault.filename or dest}: {fault.strerror or fault}"
    return Fault(text, "check that path and its owner")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("request", type=Path)
    parser.add_argument("dest", type=Path)
    options = parser.parse_args(argv)
    try:
        # Standard output is for the answer alone.
        with contextlib.redirect_stdout(sys.stderr):
            packed = pack(read_request(options.request), options.dest)
            say(f"{packed.file} {megabytes(packed.size)}")
    except (Fault, OSError, KeyboardInterrupt) as fault:
        told = told_as(fault, options.dest)
        print(f"error: {told}\nfix: {told.fix}", file=sys.stderr)
        return told.code
    print(json.dumps(packed.told()))
    return 0


def read_request(path: Path) -> Request:
    try:
        return request_of(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as fault:
        text = f"{path}: {type(fault).__name__}: {fault}"
        raise Fault(text, "write the request again from the recipe", code=2) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
