"""Remote program: ask the engine of a release which flags it takes, and print them as JSON.

    capabilities.py sglang >capabilities.json

Run by the release's own python. What it prints is the engine's argparse, not a list that anyone
typed: a profile is checked against it. Standard output carries JSON alone; whatever the engine
says while it is imported goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

KINDS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_StoreFalseAction": "store_false",
    "_StoreConstAction": "store_const",
    "_AppendAction": "append",
    "_ExtendAction": "append",
    "_CountAction": "count",
    "BooleanOptionalAction": "optional-bool",
}
ENGINES = ("sglang",)


def kind(action: argparse.Action) -> str:
    """How a value is given; an engine's own action class counts as what it behaves like."""
    known = KINDS.get(type(action).__name__)
    return known or ("store_true" if action.nargs == 0 else "store")


def plain(value: Any) -> Any:
    """A default or a choice as JSON: an enum by its value, anything odd by its text."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=str)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value)


def type_name(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "bool"
    return getattr(action.type, "__name__", "str") if action.type else "str"


def choices(action: argparse.Action) -> list[Any] | None:
    """In the engine's order; `plain` sorts a set, which has none."""
    allowed: Any = action.choices
    if allowed is None:
        return None
    listed = allowed if isinstance(allowed, set | frozenset) else list(allowed)
    return list(plain(listed))


def primary(action: argparse.Action) -> str:
    """The name that people write: the first long one, or else the first."""
    return next((o for o in action.option_strings if o.startswith("--")), action.option_strings[0])


def is_deprecated(action: argparse.Action) -> bool:
    """By the action's class, by argparse's own mark (3.13), or by how its help text begins."""
    return (
        type(action).__name__.startswith("Deprecated")
        or bool(getattr(action, "deprecated", False))
        or bool(re.match(r"\W*deprecated\b", action.help or "", re.IGNORECASE))
    )


def help_text(action: argparse.Action) -> str:
    return "" if action.help in (None, argparse.SUPPRESS) else " ".join(str(action.help).split())


def flag(action: argparse.Action) -> dict[str, Any]:
    name = primary(action)
    default = None if action.default is argparse.SUPPRESS else plain(action.default)
    return {
        "dest": action.dest,
        "kind": kind(action),
        "type": type_name(action),
        "choices": choices(action),
        "default": default,
        "const": plain(action.const),
        # argparse says 0 for a bare flag; `kind` says that already.
        "nargs": action.nargs or None,
        "required": action.required,
        "aliases": [option for option in action.option_strings if option != name],
        "deprecated": is_deprecated(action),
        "new_flag": plain(getattr(action, "new_flag", None)),
        "help": help_text(action),
    }


def is_setting(action: argparse.Action) -> bool:
    """Positional arguments and `--help` are no settings."""
    return bool(action.option_strings) and "--help" not in action.option_strings


def flags(actions: Iterable[argparse.Action]) -> dict[str, dict[str, Any]]:
    return {primary(a): flag(a) for a in sorted(filter(is_setting, actions), key=primary)}


def describe(engine: str, version: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    return {
        "engine": engine,
        "version": version,
        # argparse takes any unambiguous beginning of a flag unless it was told not to.
        "abbreviations": parser.allow_abbrev,
        "flags": flags(parser._actions),
    }


def sglang_parser() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def ask(engine: str) -> dict[str, Any]:
    """Import the engine, with its chatter on standard error, and read its parser."""
    version = importlib.metadata.version(engine)
    with contextlib.redirect_stdout(sys.stderr):
        parser = sglang_parser()
    return describe(engine, version.partition("+")[0], parser)


def complain(error: str, fix: str) -> int:
    print(f"error: {error}\nfix: {fix}", file=sys.stderr)
    return 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engine", choices=ENGINES)
    engine = parser.parse_args(argv).engine
    try:
        answer = ask(engine)
    except importlib.metadata.PackageNotFoundError:
        return complain(
            f"{engine} is not installed for {sys.executable}", "run the python of a release"
        )
    except ImportError as fault:
        return complain(
            f"{engine} cannot be imported: {fault}",
            "the release is incomplete or a patch is missing; build it again",
        )
    json.dump(answer, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
