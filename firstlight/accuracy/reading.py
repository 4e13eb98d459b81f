"""The accuracy room: what `remote/read_checkpoint.py` prints, as frozen models.

Nothing is judged here. Sizes are in bytes; `layers` are ranges such as `0-3,7` of the first
number in a tensor's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue, ValidationError

from firstlight.core.errors import HostError
from firstlight.core.schema import Model

FORMAT = 1
Severity = Literal["error", "warning", "note"]
Role = Literal["k", "v", "kv"]
Form = Literal["modelopt", "quark", "legacy", "plain", "unknown"]


class Flaw(Model):
    """Something wrong with the files. `error`: the engine cannot load them, or loads something
    else than the files seem to say; `warning`: it may matter; `note`: only worth knowing."""

    severity: Severity
    kind: str
    where: str
    what: str


class Group(Model):
    """Tensors whose names differ in numbers alone (`*` stands for them), of one dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    bytes: int
    layers: str

    @property
    def layer_numbers(self) -> frozenset[int]:
        """The layers it is in."""
        return numbers(self.layers)


class ScaleTensor(Model):
    """A scale of the KV cache. `form` is its spelling, `unknown` for one that the engine does not
    map; `layer` is the first number in its name; `at` is its place in the file.

    `values` are the first of its `count` numbers, None for NaN and infinity; `ones` of them all
    are exactly 1; `least` and `most` span the finite ones. No number: it could not be read.
    """

    name: str
    file: str
    role: Role
    form: Form
    layer: int | None
    dtype: str
    at: int
    bytes: int
    count: int
    values: tuple[float | None, ...]
    ones: int
    least: float | None
    most: float | None


class Shard(Model):
    """One safetensors file; `whole` says that its header was read to the end."""

    file: str
    bytes: int
    header: int
    tensors: int
    whole: bool


class Index(Model):
    """What `model.safetensors.index.json` says; `missing` shards are not in the folder."""

    tensors: int
    shards: int
    missing: int


class Cost(Model):
    """What reading took on the host; `rchar` is the kernel's count, Python's own start included."""

    bytes_read: int
    rchar: int
    header_bytes: int
    files_opened: int
    cpu_s: float
    peak_kib: int


class Reading(Model):
    """One checkpoint as its files say it.

    `documents` has config.json, hf_quant_config.json and others by file name, with the keys that
    matter; `chat_templates` the length of each template by where it is; `code` the Python files
    beside them; `index` is None where there is none or where it is broken.
    """

    format: Literal[1]
    folder: str
    revision: str | None
    documents: Mapping[str, Mapping[str, JsonValue]]
    chat_templates: Mapping[str, int]
    code: tuple[str, ...]
    index: Index | None
    shards: tuple[Shard, ...]
    tensors: int
    groups: tuple[Group, ...]
    scales: tuple[ScaleTensor, ...]
    findings: tuple[Flaw, ...]
    cost: Cost

    @property
    def bytes(self) -> int:
        """All shards together."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def loadable(self) -> bool:
        """Whether nothing was found that stops the engine."""
        return all(flaw.severity != "error" for flaw in self.findings)


def parse(text: str, host: str) -> Reading:
    """The document of the program on a host; raises HostError for anything else."""
    try:
        return Reading.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "its begin"
        what = f"the answer about the checkpoint cannot be read at {place}: {first['msg']}"
        raise HostError(
            what, where=host, remedy="report this: no checkpoint should do that"
        ) from None


def numbers(ranges: str) -> frozenset[int]:
    """0, 1, 2, 3 and 7 for `0-3,7`."""
    found: set[int] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def as_ranges(found: frozenset[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3 and 7."""
    ends = [n for n in sorted(found) if n + 1 not in found]
    begins = [n for n in sorted(found) if n - 1 not in found]
    pairs = zip(begins, ends, strict=True)
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs)
