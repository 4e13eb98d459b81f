"""The rules of the house that a machine can hold."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "firstlight").rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function with its lines, docstring and blank lines left out."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            skip = range(first.lineno, (first.end_lineno or 0) + 1) if doc else range(0)
            span = range(node.lineno, (node.end_lineno or 0) + 1)
            yield node.name, sum(1 for n in span if n not in skip and lines[n - 1].strip())


def test_functions_are_short() -> None:
    long = [f"{p.name}: {name} {n}" for p in SOURCES for name, n in functions(p) if n > 40]
    assert long == []
    sizes = sorted(n for path in SOURCES for _, n in functions(path))
    assert sizes[int(0.95 * len(sizes))] <= 25


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_one_idea_and_says_which(path: Path) -> None:
    assert sum(1 for line in path.read_text().splitlines() if line.strip()) <= 300
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_test_folder_is_a_package() -> None:
    """Else two test files of one name in two folders end a whole run before it begins."""
    folders = {path.parent for path in Path("tests").rglob("test_*.py")}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    """A run that names no folder passes by those that pytest takes for no place of tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    names = {name for path in files for name in path.relative_to(ROOT).parent.parts}
    left_out = pytestconfig.getini("norecursedirs")
    assert [name for name in names if any(fnmatch(name, each) for each in left_out)] == []


def test_a_task_names_a_flow_and_nothing_more() -> None:
    tree = ast.parse((ROOT / "tasks.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name != "verb":
            assert (node.end_lineno or 0) - node.lineno < 12, node.name
            assert len(node.args.defaults) == len(node.args.args) - 1, f"{node.name}: no default"
            assert not any(isinstance(n, ast.If) for n in ast.walk(node)), node.name


def test_rooms_import_one_way() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_programs_for_a_host_are_never_imported() -> None:
    importers = [path.name for path in SOURCES if "firstlight.remote" in path.read_text()]
    assert importers == []


def test_quoting_has_one_home() -> None:
    homes = [path.name for path in SOURCES if "shlex" in path.read_text()]
    assert homes == ["command.py"]


@pytest.mark.parametrize("tool", ["mypy", "ruff check .", "ruff format --check ."])
def test_types_and_style_hold(tool: str) -> None:
    words = [sys.executable, "-m", *tool.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
