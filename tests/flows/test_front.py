"""What the front desk prints, whatever the terminal's encoding can hold."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from pathlib import Path
from firstlight.flows import front
front.run("explain", Path(sys.argv[1]), log=sys.argv[2], json=sys.argv[3] == "json")
"""


def explained(tmp_path: Path, form: str, encoding: str) -> bytes:
    log = tmp_path / "log"
    log.write_text("RuntimeError: CUDA out of memory ☃ ü\n", encoding="utf-8")
    words = [sys.executable, "-c", RUN, str(ROOT), str(log), form]
    done = subprocess.run(words, capture_output=True, env={"PYTHONIOENCODING": encoding})
    assert done.stderr == b""
    return done.stdout


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", rb"\u2603 \xfc"), ("latin-1", b"\\u2603 \xfc"), ("utf-8", "☃ ü".encode())],
)
def test_what_an_encoding_lacks_is_spelled_out(tmp_path: Path, encoding: str, shown: bytes) -> None:
    assert b"out of memory " + shown in explained(tmp_path, "text", encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    out = explained(tmp_path, "json", encoding)
    assert "☃ ü" in json.dumps(json.loads(out.decode(encoding)), ensure_ascii=False)
    assert ("☃".encode() in out) is (encoding == "utf-8")


@pytest.mark.parametrize("home", [None, ""])
def test_without_home_it_is_the_accounts(home: str | None) -> None:
    env = {name: value for name, value in os.environ.items() if name != "HOME"}
    env |= {} if home is None else {"HOME": home}
    line = [sys.executable, "-m", "invoke", "status", "--json"]
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    account = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path(json.loads(done.stdout)["root"]) == account / ".local/share/firstlight"
