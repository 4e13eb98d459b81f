"""Remote program: what a checkpoint declares and holds, without reading its weights.

    read_checkpoint.py DIR

Prints one JSON document: its small files, the patterns of its tensors with counts, the scales of
the KV cache with their values, and findings. Of each shard the header is read and nothing else
but those scales. It runs on any Python from 3.10 on, with nothing installed; the memory that it
needs has a bound, whatever DIR holds. A checkpoint that is broken in any way is told in findings.
Exit codes: 0 a document was printed, 2 a request that makes no sense.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checkpoint_documents import documents
from checkpoint_findings import Findings, Meter, Unreadable, opened, shown, unreadable
from json_members import Members, NotJson, pairs
from shard_headers import MOST_TENSORS, Enough, Seen, limited, read_shard

FORMAT = 1
INDEX = "model.safetensors.index.json"
# Names are told by their tensors; an index of a million is no longer than this.
LARGEST_INDEX = 256 << 20
MOST_SHARDS = 4096
# The one case of two files without an index where the engine leaves one out.
TWO_FORMS = ["consolidated.safetensors", "model.safetensors"]
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".ckpt")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def read(asked: str) -> dict[str, Any]:
    """The document about a folder."""
    findings, meter = Findings(), Meter()
    seen = Seen(findings, meter)
    folder = snapshot(Path(asked), findings)
    names = listed(folder, findings)
    found, chat = documents(folder, names, findings, meter) if names is not None else ({}, {})
    index = _index(folder, names, seen) if names and INDEX in names else None
    _shards(folder, names or set(), seen)
    try:
        for number in range(len(seen.files)):
            read_shard(folder, number, seen)
        _left_over(folder, seen)
    except Enough as error:
        findings.add("error", "too-large", asked, f"{error}; the rest was not read")
    return {
        "format": FORMAT,
        "folder": str(folder),
        "revision": _revision(folder),
        "documents": found,
        "chat_templates": chat,
        "code": sorted(shown(name) for name in names or () if name.endswith(".py"))[:100],
        "index": index,
        "shards": seen.shards,
        "tensors": seen.tensors,
        "groups": seen.groups.listed(),
        "scales": seen.scales,
        "findings": findings.listed(),
        "cost": cost(meter, seen),
    }


def snapshot(folder: Path, findings: Findings) -> Path:
    """The folder itself, or the snapshot that a hub's cache means by that name."""
    try:
        commits = sorted(path.name for path in (folder / "snapshots").iterdir())
    except OSError:
        return folder
    wanted = ""
    with contextlib.suppress(Unreadable), opened(folder / "refs" / "main", Meter()) as file:
        wanted = file.read(100).decode("ascii", "replace").strip()
    if wanted not in commits:
        wanted = commits[0] if len(commits) == 1 else ""
    if not wanted:
        what = f"it is a hub's cache with {len(commits)} snapshots and none of them is main"
        findings.add("error", "snapshot", str(folder), what)
        return folder
    what = f"it is a hub's cache; its snapshot {wanted} is read"
    findings.add("note", "snapshot", str(folder), what)
    return folder / "snapshots" / wanted


def listed(folder: Path, findings: Findings) -> set[str] | None:
    """The names in a folder; None where they cannot be had."""
    try:
        return {path.name for path in folder.iterdir()}
    except NotADirectoryError:
        findings.add("error", "no-folder", str(folder), "it is no folder")
    except FileNotFoundError:
        findings.add("error", "no-folder", str(folder), "there is no such folder")
    except OSError as error:
        why = unreadable(folder, error)
        findings.add("error", why.kind, str(folder), str(why))
    return None


def _revision(folder: Path) -> str | None:
    """The commit of a hub's repository, where the folder is a snapshot in its cache."""
    is_commit = folder.parent.name == "snapshots" and _COMMIT.fullmatch(folder.name)
    return folder.name if is_commit else None


def _index(folder: Path, names: set[str], seen: Seen) -> dict[str, int] | None:
    """Read which tensor is in which shard; None where the index cannot be used."""
    numbers: dict[str, int] = {}
    count = 0
    try:
        for some in _index_members(folder, seen.meter):
            count += len(some)
            _note_places(some, numbers, seen)
    except (Unreadable, NotJson) as error:
        kind = error.kind if isinstance(error, Unreadable) else "not-json"
        seen.findings.add("error", kind, INDEX, str(error))
        seen.places.clear()
        return None
    seen.has_index, seen.files = True, list(numbers)
    missing = [file for file in seen.files if file not in names]
    return {"tensors": count, "shards": len(numbers), "missing": len(missing)}


def _note_places(some: dict[str, Any], numbers: dict[str, int], seen: Seen) -> None:
    """Keep what a part of the index says."""
    for file in set(map(str, some.values())).difference(numbers):
        numbers[file] = len(numbers)
    before = len(seen.places)
    places = map(numbers.__getitem__, map(str, some.values()))
    seen.places.update(zip(map(hash, some), places, strict=True))
    if len(seen.places) < before + len(some):
        what = f"a tensor is named twice, one of {shown(next(iter(some)))} and those after it"
        seen.findings.add("error", "duplicate", INDEX, what)
    if len(seen.places) > MOST_TENSORS or len(numbers) > MOST_SHARDS:
        raise Unreadable("too-large", "it names more than any real model has")


def _index_members(folder: Path, meter: Meter) -> Iterator[dict[str, Any]]:
    with opened(folder / INDEX, meter) as file:
        if file.size > LARGEST_INDEX:
            raise Unreadable("too-large", f"it has {file.size} bytes")
        yield from pairs(Members(limited(file, file.size)))


def _shards(folder: Path, names: set[str], seen: Seen) -> None:
    """Which files are read: those of the index, or else every safetensors file."""
    there = sorted(name for name in names if name.endswith(".safetensors"))
    why = "the index does not name it"
    if not seen.has_index:
        seen.files, why = there[:MOST_SHARDS], f"{TWO_FORMS[1]} holds the same"
        if there == TWO_FORMS:
            seen.files = TWO_FORMS[1:]
    for name in sorted(set(there) - set(seen.files)):
        what = f"{why}: the engine does not load it"
        seen.findings.add("warning", "extra-shard", name, what)
    if names and not seen.files:
        other = sorted(name for name in names if name.endswith(OTHER_WEIGHTS))
        what = "no safetensors file is there" if not there else "the index names no file"
        # The engine reads some of those; nothing is known of them here.
        kind = "other-weights" if other and not there else "no-weights"
        what += f", only {other[0]}" if other else ""
        seen.findings.add("error", kind, str(folder), what)


def _left_over(folder: Path, seen: Seen) -> None:
    """Tensors that the index names and no shard holds; a shard that is broken has been told."""
    whole = [shard["whole"] for shard in seen.shards]
    if max(seen.places.values(), default=-1) < 0:
        return
    for some in _index_members(folder, seen.meter):
        for name in some:
            # It may have been written anew since it was read.
            number = seen.places.get(hash(name), -1)
            if number >= 0 and whole[number]:
                what = f"the index says that it is in {seen.files[number]}, and it is not"
                seen.findings.add("error", "missing-tensor", shown(name), what)


def cost(meter: Meter, seen: Seen) -> dict[str, Any]:
    """What reading took. `rchar` and the peak of memory are the kernel's, for the whole process."""
    rchar = peak = 0
    # Not getrusage: its peak is at least that of the process which started this one.
    with contextlib.suppress(OSError, ValueError, IndexError):
        peak = int(Path("/proc/self/status").read_text("utf-8").split("VmHWM:")[1].split()[0])
        rchar = int(Path("/proc/self/io").read_text("ascii").split()[1])
    return {
        "bytes_read": meter.read,
        "rchar": rchar,
        "header_bytes": seen.header_bytes,
        "files_opened": meter.opened,
        "cpu_s": round(time.process_time(), 4),
        "peak_kib": peak,
    }


def answer(folder: str) -> bytes:
    """The document as one line of JSON."""
    text = json.dumps(read(folder), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # A file's name may be no text at all.
    return text.encode("utf-8", "replace") + b"\n"


def main(words: list[str]) -> int:
    if len(words) != 1:
        print("usage: read_checkpoint.py DIR", file=sys.stderr)
        return 2
    # Nothing here refers to itself, and looking for what does takes a fifth of the time.
    gc.disable()
    sys.stdout.buffer.write(answer(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
