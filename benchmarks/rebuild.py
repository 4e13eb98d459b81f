"""A release built again from what the store holds, and a component from its compiler's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from firstlight.effects import catalog
from tests.flows.kernel import Kernels, Variant, make_kernels, make_pantry, share_toolkit
from tests.remote.toolkit_wheels import real_wheels

PROJECT = Path(__file__).parent.parent
INVOKE = str(Path(sys.executable).with_name("invoke"))
REBUILT, PIP, UV = "release again", "pip install", "uv pip install"
COLD, WARM = "compiler cache cold", "compiler cache warm"
PACKAGE = "good"
# The package's own kernels compile within seconds; others include headers as large as these.
LARGER = ("@@ -3,1 +3,1 @@\n", "@@ -3,1 +3,2 @@\n+#include <cub/cub.cuh>\n")


@dataclass(frozen=True)
class Took:
    """Seconds: wall time, and CPU time of what was waited for."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Release:
    """A release that was set aside, below the root of this machine."""

    project: Path
    host: str
    root: Path
    home: Path

    @property
    def releases(self) -> Path:
        """Where it was, and comes again."""
        return self.root / "releases"

    def store(self) -> set[tuple[str, int]]:
        """What the store holds, and since when."""
        return {(p.name, p.stat().st_mtime_ns) for p in (self.root / "store").glob("*")}


def rebuilt(project: Path, name: str, rounds: int) -> dict[str, list[Took]]:
    """The release of a project's default stack made again, and its wheels installed plainly."""
    with set_aside(project, name) as release, tempfile.TemporaryDirectory(dir=release.root) as work:
        ways = {
            REBUILT: lambda: again(release),
            PIP: lambda: plainly(pip_words(release, Path(work)), Path(work)),
            UV: lambda: plainly(uv_words(release, Path(work)), Path(work)),
        }
        return interleaved(ways, rounds)


@contextmanager
def set_aside(project: Path, name: str) -> Iterator[Release]:
    """Rename the folder of releases, and give it its name back; ends where something runs there."""
    host = catalog.inventory(project).host(name)
    if not host.is_local:
        sys.exit(f"{name} is not this machine: its releases cannot be set aside")
    root = Path(host.root).expanduser()
    said = call([INVOKE, "build", "--host", name], project)
    found = re.search(r"release (\S+) is (?:in place|built)", said)
    if not found:
        sys.exit(f"{project} has no release on {name}:\n{said}")
    if users := runs_below(root / "releases"):
        sys.exit(f"processes run from {root}/releases: {users}; stop them first")
    releases, aside = root / "releases", root / "releases.aside"
    releases.rename(aside)
    try:
        yield Release(project, name, root, aside / found[1])
    finally:
        shutil.rmtree(releases, ignore_errors=True)
        aside.rename(releases)


def runs_below(folder: Path) -> list[int]:
    """The processes whose command line names a file in that folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        found += [int(path.parent.name)] if f"{folder}/".encode() in words else []
    return found


def interleaved(ways: Mapping[str, Callable[[], Took]], rounds: int) -> dict[str, list[Took]]:
    """All ways in turn; the first round, which fills the caches, does not count."""
    took: dict[str, list[Took]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, once in ways.items():
            one = once()
            took[name] += [one] if number else []
    return took


def again(release: Release) -> Took:
    """`rm -rf releases/`, and `invoke build`; nothing may be made for it. CPU of the verb alone."""
    shutil.rmtree(release.releases, ignore_errors=True)
    before = release.store()
    took = timed([[INVOKE, "build", "--host", release.host]], release.project)
    if release.store() != before or not any(release.releases.iterdir()):
        sys.exit("the release was not made from what the store held")
    return took


def plainly(commands: Sequence[Sequence[str]], work: Path) -> Took:
    """A new environment with the same wheels."""
    shutil.rmtree(work / "venv", ignore_errors=True)
    return timed(commands, work)


def pip_words(release: Release, work: Path) -> list[list[str]]:
    venv, python = work / "venv", (release.home / "venv/bin/python").resolve()
    return [[str(python), "-m", "venv", str(venv)], [str(venv / "bin/pip"), *install(release)]]


def uv_words(release: Release, work: Path) -> list[list[str]]:
    uv, venv = uv_of(release, work), str(work / "venv")
    python = str((release.home / "venv/bin/python").resolve())
    cache = ["--cache-dir", str(release.root / "cache/uv"), "--offline", "--no-config"]
    make = [uv, "venv", "--quiet", "--python", python, venv, *cache]
    return [make, [uv, "pip", *install(release), "--python", venv, *cache]]


def install(release: Release) -> list[str]:
    """The wheels that the release was made of, each by its hash."""
    flags = ["--quiet", "--no-index", "--no-deps", "--require-hashes"]
    return ["install", *flags, "-r", str(release.home / "requirements.txt")]


def uv_of(release: Release, work: Path) -> str:
    """The uv of the release, out of its wheel."""
    if not (work / "uv").exists():
        wheel = next((release.root / "wheels").glob("*/uv-*.whl"))
        shutil.unpack_archive(wheel, work / "uv", "zip")
    program = next((work / "uv").glob("*.data/scripts/uv"))
    program.chmod(0o755)
    return str(program)


def cached(rounds: int) -> dict[str, list[Took]]:
    """The small CUDA package compiled with an empty compiler cache, and with a full one."""
    # The toolkit alone takes gigabytes, so not where a system may keep its memory.
    with aside_of_figures(), tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        folder = Path(place)
        for name in ("wheels", "pantry"):
            (folder / name).mkdir()
        pantry = make_pantry(folder / "pantry", real_wheels(folder / "wheels"))
        share_toolkit(pantry, folder / "root")
        variants = {PACKAGE: Variant({})}
        kernels = make_kernels(folder / "on", pantry, variants, "auto", folder / "root")
        kernels.project.change(f"patches/{PACKAGE}/0001-float.patch", LARGER)
        try:
            ways = {COLD: lambda: compiled(kernels, False), WARM: lambda: compiled(kernels, True)}
            return interleaved(ways, rounds)
        finally:
            kernels.end()


@contextmanager
def aside_of_figures() -> Iterator[None]:
    """What programs print meanwhile goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def compiled(kernels: Kernels, warm: bool) -> Took:
    """One build of the package; what the receipt says of the compiling alone."""
    for home in kernels.made(PACKAGE):
        shutil.rmtree(home)
    if not warm:
        shutil.rmtree(kernels.root / "cache" / "ccache", ignore_errors=True)
    done = kernels.build(PACKAGE)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    told = kernels.receipt(PACKAGE)
    return Took(told["wall_s"], told["cpu_s"])


def timed(commands: Sequence[Sequence[str]], cwd: Path) -> Took:
    """Commands one after the other; each must end well."""
    begin, used = time.monotonic(), 0.0
    for argv in commands:
        child = subprocess.Popen(
            argv, cwd=cwd, env=ours(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert child.stdout
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{' '.join(argv[:3])} ended with {child.returncode}:\n{text}")
        used += usage.ru_utime + usage.ru_stime
    return Took(time.monotonic() - begin, used)


def call(argv: Sequence[str], cwd: Path) -> str:
    """What a command prints; its end does not matter."""
    return subprocess.run(argv, cwd=cwd, env=ours(), capture_output=True, text=True).stdout


def ours() -> dict[str, str]:
    """The copy of this library that is measured is the one that lies beside this file."""
    return {**os.environ, "PYTHONPATH": str(PROJECT)}
