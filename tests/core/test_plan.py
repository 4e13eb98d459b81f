"""The dry run is a script that a person can read, and bash can parse."""

import os
import subprocess
from pathlib import Path, PurePosixPath

from firstlight.core.command import Script
from firstlight.core.plan import (
    Action,
    Job,
    Plan,
    Run,
    Ship,
    ShipFile,
    Step,
    Watch,
    WriteFile,
    preview,
)

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
BEGIN = """\
# It stops at the first step that fails; each script is the body of a function, as in a real run,
# so that `return` ends that script with its status
set -e
as_function() {
  printf '__main() {\\n%s\\n}\\n__main %s </dev/null\\nexit "$?"\\n' "$(cat)" "${*@Q}"
}
here() { as_function "$@" | bash -s; }
"""
SHOWN = f"""\
# firstlight build: plan for host gpu01
# in place: release x
{BEGIN}HOST=zoe@10.0.0.11
export RSYNC_RSH='ssh -p 2222'
at_host() {{ ssh -p 2222 "$HOST" "$@"; }}
on_host() {{ as_function "$@" | at_host exec /bin/bash -s; }}
as_root() {{ as_function "$@" | at_host sudo /bin/bash -s; }}

# 1. send a wheel
# sha256 abababababab x.whl
rsync -W --mkpath /c/x.whl "$HOST":'/srv/fire light'"'"'s/'

# 2. unpack it
# detached job b-1; a lost link does not stop it
on_host '/srv/fire light'"'"'s/x.whl' <<'EOF'
unzip "$1"
EOF

# 3. write a secret
at_host 'install -D -m 600 /dev/stdin '"'"'/srv/fire light'"'"'"'"'"'"'"'"'s/env'"'"'' <<'EOF'
# (secret values are not shown)
EOF

# 4. become root
as_root <<'EOF'
id -u
EOF

# 5. fetch (on the controller)
here <<'EOF'
export A='b c'
true
EOF
"""
DIAL = ("-p", "2222", "zoe@10.0.0.11")


def test_a_plan_reads_as_a_script() -> None:
    assert preview(PLAN, DIAL) == SHOWN


def test_the_script_is_bash_and_the_secret_is_not_in_it() -> None:
    assert subprocess.run(["bash", "-n"], input=preview(PLAN).encode()).returncode == 0
    assert "hush" not in preview(PLAN)


def test_an_empty_plan_says_so() -> None:
    assert "# nothing to do" in preview(Plan("build", "local"))


def test_a_text_that_holds_the_end_of_a_heredoc_is_shown_whole(tmp_path: Path) -> None:
    wanted = "a\nEOF\ntouch sprung\nEOF_\nlast"
    write = WriteFile(PurePosixPath("there"), wanted)
    text = preview(Plan("deploy", "local", (Step("a", "write", write),)))
    subprocess.run(["bash"], input=text.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "there").read_text() == wanted + "\n"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def shown(*actions: Action, host: str = "local") -> str:
    return preview(Plan("build", host, tuple(Step("a", "do it", one) for one in actions)))


def ran(text: str, folder: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
    script = folder / "plan.sh"
    script.write_text(text)
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    done = subprocess.run(
        ["bash", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_local_plan_that_was_printed_runs(tmp_path: Path) -> None:
    """Copies, files, words and environments come through as in a real run."""
    lib, words = PurePosixPath(tmp_path / "it's lib"), ("a b", "", "it's $HOME", "two\nlines")
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    files = [ShipFile(tmp_path / name, lib / name, "ab" * 32) for name in ("one", "two")]
    files.append(ShipFile(tmp_path / "one", lib / "other name", "ab" * 32))
    tell = 'printf "<%s>" "$E" "$@"; cat; [ $# = 4 ] || return 9'
    told = Job("j", Script(tell, args=words, env={"E": "e f"}))
    write = WriteFile(lib / "sub/file", "EOF\n$HOME\n", 0o600)
    text = shown(Ship(tuple(files)), write, told, Watch("ready", Script("echo seen")))
    assert text.count("\ninstall ") == 3
    said = "<e f>" + "".join(f"<{word}>" for word in words) + "seen\n"
    assert ran(text, tmp_path) == (0, said)
    assert {one.name: one.read_text() for one in Path(lib).iterdir() if one.is_file()} == {
        "one": "one", "two": "two", "other name": "one",
    }  # fmt: skip
    assert (Path(lib) / "sub/file").read_text() == "EOF\n$HOME\n"
    assert (Path(lib) / "sub/file").stat().st_mode & 0o777 == 0o600


def test_the_guards_of_a_printed_plan_guard(tmp_path: Path) -> None:
    """A `return` ends its script with its status, and a script that fails ends the plan."""
    guard = Run(Script("[ -e wanted ] || return 7\necho went on"))
    past = Run(Script("return\necho went on"))
    assert ran(shown(past, guard, Run(Script("echo after"))), tmp_path) == (7, "")
    (tmp_path / "wanted").touch()
    assert ran(shown(past, guard), tmp_path) == (0, "went on\n")


def test_a_printed_plan_reaches_its_host_by_ssh(tmp_path: Path) -> None:
    """What goes over the line needs no more of the other side than a shell that starts bash."""
    there = tmp_path / "there"
    there.mkdir()
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ "$1" = gpu01 ] || exit 255\nshift\ncd "{there}" && eval "$*"\n')
    ssh.chmod(0o755)
    write = WriteFile(PurePosixPath("it's/file"), "text\n")
    look = Watch("audit", Script("invoke() { pwd; }; invoke audit"))
    typed = Watch("audit", Script("invoke audit"))
    run = Run(Script('pwd; printf "<%s>\n" "$@"; return 3', args=("a b", "it's")))
    text = shown(write, look, run, host="gpu01")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert ran(text, tmp_path, path) == (3, f"{there}\n{there}\n<a b>\n<it's>\n")
    assert (there / "it's/file").read_text() == "text\n"
    assert shown(typed, host="gpu01").endswith("do it\ninvoke audit\n")
