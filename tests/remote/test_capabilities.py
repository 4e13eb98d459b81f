"""capabilities.py: any parser as JSON, and the real engine's own, compared with its source."""

from __future__ import annotations

import argparse
import enum
import json
from pathlib import Path
from typing import Any

import capabilities
import pytest

from tests.remote.programs import run


class DeprecatedStoreTrueAction(argparse.Action):
    """As engines write one: a bare flag that says what to use instead."""

    def __init__(self, option_strings: list[str], dest: str, new_flag: str = "", **kw: Any) -> None:
        self.new_flag = new_flag
        super().__init__(option_strings, dest, nargs=0, **kw)


class PathAction(argparse.Action):
    """An action of an engine's own that takes values."""


class Colour(enum.Enum):
    """A default that JSON has no word for."""

    RED = "red"


def human_int(text: str) -> int:
    return int(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("model", nargs="?")
    made.add_argument("--tp-size", "--tensor-parallel-size", "-t", type=int, default=1)
    made.add_argument("--tokens", type=human_int, help="How\n   many.")
    made.add_argument("--dtype", choices=["auto", "bf16"], default="auto", required=True)
    made.add_argument("--backend", choices={"b", "a", "c"})
    made.add_argument("--level", choices=range(3), type=int)
    made.add_argument("--bare", action="store_true")
    made.add_argument("--graph", action=argparse.BooleanOptionalAction, default=None)
    made.add_argument("--many", action="append", nargs="*")
    made.add_argument("--old", action=DeprecatedStoreTrueAction, new_flag="--new")
    made.add_argument("--older", help="(Deprecated, use --new) Something.")
    made.add_argument("--paths", action=PathAction, nargs="*")
    made.add_argument("--colour", default=Colour.RED)
    made.add_argument("--quiet", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return made


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """What comes back from JSON, so that nothing in it can be of another kind."""
    told: dict[str, Any] = json.loads(json.dumps(capabilities.describe("e", "1", parser())))
    return told


def test_what_is_told_of_a_flag(described: dict[str, Any]) -> None:
    assert described["flags"]["--tp-size"] == {
        "dest": "tp_size",
        "kind": "store",
        "type": "int",
        "choices": None,
        "default": 1,
        "const": None,
        "nargs": None,
        "required": False,
        "aliases": ["--tensor-parallel-size", "-t"],
        "deprecated": False,
        "new_flag": None,
        "help": "",
    }
    assert (described["engine"], described["abbreviations"]) == ("e", False)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--tokens", {"type": "human_int", "help": "How many."}),
        ("--dtype", {"choices": ["auto", "bf16"], "required": True}),
        ("--backend", {"choices": ["a", "b", "c"]}),
        ("--level", {"choices": [0, 1, 2]}),
        ("--bare", {"kind": "store_true", "type": "bool", "nargs": None, "default": False}),
        ("--graph", {"kind": "optional-bool", "aliases": ["--no-graph"]}),
        ("--many", {"kind": "append", "nargs": "*"}),
        ("--old", {"kind": "store_true", "deprecated": True, "new_flag": "--new"}),
        ("--older", {"kind": "store", "deprecated": True, "new_flag": None}),
        ("--paths", {"kind": "store", "nargs": "*"}),
        ("--colour", {"default": "red"}),
        ("--quiet", {"default": None, "help": ""}),
    ],
)
def test_each_kind_of_flag(
    described: dict[str, Any], flag: str, expected: dict[str, object]
) -> None:
    assert {key: described["flags"][flag][key] for key in expected} == expected


def test_help_and_positional_arguments_are_no_settings(described: dict[str, Any]) -> None:
    assert {"--help", "-h", "model"}.isdisjoint(described["flags"])
    assert len(described["flags"]) == 13


def test_a_python_without_the_engine_says_so() -> None:
    ended = run("capabilities.py", "sglang")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: sglang is not installed for ")
    assert "\nfix: " in ended.err


@pytest.mark.slow
def test_the_real_engine_says_what_its_source_says(release_python: str, shared: Path) -> None:
    ended = run("capabilities.py", "sglang", python=release_python)
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    source = json.loads((shared / "data" / "server-args-0.5.23.json").read_text())
    assert told["version"] == source["version"]
    assert len(told["flags"]) == 531
    assert set(told["flags"]) == set(source["flags"])
    for name, flag in told["flags"].items():
        read = source["flags"][name]
        for key in ("dest", "deprecated", "nargs", "new_flag", "required", "aliases"):
            assert flag[key] == read[key], f"{name}: {key}"
        assert sorted(flag["choices"] or []) == sorted(read["choices"] or []), name
