"""YAML text to a frozen model, with every fault of a file at its line and column.

The model is the schema: pydantic checks it in strict JSON mode (a string is never read as a
number, a list becomes a tuple), and the YAML nodes give the marks.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from firstlight.core.errors import ConfigError, Fault
from firstlight.core.words import brief

Place = tuple[str | int, ...]
M = TypeVar("M", bound="Model")


class Model(BaseModel):
    """What every noun read from a file is: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True)
class Document(Generic[M]):
    """A model with the place of each of its values in the file it was read from."""

    value: M
    file: str
    marks: Mapping[Place, tuple[int, int]]

    def fault(self, place: Place, message: str) -> Fault:
        """A fault at a place of this file; the nearest enclosing value's mark is used."""
        return _fault(self.file, self.marks, place, message)


# C parser where libyaml is there; it gives the same marks several times faster.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Parser):  # type: ignore[misc]
    """Plain scalars only: dates stay text, and 1.0e3 never surprises."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in rules if tag != "tag:yaml.org,2002:timestamp"]
    for first, rules in _Parser.yaml_implicit_resolvers.items()
}


def load(text: str, file: str, model: type[M]) -> Document[M]:
    """Read one YAML document as `model`; raises ConfigError with every fault of the file."""
    root = _compose(text, file)
    if root is None:
        raise ConfigError([Fault(file, 1, 1, "the file is empty")])
    marks: dict[Place, tuple[int, int]] = {}
    faults = list(_walk(root, (), marks, file))
    if faults:
        raise ConfigError(faults)
    try:
        data = _construct(root)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, file) from None
    try:
        value = model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise ConfigError(_translate(error, model, file, marks)) from None
    return Document(value, file, marks)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest of `known`, or the list of them when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 20 else ""


def _compose(text: str, file: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, file) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise ConfigError([Fault(file, line, column, f"not YAML: {error.reason}")]) from None


def _not_yaml(error: yaml.MarkedYAMLError, file: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return ConfigError([Fault(file, line, column, f"not YAML: {error.problem}")])


def _construct(root: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return _data(root, loader)
    finally:
        loader.dispose()


def _data(node: yaml.Node, loader: yaml.SafeLoader) -> Any:
    """What yaml would make of it, without a generator for each of thousands of nodes."""
    if node.tag == "tag:yaml.org,2002:str":
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_data(child, loader) for child in node.value]
    if isinstance(node, yaml.MappingNode) and not any(_is_merge(key) for key, _ in node.value):
        return {_data(key, loader): _data(child, loader) for key, child in node.value}
    return loader.construct_object(node, deep=True)


def _is_merge(key: yaml.Node) -> bool:
    return str(key.tag) == "tag:yaml.org,2002:merge"


def _walk(
    node: yaml.Node,
    place: Place,
    marks: dict[Place, tuple[int, int]],
    file: str,
    above: tuple[yaml.Node, ...] = (),
) -> Iterator[Fault]:
    marks.setdefault(place, _mark(node))
    if len(marks) > _MOST:
        raise ConfigError([Fault(file, *_mark(node), "aliases (*name) make too much of so little")])
    if any(node is one for one in above):
        yield Fault(file, *_mark(node), "an alias (*name) leads back into what it stands in")
        return
    above = (*above, node)
    if node.tag not in _PLAIN_TAGS:
        yield Fault(file, *_mark(node), f"tag {node.tag!r} is not plain data")
    elif isinstance(node, yaml.ScalarNode):
        yield from _unreadable(node, file)
    elif isinstance(node, yaml.MappingNode):
        yield from _walk_mapping(node, place, marks, file, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk(child, (*place, index), marks, file, above)


def _unreadable(node: yaml.ScalarNode, file: str) -> Iterator[Fault]:
    """A number that is none, as `0x_` and `!!int x`: yaml finds that out only by making it.

    One that is too large for everybody who would have to count with it is none either.
    """
    kind = node.tag.rpartition(":")[2]
    if kind in _NOT:
        try:
            made = _construct(node)
        except (ValueError, KeyError):
            yield Fault(file, *_mark(node), f"{brief(node.value)} is {_NOT[kind]}")
        else:
            if kind == "int" and abs(made) >= _TOO_MANY:
                yield Fault(file, *_mark(node), f"{brief(node.value)} has more than 64 bits")


# A long lock has some 6,000 values; nine lines of aliases can make 10^9 of nine.
_MOST = 200_000
_TOO_MANY = 1 << 64
_NOT = {"int": "no whole number", "float": "no number", "bool": "neither true nor false"}
_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{tag}" for tag in ("map", "seq", "str", "int", "float", "bool", "null")
}


def _walk_mapping(
    node: yaml.MappingNode,
    place: Place,
    marks: dict[Place, tuple[int, int]],
    file: str,
    above: tuple[yaml.Node, ...],
) -> Iterator[Fault]:
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            yield Fault(file, *_mark(key), "a key must be a plain word")
            continue
        yield from _unreadable(key, file)
        here = (*place, key.value)
        if here in marks:
            yield Fault(file, *_mark(key), f"key {key.value!r} is given twice")
            continue
        # An unknown or misspelt key is shown at the key, a bad value at the value.
        marks[(*here, "<key>")] = _mark(key)
        yield from _walk(child, here, marks, file, above)


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _translate(
    error: ValidationError, model: type[Model], file: str, marks: Mapping[Place, tuple[int, int]]
) -> Iterator[Fault]:
    details = error.errors(include_url=False)
    for detail in details:
        if detail["type"] == "too_short" and _has_faults_inside(detail, details):
            continue
        place = tuple(part for part in detail["loc"] if _is_data(part, detail["loc"], marks))
        if detail["type"] == "extra_forbidden":
            message = _unknown_key(model, detail["loc"], place)
            place = (*place, "<key>")
        elif detail["type"] == "missing":
            message, place = f"needs key {detail['loc'][-1]!r}", place[:-1]
        else:
            message = _plain(detail)
        yield _fault(file, marks, place, message)


def _has_faults_inside(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Items that are faulty do not count as items, which is no second fault."""
    loc = detail["loc"]
    return any(len(one["loc"]) > len(loc) and one["loc"][: len(loc)] == loc for one in details)


def _is_data(part: str | int, loc: Place, marks: Mapping[Place, tuple[int, int]]) -> bool:
    """Pydantic puts the tag of a union member into the location; the file does not hold it."""
    return part == loc[-1] or any(part in place for place in marks)


def _unknown_key(model: type[Model], loc: Place, place: Place) -> str:
    name = str(place[-1])
    return f"unknown key {name!r}{nearest(name, _fields_at(model, loc[:-1]))}"


def _fields_at(model: type[Model], loc: Place) -> set[str]:
    """The keys that the model at a location knows."""
    here: list[Any] = [model]
    for part in loc:
        here = [inner for kind in here for inner in _inside(kind, part)]
    return {name for kind in here for name in _keys_of(kind)}


def _keys_of(kind: Any) -> set[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or name for name, field in kind.model_fields.items()}
    return set().union(*(_keys_of(arg) for arg in get_args(kind) if arg is not ...))


def _inside(kind: Any, part: str | int) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if part in kind.model_fields:
            yield kind.model_fields[str(part)].annotation
        elif any(_is_tagged(field.annotation, part) for field in kind.model_fields.values()):
            yield kind
        return
    members = [arg for arg in get_args(kind) if arg is not type(None)]
    tagged = [arg for arg in members if _is_tagged(arg, part)]
    for member in tagged or members:
        is_model = isinstance(member, type) and issubclass(member, BaseModel)
        if member in tagged or (is_model and not isinstance(part, str)):
            yield member
        else:
            yield from _inside(member, part) if is_model or get_args(member) else ()


def _is_tagged(kind: Any, tag: str | int) -> bool:
    field = getattr(kind, "model_fields", {}).get("kind")
    return field is not None and tag in get_args(field.annotation)


def _fault(file: str, marks: Mapping[Place, tuple[int, int]], place: Place, message: str) -> Fault:
    for length in range(len(place), -1, -1):
        if place[:length] in marks:
            return Fault(file, *marks[place[:length]], message)
    return Fault(file, 1, 1, message)


def _plain(detail: ErrorDetails) -> str:
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "string_type" if isinstance(given, int | float | bool):
            return f"expected a string; got {json.dumps(given)}; put it in quotes"
        case "string_type":
            return f"expected a string; got {_noun(given)}"
        case "int_type" | "int_from_float":
            return f"expected a whole number; got {_noun(given)}"
        case "float_type":
            return f"expected a number; got {_noun(given)}"
        case "bool_type":
            return f"expected true or false; got {_noun(given)}"
        case "tuple_type" | "list_type":
            return f"expected a list; got {_noun(given)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"expected keys and values; got {_noun(given)}"
        case "literal_error":
            known = str(context["expected"])
            return f"expected {'one of ' * (' or ' in known)}{known}; got {_noun(given)}"
        case "union_tag_invalid":
            wanted = f"expected one of {context['expected_tags']}"
            return f"{wanted}; got {json.dumps(context['tag'])}"
        case "string_pattern_mismatch":
            return f"{brief(given)} is no name: letters, digits, '.', '_' and '-' only"
        case "value_error":
            return str(context["error"])
        case "too_short":
            return "it is empty, and needs one at least"
    return detail["msg"][0].lower() + detail["msg"][1:]


def _noun(given: object) -> str:
    if given is None:
        return "nothing"
    if isinstance(given, dict):
        return "keys and values"
    if isinstance(given, list):
        return "a list"
    shown = json.dumps(given, ensure_ascii=False)
    return shown if len(shown) <= _LONG else brief(shown)


_LONG = 80
