"""What building costs beside compiling, as ratios of one run on one machine.

    python -m benchmarks.build [--rounds 5] [--rebuild PROJECT [--host local]] [--cache] [--json]

Planning is always measured: the CPU time from the recipes and the lock of --stack to the steps of
a bare host (benchmarks/planning.py), in a new process each time.

`--rebuild` takes a project whose default stack is built on this machine: its releases are set
aside, made again from the store, and put back. The same wheels go into a new environment by
`python -m venv` and `pip install --no-deps`, and by uv with the same cache.

`--cache` builds the small CUDA package of the tests (tests/flows/kernel.py) in a folder of its own,
one of its two files with the headers of CUB: with an empty compiler cache, and with what that left.
CPU seconds are those of the receipts, so with all that is not compiling but building.

Rounds run all ways one after the other. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.planning import PROJECT, STACK
from benchmarks.rebuild import COLD, PIP, REBUILT, UV, WARM, Took, cached, ours, rebuilt
from benchmarks.speed import Target

Rows = Mapping[str, Sequence[Took]]


def main() -> None:
    options = arguments()
    targets = [of_plans([plan(options.stack) for _ in range(options.rounds)], options.stack)]
    rows: dict[str, list[Took]] = {}
    if options.rebuild:
        rows |= rebuilt(options.rebuild.resolve(), options.host, options.rounds)
        targets.append(of_rebuild(rows))
    if options.cache:
        rows |= cached(options.rounds)
        targets.append(of_cache(rows))
    show(rows, targets, options)
    sys.exit(0 if all(target.met for target in targets) else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stack", default=STACK, help="what is planned; it has a lock")
    parser.add_argument("--rebuild", type=Path, help="a project whose stack is built on HOST")
    parser.add_argument("--host", default="local", help="this machine's name in its inventory")
    parser.add_argument("--cache", action="store_true", help="compile a small package")
    parser.add_argument("--json", action="store_true", help="print data for programs")
    return parser.parse_args()


def plan(stack: str) -> dict[str, float]:
    """One planning, as the process tells it that did it."""
    argv = [sys.executable, "-m", "benchmarks.planning", stack]
    done = subprocess.run(argv, cwd=PROJECT, env=ours(), stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def of_plans(plans: Sequence[Mapping[str, float]], stack: str) -> Target:
    read, steps = (statistics.median(one[key] for one in plans) for key in ("read", "plan"))
    total = statistics.median(one["read"] + one["plan"] for one in plans)
    note = f"{read:.0f} to read and check, {steps:.0f} to {plans[0]['steps']} steps"
    return Target(f"planning {stack}, ms of CPU", total, 100, note)


def of_rebuild(rows: Rows) -> Target:
    note = f"{ratio(rows, REBUILT, UV, wall):.2f} times uv pip install; the store was not touched"
    return Target(f"{REBUILT} : {PIP}, wall", ratio(rows, REBUILT, PIP, wall), 1.5, note)


def of_cache(rows: Rows) -> Target:
    note = f"wall {ratio(rows, WARM, COLD, wall):.2f}"
    return Target(f"{WARM} : cold, CPU", ratio(rows, WARM, COLD, cpu), 0.1, note)


def wall(took: Took) -> float:
    return took.wall


def cpu(took: Took) -> float:
    return took.cpu


def ratio(rows: Rows, one: str, other: str, part: Callable[[Took], float]) -> float:
    """The median of the ratios, round by round."""
    pairs = zip(rows[one], rows[other], strict=True)
    return statistics.median(part(ours) / part(theirs) for ours, theirs in pairs)


def show(rows: Rows, targets: Sequence[Target], options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    if options.json:
        told = [{**asdict(target), "met": target.met} for target in targets]
        seconds = {name: [asdict(took) for took in found] for name, found in rows.items()}
        data = {"load": load, "cpus": os.cpu_count(), "seconds": seconds, "targets": told}
        print(json.dumps(data, indent=2))
        return
    print(f"load {load:.1f} on {os.cpu_count()} CPUs, median of {options.rounds} rounds")
    for name, found in rows.items():
        middle = [statistics.median(part(took) for took in found) for part in (wall, cpu)]
        print("{:<20} wall {:6.2f} s  CPU {:6.2f} s".format(name, *middle))
    for target in targets:
        word = "met   " if target.met else "MISSED"
        print(
            f"{word} {target.name}: {target.value:.2f}, at most {target.at_most:g}; {target.note}"
        )


if __name__ == "__main__":
    main()
