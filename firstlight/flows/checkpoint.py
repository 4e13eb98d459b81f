"""Reading a checkpoint: of a host or of this machine by one script, or of a hub by ranges.

The programs travel inside the script, so that a host is asked once and keeps nothing of it. A
hub's repository becomes a folder of sparse files here: the headers are fetched into them, and the
same program reads it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from firstlight.accuracy.reading import Reading, parse
from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects import http, library
from firstlight.effects.shell import Shell
from firstlight.serve.models import model_path
from firstlight.serve.profile import GgufModel, HubModel, PathModel

# Each may import those before it.
_MODULES = (
    "checkpoint_findings",
    "json_members",
    "number_formats",
    "tensor_groups",
    "checkpoint_documents",
    "shard_headers",
    "read_checkpoint",
)
_OLD = 97
# The modules come as JSON on standard input; nothing of the account's own Python comes in (-I).
_START = """\
import json, sys, types
if sys.version_info < (3, 10):
    sys.exit(97)
for name, text in json.load(sys.stdin):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.exit(module.main(sys.argv[1:]))
"""
_READ = """\
for python in "$1" python3 python3.13 python3.12 python3.11 python3.10; do
  command -v -- "$python" >/dev/null || continue
  "$python" -I -B -c "$2" "$3" <<<"$4" && return
  rc=$?
  # Too old by its own word, too old for these options, or nothing that runs.
  case $rc in 97|2|126|127) ;; *) return "$rc" ;; esac
done
return 97
"""
_PATIENCE_S = 300.0

Note = Callable[[str], None]
Source = GgufModel | PathModel | HubModel


def read_folder(shell: Shell, folder: PurePosixPath, python: str = "") -> Reading:
    """What a folder of a host holds; `python` is tried before those on its PATH.

    A folder that is broken, or not there, is told in the findings. Raises HostError when the
    host cannot be asked.
    """
    texts = [(name, library.program(f"{name}.py")) for name in _MODULES]
    # A path that begins with a sign would be an option, and `~` is not for a program.
    args = (python, _START, str(folder), json.dumps(texts))
    result = shell.run(Script(_READ, args), _PATIENCE_S)
    if result.ok:
        return parse(result.text, shell.host.name)
    if result.rc == _OLD:
        what, fix = "no Python 3.10 or newer is on its PATH", "install one: apt install python3"
        raise HostError(what, where=shell.host.name, remedy=fix)
    said = (result.error_text.strip().splitlines() or ["nothing was said"])[-1]
    what = f"{folder} could not be read (exit code {result.rc}): {said}"
    raise HostError(what, where=shell.host.name)


@dataclass(frozen=True)
class Hub:
    """A repository of a hub at one revision; `token` may be empty."""

    repo: str
    revision: str
    endpoint: str = "https://huggingface.co"
    token: str = ""

    def file(self, path: str) -> str:
        """The URL of a file."""
        return f"{self.endpoint}/{self.repo}/resolve/{self.revision}/{quote(path)}"

    @property
    def listing(self) -> str:
        """The URL of the list of its files, subfolders left out."""
        return f"{self.endpoint}/api/models/{self.repo}/tree/{self.revision}?recursive=false"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def read_model(
    shell: Shell,
    local: Shell,
    source: Source,
    root: PurePosixPath,
    env: Mapping[str, str],
    note: Note,
) -> Reading:
    """The model of a profile: as the host has it, or, where it does not have it yet, as the hub.

    `local` is this machine; `env` is asked for HF_ENDPOINT and HF_TOKEN.
    """
    reading = read_folder(shell, model_path(root, source))
    absent = any(flaw.kind == "no-folder" for flaw in reading.findings)
    if not absent or not isinstance(source, HubModel):
        return reading
    endpoint = env.get("HF_ENDPOINT", "").rstrip("/") or Hub.endpoint
    hub = Hub(source.repo, source.revision, endpoint, env.get("HF_TOKEN", ""))
    return read_hub(local, hub, note)


def there(reading: Reading, host: str, remedy: str) -> Reading:
    """The reading of a folder that is there; raises HostError for one that is not."""
    if any(flaw.kind == "no-folder" for flaw in reading.findings):
        raise HostError(f"the model is not there: {reading.folder}", where=host, remedy=remedy)
    return reading


# The first request of a shard: most headers are not longer.
_FIRST = 1 << 18
_LONGEST_HEADER = 100_000_000
_LONGEST_NAME = 255
_LARGEST_FILE = 64 << 20
_PAGES = 20
_TRIES = 3
_AT_ONCE = 8
# Ranges closer than this are asked for together.
_NEAR = 1 << 16
_SMALL = (".json", ".jinja")
_NOT_ASKED = ("tokenizer.json", "vocab.json")


def read_hub(local: Shell, hub: Hub, note: Note) -> Reading:
    """What a repository holds, by range requests; `local` is a shell of this machine.

    Raises HostError where the hub refuses, or cannot be reached.
    """
    files = _listed(hub)
    shards = [name for name in files if name.endswith(".safetensors")]
    small = [name for name in files if name.endswith(_SMALL) and name not in _NOT_ASKED]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in files:
            (folder / file).touch()
        note(f"reading {len(small)} files and {len(shards)} headers of {hub.repo}")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(_whole, hub, folder, file, files[file]) for file in small]
            jobs += [pool.submit(_header, hub, folder, file, files[file]) for file in shards]
            for job in jobs:
                job.result()
        reading = read_folder(local, PurePosixPath(folder))
        if reading.scales:
            note(f"reading {len(reading.scales)} scales")
            _fetch_scales(hub, folder, reading)
            reading = read_folder(local, PurePosixPath(folder))
    place = f"{hub.endpoint}/{hub.repo}"
    findings = tuple(
        flaw.model_copy(update={"where": place}) if flaw.where == name else flaw
        for flaw in reading.findings
    )
    told = {"folder": place, "revision": hub.revision, "findings": findings}
    return reading.model_copy(update=told)


def _listed(hub: Hub) -> dict[str, int]:
    """Size by name of the files at the top of the repository."""
    found: dict[str, int] = {}
    url = hub.listing
    for _ in range(_PAGES):
        page = _piece(hub, url, 0, _LARGEST_FILE)
        try:
            entries = [(one["type"], one["path"], one["size"]) for one in _list_of(page.data)]
            found |= {str(path): int(size) for kind, path, size in entries if kind == "file"}
        except (ValueError, TypeError, KeyError):
            raise HostError("its list of files cannot be read", where=url) from None
        if not (url := page.next):
            break
    return {name: size for name, size in found.items() if _is_name(name)}


def _is_name(name: str) -> bool:
    """Whether a file of ours can be called so; one with a slash would lead out of our folder."""
    odd = "/" in name or name in ("", ".", "..") or not name.isprintable()
    return not odd and len(name.encode()) <= _LONGEST_NAME


def _list_of(data: bytes) -> list[Any]:
    """A JSON list; raises ValueError for all else."""
    found = json.loads(data)
    if not isinstance(found, list):
        raise ValueError("no list")
    return found


def _piece(hub: Hub, url: str, start: int, count: int) -> http.Piece:
    """A part of a file, asked for again where the link or the server failed."""
    for _ in range(_TRIES):
        found = http.get_piece(url, start, count, headers=hub.headers)
        if found.status in (200, 206) and (found.status == 206 or start == 0):
            return found
        if found.status in (401, 403, 404, 416):
            break
    why = found.error or f"it answers {found.status}"
    if found.status == 200:
        why = "it sends whole files where a part is asked for"
    raise HostError(f"cannot read {url}: {why}", where=hub.endpoint, remedy=_remedy(found.status))


def _remedy(status: int) -> str:
    if status in (401, 403):
        return "set HF_TOKEN to a token that may read this repository"
    if status == 404:
        return "check repo and revision of the profile's model"
    return "read it where it is: put the model on a host, and audit it there"


def _whole(hub: Hub, folder: Path, file: str, size: int) -> None:
    if size:
        data = _piece(hub, hub.file(file), 0, min(size, _LARGEST_FILE)).data
        (folder / file).write_bytes(data)


def _header(hub: Hub, folder: Path, file: str, size: int) -> None:
    """A sparse file of the true size with the true header."""
    with (folder / file).open("wb") as made:
        made.truncate(size)
        if size < 8:
            return
        url = hub.file(file)
        data = _piece(hub, url, 0, min(size, _FIRST)).data
        made.write(data)
        end = min(8 + int.from_bytes(data[:8], "little"), size)
        if len(data) < end <= _LONGEST_HEADER:
            made.write(_piece(hub, url, len(data), end - len(data)).data)


def _fetch_scales(hub: Hub, folder: Path, reading: Reading) -> None:
    """Write the numbers of the scales into the sparse files."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = [
            pool.submit(_fill, hub, folder / file, start, end)
            for file in sorted({scale.file for scale in reading.scales})
            for start, end in ranges(
                (scale.at, scale.at + scale.bytes)
                for scale in reading.scales
                if scale.file == file and 0 < scale.bytes <= _NEAR
            )
        ]
        for job in jobs:
            job.result()


def ranges(wanted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Begins and ends of what is asked for, those that are near to each other joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        if found and start - found[-1][1] <= _NEAR:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _fill(hub: Hub, path: Path, start: int, end: int) -> None:
    data = _piece(hub, hub.file(path.name), start, end - start).data
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)
