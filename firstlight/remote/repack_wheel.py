"""Remote program: put patches into a published wheel and pack it again under a local version.

    repack_wheel.py --wheel W --local-version L [--required F | --patch F]...
                    --out DIR --receipt FILE.json

Patches are unified diffs, stripped -p1, applied in the order given, exactly or not at all. DIR
gets the wheel, and FILE says what it was made from; the same input gives the same bytes. A
--required patch that cannot be applied, or that the wheel holds already, ends this program; of any
other patch it says so and goes on.
"""

from __future__ import annotations

import argparse
import base64
import csv
import errno
import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from unified_diff import Changes, Fault, Misfit, Read, apply_patch, is_applied, parse

LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")
WHEEL = re.compile(r"(?P<name>[\w.]+)-(?P<version>[\w.+!]+)(?P<rest>(-[\w.]+){3,4}\.whl)")
# A signature over the old RECORD no longer holds, so it is left out.
SIGNATURES = ("RECORD.jws", "RECORD.p7s")
# Zip files begin to count time here; a real date would make every run differ.
NO_TIME = (1980, 1, 1, 0, 0, 0)
PLAIN_FILE = 0o100644 << 16


@dataclass(frozen=True)
class Patch:
    """One patch file as it was asked for, and then as it turned out."""

    path: Path
    required: bool
    state: str = "applied"
    hunks: int = 0


def say(line: str) -> None:
    print(line, flush=True)


def decode(data: bytes) -> str:
    """Text that `encode` gives back byte by byte, whatever it holds."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def consider(patch: Patch, read: Read) -> tuple[Patch, Changes]:
    """Apply one patch, or tell why not: by a Fault if it is required, else by a note."""
    name = patch.path.name
    diffs = list(parse(decode(patch.path.read_bytes()), name))
    if not diffs:
        raise Fault(f"{name} changes no file", "make it with diff -u or git diff")
    patch = replace(patch, hunks=sum(len(diff.hunks) for diff in diffs))
    try:
        changes, notes = apply_patch(diffs, read)
    except Misfit as misfit:
        return refuse(patch, misfit, is_applied(diffs, read)), {}
    for line in notes:
        say(f"note: {name}: {line}")
    say(f"{name}: {patch.hunks} hunks in {len(changes)} files")
    return patch, changes


def refuse(patch: Patch, misfit: Misfit, applied: bool) -> Patch:
    name = patch.path.name
    fault = Fault(f"{name} does not apply: {misfit}", misfit.fix, misfit.shown)
    if applied:
        fault = Fault(f"{name} is in this wheel already", "drop it from patches/registry.yaml")
    if patch.required:
        raise fault
    say("\n".join((f"note: {fault}; going on without it", *fault.shown, f"  ({fault.fix})")))
    return replace(patch, state="already there" if applied else "does not apply")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def recorded(data: bytes) -> str:
    """A digest as RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def check_record(archive: zipfile.ZipFile, info: str) -> list[str]:
    """The files of a wheel that is what its RECORD says, without RECORD and its signatures."""
    text = archive.read(f"{info}/RECORD").decode()
    record = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if row}
    names = [name for name in archive.namelist() if not name.endswith("/")]
    files = sorted(set(names) - {f"{info}/{name}" for name in ("RECORD", *SIGNATURES)})
    wrong = [name for name in files if record.get(name) != recorded(archive.read(name))]
    wrong += sorted(set(record) - set(names))
    wrong += [name for name in files if name.startswith("/") or ".." in name.split("/")]
    if wrong or len(set(names)) < len(names):
        error = f"{Path(archive.filename or '').name} is not what its RECORD says"
        fix = "remove that file and fetch it again"
        raise Fault(error, fix, tuple(f"  {name}" for name in wrong[:10]))
    return files


def pack(target: Path, members: Iterator[tuple[str, bytes, int]], info: str) -> None:
    """Write members (path, bytes, mode) in the order given, and the RECORD of them last."""
    rows = io.StringIO()
    record = csv.writer(rows, lineterminator="\n")
    with zipfile.ZipFile(target, "w") as archive:

        def put(path: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(path, NO_TIME)
            entry.create_system, entry.external_attr = 3, mode
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)

        for path, data, mode in members:
            put(path, data, mode)
            record.writerow((path, recorded(data), len(data)))
        record.writerow((f"{info}/RECORD", "", ""))
        put(f"{info}/RECORD", rows.getvalue().encode(), PLAIN_FILE)


def members(
    archive: zipfile.ZipFile, files: list[str], changes: Changes, old: str, new: str
) -> Iterator[tuple[str, bytes, int]]:
    """Path, bytes and mode of each file; sorted, with what describes them last.

    `old` and `new` are NAME-VERSION: two folders carry it in their names, METADATA in its head.
    """
    folders = re.compile(rf"{re.escape(old)}(?=\.(dist-info|data)/)")
    version = f"Version: {new.rpartition('-')[2]}".encode()
    for path in sorted({*files, *changes}, key=lambda path: (".dist-info/" in path, path)):
        if path in changes and changes[path] is None:
            continue
        data = encode(changes[path] or "") if path in changes else archive.read(path)
        if path == f"{old}.dist-info/METADATA":
            data = re.sub(rb"^Version: [^\r\n]*", version, data, count=1, flags=re.MULTILINE)
        mode = archive.getinfo(path).external_attr if path in files else PLAIN_FILE
        yield folders.sub(new, path) if folders.match(path) else path, data, mode


def apply_all(
    archive: zipfile.ZipFile, files: list[str], patches: list[Patch]
) -> tuple[Changes, list[Patch]]:
    """What all patches together change, each on top of those before it."""
    changes: Changes = {}
    there = set(files)

    def read(path: str) -> str | None:
        if path in changes or path not in there:
            return changes.get(path)
        return decode(archive.read(path))

    done = []
    for patch in patches:
        outcome, more = consider(patch, read)
        done.append(outcome)
        changes |= more
    return changes, done


def repack(wheel: Path, local: str, patches: list[Patch], out: Path) -> dict[str, object]:
    """Make the new wheel in `out`, and say what it was made from."""
    found = WHEEL.fullmatch(wheel.name)
    if not found or not LOCAL.fullmatch(local):
        fix = "give a published wheel, and a version like firstlight.cpu"
        raise Fault(f"{wheel.name} with local version {local!r} makes no wheel", fix)
    name, old, rest = found["name"], found["version"], found["rest"]
    new = f"{old}{'.' if '+' in old else '+'}{local}"
    target = out / f"{name}-{new}{rest}"
    with zipfile.ZipFile(wheel) as archive:
        files = check_record(archive, f"{name}-{old}.dist-info")
        changes, done = apply_all(archive, files, patches)
        out.mkdir(parents=True, exist_ok=True)
        made = members(archive, files, changes, f"{name}-{old}", f"{name}-{new}")
        pack(target, made, f"{name}-{new}.dist-info")
    say(f"{target.name}: {len(changes)} files changed")
    return {
        **{"name": name, "version": new, "file": target.name, "sha256": sha256(target)},
        "source": {"file": wheel.name, "sha256": sha256(wheel)},
        "patches": [
            {"file": p.path.name, "sha256": sha256(p.path), "hunks": p.hunks, "state": p.state}
            for p in done
        ],
        "files_changed": sorted(changes),
    }


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--local-version", required=True, help="like firstlight.cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--receipt", type=Path, required=True, help="what went in and came out")
    # Both fill one list, for the order of all patches counts.
    for option, required in (("--required", True), ("--patch", False)):
        kind = partial(asked, required=required)
        parser.add_argument(option, type=kind, dest="patches", action="append", default=[])
    return parser.parse_args(argv)


def asked(file: str, required: bool) -> Patch:
    return Patch(Path(file), required)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    try:
        made = repack(options.wheel, options.local_version, options.patches, options.out)
        options.receipt.write_text(json.dumps(made, indent=2) + "\n")
        return 0
    except Fault as fault:
        told = fault
    except (zipfile.BadZipFile, KeyError):
        told = Fault(f"{options.wheel} is no wheel", "remove that file and fetch it again")
    except OSError as fault:
        fix = "free some space" if fault.errno == errno.ENOSPC else "check that path"
        told = Fault(f"{fault.filename or options.out}: {fault.strerror}", fix)
    print("\n".join((f"error: {told}", *told.shown, f"fix: {told.fix}")), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
