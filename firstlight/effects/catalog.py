"""The data folders: YAML files, templates, patches and programs, read from disk as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from firstlight.core.errors import ConfigError, Fault
from firstlight.core.schema import Document, Model, load, nearest
from firstlight.hosts.inventory import Inventory, InventoryFile, UnknownName, merge

M = TypeVar("M", bound=Model)


def read_text(path: Path, root: Path) -> str:
    """A file of the project as text; raises ConfigError with its place when it cannot be."""
    try:
        # Of a pipe or a device there is no end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError([Fault(shown(path, root), 0, 0, "cannot be read: it is no file")])
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ConfigError([Fault(shown(path, root), 0, 0, f"cannot be read: {reason}")]) from None


def read(path: Path, root: Path, model: type[M]) -> Document[M]:
    """One YAML file of the project as a model."""
    return load(read_text(path, root), shown(path, root), model)


def find(root: Path, folder: str, name: str, model: type[M], suffix: str = ".yaml") -> Document[M]:
    """The file of that name in a folder; raises UnknownName with the nearest names."""
    known = names(root, folder, suffix)
    if name not in known:
        raise UnknownName(f"no {folder}/{name}{suffix}{nearest(name, known)}")
    return read(root / folder / f"{name}{suffix}", root, model)


def names(root: Path, folder: str, suffix: str = ".yaml") -> tuple[str, ...]:
    """The names of a folder's files."""
    return tuple(sorted(path.name.removesuffix(suffix) for path in _files(root, folder, suffix)))


def inventory(root: Path) -> Inventory:
    """All hosts of inventory/*.yaml; raises ConfigError with every fault of every file."""
    documents: list[Document[InventoryFile]] = []
    faults: list[Fault] = []
    for path in _files(root, "inventory", ".yaml"):
        try:
            documents.append(read(path, root, InventoryFile))
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(faults)
    return merge(documents)


def shown(path: Path, root: Path) -> str:
    """A path as messages show it: relative to the project where it lies inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _files(root: Path, folder: str, suffix: str) -> Iterator[Path]:
    # What an editor or another system keeps beside a file begins with a dot: `.#gpu01.yaml`.
    found = (root / folder).glob(f"*{suffix}")
    yield from sorted(path for path in found if not path.name.startswith("."))
