"""The build room: what compare_wheels.py says of two builds of one component, read and told."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from firstlight.core.errors import HostError
from firstlight.core.schema import Model
from firstlight.core.words import size

_MOST_SECTIONS = 8


class SectionDifference(Model):
    """A section of two ELF files that differs; `size` in bytes, `offset` from its begin."""

    name: str
    size: tuple[int, int]
    offset: int
    shown: tuple[str, str]
    cause: str


class MemberDifference(Model):
    """A member of two wheels that differs; `differs` says in what."""

    member: str
    differs: tuple[str, ...]
    cause: str
    size: tuple[int, int] | None
    offset: int | None
    shown: tuple[str, str] | None
    sections: tuple[SectionDifference, ...] | None


class _Equal(Model):
    equal: Literal[True]
    sha256: str


class _Different(Model):
    equal: Literal[False]
    sha256: tuple[str, str]
    differences: tuple[MemberDifference, ...]


class Comparison(Model):
    """Two wheels; equal ones have one sha256 and no differences."""

    sha256: tuple[str, str]
    differences: tuple[MemberDifference, ...] = ()

    @property
    def equal(self) -> bool:
        """True when the wheels are the same bytes."""
        return self.sha256[0] == self.sha256[1]


def read_comparison(text: str, host: str) -> Comparison:
    """What compare_wheels.py printed; raises HostError for anything else."""
    try:
        try:
            equal = _Equal.model_validate_json(text)
            return Comparison(sha256=(equal.sha256, equal.sha256))
        except ValidationError:
            told = _Different.model_validate_json(text)
    except ValidationError:
        raise HostError(
            f"the comparison of two wheels cannot be read: {text[:200]!r}",
            where=host,
            remedy="run compare_wheels.py there by hand",
        ) from None
    return Comparison(sha256=told.sha256, differences=told.differences)


def render_comparison(comparison: Comparison, names: tuple[str, str]) -> str:
    """The comparison for people; `names` tell the two builds apart."""
    if comparison.equal:
        return f"{names[0]} and {names[1]} are the same bytes: sha256 {comparison.sha256[0]}"
    head = [f"{name}: sha256 {d}" for name, d in zip(names, comparison.sha256, strict=True)]
    found = comparison.differences
    if not found:
        return "\n".join([*head, "every member is equal: the zip file itself differs"])
    head.append(f"{len(found)} difference{'s' if len(found) > 1 else ''}:")
    return "\n".join([*head, *(line for one in found for line in _member(one, names))])


def _member(one: MemberDifference, names: tuple[str, str]) -> list[str]:
    """The lines about one member."""
    words = ", ".join(_named(word, names) for word in one.differs)
    lines = [f"  {one.member}: {words}{_place(one.size, one.offset)}"]
    if one.sections:
        for part in one.sections[:_MOST_SECTIONS]:
            lines.append(f"    section {part.name}:{_place(part.size, part.offset)}")
            lines += _shown(part.shown, names)
        rest = len(one.sections) - _MOST_SECTIONS
        lines += [f"    and {rest} more sections"] if rest > 0 else []
    elif one.shown is not None:
        lines += _shown(one.shown, names)
    return [*lines, f"    likely cause: {one.cause}"] if one.cause else lines


def _named(word: str, names: tuple[str, str]) -> str:
    return {"missing in a": f"not in {names[0]}", "missing in b": f"not in {names[1]}"}.get(
        word, word
    )


def _place(sizes: tuple[int, int] | None, offset: int | None) -> str:
    if sizes is None or offset is None:
        return ""
    told = size(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]} bytes"
    return f" {told}, first at byte {offset}"


def _shown(shown: tuple[str, str], names: tuple[str, str]) -> list[str]:
    if not any(shown):
        return []
    return [f"      {name}: {text!r}" for name, text in zip(names, shown, strict=True)]
