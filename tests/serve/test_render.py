"""Rendered files: as a person reads them, and as bash and systemd read them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.core.errors import FirstlightError
from firstlight.serve.profile import Profile, Workload
from firstlight.serve.render import (
    Flavour,
    deployment_id,
    masked,
    render_env,
    render_launch,
    render_unit,
    server_lines,
    take_secrets,
)
from tests.serve.profiles import deployment, profile, templates

GOLDEN = Path(__file__).parent / "golden"

FULL = """\
args:
  kv_cache_dtype: bf16
  tp_size: 8
  trust_remote_code: true
  override: {a: "it's 50%"}
env: {OMP_NUM_THREADS: "1", GREETING: "$HOME `x` \\"y\\" % é"}
extra_args: [--lora-paths, "a b"]
service:
  port: 31000
  memory: 2GiB
  stop_timeout_s: 90
  secrets: [HF_TOKEN, SGLANG_API_KEY]
  secrets_file: "/etc/it's.env"
"""


def golden(name: str, text: str) -> None:
    """Compare with the file that a person has read; FIRSTLIGHT_GOLDEN=1 writes it anew."""
    path = GOLDEN / name
    if os.environ.get("FIRSTLIGHT_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_a_launch_script_as_a_person_reads_it() -> None:
    golden("plain.launch.sh", render_launch(deployment(profile()), templates()))


def test_a_launch_script_with_everything() -> None:
    read = dataclasses.replace(
        deployment(profile(FULL), PurePosixPath("/srv/it's 50%")), env={"STACK": "1"}
    )
    golden("full.launch.sh", render_launch(read, templates()))


@pytest.mark.parametrize("flavour", ["system", "user"])
def test_units_as_a_person_reads_them(flavour: Flavour) -> None:
    read = deployment(profile(FULL), PurePosixPath("/srv/it's 50%"), flavour)
    golden(f"{flavour}.service", render_unit(read, templates()))


@pytest.mark.parametrize("flavour", ["system", "user"])
def test_systemd_takes_the_units(flavour: Flavour, tmp_path: Path) -> None:
    analyze = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no"]
    if subprocess.run(["which", analyze[0]], capture_output=True).returncode:
        pytest.skip("systemd-analyze is not installed")
    read = deployment(profile(FULL), PurePosixPath("/srv/it's 50%"), flavour)
    unit = tmp_path / f"firstlight-{flavour}.service"
    unit.write_text(render_unit(dataclasses.replace(read, user="root"), templates()))
    mode = ["--user"] if flavour == "user" else []
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([*analyze, *mode, unit], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


# A program in the place of the release's python: it writes down its arguments and environment.
STUB = """\
#!/bin/bash
[ "$1" != -c ] || exec {python} "$@"
exec {python} -c '
import json, os, sys
json.dump([sys.argv[1:], dict(os.environ)], sys.stdout)' "$@"
"""


def run(
    read: Profile, root: Path, secrets: str = "", **extra: str
) -> tuple[list[str], Mapping[str, str]]:
    """Really start a rendered script; what its python was given."""
    placed = deployment(read, PurePosixPath(root))
    home, bin_ = Path(placed.home), Path(placed.release / "venv/bin")
    home.mkdir(parents=True)
    bin_.mkdir(parents=True)
    (bin_ / "python").write_text(STUB.format(python=sys.executable))
    (bin_ / "python").chmod(0o755)
    (home / "env").write_text(secrets)
    (home / "env").chmod(0o600)
    (home / "launch.sh").write_text(render_launch(placed, templates()))
    env = {"PATH": os.environ["PATH"], **extra}
    done = subprocess.run(["/bin/bash", home / "launch.sh"], capture_output=True, env=env)
    if done.returncode:
        raise subprocess.CalledProcessError(
            done.returncode, "launch.sh", stderr=done.stderr.decode()
        )
    argv, seen = json.loads(done.stdout)
    assert argv == [
        "-m",
        "sglang.launch_server",
        *(w for line in server_lines(placed) for w in line),
    ]
    return argv, seen


any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
file_name = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(folder=file_name, values=st.lists(any_text, min_size=1, max_size=4), word=any_text)
def test_every_value_reaches_the_server_as_it_is(folder: str, values: list[str], word: str) -> None:
    base = profile()
    read = base.model_copy(
        update={
            "args": {**base.args, "log_level_http": values[0], "lora_paths": values},
            "env": {"VALUE": word},
            "extra_args": ("--checksum", word),
        }
    )
    with tempfile.TemporaryDirectory(prefix=f"x{folder}") as root:
        argv, seen = run(read, Path(root) / folder)
    assert seen["VALUE"] == word
    assert argv[-1] == word
    assert values[-1] in argv


def test_the_server_s_surroundings(tmp_path: Path) -> None:
    rest = "args: {kv_cache_dtype: bf16}\nenv: {HF_HUB_OFFLINE: '0'}\n"
    _, seen = run(profile(rest), tmp_path / "r", PYTHONPATH="/elsewhere")
    release = tmp_path / "r/releases/r1"
    assert seen["PATH"].startswith(f"{release}/venv/bin:")
    assert "PYTHONPATH" not in seen
    assert seen["HF_HUB_OFFLINE"] == "0"
    assert seen["PWD"] == seen["HOME"] == str(tmp_path / "r/deployments/p/1")
    assert seen["TRITON_CACHE_DIR"] == f"{release}/cache/triton"
    assert (release / "cache").is_dir()


def test_a_release_that_was_removed_does_not_come_back_as_a_folder_of_caches(
    tmp_path: Path,
) -> None:
    placed = deployment(profile(), PurePosixPath(tmp_path / "it's"))
    home = Path(placed.home)
    home.mkdir(parents=True)
    (home / "launch.sh").write_text(render_launch(placed, templates()))
    done = subprocess.run(["/bin/bash", home / "launch.sh"], capture_output=True, text=True)
    assert done.returncode == 78
    told = "its release was removed; run invoke build, then deploy again"
    assert done.stderr == f"launch.sh: no {placed.release}/venv/bin/python: {told}\n"
    assert not Path(placed.release).exists()


SECRETS = "args: {kv_cache_dtype: bf16}\nservice: {secrets: [HF_TOKEN, SGLANG_API_KEY]}\n"
NASTY = "a b'\"$(touch pwned)`touch pwned`\\n=é😀#"


def test_secrets_reach_the_server_and_are_never_evaluated(tmp_path: Path) -> None:
    text = render_env({"HF_TOKEN": NASTY, "SGLANG_API_KEY": NASTY}) + "PATH=/evil\nnot a line\n"
    argv, seen = run(profile(SECRETS), tmp_path / "r", text)
    home = tmp_path / "r/deployments/p/1"
    assert seen["HF_TOKEN"] == NASTY
    assert "/evil" not in seen["PATH"]
    assert "SGLANG_API_KEY" not in seen
    assert not any(NASTY in word for word in argv)
    assert argv[argv.index("--config") + 1] == "engine.yaml"
    assert json.loads((home / "engine.yaml").read_text()) == {"api-key": NASTY}
    assert (home / "engine.yaml").stat().st_mode & 0o777 == 0o600
    assert not (home / "pwned").exists()


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("HF_TOKEN=x\n", 0o600, "launch.sh: the secret SGLANG_API_KEY is not set\n"),
        ("HF_TOKEN=x\nSGLANG_API_KEY=\n", 0o600, "the secret SGLANG_API_KEY is not set\n"),
        ("HF_TOKEN=x\nSGLANG_API_KEY=y", 0o640, "can be read by others; chmod 600 it\n"),
        (None, 0o600, "launch.sh: the secret HF_TOKEN is not set\n"),
    ],
)  # fmt: skip
def test_an_unsafe_or_missing_secret_stops_the_start_for_good(
    tmp_path: Path, text: str | None, mode: int, message: str
) -> None:
    placed = deployment(profile(SECRETS), PurePosixPath(tmp_path))
    home, python = Path(placed.home), Path(placed.release / "venv/bin/python")
    home.mkdir(parents=True)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    if text is not None:
        (home / "env").write_text(text)
        (home / "env").chmod(mode)
    (home / "launch.sh").write_text(render_launch(placed, templates()))
    done = subprocess.run(["/bin/bash", home / "launch.sh"], capture_output=True, text=True)
    assert done.returncode == 78
    assert done.stderr.endswith(message)
    assert not (home / "engine.yaml").exists()


def test_secrets_come_from_the_controller_or_a_file_on_the_host() -> None:
    read = profile(SECRETS)
    assert take_secrets(read, {"HF_TOKEN": "a", "SGLANG_API_KEY": "b", "X": "c"}) == {
        "HF_TOKEN": "a",
        "SGLANG_API_KEY": "b",
    }
    with pytest.raises(FirstlightError) as caught:
        take_secrets(read, {"HF_TOKEN": "a"})
    assert str(caught.value) == (
        "profile p needs SGLANG_API_KEY, not set in this environment\n  -> export it here, or put "
        "it into a 0600 file on the host: service.secrets_file"
    )
    assert take_secrets(profile(FULL), {"SGLANG_API_KEY": "b"}) == {"SGLANG_API_KEY": "b"}
    with pytest.raises(FirstlightError, match="the new server is asked with it, to be proved"):
        take_secrets(profile(FULL), {"HF_TOKEN": "a"})


def test_a_preview_of_secrets_shows_names_alone() -> None:
    assert masked({"HF_TOKEN": "abc"}) == "HF_TOKEN=(not shown)\n"
    with pytest.raises(FirstlightError, match="the secret A holds a line break"):
        render_env({"A": "b\nc"})


def test_the_id_changes_with_the_files_and_with_nothing_else() -> None:
    base = profile()

    def id_of(read: Profile = base, release: str = "r", model: str = "m", **more: object) -> str:
        files = {**templates(), **({"launch.sh.j2": "x"} if more.get("edited") else {})}
        flavour: Flavour = "user" if more.get("user") else "system"
        return deployment_id(read, files, release, model, flavour, {"A": str(more.get("env"))})

    def other(**update: object) -> Profile:
        return base.model_copy(update=update)

    same = [id_of(), id_of(other(title="t")), id_of(other(notes="n"))]
    same += [id_of(other(workload=Workload(concurrency=1, context=1)))]
    args = {"tp_size": 1, **base.args}
    changed = [
        id_of(other(args=args)),
        id_of(other(args=dict(reversed(args.items())))),
        id_of(other(env={"A": "b"})),
        id_of(other(service=base.service.model_copy(update={"port": 1}))),
        id_of(release="r2"),
        id_of(model="m2"),
        id_of(edited=True),
        id_of(user=True),
        id_of(env="x"),
    ]
    assert len(set(same)) == 1
    assert len(set(same + changed)) == 1 + len(changed)
    assert all(len(digest) == 12 for digest in changed)
