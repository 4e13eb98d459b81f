"""The program that asks an engine: classes are read from their text, answers are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstlight.flows.probe import read_probe

PROGRAM = Path(__file__).parents[2] / "firstlight/remote/probe_engine.py"
BASE = """\
from sglang.srt.layers.radix_attention import RadixAttention
class Attention:
    def __init__(self, quant_config=None):
        self.attn = RadixAttention(1, 2, quant_config={given})
class {name}:
    def __init__(self, config, quant_config=None):
        {line}
        self.layers = [Attention(quant_config)]
    {loads}
EntryClass = {name}
"""
ANNOTATED = """\
class Plain:
    def __init__(self): self.quant_config: object = 1
EntryClass = [Plain]
"""
CIRCLE = """\
class A(B): pass
class B(A): pass
class Plain(A): pass
EntryClass = Plain
"""
REMAPS = "def load_weights(self, w): return maybe_remap_kv_scale_name('x', {})"


def model(name: str, given: str = "quant_config", shown: bool = True, loads: str = REMAPS) -> str:
    line = "self.quant_config = quant_config" if shown else "self.config = config"
    return BASE.format(name=name, given=given, line=line, loads=loads)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def ask(models: Path, name: str, *more: str, cache: str = "") -> dict[str, Any]:
    words = [sys.executable, "-I", "-B", str(PROGRAM), str(models), cache, "1", name, *more]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("text", "shows", "loads"),
    [
        (model("Plain"), True, True),
        (model("Plain", shown=False), False, True),
        (model("Plain", given="None"), True, False),
        (model("Plain", loads="pass"), True, None),
        (model("Plain").replace("quant_config=quant_config)", "prefix='x')"), True, False),
        (model("Plain").replace("quant_config=quant_config)", "**common)"), True, None),
        (ANNOTATED, True, None),
        (ANNOTATED.replace(": object = 1", ", self.a = 1, 2"), True, None),
    ],
)  # fmt: skip
def test_a_class_is_read_from_its_text(
    models: Path, text: str, shows: bool, loads: bool | None
) -> None:
    (models / "plain.py").write_text(text)
    found = ask(models, "Plain")
    assert (found["shows"], found["loads"], found["why"]) == (shows, loads, [])
    assert found["source"].startswith("models/plain.py:")
    assert found["algo"] is None


def test_what_a_class_gets_from_another_file_counts(models: Path) -> None:
    (models / "plain.py").write_text(model("Plain"))
    (models / "derived.py").write_text(
        "from sglang.srt.models.plain import Plain as Base\n"
        "class Derived(Base):\n    pass\n"
        "class Other(Base, Missing):\n    pass\n"
        "EntryClass = [Derived, Other]\n"
    )
    (models / "near").mkdir()
    (models / "near" / "deeper.py").write_text(
        "from ..derived import Derived\nclass Deeper(Derived): pass\nEntryClass = Deeper\n"
    )
    for name in ("Derived", "Other", "Deeper"):
        found = ask(models, name)
        assert (found["shows"], found["loads"]) == (True, True), name


def test_a_table_that_renames_scales_counts_as_one_that_maps_them(models: Path) -> None:
    table = '{".self_attn.k_proj.k_scale": ".attn.k_scale"}'
    text = model("Plain", loads="mapper = NAMES").replace(
        "class Plain", f"NAMES = {table}\nclass Plain"
    )
    (models / "plain.py").write_text(text)
    assert ask(models, "Plain")["loads"] is True


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        # It puts the base's own aside, and maps nothing.
        ("for name, weight in w: self.take(name, weight)", None),
        ("return super().load_weights(w)", True),
        ("return self.language_model.load_weights(w)", True),
        ("return maybe_remap_kv_scale_name('x', {})", True),
    ],
)
def test_the_way_of_loading_that_counts_is_the_nearest(
    models: Path, loads: str, expected: bool | None
) -> None:
    (models / "plain.py").write_text(model("Plain"))
    (models / "derived.py").write_text(
        "from sglang.srt.models.plain import Plain\nclass Derived(Plain):\n"
        f"    def load_weights(self, w):\n        {loads}\nEntryClass = Derived\n"
    )
    assert ask(models, "Derived")["loads"] is expected


def test_lists_of_what_to_ignore_are_told(models: Path) -> None:
    loads = "def load_weights(self, w):\n        ignore_suffixes = ('.bias', '.k_scale')\n"
    loads += "        load(w, ignore_unexpected=['.kv_scale', *MORE_IGNORED], other=['_v_scale'])"
    text = model("Plain", loads=loads)
    (models / "plain.py").write_text(f"MORE_IGNORED = ['.v_scale']\n{text}")
    found = ask(models, "Plain")
    assert found["ignores"] == [".k_scale", ".kv_scale", ".v_scale"]


def test_layers_of_its_own_count_before_those_it_only_names(models: Path) -> None:
    (models / "plain.py").write_text(model("Plain", given="None"))
    own = model("Own").replace("class Own:", "class Own(Plain):")
    (models / "own.py").write_text(f"from sglang.srt.models.plain import Plain\n{own}")
    assert ask(models, "Own")["loads"] is True


@pytest.mark.parametrize("text", ["class Plain(:", "\0", CIRCLE])
def test_odd_files_are_no_trouble(models: Path, text: str) -> None:
    (models / "plain.py").write_text(text)
    found = ask(models, "Plain")
    assert found["loads"] is None and found["shows"] in (False, None)


def test_a_class_that_is_not_registered_is_none(models: Path) -> None:
    (models / "plain.py").write_text(model("Plain").replace("EntryClass = Plain", ""))
    found = ask(models, "Plain")
    assert (found["shows"], found["why"]) == (None, [f"no class Plain in {models}"])


def test_an_engine_that_cannot_be_imported_is_told(models: Path, tmp_path: Path) -> None:
    (models / "plain.py").write_text(model("Plain"))
    found = ask(models, "Plain", str(tmp_path))
    (why,) = found["why"]
    assert why.startswith("the engine does not read it: ModuleNotFoundError: No module named 'sgl")
    assert (found["algo"], found["shows"]) == (None, True)


def test_an_answer_is_kept_by_what_it_is_of(models: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (models / "plain.py").write_text(model("Plain"))
    first = ask(models, "Plain", cache=str(cache))
    (kept,) = cache.iterdir()
    # A release does not change: what was kept is not asked again.
    (models / "plain.py").unlink()
    assert ask(models, "Plain", cache=str(cache)) == first
    for text in ("null", "[" * 10000, "{"):
        kept.write_text(text)
        assert ask(models, "Plain", cache=str(cache))["shows"] is None
    # An answer with something missing is no answer to keep.
    assert kept.read_text() == "{" and len(list(cache.iterdir())) == 1


def test_answers_that_are_none_are_told() -> None:
    assert read_probe("Traceback")[0] is None
    assert read_probe("[]") == (None, "the engine could not be asked: its answer is no JSON object")
    odd, _ = read_probe('{"why": 5, "ignores": true}')
    assert odd is not None and odd.ignores == ()
    probe, why = read_probe('{"algo": "FP8", "shows": 1, "loads": false, "why": ["a", "b"]}')
    assert probe is not None
    assert (probe.algo, probe.shows, probe.loads, why) == ("FP8", None, False, "a; b")
