"""fetch_wheels.py with folders of small wheels in place of an index, and with dead indexes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.remote.programs import PROGRAMS, Ended, run, sha256, small_wheel

# Nothing listens on port 1 of loopback: an index there refuses at once.
DEAD_INDEX = "http://127.0.0.1:1/simple"


def entry(wheel: Path, **changes: Any) -> dict[str, Any]:
    name, version = wheel.name.split("-")[:2]
    own = {"name": name, "version": version, "file": wheel.name, "sha256": sha256(wheel)}
    return {**own, "size": wheel.stat().st_size, "index": None, **changes}


def fetch(tmp: Path, entries: list[dict[str, Any]], *flags: str, **env: str) -> Ended:
    """Fetch into tmp/dest, from tmp/links or else from an index that is not there."""
    request = tmp / "request.json"
    request.write_text(json.dumps({"python": "3.11", "wheels": entries}))
    surroundings = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_FIND_LINKS": str(tmp / "links"),
        "PIP_INDEX_URL": DEAD_INDEX,
        **env,
    }
    return run("fetch_wheels.py", request, tmp / "dest", *flags, env=surroundings)


def wheels(tmp: Path, count: int) -> list[Path]:
    return [small_wheel(tmp / "links", f"part{n}", "1.0", {f"p{n}.py": ""}) for n in range(count)]


def test_every_wheel_comes_to_its_hash_and_nothing_else_stays(tmp_path: Path) -> None:
    made = wheels(tmp_path, 14)
    ended = fetch(tmp_path, [entry(wheel) for wheel in made])
    assert (ended.code, ended.err) == (0, "")
    there = {path.relative_to(tmp_path / "dest") for path in (tmp_path / "dest").rglob("*.whl")}
    assert there == {Path(sha256(wheel), wheel.name) for wheel in made}
    assert list((tmp_path / "dest").glob("*.partial")) == []
    lines = ended.out.splitlines()
    assert lines[0].startswith("0 of 14 wheels are here, ")
    assert sum(line.startswith(f"[{n}/14] ") for n in range(1, 15) for line in lines) == 14
    assert lines[-1].startswith("14 wheels fetched, ")


def test_two_versions_of_one_project_come_both(tmp_path: Path) -> None:
    """One may be of a release and the other of a build; pip by itself takes them for a conflict."""
    made = [
        small_wheel(tmp_path / "links", name, version, {"part.py": version})
        for name, version in (("part_one", "1.0"), ("other", "3.0"), ("part_one", "2.0"))
    ]
    rows = [entry(wheel) for wheel in made]
    ended = fetch(tmp_path, [{**rows[0], "name": "Part.One"}, *rows[1:]])
    assert (ended.code, ended.err) == (0, "")
    there = {path.name for path in (tmp_path / "dest").rglob("*.whl")}
    assert there == {wheel.name for wheel in made}


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    first, second = wheels(tmp_path, 2)
    there = tmp_path / "dest" / sha256(first) / first.name
    there.parent.mkdir(parents=True)
    first_entry = entry(first)
    as_it_was = "as it was".ljust(first.stat().st_size)
    there.write_text(as_it_was)
    first.unlink()
    ended = fetch(tmp_path, [first_entry, entry(second)])
    assert ended.code == 0
    assert there.read_text() == as_it_was
    assert "[2/2] part1-1.0" in ended.out


def test_a_dead_named_index_does_not_stop_a_file_that_find_links_has(tmp_path: Path) -> None:
    wheel = small_wheel(tmp_path / "links", "torchlet", "2.0+cpu", {"torchlet.py": ""})
    ended = fetch(tmp_path, [entry(wheel, index="http://127.0.0.1:1/whl/cpu")])
    assert ended.code == 0, ended.err


def test_no_route_is_75_and_names_the_index_without_its_password(tmp_path: Path) -> None:
    wheel = small_wheel(tmp_path / "elsewhere", "torchlet", "2.0+cpu", {})
    ended = fetch(tmp_path, [entry(wheel, index="http://me:secret@127.0.0.1:1/whl")])
    assert ended.code == 75
    assert "error: no route to a package index: http://127.0.0.1:1/whl\nfix: " in ended.err
    assert "secret" not in ended.err + ended.out
    assert list((tmp_path / "dest").iterdir()) == []


def test_what_came_before_the_route_was_lost_is_kept(tmp_path: Path) -> None:
    made = wheels(tmp_path, 2)
    gone = small_wheel(tmp_path / "elsewhere", "gone", "1.0", {})
    ended = fetch(tmp_path, [entry(gone, index=DEAD_INDEX), *map(entry, made)])
    assert ended.code == 75
    assert len(list((tmp_path / "dest").rglob("*.whl"))) == 2


def test_another_file_of_that_name_is_refused_with_both_digests(tmp_path: Path) -> None:
    wheel = wheels(tmp_path, 1)[0]
    ended = fetch(tmp_path, [entry(wheel, sha256="0" * 64)])
    assert ended.code == 1
    assert f"error: {wheel.name}: sha256 is {sha256(wheel)}, wanted {'0' * 64}\n" in ended.err
    assert not list((tmp_path / "dest").iterdir())


def test_a_wheel_that_no_index_has(tmp_path: Path) -> None:
    gone = small_wheel(tmp_path / "elsewhere", "gone", "1.0", {})
    ended = fetch(tmp_path, [entry(gone)], PIP_NO_INDEX="1")
    assert ended.code == 1
    assert f"error: {gone.name} is on no index\nfix: " in ended.err


def test_a_size_that_the_lock_says_wrongly_is_refused(tmp_path: Path) -> None:
    """Also of a wheel that lies there already."""
    (wheel,) = wheels(tmp_path, 1)
    size = wheel.stat().st_size
    told = f"error: {wheel.name}: its size is {size}, the lock says {size + 1}\nfix: the lock was"
    assert told in fetch(tmp_path, [entry(wheel, size=size + 1)]).err
    assert fetch(tmp_path, [entry(wheel)]).code == 0
    ended = fetch(tmp_path, [entry(wheel, size=size + 1)])
    assert ended.code == 1 and told in ended.err


def test_a_full_disk_is_told_before_the_work(tmp_path: Path) -> None:
    wheel = wheels(tmp_path, 1)[0]
    ended = fetch(tmp_path, [entry(wheel, size=10**18)])
    assert ended.code == 1
    assert ended.err.startswith("error: no space left on the disk of ")
    assert "1500000000000 MB needed" in ended.err


def test_probe_says_whether_there_is_a_way_out_and_leaves_nothing(tmp_path: Path) -> None:
    small, large = wheels(tmp_path, 2)
    entries = [entry(large, size=10**9), entry(small)]
    large.unlink()
    assert fetch(tmp_path, entries, "--probe").code == 0
    small.unlink()
    assert fetch(tmp_path, entries, "--probe").code == 75
    assert list((tmp_path / "dest").iterdir()) == []


def test_a_python_without_pip_makes_itself_one(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (tmp_path / "request.json").write_text(
        json.dumps({"python": "3.11", "wheels": [entry(wheels(tmp_path, 1)[0])]})
    )
    ended = run(
        *("fetch_wheels.py", tmp_path / "request.json", tmp_path / "dest"),
        env={"PIP_FIND_LINKS": str(tmp_path / "links"), "PIP_NO_INDEX": "1"},
        python=str(bare / "bin" / "python"),
    )
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "abc"},
        {"file": "../../etc/passwd-1.0-py3-none-any.whl"},
        {"name": "part0\n--index-url=http://elsewhere"},
        {"extra": 1},
    ],
)
def test_a_request_that_makes_no_sense(tmp_path: Path, change: dict[str, Any]) -> None:
    ended = fetch(tmp_path, [entry(wheels(tmp_path, 1)[0], **change)])
    assert ended.code == 2
    assert ended.err.startswith(f"error: {tmp_path}/request.json: ")
    assert "Traceback" not in ended.err


def test_a_request_that_is_not_there(tmp_path: Path) -> None:
    ended = run("fetch_wheels.py", tmp_path / "no.json", tmp_path / "dest")
    assert (ended.code, ended.err.count("\n")) == (2, 2)


def test_ended_from_outside_it_leaves_nothing_half_fetched(tmp_path: Path) -> None:
    """pip hangs here: a server that takes its question and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        (made,) = wheels(tmp_path, 1)
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"python": "3.11", "wheels": [entry(made)]}))
        url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        env = {**os.environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url}
        words = [sys.executable, PROGRAMS / "fetch_wheels.py", request, tmp_path / "dest"]
        with subprocess.Popen([str(word) for word in words], env=env) as program:
            server.settimeout(60)
            caller, _ = server.accept()
            assert list((tmp_path / "dest").glob(".fetch-*.partial"))
            while program.poll() is None:
                program.send_signal(signal.SIGTERM)
            caller.close()
    assert program.returncode == 143
    assert list((tmp_path / "dest").iterdir()) == []
