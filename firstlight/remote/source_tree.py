"""Part of a remote program: a source archive becomes a tree with our patches in it."""

from __future__ import annotations

import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from unified_diff import Changes, Fault, Misfit, apply_patch, is_applied, parse
from wheel_rules import normal


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip file into `target`, without the one folder that holds all, if any."""
    target.mkdir(parents=True)
    try:
        if starts_as_zip(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(target)
        else:
            with tarfile.open(archive) as tar:
                extract(tar, target)
    except Exception as error:
        # Every way of packing has exceptions of its own; the system's have a number.
        if isinstance(error, Fault) or getattr(error, "errno", None):
            raise
        raise Fault(
            f"{archive.name} cannot be unpacked: {error}", "remove that file and fetch it again"
        ) from None
    lift(target)


def starts_as_zip(archive: Path) -> bool:
    """By its begin: a zip file at the end of a tar makes no zip file of it."""
    with archive.open("rb") as stream:
        return stream.read(4) in (b"PK\3\4", b"PK\5\6")


def extract(tar: tarfile.TarFile, target: Path) -> None:
    """Every member, none outside `target`; older Pythons lack the filter that sees to that."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(target, filter="data")
        return
    members = tar.getmembers()
    for member in members:
        if leads_out(member):
            raise Fault(f"{member.name!r} leads out of its archive", "do not trust that source")
    tar.extractall(target, members)


def leads_out(member: tarfile.TarInfo) -> bool:
    """True for what would be, or would point to, something outside; and for devices."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or member.isdev():
        return True
    # A symbolic link counts from its own folder, a hard link from the top of the archive.
    aim = name.parent / member.linkname if member.issym() else PurePosixPath(member.linkname)
    depth = 0
    for part in aim.parts if member.issym() or member.islnk() else ():
        depth += -1 if part == ".." else 1
        if part == "/" or depth < 0:
            return True
    return False


def lift(folder: Path) -> None:
    """When a folder holds one folder and nothing else, what is in that comes up."""
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir() or inside[0].is_symlink():
        return
    outer = folder.with_name(f"{folder.name}.outer")
    folder.rename(outer)
    (outer / inside[0].name).rename(folder)
    shutil.rmtree(outer)


def patch(tree: Path, patches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply patches (file, name, load_bearing) in order; what became of each."""
    return [{**entry, "state": apply(tree, entry)} for entry in patches]


def apply(tree: Path, entry: dict[str, Any]) -> str:
    """Put one patch into the tree; a load-bearing one that cannot be raises Fault."""
    name = entry["name"]
    text = Path(entry["file"]).read_bytes().decode("utf-8", "surrogateescape")
    diffs = list(parse(text, name))
    if not diffs:
        raise Fault(f"{name} changes no file", "make it with diff -u or git diff")
    try:
        changes, notes = apply_patch(diffs, lambda path: text_of(tree, path))
    except Misfit as misfit:
        return refuse(entry, misfit, is_applied(diffs, lambda path: text_of(tree, path)))
    for note in notes:
        print(f"note: {name}: {note}", flush=True)
    write(tree, changes)
    print(f"{name}: applied to {len(changes)} files", flush=True)
    return "applied"


def refuse(entry: dict[str, Any], misfit: Misfit, applied: bool) -> str:
    fault = Fault(f"{entry['name']} does not apply: {misfit}", misfit.fix, misfit.shown)
    if applied:
        fix = "drop it from patches/registry.yaml"
        fault = Fault(f"{entry['name']} is in this source already", fix)
    if entry["load_bearing"]:
        raise fault
    print(f"note: {fault}; going on without it", flush=True)
    return "already there" if applied else "does not apply"


def inside(tree: Path, path: str) -> Path:
    """A file of the tree; a patch that names one outside is refused."""
    place = (tree / path).resolve()
    if not place.is_relative_to(tree.resolve()):
        raise Fault(f"a patch names {path}, which is outside the source", "correct that patch")
    return place


def text_of(tree: Path, path: str) -> str | None:
    place = inside(tree, path)
    return place.read_bytes().decode("utf-8", "surrogateescape") if place.is_file() else None


def write(tree: Path, changes: Changes) -> None:
    for path, text in changes.items():
        place = inside(tree, path)
        if text is None:
            place.unlink()
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8", "surrogateescape"))


def find_project(tree: Path, project: str, subdir: str) -> Path:
    """The folder to build: the one whose pyproject.toml has that name, else `subdir`."""
    if not project:
        return inside(tree, subdir)
    files = sorted(tree.rglob("pyproject.toml"))
    found = [path.parent for path in files if named(path) == normal(project)]
    if len(found) == 1:
        return found[0]
    where = ", ".join(str(path.relative_to(tree)) for path in found) or "nowhere"
    raise Fault(
        f"project {project} must be in one place of the source; it is in: {where}",
        "correct build.project of the component, or its version",
    )


def named(path: Path) -> str:
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project")
    except (ValueError, OSError):
        return ""
    name = project.get("name", "") if isinstance(project, dict) else ""
    return normal(str(name))
