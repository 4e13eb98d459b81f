"""Remote program: ask a release's own engine what it would make of a checkpoint's KV cache.

    probe_engine.py MODELS CACHE PROGRAM ARCHITECTURE [FOLDER [QUANTIZATION [OVERRIDE]]]

Run by the release's python. MODELS is the folder `models` of the installed engine, which is read
and not imported: the class of ARCHITECTURE (`shows`: its object has `quant_config`; `loads`: its
attention is built with it, and names of scales are mapped; `ignores`: such names on lists of what
to ignore). With FOLDER the engine's own reader of quantisation is called (`algo`). One JSON object
is printed; what could not be told is null, and `why` says so. CACHE keeps it by what it depends on,
"" keeps nothing; PROGRAM is a digest of this program.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "sglang.srt.models"
ATTENTION = "RadixAttention"
LOADER = "load_weights"
MAPPERS = ("maybe_remap_kv_scale_name",)
SCALES = ("k_scale", "v_scale", "kv_scale")
MAPPED = (".attn.k_scale", ".attn.v_scale")
DOCUMENTS = ("config.json", "hf_quant_config.json")
# Classes of the engine's own that many models share; they hold no attention.
DEEPEST = 12


class Module:
    """One file of the models: its classes, its imports, its tables, and what it registers."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.imports: dict[str, tuple[str, str]] = {}
        for node in ast.walk(tree):
            target = place(name, node) if isinstance(node, ast.ImportFrom) else None
            for alias in node.names if target and isinstance(node, ast.ImportFrom) else ():
                self.imports[alias.asname or alias.name] = (str(target), alias.name)
        self.tables: dict[str, ast.Assign] = {}
        for node in tree.body:
            for goal in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(goal, ast.Name) and isinstance(node, ast.Assign):
                    self.tables[goal.id] = node
        entry = self.tables.get("EntryClass")
        self.entries = names_of(entry) if entry else set()


class Sources:
    """The classes of the models' folder, each found by the module and the name used there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module by its dotted name; None where it is not there or not Python."""
        if name not in self.modules:
            made = None
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                file = self.folder / (name.replace(".", "/") + ".py")
                made = Module(name, ast.parse(file.read_bytes()))
            self.modules[name] = made
        return self.modules[name]

    def entry(self, architecture: str) -> tuple[str, ast.ClassDef] | None:
        """The class that is registered under that name."""
        for path in sorted(self.folder.rglob("*.py")):
            if architecture.encode() not in path.read_bytes():
                continue
            name = ".".join(path.relative_to(self.folder).with_suffix("").parts)
            module = self.module(name)
            if module is not None and architecture in module.entries & module.classes.keys():
                return name, module.classes[architecture]
        return None

    def find(self, where: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """A class that the module defines or takes from another one of the folder."""
        for _ in range(DEEPEST):
            module = self.module(where)
            if module is None:
                return None
            if name in module.classes:
                return where, module.classes[name]
            if name not in module.imports:
                return None
            where, name = module.imports[name]
        return None

    def bases(self, module: str, made: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """The class, and those of the folder that it derives from, nearest first."""
        open_ones, seen = [(module, made)], set()
        while open_ones:
            where, one = open_ones.pop(0)
            if (where, one.name) in seen:
                continue
            seen.add((where, one.name))
            yield where, one
            for base in one.bases:
                found = self.find(where, base.id) if isinstance(base, ast.Name) else None
                if found is not None:
                    open_ones.append(found)

    def parts(self, module: str, made: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """The class, its bases, and every class of the folder that they name, and so on."""
        open_ones, seen = list(self.bases(module, made)), set()
        while open_ones:
            where, one = open_ones.pop()
            if (where, one.name) in seen:
                continue
            seen.add((where, one.name))
            yield where, one
            for name in self.names_in(where, one):
                found = self.find(where, name)
                if found is not None:
                    open_ones.append(found)

    def names_in(self, where: str, made: ast.ClassDef) -> set[str]:
        """Names that a class uses, with those in the module's tables that it uses."""
        used = names_of(made)
        return used.union(*(names_of(table) for table in self.tables(where, used)))

    def tables(self, where: str, used: set[str]) -> list[ast.Assign]:
        """The module's own assignments to these names."""
        module = self.module(where)
        return [node for name, node in module.tables.items() if name in used] if module else []


def place(module: str, node: ast.ImportFrom) -> str | None:
    """The module of the folder that an import names, None for all others."""
    if node.level:
        parents = module.split(".")[: -node.level]
        return ".".join([*parents, *(node.module or "").split(".")]).strip(".") or None
    head, dot, rest = (node.module or "").partition(PACKAGE)
    return rest.lstrip(".") or None if dot and not head else None


def names_of(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def shows(sources: Sources, module: str, made: ast.ClassDef) -> bool:
    """Whether a method of the class or of a base assigns `self.quant_config`."""
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == "quant_config"
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
        for _, one in sources.bases(module, made)
        for target in assigned(one)
    )


def assigned(made: ast.ClassDef) -> Iterator[ast.expr]:
    """Everything that is assigned to in a class; `a, b = ...` are two."""
    for node in ast.walk(made):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            goals = node.targets if isinstance(node, ast.Assign) else [node.target]
            for goal in goals:
                yield from goal.elts if isinstance(goal, ast.Tuple) else (goal,)


def loads(sources: Sources, module: str, made: ast.ClassDef) -> bool | None:
    """Whether scales of the checkpoint reach the attention; None where no attention is seen."""
    parts = list(sources.parts(module, made))
    # A class may name the layers of the model it was made from, and build its own.
    nearest = [one for where, one in parts if where == module and attentions(one)]
    layers = nearest or [one for _, one in parts]
    built = [with_quantisation(call) for one in layers for call in attentions(one)]
    if not built or None in built or len(set(built)) > 1:
        return None
    if not built[0]:
        return False
    mapped = any(maps(sources, where, one) for where, one in parts)
    return True if mapped and reaches(sources, module, made) else None


def reaches(sources: Sources, module: str, made: ast.ClassDef) -> bool:
    """Whether the way of loading that counts maps names itself, or hands weights on to another."""
    for where, one in sources.bases(module, made):
        methods = [n for n in one.body if isinstance(n, ast.FunctionDef) and n.name == LOADER]
        if methods:
            inner = [node for method in methods for node in ast.walk(method)]
            return maps(sources, where, one) or any(
                isinstance(node, ast.Attribute) and node.attr.endswith(LOADER) for node in inner
            )
    return True


def attentions(made: ast.ClassDef) -> list[ast.Call]:
    """Where a class builds attention."""
    calls = (node for node in ast.walk(made) if isinstance(node, ast.Call))
    return [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == ATTENTION]


def with_quantisation(call: ast.Call) -> bool | None:
    """Whether an attention gets a `quant_config` that is not None by its very text; None where
    it gets words that are written elsewhere."""
    for keyword in call.keywords:
        if keyword.arg == "quant_config":
            return not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
    return None if any(keyword.arg is None for keyword in call.keywords) else False


def maps(sources: Sources, where: str, made: ast.ClassDef) -> bool:
    """Whether a class, or a table that it uses, maps names of scales."""
    if sources.names_in(where, made).intersection(MAPPERS):
        return True
    roots = [made, *sources.tables(where, names_of(made))]
    return any(
        isinstance(node, ast.Constant) and node.value in MAPPED
        for root in roots
        for node in ast.walk(root)
    )


def ignores(sources: Sources, module: str, made: ast.ClassDef) -> list[str]:
    """Names of scales on lists that are called something with `ignore`, or are passed as such."""
    found: set[str] = set()
    for where, one in sources.parts(module, made):
        used = sources.tables(where, names_of(one))
        for node in (inner for root in (one, *used) for inner in ast.walk(root)):
            if "ignore" in named(node) and isinstance(
                node, ast.Assign | ast.AnnAssign | ast.keyword
            ):
                found |= {text for text in texts(node.value) if text.endswith(SCALES)}
    return sorted(found)


def named(node: ast.AST) -> str:
    """What a value is given to: the names of an assignment, or of a keyword."""
    if isinstance(node, ast.keyword):
        return (node.arg or "").lower()
    if isinstance(node, ast.Assign | ast.AnnAssign):
        goals = node.targets if isinstance(node, ast.Assign) else [node.target]
        words = [one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in goals]
        return " ".join(words).lower()
    return ""


def texts(node: ast.AST | None) -> set[str]:
    inner = ast.walk(node) if node is not None else ()
    return {n.value for n in inner if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def algo(folder: str, quantization: str, override: str) -> str:
    """`kv_cache_quant_algo` as the engine reads it, "" for none; raises what the engine raises."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader.weight_utils import get_quant_config

    more = {"model_override_args": override} if override else {}
    config = ModelConfig(model_path=folder, quantization=quantization or None, **more)
    if config.quantization is None:
        return ""
    found = get_quant_config(config, LoadConfig(), {})
    said = getattr(found, "kv_cache_quant_algo", None)
    # The engine compares with "FP8" in whatever case; all else is no quantised cache to it.
    return said if isinstance(said, str) and said.lower() != "auto" else ""


def ask(
    models: Path, architecture: str, folder: str, quantization: str = "", override: str = ""
) -> dict[str, Any]:
    """What the engine says: `algo`, `shows`, `loads`, where, and why something is missing."""
    sources = Sources(models)
    found = sources.entry(architecture)
    answer: dict[str, Any] = {"algo": None, "shows": None, "loads": None, "ignores": []}
    answer |= {"source": "", "why": []}
    if found is None:
        answer["why"].append(f"no class {architecture} in {models}")
    else:
        module, made = found
        answer["source"] = f"models/{module.replace('.', '/')}.py:{made.lineno}"
        answer["shows"] = shows(sources, module, made)
        answer["loads"] = loads(sources, module, made)
        answer["ignores"] = ignores(sources, module, made)
    if folder:
        try:
            # It is asked what it reads, not for its chatter.
            with contextlib.redirect_stdout(sys.stderr):
                answer["algo"] = algo(folder, quantization, override)
        except (Exception, SystemExit) as error:
            said = (str(error).strip().splitlines() or [""])[0]
            answer["why"].append(f"the engine does not read it: {type(error).__name__}: {said}")
    return answer


def key_of(words: list[str], folder: str) -> str:
    """What the answer depends on: this program, the question, the checkpoint's documents."""
    whole = hashlib.sha256(json.dumps(words).encode())
    for name in DOCUMENTS if folder else ():
        data = b""
        with contextlib.suppress(OSError):
            data = (Path(folder) / name).read_bytes()
        whole.update(name.encode() + hashlib.sha256(data).digest())
    return whole.hexdigest()[:32]


def kept(file: Path) -> str:
    """An answer of before, "" where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        text = file.read_text()
        return text if isinstance(json.loads(text), dict) else ""
    return ""


def keep(file: Path, text: str) -> None:
    """Whole or not at all; a cache that cannot be written is no cache."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
        partial.write_text(text)
        partial.replace(file)


def main(argv: list[str]) -> int:
    models, cache, program, architecture, *more = argv
    folder = more[0] if more else ""
    file = Path(cache) / f"probe-{key_of([program, architecture, *more], folder)}.json"
    text = kept(file) if cache else ""
    if not text:
        text = json.dumps(ask(Path(models), architecture, folder, *more[1:]))
        # What may be otherwise next time, for lack of memory say, is asked again.
        if cache and not json.loads(text)["why"]:
            keep(file, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
