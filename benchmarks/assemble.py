"""How long a release takes to assemble from the same local wheels, with pip and with uv.

    python benchmarks/assemble.py ROOT [--stack NAME] [--python python3.11] [--rounds 3] [--compile]

ROOT/wheels/<sha256>/<file> holds the wheels, as a build leaves them. Every way checks every hash
and uses no network; bytecode is left to the first start of the engine, or made with --compile.
Each round runs all ways, one after the other, so that the ratios are of one machine in one state.
CPU seconds are those of all processes together: they say more on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath

from firstlight.build.lock import LockFile
from firstlight.build.release import Layout, wheel_path
from firstlight.core.schema import load

PROJECT = Path(__file__).parent.parent
WAYS = ("pip", "uv, empty cache", "uv, filled cache")


def main() -> None:
    options = arguments()
    work = Path(tempfile.mkdtemp(prefix="assemble-", dir=options.root))
    try:
        requirements, uv = prepare(options, work)
        wall: dict[str, list[float]] = {way: [] for way in WAYS}
        cpu: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(1, options.rounds + 1):
            for way in WAYS:
                seconds = measure(way, work, commands(way, options, work, requirements, uv))
                wall[way].append(seconds[0])
                cpu[way].append(seconds[1])
                print(f"round {number}  {way:<17} {seconds[0]:6.1f} s, CPU {seconds[1]:6.1f} s")
        report(wall, cpu, len(requirements.read_text().splitlines()))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", type=Path, help="a folder with the wheels of a build")
    parser.add_argument("--stack", default="sglang-cpu")
    parser.add_argument("--python", default="python3.11")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="make bytecode of every module")
    return parser.parse_args()


def prepare(options: argparse.Namespace, work: Path) -> tuple[Path, Path]:
    """The list of what to install, and uv out of its wheel."""
    path = PROJECT / "recipes" / "locks" / f"{options.stack}.lock.yaml"
    lock = load(path.read_text(), str(path), LockFile).value
    version = python_version(options.python)
    locked = next(wheels for python, wheels in lock.pythons.items() if python == version)
    layout = Layout(PurePosixPath(options.root.resolve()))
    wanted = {wheel: Path(wheel_path(layout, wheel)) for wheel in locked.wheels + locked.sources}
    tool = Path(wheel_path(layout, next(t for t in lock.tools if t.name == "uv")))
    missing = [place.name for place in [*wanted.values(), tool] if not place.exists()]
    if missing:
        sys.exit(f"not in {options.root}/wheels: {', '.join(missing)}; build the stack there first")
    lines = [f"{w.name} @ {p.as_uri()} --hash=sha256:{w.sha256}\n" for w, p in wanted.items()]
    (work / "requirements.txt").write_text("".join(lines))
    shutil.unpack_archive(tool, work / "uv", "zip")
    uv = next((work / "uv").glob("*.data/scripts/uv"))
    uv.chmod(0o755)
    return work / "requirements.txt", uv


def python_version(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run(
        [python, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def commands(
    way: str, options: argparse.Namespace, work: Path, requirements: Path, uv: Path
) -> list[list[str]]:
    """The two commands of a way: make an environment, install into it."""
    venv = work / "venv"
    flags = ["--quiet", "--no-index", "--no-deps", "--require-hashes", "-r", str(requirements)]
    if way == "pip":
        flags += ["--no-cache-dir", "--compile" if options.compile else "--no-compile"]
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", *flags]
        return [[options.python, "-m", "venv", str(venv)], pip]
    flags += ["--compile-bytecode"] if options.compile else []
    install = [str(uv), "pip", "install", "--python", str(venv), *flags]
    make = [str(uv), "venv", "--quiet", "--relocatable", "--python", options.python, str(venv)]
    return [make, install]


def measure(way: str, work: Path, argvs: list[list[str]]) -> tuple[float, float]:
    """Wall and CPU seconds from nothing to a complete environment, which is removed afterwards."""
    cache = work / "cache"
    if way == "uv, empty cache":
        shutil.rmtree(cache, ignore_errors=True)
    env = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
    started, used = time.monotonic(), cpu_seconds()
    for argv in argvs:
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{way}: {' '.join(argv)}\n{done.stderr[-2000:]}")
    seconds = time.monotonic() - started, cpu_seconds() - used
    shutil.rmtree(work / "venv")
    return seconds


def cpu_seconds() -> float:
    """What the processes that ended so far have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(wall: dict[str, list[float]], cpu: dict[str, list[float]], count: int) -> None:
    print(f"\n{count} wheels, the fastest of {len(wall['pip'])} round(s); ratios round by round")
    for way in WAYS:
        ratios = [own / pip for own, pip in zip(wall[way], wall["pip"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} of pip's"
        print(f"{way:<17} {min(wall[way]):6.1f} s, CPU {min(cpu[way]):6.1f} s; wall {spread}")


if __name__ == "__main__":
    main()
