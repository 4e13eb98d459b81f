"""Every recorded answer is read by some test; what the script asks for is what drivers know."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = HERE.parents[1] / "firstlight/remote/facts.sh"
# A package's installation says it, not a host that is asked what it is.
NO_FACT = {"dkms_build_failed.txt"}


def test_recorded_answers_are_all_read(shared: Path) -> None:
    names = {path.name for path in (shared / "data/host-facts").iterdir()}
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    wanted = {name for name in names if not name.endswith(".source")} - NO_FACT
    unread = {name for name in wanted if name.removesuffix("_query-gpu_all.csv") not in tests}
    assert unread == set()


def test_recorded_field_names_hold_all_that_the_script_asks_for(shared: Path) -> None:
    listed = (shared / "data/host-facts/help-query-gpu_595.80_names.txt").read_text()
    known = set(re.split(r'\n|" or "', listed))
    lines = re.findall(r"fields=(?:\$fields,)?([a-z_.,]+)", PROGRAM.read_text())
    asked = {name for line in lines for name in line.split(",") if name}
    assert {"memory.total", "compute_cap", "persistence_mode"} <= asked <= known
