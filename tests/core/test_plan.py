"""The dry run is a script that a person can read, and bash can parse."""

import subprocess
from pathlib import Path, PurePosixPath

from firstlight.core.command import Script
from firstlight.core.plan import Job, Plan, Run, Ship, ShipFile, Step, WriteFile, preview

ROOT = PurePosixPath("/srv/fire light's")
PLAN = Plan(
    "build",
    "gpu01",
    (
        Step("a", "send a wheel", Ship((ShipFile(Path("/c/x.whl"), ROOT / "x.whl", "ab" * 32),))),
        Step("b", "unpack it", Job("b-1", Script('unzip "$1"', (str(ROOT / "x.whl"),)))),
        Step("c", "write a secret", WriteFile(ROOT / "env", "TOKEN=hush\n", 0o600, secret=True)),
        Step("d", "become root", Run(Script("id -u", sudo=True))),
        Step("e", "fetch", Run(Script("true", env={"A": "b c"})), where="controller"),
    ),
    done=("release x",),
)
SHOWN = """\
# firstlight build: plan for host gpu01
# in place: release x

# 1. send a wheel
rsync -W /c/x.whl "$HOST":'/srv/fire light'"'"'s/x.whl'  # sha256 abababababab

# 2. unpack it
# detached job b-1; a lost link does not stop it
bash -s '/srv/fire light'"'"'s/x.whl' <<'EOF'
unzip "$1"
EOF

# 3. write a secret
install -D -m 600 /dev/stdin '/srv/fire light'"'"'s/env' <<'EOF'
# (secret values are not shown)
EOF

# 4. become root
sudo bash -s  <<'EOF'
id -u
EOF

# 5. fetch (on the controller)
export A='b c'
bash -s  <<'EOF'
true
EOF
"""


def test_a_plan_reads_as_a_script() -> None:
    assert preview(PLAN) == SHOWN


def test_the_script_is_bash_and_the_secret_is_not_in_it() -> None:
    assert subprocess.run(["bash", "-n"], input=preview(PLAN).encode()).returncode == 0
    assert "hush" not in preview(PLAN)


def test_an_empty_plan_says_so() -> None:
    assert "# nothing to do" in preview(Plan("build", "local"))


def test_a_text_that_holds_the_end_of_a_heredoc_is_shown_whole(tmp_path: Path) -> None:
    wanted = "a\nEOF\ntouch sprung\nEOF_\nlast"
    write = WriteFile(PurePosixPath("there"), wanted)
    text = preview(Plan("deploy", "local", (Step("a", "write", write),)))
    subprocess.run(["bash", "-e"], input=text.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "there").read_text() == wanted + "\n"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
