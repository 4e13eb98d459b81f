"""The build room: what a wheel was found to hold, as remote/verify_wheel.py tells it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from firstlight.core.errors import FirstlightError, HostError
from firstlight.core.schema import Model
from firstlight.core.words import columns, size

_ARCH = re.compile(r"([1-9][0-9]?)\.([0-9])([af]?)")
# What a wheel needs of CUDA and of the driver; the rest of DT_NEEDED is in the data.
_OF_CUDA = re.compile(r"lib(cu|nv|npp)")


class Fault(Model):
    """One thing wrong: by which check, in which file of the wheel ("" = all of it), and what."""

    check: str
    where: str
    what: str

    def __str__(self) -> str:
        return shown(f"{self.where}: {self.what}" if self.where else self.what)


class Library(Model):
    """One `.so` of a wheel. `size` in bytes; `targets` counts its machine code, like `sm_120a`.

    `relocatable` is code for a device link, which no driver loads; `other` is neither machine code
    nor PTX. `unresolved` are the first of `unresolved_count` symbols that nothing defines.
    """

    path: str
    size: int
    machine: str
    cuda: bool
    targets: Mapping[str, int]
    ptx: tuple[str, ...]
    other: Mapping[str, int]
    relocatable: Mapping[str, int]
    compression: Mapping[str, int]
    needed: tuple[str, ...]
    glibc: str
    glibcxx: str
    rpath: tuple[str, ...]
    unresolved: tuple[str, ...]
    unresolved_count: int
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


class Verdict(Model):
    """All that was found of one wheel; `error` and `fix` where it cannot be read.

    `faults` are all of them, those of its libraries too. `symbols` and `environment` say whether
    and where those were checked.
    """

    schema_: Literal[1] = Field(alias="schema")
    file: str
    error: str = ""
    fix: str = ""
    name: str = ""
    version: str = ""
    tag: str = ""
    size: int = 0
    sha256: str = ""
    libraries: tuple[Library, ...] = ()
    symbols: str = ""
    environment: str = ""
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True for a wheel that could be read and is as it should be."""
        return not self.error and not self.faults


class BadArch(FirstlightError):
    """No spelling of a GPU architecture."""

    exit_code = 2


def read(output: bytes, error_text: str, host: str) -> Verdict:
    """What the program printed; raises HostError when that is no verdict."""
    try:
        return Verdict.model_validate_json(output)
    except ValidationError as error:
        last = error_text.strip().splitlines()[-1:]
        first = error.errors(include_url=False)[0]
        raise HostError(
            f"the wheel verifier gave no verdict: {''.join(last) or first['msg']}",
            where=host,
            remedy="it needs Python 3.11 or newer; `--debug` shows more",
        ) from None


def expectation(arch: str) -> str:
    """What --expect asks for: code for that architecture in every CUDA library, and no PTX."""
    return json.dumps({"targets": targets(arch)} if arch else {})


def targets(arch: str) -> list[str]:
    """The targets that are good for an architecture as people write it; raises BadArch.

    `12.0a` and `12.0f` mean just that target. `12.1` means whatever runs on such a card: its own
    three, and of its family's elder ones those that are not bound to their own card (no `a`).
    """
    found = _ARCH.fullmatch(arch)
    if not found:
        raise BadArch(
            f"--arch {arch!r} is no architecture", remedy="write it like 12.0, 12.0a, 12.0f"
        )
    major, minor, suffix = found[1], int(found[2]), found[3]
    own = f"sm_{major}{minor}"
    if suffix:
        return [own + suffix]
    elder = [f"sm_{major}{n}{kind}" for n in range(minor - 1, -1, -1) for kind in ("f", "")]
    return [f"{own}a", f"{own}f", own, *elder]


def text(verdict: Verdict, arch: str) -> str:
    """A verdict as a person reads it: what the wheel holds, and then what is wrong with it."""
    if verdict.error:
        return f"error: {verdict.file}: cannot be verified: {verdict.error}\n  -> {verdict.fix}"
    lines = [f"{verdict.name} {verdict.version}  {verdict.tag}  {size(verdict.size)}"]
    lines += [f"sha256 {verdict.sha256}", ""]
    if verdict.libraries:
        lines += [columns(_rows(verdict)), ""]
    lines += [*_needs(verdict), f"symbols      {verdict.symbols}"]
    lines += [f"environment  {verdict.environment}", *_notes(verdict)]
    lines += [f"fault: {fault}" for fault in verdict.faults]
    return "\n".join([*lines, _conclusion(verdict, arch)])


def shown(name: str) -> str:
    """A name of a file in one line: a wheel may have any, and a terminal obeys some."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    yield ("library", "size", "glibc", "GPU code, by target", "PTX")
    for library in verdict.libraries:
        held = " ".join(f"{name}:{count}" for name, count in library.targets.items())
        ptx = " ".join(library.ptx)
        none = "none" if library.cuda else "-"
        yield (
            shown(library.path),
            size(library.size),
            library.glibc or "-",
            held or none,
            ptx or none,
        )


def _needs(verdict: Verdict) -> Iterator[str]:
    needed = {name for lib in verdict.libraries for name in lib.needed if _OF_CUDA.match(name)}
    if needed:
        yield f"needs        {' '.join(sorted(needed))}"


def _notes(verdict: Verdict) -> Iterator[str]:
    """Each note once, with how many libraries it is said of where it is said of several."""
    said: dict[str, list[str]] = {}
    for library in verdict.libraries:
        for note in library.notes:
            said.setdefault(note, []).append(library.path)
    yield from (f"note: {note}" for note in verdict.notes)
    for note, paths in said.items():
        yield f"note: {paths[0] if len(paths) == 1 else f'{len(paths)} libraries'}: {note}"


def _conclusion(verdict: Verdict, arch: str) -> str:
    asked = f" for {arch} ({', '.join(targets(arch))})" if arch else ""
    count = len(verdict.faults)
    if count:
        return f"{count} fault{'s' if count > 1 else ''}{asked}"
    return f"no fault{asked}"


def to_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data, as the program printed it."""
    return verdict.model_dump(mode="json", by_alias=True, exclude_unset=True)
