"""Arguments against the engine's own flags: every kind of fault, with its place and its words."""
# ruff: noqa: E501 - a row of a table is one line: what is written, and exactly what is said

import contextlib
import json
import shlex
from pathlib import Path

import pytest

from firstlight.core.errors import HostError
from firstlight.core.schema import load
from firstlight.serve.arguments import check_args
from firstlight.serve.capabilities import Capabilities, engine_lines, read_capabilities
from firstlight.serve.profile import Profile
from tests.serve.profiles import ENGINE, FILE, HEAD, ROOT, checked, profile, sound

GOOD = """\
  tp_size: 8
  mem_fraction_static: 0.9
  max_total_tokens: 16Ki
  trust_remote_code: true
  no_tf32: true
  lora_paths: [a, {name: b}]
  numa_node: 3
  label: [x, y]
  override: {a: [1]}
  checksum: true
"""


def text(line: str, extra: str = "") -> str:
    return f"{HEAD}args:\n  kv_cache_dtype: bf16\n  {line}\n{extra}"


def test_good_arguments_have_no_fault() -> None:
    assert checked(f"{HEAD}args:\n  kv_cache_dtype: bf16\n{GOOD}") == []


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("mem_fraction_statik: 1", 3, "sglang 9.9 has no 'mem_fraction_statik'; did you mean 'mem_fraction_static'?"),
        ("tp: 8", 3, "tp is an abbreviation; write tp_size"),
        ("cuda_graph_max_bs: 8", 3, "cuda_graph_max_bs is ambiguous in sglang 9.9: cuda_graph_max_bs_decode, cuda_graph_max_bs_prefill; write one in full"),
        ("disable_cuda_graph: true", 3, "disable_cuda_graph is deprecated in sglang 9.9; write --cuda-graph-backend-{decode,prefill}=disabled instead"),
        ("nsa_backend: x", 3, "nsa_backend is deprecated in sglang 9.9; write log_level_http instead"),
        ("grpc_mode: true", 3, "grpc_mode is deprecated in sglang 9.9, and nothing takes its place; leave it out"),
        ("log_requests_level: 5", 23, "log_requests_level is '5', which is no choice of the engine; known: 0, 1, 2"),
        ("tp_size: eight", 12, "tp_size expects a whole number; got 'eight'"),
        ("tp_size: '8'", 12, "tp_size expects a whole number; got '8'"),
        ("tp_size: 8.0", 12, "tp_size expects a whole number; got 8.0"),
        ("tp_size: {a: 1}", 12, 'tp_size expects a whole number; got {"a": 1}'),
        ("tp_size: true", 12, "tp_size needs a value"),
        ("tp_size: [1, 2]", 12, "tp_size takes one value; got 2"),
        ("mem_fraction_static: a", 24, "mem_fraction_static expects a number; got 'a'"),
        ("max_total_tokens: 16K", 21, "max_total_tokens expects a size such as 16384, 16k or 16Ki; got '16K'"),
        ("max_total_tokens: 1.5", 21, "max_total_tokens expects a size such as 16384, 16k or 16Ki; got 1.5"),
        ("log_level_http: 5", 19, "log_level_http expects text, in quotes; got 5"),
        ("trust_remote_code: 'yes'", 22, "trust_remote_code takes no value; write true or false"),
        ("trust_remote_code: [a]", 22, "trust_remote_code takes no value; write true or false"),
        ("tf32: false", 9, "tf32: false only leaves the flag out, and the engine's default is true; write no_tf32: true"),
        ("numa_node: []", 14, "numa_node needs at least one value; got an empty list"),
        ("numa_node: [0, x]", 18, "numa_node expects a whole number; got 'x'"),
        ("lora_paths: [a, --b]", 19, "lora_paths cannot take '--b' in a list: the engine would read it as a flag"),
        ("override: '{a'", 13, "override expects JSON; write it as keys and values, or as a list"),
    ],
)  # fmt: skip
def test_bad_arguments(line: str, column: int, message: str) -> None:
    assert checked(text(line)) == [f"{FILE}:8:{column}: {message}"]


def test_a_bad_choice_is_told_the_nearest() -> None:
    policy = "policy: {kv: allow_calibrated}\n"
    faults = checked(f"{HEAD}{policy}args: {{kv_cache_dtype: fp8_e4m}}\n")
    message = (
        "kv_cache_dtype is 'fp8_e4m', which is no choice of the engine; did you mean 'fp8_e4m3'?"
    )
    assert faults == [f"{FILE}:7:24: {message}"]


@pytest.mark.parametrize(
    ("words", "index", "message"),
    [
        (["x"], 0, "'x' follows no flag; a flag starts with --"),
        (["--tp", "8"], 0, "--tp is an abbreviation; write --tp-size"),
        (["--tf32", "--tp-size", "x"], 1, "--tp-size expects a whole number; got 'x'"),
        (["--tp-size=x"], 0, "--tp-size expects a whole number; got 'x'"),
        (["--tp-size"], 0, "--tp-size needs a value"),
        (["--tp-size", "1", "2"], 0, "--tp-size takes one value; got 2"),
        (["--override", '{"a":', "1}"], 0, "--override takes one value; got 2"),
        (["--trust-remote-code", "yes"], 0, "--trust-remote-code takes no value; leave it out"),
        (["--nsa-backend", "x"], 0, "--nsa-backend is deprecated in sglang 9.9; write --log-level-http instead"),
        (["--cuda-graph-max", "1"], 0, "--cuda-graph-max is ambiguous in sglang 9.9: --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill; write one in full"),
        (["--numa-node", "1", "x"], 0, "--numa-node expects a whole number; got 'x'"),
        (["--log-requests-level", "7"], 0, "--log-requests-level is '7', which is no choice of the engine; known: 0, 1, 2"),
        (["--max-total-tokens", "1Q"], 0, "--max-total-tokens expects a size such as 16384, 16k or 16Ki; got '1Q'"),
        (["--mem-fraction-static", "x"], 0, "--mem-fraction-static expects a number; got 'x'"),
    ],
)  # fmt: skip
def test_bad_extra_arguments(words: list[str], index: int, message: str) -> None:
    extra = "extra_args:\n" + "".join(f"  - {json.dumps(word)}\n" for word in words)
    assert checked(text("label: [a]", extra)) == [f"{FILE}:{10 + index}:5: {message}"]


def test_an_abbreviation_is_told_with_its_value_and_its_double() -> None:
    faults = checked(text("tp: eight", "extra_args: [--mem-fraction, x, --tp-size, '8']\n"))
    assert faults == [
        f"{FILE}:8:3: tp is an abbreviation; write tp_size",
        f"{FILE}:8:7: tp expects a whole number; got 'eight'",
        f"{FILE}:9:14: --mem-fraction expects a number; got 'x'",
        f"{FILE}:9:14: --mem-fraction is an abbreviation; write --mem-fraction-static",
        f"{FILE}:9:33: --tp-size repeats tp; give it once",
    ]


def test_two_spellings_of_one_flag_are_told() -> None:
    faults = checked(
        text("tp_size: 2\n  tensor_parallel_size: 4", "extra_args: [--tp-size, '8']\n")
    )
    assert faults == [
        f"{FILE}:9:3: tensor_parallel_size repeats tp_size; give it once",
        f"{FILE}:10:14: --tp-size repeats tensor_parallel_size; give it once",
    ]


def test_a_flag_left_out_repeats_nothing() -> None:
    assert checked(text("tp_size: null\n  tensor_parallel_size: 4")) == []


def test_a_zero_is_given_and_not_left_out() -> None:
    faults = checked(text("log_requests_level: 0", "extra_args: [--log-requests-level, '1']\n"))
    assert faults == [f"{FILE}:9:14: --log-requests-level repeats log_requests_level; give it once"]


def test_without_abbreviations_a_beginning_is_unknown() -> None:
    strict = ENGINE.model_copy(update={"abbreviations": False})
    message = "sglang 9.9 has no 'tp_siz'; did you mean 'tp_size'?"
    assert checked(text("tp_siz: 8"), strict) == [f"{FILE}:8:3: {message}"]


def test_arguments_become_words_in_the_order_of_the_file() -> None:
    read = profile(
        "args:\n  kv_cache_dtype: bf16\n" + GOOD + "  tf32: false\n  log_level_http: -x\n"
        "extra_args: [--grpc-mode, --tp-size, '4']\n"
    )
    assert engine_lines(read, ENGINE) == (
        ("--kv-cache-dtype", "bf16"),
        ("--tp-size", "8"),
        ("--mem-fraction-static", "0.9"),
        ("--max-total-tokens", "16Ki"),
        ("--trust-remote-code",),
        ("--no-tf32",),
        ("--lora-paths", "a", '{"name": "b"}'),
        ("--numa-node", "3"),
        ("--label", "x"),
        ("--label", "y"),
        ("--override", '{"a": [1]}'),
        ("--checksum",),
        ("--log-level-http=-x",),
        ("--grpc-mode",),
        ("--tp-size", "4"),
    )


def test_a_list_for_a_json_flag_is_json() -> None:
    read = profile("args: {kv_cache_dtype: bf16, override: [1, {a: é}]}\n")
    assert engine_lines(read, ENGINE)[1:] == (("--override", '[1, {"a": "é"}]'),)
    assert engine_lines(read)[1:] == (("--override", "1", '{"a": "é"}'),)


def test_a_damaged_list_of_flags_is_the_release_s_fault() -> None:
    with pytest.raises(HostError) as caught:
        read_capabilities('{"version": 5}', "gpu01:/r/capabilities.json")
    assert str(caught.value).startswith("gpu01:/r/capabilities.json: the release's list of flags")
    assert (
        "remove the manifest.json beside that file, and `invoke build` makes" in caught.value.remedy
    )


def test_the_real_engine_takes_our_profile(shared: Path) -> None:
    table = (shared / "data/server-args-0.5.23.json").read_text()
    engine = read_capabilities(table, "table")
    path = ROOT / "recipes/profiles/smollm2-cpu.yaml"

    assert check_args(sound(path.read_text(), path.name), engine) == []


@pytest.mark.parametrize("version", ["0.5.9", "0.5.16", "0.5.23"])
def test_the_tables_of_real_engines_are_read(shared: Path, version: str) -> None:
    engine = read_capabilities((shared / f"data/server-args-{version}.json").read_text(), version)
    assert engine.title == f"sglang {version}"
    assert engine.flags["--kv-cache-dtype"].choices is not None
    assert engine.flags["--trust-remote-code"].is_bare
    assert not engine.flags["--port"].is_bare


ELSEWHERE = {"--model", "--model-path", "--host", "--port", "--served-model-name", "--api-key"}

# Flags and choices of other people's own engines, and of versions between the three tables.
NOT_OURS = {
    "--enable-pcie-oneshot-allreduce",
    "--enable-gdn-replayssm-spec",
    "--prefix-affinity-fallback",
    "prefix_affinity",
    "b12x",
    "qwen3",
}
SPELLING = ("is an abbreviation", "is ambiguous", "is deprecated")


@pytest.fixture(scope="module")
def engines(shared: Path) -> list[Capabilities]:
    tables = sorted(shared.glob("data/server-args-*.json"))
    return [read_capabilities(table.read_text(), table.name) for table in tables]


def test_published_commands_that_worked_are_refused_for_their_spelling_alone(
    shared: Path, engines: list[Capabilities]
) -> None:
    """Most rows name no version, so each is judged by the table that finds the least in it."""
    rows = map(json.loads, (shared / "data/launch-commands.jsonl").read_text().splitlines())
    commands = [row["command"] for row in rows if row["works"] == "yes"]
    left = [min((wrong(command, engine) for engine in engines), key=len) for command in commands]
    assert len(commands) == 45
    assert sum(not messages for messages in left) == 36
    assert {quoted(message) for messages in left for message in messages} == NOT_OURS


def test_every_published_command_is_judged_without_a_crash(
    shared: Path, engines: list[Capabilities]
) -> None:
    rows = map(json.loads, (shared / "data/launch-commands.jsonl").read_text().splitlines())
    judged = [wrong(row["command"], engines[-1]) for row in rows]
    assert len(judged) == 100


def wrong(command: str, engine: Capabilities) -> list[str]:
    """What is wrong with a command besides its spelling and its unfilled blanks."""
    extra = f"extra_args: {json.dumps(words_of(command))}\n"
    faults = check_args(load(HEAD + extra, FILE, Profile), engine)
    messages = [fault.message for fault in faults]
    return [m for m in messages if not any(word in m for word in (*SPELLING, "$", "<"))]


def quoted(message: str) -> str:
    return message.split("'")[1]


def words_of(command: str) -> list[str]:
    """The engine's own words of a command, without what a profile says elsewhere."""
    words = command.replace("\\\n", " ").split()
    with contextlib.suppress(ValueError):  # one of them has a quotation mark too few
        words = shlex.split(command.replace("\\\n", " "))
    starts = [i for i, word in enumerate(words) if "launch_server" in word or word == "serve"]
    kept: list[str] = []
    skipping = False
    for word in words[starts[0] + 1 :]:
        if word.startswith("--"):
            skipping = word.partition("=")[0] in ELSEWHERE
        if not skipping:
            kept.append(word)
    return kept
