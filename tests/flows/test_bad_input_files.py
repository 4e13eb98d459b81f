"""Bad input in files and on the command line: one message with place and remedy, nothing done."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.flows.project import INVOKE
from tests.flows.tiny import Tiny, refused

PROFILE = "recipes/profiles/tiny.yaml"
STACK = "recipes/stacks/tiny.yaml"
LAUNCH = "templates/launch.sh.j2"

BAD_HOSTS = """\
schema: 1
hots: []
hosts:
  - {name: gpu 1, address: far}
  - {name: gpu2}
"""

BAD_PROFILE = """\
schema: 1
name: tiny
title: 3
stak: tiny
model: {kind: path, path: relative}
served_model_name: tiny
"""


@pytest.fixture
def broken(tiny: Tiny) -> Tiny:
    """A project with faults in three files."""
    tiny.project.write("inventory/more.yaml", BAD_HOSTS)
    tiny.project.write(PROFILE, BAD_PROFILE)
    tiny.project.write(STACK, "schema: 1\nname: tiny\n\ttitle: a tab\n")
    return tiny


def test_check_tells_every_fault_of_every_file_at_once(broken: Tiny) -> None:
    done = broken.project.invoke("check")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "inventory/more.yaml:2:1: unknown key 'hots'; did you mean 'hosts'?",
        "inventory/more.yaml:4:12: 'gpu 1' is no name: letters, digits, '.', '_' and '-' only",
        "inventory/more.yaml:5:5: host 'gpu2' needs an address; only 'local' has none",
        "recipes/profiles/tiny.yaml:1:1: needs key 'stack'",
        "recipes/profiles/tiny.yaml:3:8: expected a string; got 3; put it in quotes",
        "recipes/profiles/tiny.yaml:4:1: unknown key 'stak'; did you mean 'stack'?",
        "recipes/profiles/tiny.yaml:5:27: expected a path on the host that starts with / ;"
        " got 'relative'",
        "recipes/stacks/tiny.yaml:3:1: not YAML: found a tab character that violates indentation",
        "8 fault(s) in 9 files",
    ]
    assert done.stderr == ""


def test_check_tells_programs_the_same(broken: Tiny) -> None:
    done = broken.project.invoke("check", "--json")
    assert done.returncode == 2
    faults = json.loads(done.stdout)["faults"]
    assert [(fault["file"], fault["line"]) for fault in faults][-1] == (STACK, 3)
    assert len(faults) == 8


@pytest.mark.parametrize("verb", ["deploy", "up", "facts"])
def test_a_verb_stops_at_the_first_files_that_it_needs(broken: Tiny, verb: str) -> None:
    done = broken.project.invoke(verb)
    message = refused(done, 2)
    assert message.splitlines() == [
        "error: inventory/more.yaml:2:1: unknown key 'hots'; did you mean 'hosts'?",
        "inventory/more.yaml:4:12: 'gpu 1' is no name: letters, digits, '.', '_' and '-' only",
        "inventory/more.yaml:5:5: host 'gpu2' needs an address; only 'local' has none",
        "  -> correct that; `invoke check` looks at every file of the project",
    ]
    assert done.stdout == ""
    assert not broken.root.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("facts", "--host", "locla"), "no host 'locla' in the inventory; did you mean 'local'?"),
        (("build", "--host", "gpu7"), "no host 'gpu7' in the inventory; known: local"),
        (("deploy", "--profile", "tinny"), f"no {PROFILE.replace('y.', 'ny.')}"),
        (("deploy", "--profile", "tinny"), "; did you mean 'tiny'?"),
        (("build", "--stack", "tinyy"), "no recipes/stacks/tinyy.yaml; did you mean 'tiny'?"),
        (("lock", "--stack", "x"), "no recipes/stacks/x.yaml; known: tiny"),
        (("deploy", "--profile", "../x"), "no recipes/profiles/../x.yaml; known: tiny"),
        (("deploy", "--profile", ".."), "no recipes/profiles/...yaml; known: tiny"),
        (("build", "--stack", "a/b"), "no recipes/stacks/a/b.yaml; known: tiny"),
        (("build", "--stack", "/etc/passwd"), "no recipes/stacks//etc/passwd.yaml; known: tiny"),
        (("deploy", "--profile", "x" * 300), "x.yaml; known: tiny"),
        (("logs", "--lines", "-5"), "--lines takes a whole number; got '-5'"),
        (("logs", "--lines", "²"), "--lines takes a whole number; got '²'"),
        (("logs", "--lines", ""), "--lines takes a whole number; got ''"),
        (("logs", "--lines", "\u0663"), "--lines takes a whole number; got '\u0663'"),
        (("logs", "--lines", "9" * 5000), "--lines takes a whole number, 1000000 at most; got '99"),
        (("kv", "--memory", "\u0663"), "--memory takes the GiB that are left on one GPU, like"),
        (("ask",), 'what to ask?\n  -> invoke ask --question "..."'),
        (("ask", "--question", " "), 'what to ask?\n  -> invoke ask --question "..."'),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_a_wrong_word_is_told_with_the_nearest_right_one(
    tiny: Tiny, words: tuple[str, ...], message: str
) -> None:
    done = tiny.project.invoke(*words)
    assert message in refused(done, 2)
    assert done.stdout == ""
    assert not tiny.root.exists()


def test_bytes_that_are_no_text_are_no_name(tiny: Tiny) -> None:
    with tiny.project.start("deploy", "--profile", os.fsdecode(b"\xff\xfe")) as process:
        out, err = process.communicate(timeout=60)
    assert refused(subprocess.CompletedProcess((), process.returncode, out, err), 2)


@pytest.mark.parametrize("verb", ["stop", "logs"])
def test_a_profile_that_was_never_deployed(tiny: Tiny, verb: str) -> None:
    message = refused(tiny.project.invoke(verb, "--profile", "tiny"), 3)
    assert message == (
        "error: local: profile tiny is not deployed; nothing is\n"
        "  -> invoke deploy --profile tiny --host local\n"
    )


@pytest.mark.parametrize("verb", ["stop", "logs"])
@pytest.mark.parametrize(
    ("name", "near"), [("tinny", "; did you mean 'tiny'?"), ("$(touch x)", "; known: tiny")]
)
def test_a_profile_that_nobody_has(tiny: Tiny, verb: str, name: str, near: str) -> None:
    message = refused(tiny.project.invoke(verb, "--profile", name), 2)
    assert message == f"error: no profile {name!r}{near}\n"


@pytest.mark.parametrize("words", [("build", "--host"), ("ask", "--question"), ("build", "--x")])
def test_a_flag_without_its_value_runs_nothing(tiny: Tiny, words: tuple[str, ...]) -> None:
    done = tiny.project.invoke(*words)
    assert done.returncode == 2
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert not tiny.root.exists()


def test_help_of_a_verb_does_not_run_it(tiny: Tiny) -> None:
    said = tiny.project.invoke("build", "--help", check=True).stdout
    assert "--stack=STRING" in said
    assert not tiny.root.exists()


@pytest.mark.parametrize("verb", ["status", "smoke", "logs", "render"])
def test_an_error_leaves_standard_output_to_programs(broken: Tiny, verb: str) -> None:
    done = broken.project.invoke(verb, "--json")
    assert "inventory/more.yaml:2:1: " in refused(done, 2)
    assert done.stdout == ""


def test_a_file_without_an_end_is_no_file(tiny: Tiny) -> None:
    os.mkfifo(tiny.project.root / "recipes/profiles/pipe.yaml")
    done = tiny.project.invoke("check")
    assert "recipes/profiles/pipe.yaml: cannot be read: it is no file\n" in done.stdout
    assert done.returncode == 2


def test_what_an_editor_keeps_beside_a_file_is_no_recipe(tiny: Tiny) -> None:
    (tiny.project.root / "recipes/profiles/.#tiny.yaml").symlink_to("me@here.4711:1796000000")
    assert "no fault" in tiny.project.invoke("check", check=True).stdout


def test_check_holds_the_inventory_s_profiles_against_the_recipes(tiny: Tiny) -> None:
    hosts = "schema: 1\nhosts:\n  - {name: gpu01, address: a, profile: tinny}\n"
    tiny.project.write("inventory/more.yaml", hosts)
    tiny.project.change("inventory/hosts.yaml", ("profile: tiny", "profile: gone"))
    assert tiny.project.invoke("check").stdout.splitlines() == [
        "inventory/hosts.yaml:4:12: no profile 'gone'; known: tiny",
        "inventory/more.yaml:3:40: no profile 'tinny'; did you mean 'tiny'?",
        "2 fault(s) in 9 files",
    ]


def test_check_tells_of_files_that_no_verb_reads(tiny: Tiny) -> None:
    written = ["inventory/a.yml", "patches/registry.yml", "recipes/profiles/b.YAML"]
    written += ["recipes/stacks/c.yml", "recipes/locks/d.yaml", "recipes/locks/e.lock.yml"]
    for path in written:
        tiny.project.write(path, "anything")
    tiny.project.write("recipes/profiles/notes.txt", "no recipe")
    unread = "1:1: no verb reads a file called so; rename it to"
    assert tiny.project.invoke("check").stdout.splitlines() == [
        f"inventory/a.yml:{unread} a.yaml",
        f"patches/registry.yml:{unread} registry.yaml",
        f"recipes/locks/d.yaml:{unread} d.lock.yaml",
        f"recipes/locks/e.lock.yml:{unread} e.lock.yaml",
        f"recipes/profiles/b.YAML:{unread} b.yaml",
        f"recipes/stacks/c.yml:{unread} c.yaml",
        "6 fault(s) in 8 files",
    ]


def test_a_recipe_that_cannot_be_read_makes_no_second_fault(tiny: Tiny) -> None:
    (tiny.project.root / "recipes/components/sglang.yaml").write_bytes(b"\xff\xfe")
    lines = tiny.project.invoke("check").stdout.splitlines()
    wanted = "recipes/components/sglang.yaml: cannot be read: is not UTF-8 text"
    assert lines == [wanted, "1 fault(s) in 8 files"]
    assert wanted in refused(tiny.project.invoke("build"), 2)


def test_a_component_must_be_called_as_its_file(tiny: Tiny) -> None:
    tiny.project.change("recipes/components/sglang.yaml", ("name: sglang", "name: vllm"))
    fault = "recipes/components/sglang.yaml:2:7: the file is called 'sglang', and this says 'vllm'"
    assert fault in refused(tiny.project.invoke("build"), 2)
    assert fault in tiny.project.invoke("check").stdout


def test_a_stack_without_a_lock_says_how_to_make_one(tiny: Tiny) -> None:
    (tiny.project.root / "recipes/locks/tiny.lock.yaml").unlink()
    message = refused(tiny.project.invoke("build"), 2)
    assert f"{STACK}:1:1: there is no recipes/locks/tiny.lock.yaml" in message
    assert "-> run: invoke lock --stack tiny" in message
    assert "invoke lock --stack tiny" in tiny.project.invoke("check").stdout


def test_a_lock_of_another_version_is_not_built(tiny: Tiny) -> None:
    for path in ("recipes/components/sglang.yaml", STACK):
        tiny.project.change(path, ("0.5.23", "0.5.24"))
    message = refused(tiny.project.invoke("build"), 2)
    assert f"{STACK}:10:32: asks for sglang 0.5.24; recipes/locks/tiny.lock.yaml" in message
    assert "-> run: invoke lock --stack tiny" in message
    assert not tiny.root.exists()


def test_a_patch_that_is_not_there(tiny: Tiny) -> None:
    (tiny.project.root / "patches/sglang/0001-say-so.patch").unlink()
    fault = "patches/registry.yaml:3:11: no file patches/sglang/0001-say-so.patch"
    assert fault in refused(tiny.project.invoke("build"), 2)
    assert fault in tiny.project.invoke("check").stdout


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (None, f"{LAUNCH}: there is no such template; known: systemd.service.j2"),
        (("cd {{ home }}", "cd {{ hom }}"), f"{LAUNCH}:{{line}}:1: 'hom' is undefined"),
        (("cd {{ home }}", "cd {{ home }"), f"{LAUNCH}:{{line}}:1: not a template: "),
        (("cd {{ home }}", "cd {{ home | nofilter }}"), f"{LAUNCH}:{{line}}:1: not a template: "),
    ],
    ids=["missing", "undefined", "unclosed", "filter"],
)
def test_a_template_s_fault_is_told_before_anything_is_deployed(
    built: Tiny, edit: tuple[str, str] | None, fault: str
) -> None:
    lines = built.project.read(LAUNCH).splitlines()
    wanted = fault.replace("{line}", str(lines.index("cd {{ home }}") + 1))
    if edit is None:
        (built.project.root / LAUNCH).unlink()
    else:
        built.project.change(LAUNCH, edit)
    assert wanted in built.project.invoke("check").stdout
    assert wanted in refused(built.project.invoke("deploy"), 2)
    assert built.made("deployments") == []


def test_flags_are_held_against_the_release(built: Tiny) -> None:
    edits = ("device: cpu", "devices: cpu"), ("fault: none", "fault: nonne")
    built.profile(*edits, ("max_total_tokens: 16384", "max_total_tokens: many"))
    message = refused(built.project.invoke("deploy"), 2)
    assert [line.partition(" -> ")[0] for line in message.splitlines()] == [
        f"error: {PROFILE}:8:3: sglang 0.5.23 has no 'devices'; did you mean 'device'?",
        f"{PROFILE}:10:21: max_total_tokens expects a whole number; got 'many'",
        f"{PROFILE}:11:10: fault is 'nonne', which is no choice of the engine;"
        " did you mean 'none'?",
        " ",
    ]
    assert built.made("deployments") == []


def test_a_kv_cache_that_is_not_bf16_is_refused_without_a_host(tiny: Tiny) -> None:
    tiny.profile(("kv_cache_dtype: bf16", "kv_cache_dtype: auto"))
    message = refused(tiny.project.invoke("deploy"), 5)
    assert f"{PROFILE}:9:19: policy.kv is require_bf16, but kv_cache_dtype is 'auto'" in message


def test_a_secret_that_is_not_set(built: Tiny) -> None:
    built.profile(("launcher: process", "launcher: process\n  secrets: [SGLANG_API_KEY]"))
    message = refused(built.project.invoke("deploy"), 2)
    assert "profile tiny needs SGLANG_API_KEY, not set in this environment" in message
    assert built.made("deployments") == []


@pytest.mark.parametrize("value", ["", "swordfish"])
def test_a_dry_run_needs_no_secret_and_shows_none(built: Tiny, value: str) -> None:
    built.profile(("launcher: process", "launcher: process\n  secrets: [SGLANG_API_KEY]"))
    done = built.project.invoke("deploy", "--dry-run", env={"SGLANG_API_KEY": value}, check=True)
    lacks = "# a deploy will need SGLANG_API_KEY, not set in this environment\n"
    assert (lacks in done.stdout) is not bool(value)
    assert "write the secrets, for the server alone" in done.stdout
    assert "swordfish" not in done.stdout and "(secret values are not shown)" in done.stdout
    assert built.made("deployments") == []


@pytest.mark.parametrize("verb", ["facts", "check"])
def test_a_reader_that_leaves_early_is_no_fault(tiny: Tiny, verb: str) -> None:
    line = f'set -o pipefail; "$1" {verb} | head -c 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", line, "bash", str(INVOKE)],
        cwd=tiny.project.root,
        env=tiny.project.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, 2), done
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("where", "code", "message"),
    [
        (">&-", 0, ""),
        ("<&-", 0, ""),
        (">/dev/full", 1, "error: cannot write to standard output: No space left on device\n"),
    ],
)
def test_an_output_that_takes_nothing(tiny: Tiny, where: str, code: int, message: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'exec "$1" facts {where}', "bash", str(INVOKE)],
        cwd=tiny.project.root,
        env=tiny.project.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, message)


def test_verbs_work_in_a_folder_with_spaces_and_quotes(tmp_path: Path, tiny: Tiny) -> None:
    odd = tmp_path / 'it\'s  a "folder" $HOME'
    tiny.project.root.rename(odd)
    done = subprocess.run(
        [str(INVOKE), "check"],
        cwd=odd,
        env=tiny.project.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "8 files, no fault\n"
