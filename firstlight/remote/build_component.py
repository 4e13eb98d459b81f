"""Remote program: one component from its source to a checked wheel in the store, or nothing.

    build_component.py REQUEST.json

The request names everything by path, each already checked by its hash; see Layout and
firstlight/build/compiling.py, which writes it. Nothing of a failed or ended build stays behind but
this program's output, and a wheel that was refused: until the next build of its component.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import receipts
import sandbox
import source_tree
from compile_wheel import Effort, build
from ending import clear_up_when_ended
from unified_diff import Fault

HERE = Path(__file__).resolve().parent


def say(line: str) -> None:
    print(line, flush=True)


def check_space(folder: Path, need_mib: int) -> None:
    """There must be room for the tree, its environment and what the compilers write."""
    free = shutil.disk_usage(folder).free // (1024 * 1024)
    if free < need_mib:
        raise Fault(
            f"no space: {folder} has {free} MiB free, this build needs about {need_mib} MiB",
            "make room, or give the host another root in the inventory",
        )


def check_tools(request: dict[str, Any]) -> list[str]:
    """The folders of the host's own programs that the build needs."""
    path = os.environ.get("PATH", "") + f":{Path.home()}/.cargo/bin"
    found = {name: shutil.which(name, path=path) for name in request["host_tools"]}
    missing = [name for name, place in found.items() if not place]
    if missing:
        what = f"the host has no {', '.join(missing)}, which {request['name']} is built with"
        raise Fault(what, "install it there (Debian, Ubuntu: apt install build-essential)")
    return sorted({str(Path(place).parent) for place in found.values() if place})


def call(argv: list[str], env: dict[str, str] | None = None) -> None:
    """A program of ours that says for itself what went wrong."""
    if subprocess.run(argv, env=os.environ | (env or {}), check=False).returncode:
        raise Fault(f"{Path(argv[0]).name} {' '.join(argv[1:3])} failed; see above", "")


def uv_of(request: dict[str, Any]) -> dict[str, str]:
    return {"UV_CACHE_DIR": request["uv_cache"], "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}


def make_venv(request: dict[str, Any], name: str, wheels: list[str]) -> Path:
    """An environment of exactly these wheels; its Python."""
    work = Path(request["work"])
    uv, venv, listed = str(work / "bin" / "uv"), work / name, work / f"{name}.txt"
    env = {**uv_of(request), "UV_PYTHON_DOWNLOADS": "never"}
    listed.write_text("".join(f"{Path(wheel).as_uri()}\n" for wheel in wheels))
    call([uv, "venv", "--quiet", "--relocatable", "--python", request["python"], str(venv)], env)
    install = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python")]
    if wheels:
        call([*install, "--no-index", "--no-deps", "--requirements", str(listed)], env)
    return venv / "bin" / "python"


def bring_tools(request: dict[str, Any], work: Path) -> None:
    """Into work/bin: uv, the compiler cache and the launcher that goes before nvcc."""
    folder = work / "bin"
    folder.mkdir(parents=True)
    for name in ("uv", "ccache"):
        if request["tools"].get(name):
            unpacked = work / f"{name}.unpacked"
            source_tree.unpack(Path(request["tools"][name]), unpacked)
            program = next(path for path in unpacked.rglob(name) if path.is_file())
            shutil.copy(program, folder / name)
            (folder / name).chmod(0o755)
            shutil.rmtree(unpacked)
    launcher = folder / "nvcc_launcher"
    text = (HERE / "nvcc_launcher.py").read_text(encoding="utf-8")
    launcher.write_text(f"#!/usr/bin/env python3\n{text}", encoding="utf-8")
    launcher.chmod(0o755)


def lay_out(request: dict[str, Any], work: Path) -> list[dict[str, Any]]:
    """The folders of a build: source with patches, fetched sources, tools, environment."""
    for name in ("home", "tmp", "build", "dist", "fetched"):
        (work / name).mkdir(parents=True)
    bring_tools(request, work)
    say(f"unpacking {request['source']['file']}")
    source_tree.unpack(Path(request["source"]["path"]), work / "src")
    for one in request["fetched"]:
        source_tree.unpack(Path(one["path"]), work / "fetched" / one["name"])
    patches = source_tree.patch(work / "src", request["patches"])
    wheels = [*request["build_wheels"], *made_wheels(request["needs"])]
    say(f"making a build environment of {len(wheels)} wheels")
    make_venv(request, "venv", wheels)
    return patches


def made_wheels(artifacts: list[str]) -> list[str]:
    """The wheels of other artifacts; a toolkit has none."""
    return [str(path) for home in artifacts for path in sorted(Path(home).glob("*.whl"))]


def box_of(request: dict[str, Any], work: Path) -> sandbox.Sandbox:
    folders = {"work": work}
    if request["toolkit"]:
        folders["cuda"] = Path(request["toolkit"]).resolve()
    if request["ccache"]:
        cache = Path(request["ccache"])
        cache.mkdir(parents=True, exist_ok=True)
        folders["ccache"] = cache
    return sandbox.make(folders, work / "stage")


def accept(request: dict[str, Any], wheel: Path, partial: Path) -> dict[str, Any]:
    """Put our local version into the wheel, look into it, and use it; what was found."""
    wheel = relabel(request, wheel, partial)
    say(f"checking {wheel.name}")
    run = [*request["check_wheels"], *made_wheels(request["check_needs"]), str(wheel)]
    clean = make_venv(request, "clean", run)
    site = next((clean.parent.parent / "lib").glob("python3*/site-packages"))
    expect = Path(request["work"]) / "expect.json"
    expect.write_text(json.dumps(request["expect"]))
    argv = [sys.executable, str(HERE / "verify_wheel.py"), "--wheel", str(wheel)]
    argv += ["--expect", str(expect), "--torch", str(site), "--venv", str(clean)]
    env = os.environ | {"PYTHONPATH": request["tools"]["elftools"], **uv_of(request)}
    env["UV"] = str(Path(request["work"]) / "bin" / "uv")
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    return receipts.judged(wheel, done)


def relabel(request: dict[str, Any], wheel: Path, partial: Path) -> Path:
    """The wheel in the store's folder, under our local version."""
    local = request["local_version"]
    if not local or f"+{local}-" in wheel.name or f".{local}-" in wheel.name:
        return Path(shutil.move(wheel, partial / wheel.name))
    argv = [sys.executable, str(HERE / "repack_wheel.py"), "--wheel", str(wheel)]
    argv += ["--local-version", local, "--out", str(partial)]
    call([*argv, "--receipt", str(Path(request["work"]) / "repacked.json")])
    return next(partial.glob("*.whl"))


def make(request: dict[str, Any], work: Path, partial: Path) -> None:
    check_space(partial.parent, int(request["disk_mib"]))
    request["tool_path"] = check_tools(request)
    patches = lay_out(request, work)
    project = source_tree.find_project(work / "src", request["project"], request["subdir"])
    box = box_of(request, work)
    seen = box.folders["work"] / project.relative_to(work.resolve())
    say(f"building {request['name']} {request['version']} with {request['jobs']} job(s)")
    wheel, effort = build(request, box, seen)
    try:
        found = accept(request, wheel, partial)
    except Fault as fault:
        raise kept(request, partial, fault) from None
    told = receipts.receipt(request, patches, box, effort, found, next(partial.glob("*.whl")))
    (partial / "receipt.json").write_text(json.dumps(told, indent=2) + "\n")
    summary(effort, partial)


def kept(request: dict[str, Any], partial: Path, fault: Fault) -> Fault:
    """Lay a wheel that was refused aside, for hours may be in it; the fault that says where."""
    aside = Path(request["refused"]["folder"])
    for wheel in partial.glob("*.whl"):
        aside.mkdir(parents=True, exist_ok=True)
        wheel.replace(aside / wheel.name)
        until = f"until the next build of {request['name']} it is kept as {aside / wheel.name}"
        look = f"look at it with: {request['refused']['verify']}/{wheel.name}"
        first = f"{fault.fix}; " if fault.fix else ""
        return Fault(str(fault), f"{first}{until}; {look}", fault.shown)
    return fault


def summary(effort: Effort, partial: Path) -> None:
    size = next(partial.glob("*.whl")).stat().st_size / 1e6
    say(
        f"made {next(partial.glob('*.whl')).name} ({size:.1f} MB) in {effort.wall_s:.0f} s, "
        f"{effort.cpu_s:.0f} CPU s, at most {effort.peak_mib} MiB"
    )


def work_off(request: dict[str, Any]) -> None:
    """Make the artifact whole, or leave nothing of it."""
    home, work = Path(request["home"]), Path(request["work"])
    if home.exists():
        say(f"{home.name} is in the store already")
        return
    partial = home.with_name(f"{home.name}.partial")
    try:
        for folder in (partial, work, Path(request["refused"]["folder"])):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (partial, work):
            folder.mkdir(parents=True)
        make(request, work, partial)
        partial.rename(home)
        say(f"{home.name} is in the store")
    finally:
        for folder in (partial, work):
            shutil.rmtree(folder, ignore_errors=True)


def refused(fault: OSError, request: str) -> Fault:
    """What the system did not let us do."""
    if fault.errno == errno.ENOSPC:
        what = f"no space left on the disk of {fault.filename or Path(request).parents[2]}"
        return Fault(what, "make room, or give the host another root in the inventory")
    return Fault(f"{fault.filename or request}: {fault.strerror}", "check that path")


def main(argv: list[str]) -> int:
    clear_up_when_ended()
    try:
        work_off(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
        return 0
    except Fault as fault:
        told = fault
    except OSError as fault:
        told = refused(fault, argv[0])
    fix = f"\nfix: {told.fix}" if told.fix else ""
    print("\n".join((*told.shown, f"error: {told}")) + fix, file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
