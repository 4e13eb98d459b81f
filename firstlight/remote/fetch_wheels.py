"""Remote program: bring the wheels of a request onto this host, each checked against its sha256.

    fetch_wheels.py REQUEST.json DEST [--probe]

REQUEST is {"python": "3.11", "wheels": [{"name", "version", "file", "sha256", "size", "index"}]}
where size (bytes) and index (a URL) may be null or absent. Each wheel ends up as
DEST/<sha256>/<file>; one that lies there is left alone. pip does the fetching, so the host's own
mirrors, proxies, certificates and find-links stay in force. `--probe` fetches one small wheel, to
tell within seconds whether there is a way out, and leaves nothing behind.
Exit codes: 0 all there, 1 a wheel could not be had, 2 a request that makes no sense, 75 no route.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ending import clear_up_when_ended

# A batch is small enough that a broken link costs little, and spares pip's start-up time.
BATCH_WHEELS, BATCH_BYTES = 12, 60_000_000
TRIES = 3
PROBE_SECONDS = 20
STALE_SECONDS = 24 * 3600
NO_ROUTE = re.compile(
    r"Failed to establish a new connection|Name or service not known|NameResolutionError"
    r"|Temporary failure in name resolution|Network is unreachable|No route to host"
    r"|Connection refused|Connect(ion)? ?time(d )?out|Cannot connect to proxy"
    r"|Tunnel connection failed|connection error",
    re.IGNORECASE,
)
BROKEN = re.compile(
    r"ReadTimeoutError|Read timed out|IncompleteRead|Connection broken|Connection reset"
    r"|RemoteDisconnected|Download failed|\b50[0234] Server Error"
)
MISMATCH = re.compile(r"Expected sha256 ([0-9a-f]{64})\s+Got\s+([0-9a-f]{64})")
NOT_FOUND = re.compile(r"No matching distribution found for (\S+?)==")
PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
REQUIREMENT = re.compile(r"[\w.-]+==[\w.+!]+ --hash=sha256:[0-9a-f]{64}\n")
WHEEL_NAME = re.compile(r"[\w.+!]+(-[\w.+!]+){4,5}\.whl")


BAD_LOCK = (
    "the lock was changed since it was made (make it again with `invoke lock`), or that file was"
)


class Fault(Exception):
    """What went wrong, what to do about it, and the exit code that tells a program."""

    def __init__(self, error: str, fix: str, code: int = 1) -> None:
        super().__init__(PASSWORD.sub("", error))
        self.fix, self.code = fix, code


@dataclass(frozen=True)
class Wheel:
    """One file to have; `index` is None where the host's ordinary index serves it."""

    name: str
    version: str
    file: str
    sha256: str
    size: int | None = None
    index: str | None = None

    def require(self, size: int) -> None:
        """Raises Fault where its content is right, and the size that is said of it is not."""
        if self.size is not None and self.size != size:
            raise Fault(f"{self.file}: its size is {size}, the lock says {self.size}", BAD_LOCK)

    def requirement(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n"

    def tags(self, position: int) -> list[str]:
        """ABIs (-2) or platforms (-1) of the file name; each may hold several, dotted."""
        return self.file.removesuffix(".whl").split("-")[position].split(".")


@dataclass(frozen=True)
class Pip:
    """How to call pip: the python that has it, the python to fetch for, how patient to be."""

    executable: str
    python: str
    patience: tuple[str, ...]
    limit: float | None = None

    def argv(self, wheels: list[Wheel], requirements: Path, into: Path) -> list[str]:
        abis = sorted({abi for wheel in wheels for abi in wheel.tags(-2)})
        platforms = sorted({platform for wheel in wheels for platform in wheel.tags(-1)})
        return [
            *(self.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--progress-bar", "off", "--no-input"),
            *("--implementation", "cp", "--python-version", self.python),
            *(f"--abi={abi}" for abi in abis),
            *(f"--platform={platform}" for platform in platforms),
            *(f"--index-url={index}" for index in {wheel.index for wheel in wheels} if index),
            *(*self.patience, "--dest", str(into), "--requirement", str(requirements)),
        ]


def say(line: str) -> None:
    print(line, flush=True)


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"


def plain(name: str) -> str:
    """A project's name as indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def known_size(wheels: list[Wheel]) -> int:
    return sum(wheel.size or 0 for wheel in wheels)


def wheel_of(entry: Any) -> Wheel:
    wheel = Wheel(**entry)
    # They become paths here, and a line of a file that pip reads.
    if not (REQUIREMENT.fullmatch(wheel.requirement()) and WHEEL_NAME.fullmatch(wheel.file)):
        raise ValueError(f"{entry} is no wheel")
    return wheel


def read_request(path: Path) -> tuple[str, list[Wheel]]:
    try:
        request = json.loads(path.read_text())
        if not re.fullmatch(r"3\.\d+", request["python"]):
            raise ValueError(f"python is {request['python']!r}, not like '3.11'")
        return request["python"], [wheel_of(entry) for entry in request["wheels"]]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        text = f"{path}: {type(fault).__name__}: {fault}"
        raise Fault(text, "write the request again from the lock", code=2) from None


def python_with_pip(staging: Path) -> str:
    """This python if it has pip, else one of a venv that lives as long as the staging area."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    home = str(staging / "venv")
    made = subprocess.run([sys.executable, "-m", "venv", home], capture_output=True)
    if made.returncode == 0:
        return f"{home}/bin/python"
    raise Fault(
        f"{sys.executable} has no pip, and no ensurepip to make one",
        "install the package python3-venv (Debian, Ubuntu) or python3-pip on this host",
    )


@contextlib.contextmanager
def staging_area(dest: Path) -> Iterator[Path]:
    """A directory beside the results; what a killed run left there is cleared a day later."""
    dest.mkdir(parents=True, exist_ok=True)
    for old in dest.glob(".fetch-*.partial"):
        if time.time() - old.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", suffix=".partial", dir=dest) as area:
        yield Path(area)


def run_pip(argv: list[str], staging: Path, limit: float | None) -> tuple[int, str]:
    """pip's exit code and words; the host's own settings hold, less those that can only hurt."""
    surroundings = os.environ | {
        "LC_ALL": "C",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
        # Every version is pinned by hash; a constraint could only contradict it.
        "PIP_CONSTRAINT": "",
        # A wheel can be larger than a small /tmp, and DEST is where room was made for it.
        "TMPDIR": str(staging),
    }
    try:
        ended = subprocess.run(
            argv, env=surroundings, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return 1, f"connection timed out: no answer in {limit} s"
    return ended.returncode, ended.stdout + ended.stderr


def wrong_sha256(file: str, wanted: str, got: str) -> Fault:
    fix = "do not use that file; find out what changed it: the index, a mirror, or the lock"
    return Fault(f"{file}: sha256 is {got}, wanted {wanted}", fix)


def no_space(place: Path, need: int = 0) -> Fault:
    wanted = f", {megabytes(need)} needed" if need else ""
    free = megabytes(shutil.disk_usage(place).free) if place.exists() else "nothing"
    fix = "free some space there, or choose another root for this host"
    return Fault(f"no space left on the disk of {place}: {free} free{wanted}", fix)


def cause(code: int, output: str, wheels: list[Wheel], dest: Path) -> Fault:
    """Why pip failed, the surest sign first: its words hold harmless warnings as well."""
    at = f": {wheels[0].index}" if wheels[0].index else ""
    if "No space left on device" in output:
        return no_space(dest)
    if found := MISMATCH.search(output):
        file = next((w.file for w in wheels if w.sha256 == found[1]), "a wheel")
        return wrong_sha256(file, found[1], found[2])
    if NO_ROUTE.search(output):
        fix = "let the controller fetch (fetch: controller), or give pip here a proxy or a mirror"
        return Fault(f"no route to a package index{at}", fix, code=75)
    if found := NOT_FOUND.search(output):
        file = next((w.file for w in wheels if w.name == found[1]), found[1])
        return Fault(f"{file} is on no index{at}", "check it in the lock, or name its index")
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    last = errors[-1] if errors else f"exit code {code}"
    return Fault(f"pip failed: {last}", "read pip's words above")


def call_pip(pip: Pip, wheels: list[Wheel], staging: Path) -> Path:
    """Have pip bring these wheels, of one index; a link that broke on the way is tried again."""
    into = Path(tempfile.mkdtemp(dir=staging))
    requirements = into / "requirements.txt"
    requirements.write_text("".join(wheel.requirement() for wheel in wheels))
    for attempt in range(1, TRIES + 1):
        code, output = run_pip(pip.argv(wheels, requirements, into), staging, pip.limit)
        if code == 0:
            return into
        if not BROKEN.search(output) or attempt == TRIES or pip.limit:
            break
        say(f"  the link broke; trying again ({attempt + 1} of {TRIES})")
    print(PASSWORD.sub("", output), file=sys.stderr)
    raise cause(code, output, wheels, staging.parent)


def put_in_place(wheel: Wheel, found: Path, dest: Path) -> int:
    """Check one file and rename it into its home; its size in bytes."""
    with found.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if got != wheel.sha256:
        raise wrong_sha256(wheel.file, wheel.sha256, got)
    wheel.require(found.stat().st_size)
    home = dest / wheel.sha256
    # It may be there and empty: whoever removes a damaged wheel leaves its folder.
    home.mkdir(exist_ok=True)
    # A second run may have been quicker: its file is the same.
    found.rename(home / wheel.file)
    return (home / wheel.file).stat().st_size


def batches(wheels: list[Wheel]) -> Iterator[list[Wheel]]:
    """Groups of one index each, the ordinary index first: it is the one most often in reach.

    No group has a project twice: pip takes two versions of it for a contradiction.
    """
    batch: list[Wheel] = []
    for wheel in sorted(wheels, key=lambda wheel: wheel.index or ""):
        full = len(batch) == BATCH_WHEELS or known_size([*batch, wheel]) > BATCH_BYTES
        twice = any(plain(wheel.name) == plain(other.name) for other in batch)
        if batch and (full or twice or wheel.index != batch[0].index):
            yield batch
            batch = []
        batch.append(wheel)
    if batch:
        yield batch


def fetch(pip: Pip, wheels: list[Wheel], dest: Path, staging: Path) -> None:
    missing = [wheel for wheel in wheels if not (dest / wheel.sha256 / wheel.file).exists()]
    for wheel in wheels:
        if wheel not in missing:
            wheel.require((dest / wheel.sha256 / wheel.file).stat().st_size)
    done, total, expected = len(wheels) - len(missing), 0, known_size(missing)
    say(f"{done} of {len(wheels)} wheels are here, {megabytes(expected)} to fetch")
    if shutil.disk_usage(dest).free < 1.5 * expected:
        raise no_space(dest, int(1.5 * expected))
    for batch in batches(missing):
        names = " ... ".join(dict.fromkeys((batch[0].name, batch[-1].name)))
        size_of = f", {megabytes(known_size(batch))}" if known_size(batch) else ""
        say(f"fetching {names}{size_of}")
        into = call_pip(pip, batch, staging)
        for wheel in batch:
            size = put_in_place(wheel, into / wheel.file, dest)
            done, total = done + 1, total + size
            say(f"[{done}/{len(wheels)}] {wheel.file} {megabytes(size)}")
    say(f"{len(missing)} wheels fetched, {megabytes(total)}")


def smallest(wheels: list[Wheel]) -> Wheel:
    """From the ordinary index where there is one; of unknown size, a likely small one."""
    return min(wheels, key=lambda w: (w.index is not None, w.size or 1e9, "-any." not in w.file))


def work(options: argparse.Namespace) -> None:
    python, wheels = read_request(options.request)
    with staging_area(options.dest) as staging:
        executable = python_with_pip(staging)
        if options.probe and wheels:
            # pip names the cause of a failed connection only when it tries again.
            patience = ("--retries=1", "--timeout=5", "--no-cache-dir")
            call_pip(Pip(executable, python, patience, PROBE_SECONDS), [smallest(wheels)], staging)
            return say("there is a way out")
        pip = Pip(executable, python, ("--retries=1", "--timeout=30"))
        return fetch(pip, wheels, options.dest, staging)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("request", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--probe", action="store_true", help="only tell whether there is a way out")
    options = parser.parse_args(argv)
    clear_up_when_ended()
    try:
        work(options)
    except Fault as fault:
        told = fault
    except OSError as fault:
        text = f"{fault.filename or options.dest}: {fault.strerror}"
        full = fault.errno == errno.ENOSPC
        told = no_space(options.dest) if full else Fault(text, "check that path and its owner")
    except KeyboardInterrupt:
        told = Fault("stopped", "run it again; what was fetched stays", code=130)
    else:
        return 0
    print(f"error: {told}\nfix: {told.fix}", file=sys.stderr)
    return told.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
