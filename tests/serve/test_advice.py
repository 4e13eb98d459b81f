"""Advice to run a verb names the host that it is about: as it stands it would mean another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The verbs that are about one host and what is served there.
_VERBS = "up|deploy|stop|status|logs|smoke|ask|facts|render|kv|audit"
_LINE = re.compile(rf"\binvoke (?:{_VERBS})\b[^`\n;]*")
SOURCES = [*sorted((ROOT / "firstlight").rglob("*.py")), ROOT / "recipes" / "failures.yaml"]


def said(path: Path) -> Iterator[str]:
    """Every text of a file that a person may be shown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        yield from (line for line in text.splitlines() if not line.startswith("#"))
        return
    tree = ast.parse(text)
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_advice_says_on_which_host(path: Path) -> None:
    lines = [found[0] for text in said(path) for found in _LINE.finditer(text)]
    # `typed` and Command write the flags themselves; what is left stands as it is.
    assert [line for line in lines if "--host" not in line] == []


def test_advice_is_found_in_texts_and_not_in_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text('"""Of `invoke status`."""\nREMEDY = f"see `invoke logs` of {1}"\n')
    assert [found[0] for text in said(file) for found in _LINE.finditer(text)] == ["invoke logs"]
