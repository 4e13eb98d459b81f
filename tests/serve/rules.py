"""The rules that this project has for servers."""

from pathlib import Path

from firstlight.build.failures import FailureTable, rules_of
from firstlight.core.schema import load

FILE = Path(__file__).parents[2] / "recipes" / "failures.yaml"
TABLE = load(FILE.read_text(encoding="utf-8"), str(FILE), FailureTable).value
RULES = rules_of(TABLE, "serve")
