"""What the verbs cost that do nothing, as ratios of one run on one machine.

    python -m benchmarks.speed [--rounds 5] [--up DIR] [--build DIR [--host gpu01]] [--json]

`list` compares `invoke --list` in this repository with `invoke --list` of an empty tasks.py.
`up` takes a project in which `invoke up` has found all in place on this machine, and compares it
with 3 times `invoke --list` and one request for `/health_generate`. `build` takes a project with
a host on which its stack is built, and counts what an idle `invoke build --host` costs: the
connections and scripts that `--debug` prints, the connections that a link in between sees, and
round trips, told by how much longer it takes over a link that is slow (benchmarks/slow_link.py).

Nothing is built or deployed: a project where something is missing is refused. Rounds run all
commands one after the other. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.idle_build import idle_build
from firstlight.effects import memory
from firstlight.flows import quick

PROJECT = Path(__file__).parent.parent
INVOKE = str(Path(sys.executable).with_name("invoke"))
_HEALTH = """\
import sys
from firstlight.effects import http
sys.exit(not http.get(sys.argv[1], 20.0).ok)
"""


@dataclass(frozen=True)
class Cost:
    """Seconds of one command: wall time, and the CPU time of it and all that it waited for."""

    wall: float
    user: float
    system: float


@dataclass(frozen=True)
class Target:
    """One figure and what it may be at most; `note` says what else was seen."""

    name: str
    value: float
    at_most: float
    note: str

    @property
    def met(self) -> bool:
        return self.value <= self.at_most


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="empty-tasks-") as folder:
        costs = measure(commands(options, Path(folder)), options.rounds)
    targets = [of_list(costs), *([of_up(costs)] if "up" in costs else [])]
    if options.build:
        found = idle_build(INVOKE, options.build, options.host, options.rounds)
        name = f"idle build on {options.host}"
        targets += [
            Target(f"{name}: connections", found.connections, 1, found.note),
            Target(f"{name}: round trips beyond them", round(found.round_trips), 3, found.told),
        ]
    show(costs, targets, options.json)
    sys.exit(0 if all(target.met for target in targets) else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--up", type=Path, help="a project with all in place on this machine")
    parser.add_argument("--build", type=Path, help="a project whose stack is built on HOST")
    parser.add_argument("--host", default="gpu01")
    parser.add_argument("--json", action="store_true", help="print data for programs")
    return parser.parse_args()


def commands(options: argparse.Namespace, empty: Path) -> dict[str, Callable[[], Cost]]:
    """What a round runs, by name."""
    (empty / "tasks.py").touch()
    found = {
        "empty list": lambda: run([INVOKE, "--list"], empty, may_fail=True),
        "list": lambda: run([INVOKE, "--list"], PROJECT),
    }
    if options.up:
        root = options.up.resolve()
        ask = [sys.executable, "-c", _HEALTH, f"http://127.0.0.1:{port_of(root)}{quick.HEALTH}"]
        found["health request"] = lambda: run(ask, PROJECT)
        found["up"] = lambda: up(root)
    return found


def up(root: Path) -> Cost:
    # Asked each time: a file that was saved meanwhile would make this a build.
    port_of(root)
    return run([INVOKE, "up"], root, says="all is in place")


def port_of(root: Path) -> int:
    """The port of the server that `invoke up` would find; ends the program when it would not."""
    if quick.in_place(root, "", "") is None:
        sys.exit(f"not all is in place for {root}; `invoke up` there first, it may take long")
    known = memory.recall(root, ("up", "", ""), memory.fingerprint(root))
    assert known is not None
    return int(known["port"])


def measure(runs: Mapping[str, Callable[[], Cost]], rounds: int) -> dict[str, list[Cost]]:
    """All commands in turn; the first round, which fills the caches, does not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, once in runs.items():
            cost = once()
            if number:
                costs[name].append(cost)
    return costs


def run(argv: Sequence[str], cwd: Path, *, says: str = "", may_fail: bool = False) -> Cost:
    # The copy of this library that is measured is the one that lies beside this file.
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    begin = time.monotonic()
    child = subprocess.Popen(
        argv, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout
    text = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    if says not in text or (child.returncode and not may_fail):
        sys.exit(f"{' '.join(argv[:3])} in {cwd} ended with {child.returncode}:\n{text}")
    return Cost(wall, used.ru_utime, used.ru_stime)


def of_list(costs: Mapping[str, Sequence[Cost]]) -> Target:
    def ratio(part: Callable[[Cost], float]) -> float:
        pairs = zip(costs["list"], costs["empty list"], strict=True)
        return statistics.median(part(ours) / part(bare) for ours, bare in pairs)

    note = f"user CPU {ratio(lambda cost: cost.user):.2f}"
    return Target("invoke --list : empty list, wall", ratio(lambda c: c.wall), 1.3, note)


def of_up(costs: Mapping[str, Sequence[Cost]]) -> Target:
    def ratio(part: Callable[[Cost], float]) -> float:
        rows = zip(costs["up"], costs["list"], costs["health request"], strict=True)
        return statistics.median(part(up) / (3 * part(ls) + part(ask)) for up, ls, ask in rows)

    note = f"user CPU {ratio(lambda cost: cost.user):.2f}"
    name = "invoke up : (3 lists and a health request), wall"
    return Target(name, ratio(lambda cost: cost.wall), 1.0, note)


def show(costs: Mapping[str, Sequence[Cost]], targets: Sequence[Target], as_json: bool) -> None:
    load = os.getloadavg()[0]
    if as_json:
        rows = {name: [asdict(cost) for cost in found] for name, found in costs.items()}
        told = [{**asdict(target), "met": target.met} for target in targets]
        data = {"load": load, "cpus": os.cpu_count(), "seconds": rows, "targets": told}
        print(json.dumps(data, indent=2))
        return
    print(f"load {load:.1f} on {os.cpu_count()} CPUs, median of {len(costs['list'])} rounds")
    for name, found in costs.items():
        middle = [statistics.median(column) for column in zip(*map(parts, found), strict=True)]
        print("{:<16} wall {:6.2f} s  user {:5.2f} s  system {:5.2f} s".format(name, *middle))
    for target in targets:
        word = "met   " if target.met else "MISSED"
        print(
            f"{word} {target.name}: {target.value:.2f}, at most {target.at_most:g}; {target.note}"
        )


def parts(cost: Cost) -> tuple[float, float, float]:
    return cost.wall, cost.user, cost.system


if __name__ == "__main__":
    main()
