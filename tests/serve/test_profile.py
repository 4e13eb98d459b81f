"""Profiles: what is refused, where, and in which words."""
# ruff: noqa: E501 - a row of a table is one line: what is written, and exactly what is said

from pathlib import Path

import pytest

from firstlight.core.schema import load
from firstlight.serve.profile import Profile
from tests.serve.profiles import FILE, HEAD, ROOT, profile, sound, told

BF16 = "args: {kv_cache_dtype: bf16}\n"
WRITE = "write args.kv_cache_dtype: bf16"
ASKED = "policy.kv is require_bf16, but kv_cache_dtype"


def test_the_least_that_a_profile_says() -> None:
    read = profile()
    assert (read.service.bind, read.service.port, read.service.restart) == (
        "127.0.0.1",
        30000,
        "on-failure",
    )
    assert read.policy.kv == "require_bf16"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes/profiles").glob("*.yaml")))
def test_the_profiles_of_this_project_hold(path: Path) -> None:
    sound(path.read_text(), f"recipes/profiles/{path.name}")


@pytest.mark.parametrize(
    ("rest", "place", "message"),
    [
        ("", "1:1", f"{ASKED} is not given: the checkpoint decides, and FP8 comes without a warning; {WRITE}"),
        ("args: {tp_size: 8}", "6:7", f"{ASKED} is not given: the checkpoint decides, and FP8 comes without a warning; {WRITE}"),
        ("args: {kv_cache_dtype: auto}", "6:24", f"{ASKED} is 'auto': the checkpoint decides, and FP8 comes without a warning; {WRITE}"),
        ("args: {kv_cache_dtype: fp8_e4m3}", "6:24", f"{ASKED} is 'fp8_e4m3': this cache is not BF16; {WRITE}"),
        ("args: {kv_cache_dtype: bfloat16, attention_backend: trtllm_mla}", "6:24", f"{ASKED} is 'bfloat16': trtllm_mla refuses that spelling; {WRITE}"),
        ("policy: {kv: allow_any}", "6:9", "kv: allow_any needs a reason: who measured what, and when"),
        ("policy: {kv: allow_any, reason: ' '}", "6:9", "kv: allow_any needs a reason: who measured what, and when"),
        ("policy: {kv: bf16}", "6:14", "expected one of 'require_bf16', 'allow_calibrated' or 'allow_any'; got \"bf16\""),
    ],
)  # fmt: skip
def test_the_kv_cache_is_bf16_unless_the_profile_explains_itself(
    rest: str, place: str, message: str
) -> None:
    assert told(HEAD + rest) == [f"{FILE}:{place}: {message}"]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("workload: {concurrency: 4, context: 4096}", None),
        ("workload: {concurrency: 0, context: 4096}", "7:25: input should be greater than or"),
        ("workload: {concurrency: 4}", "7:11: needs key 'context'"),
        (
            "workload: {concurrency: 4, context: 70000}",
            "7:37: args.context_length is 64,000: no request can have 70,000 tokens",
        ),
        (
            "workload: {concurrency: 9, context: 4096}",
            "7:25: args.max_running_requests is 8: 9 never run at once",
        ),
    ],
)
def test_a_workload_is_one_that_the_arguments_allow(rest: str, message: str | None) -> None:
    args = "args: {kv_cache_dtype: bf16, context_length: 64k, max_running_requests: 8}\n"
    found = told(HEAD + args + rest)
    assert len(found) == (message is not None)
    assert all(one.startswith(f"{FILE}:{message}") for one in found), found


def test_another_kv_cache_with_its_reason_is_taken() -> None:
    assert told(HEAD + "policy: {kv: allow_any, reason: perplexity measured}") == []
    assert told(HEAD + "policy: {kv: allow_calibrated}\nargs: {kv_cache_dtype: fp8_e4m3}") == []


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("kv-cache-dtype: bf16", 3, "flags are written in snake_case; write kv_cache_dtype"),
        ("--tp-size: 8", 3, "flags are written in snake_case; write tp_size"),
        ("port: 1", 3, "port is not written in args: the port belongs in service.port"),
        ("host: 0.0.0.0", 3, "host is not written in args: the address belongs in service.bind"),
        ("model: x", 3, "model is not written in args: the model is named in model"),
        ("model_path: x", 3, "model_path is not written in args: the model is named in model"),
        ("served_model_name: x", 3, "served_model_name is not written in args: the name is given by served_model_name of the profile"),
        ("config: x", 3, "config is not written in args: a second file would be read unseen; write its flags in args"),
        ("api_key: abc", 3, "api_key is a secret: list SGLANG_API_KEY in service.secrets, and keep its value out of files"),
        ("ssl_keyfile_password: abc", 3, "ssl_keyfile_password is a secret: list SGLANG_SSL_KEYFILE_PASSWORD in service.secrets, and keep its value out of files"),
        ("my_token: abc", 13, "my_token looks like a secret; name its variable in service.secrets instead"),
        ("revision: hf_abcdefghijklmnopqrst", 13, "revision looks like a secret; name its variable in service.secrets instead"),
        ("override: {password: x}", 13, "override looks like a secret; name its variable in service.secrets instead"),
        ('revision: "a\\0b"', 13, "a NUL character cannot be handed to a program"),
    ],
)  # fmt: skip
def test_arguments_that_belong_elsewhere(line: str, column: int, message: str) -> None:
    text = f"{HEAD}args:\n  kv_cache_dtype: bf16\n  {line}\n"
    assert told(text) == [f"{FILE}:8:{column}: {message}"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--port", "--port is not written in extra_args: the port belongs in service.port"),
        ("--po=1", "--port is not written in extra_args: the port belongs in service.port"),
        ("--kv-cache-dtype=auto", "--kv-cache-dtype belongs in args.kv_cache_dtype, where policy.kv can see it"),
        ("--kv-cache", "--kv-cache-dtype belongs in args.kv_cache_dtype, where policy.kv can see it"),
        ("--api-key", "api_key is a secret: list SGLANG_API_KEY in service.secrets, and keep its value out of files"),
        ("--x=sk-abcdefghijklmnopqrst", "this looks like a secret; name its variable in service.secrets instead"),
        ('a\\0b', "a NUL character cannot be handed to a program"),
    ],
)  # fmt: skip
def test_extra_arguments_that_belong_elsewhere(word: str, message: str) -> None:
    assert told(f'{HEAD}{BF16}extra_args: ["{word}"]\n') == [f"{FILE}:7:14: {message}"]


@pytest.mark.parametrize(
    ("rest", "place", "message"),
    [
        ("env: {HF_TOKEN: abc}", "7:7", "HF_TOKEN looks like a secret; list HF_TOKEN in service.secrets instead"),
        ("env: {A: hf_abcdefghijklmnopqrst}", "7:7", "A looks like a secret; list A in service.secrets instead"),
        ("env: {A-B: x}", "7:7", "not a name for an environment variable: 'A-B'"),
        ("env: {OMP_NUM_THREADS: 1}", "7:24", "expected a string; got 1; put it in quotes"),
        ("service: {restart: always}", "7:20", "expected one of 'no' or 'on-failure'; got \"always\""),
        ("service: {bind: localhost}", "7:17", "expected one of '127.0.0.1' or '0.0.0.0'; got \"localhost\""),
            ("service: {bind: 10.0.0.5}", "7:17", "expected one of '127.0.0.1' or '0.0.0.0'; got \"10.0.0.5\""),
        ("service: {port: 0}", "7:17", "input should be greater than or equal to 1"),
        ("service: {memory: 16GB}", "7:19", "expected a size such as 16GiB (MiB, GiB or TiB); got '16GB'"),
        ("service: {memory: 1048577TiB}", "7:19", "expected at most 1048576TiB; got '1048577TiB'"),
        ("service: {memory: 99999999999999999999999TiB}", "7:19", "expected a size such as 16GiB (MiB, GiB or TiB); got '99999999999999999999999TiB'"),
        ("service: {stop_timeout_s: 9223372036854775807}", "7:27", "input should be less than or equal to 86400"),
        ("service: {start_timeout_s: 86401}", "7:28", "input should be less than or equal to 86400"),
        ("service: {stall_s: 86401}", "7:20", "input should be less than or equal to 86400"),
        ("service: {secrets: [a b]}", "7:21", "not a name for an environment variable: 'a b'"),
        ("service: {secrets_file: /x}", "7:10", "secrets_file is read only for the names that secrets lists"),
        ("service: {secrets: [A], secrets_file: x}", "7:39", "expected a path on the host that starts with / ; got 'x'"),
        ("service: {laucher: auto}", "7:11", "unknown key 'laucher'; did you mean 'launcher'?"),
        ("smoke: {questions: [{ask: a, expect: '('}]}", "7:38", "not a regular expression: missing ), unterminated subpattern at position 0"),
        ("smoke: {questions: [{ask: a, expect: []}]}", "7:38", "no answer would be accepted; name at least one"),
        ("smoke: {questions: [{ask: a, expect: [' ']}]}", "7:38", "no answer would be accepted; name at least one"),
        ("smoke: {questions: [{ask: a, expect: 4}]}", "7:38", "expected a regular expression, or a list of accepted answers, in quotes"),
        ("smoke: {questions: [{ask: a, expect: [4]}]}", "7:38", "expected a regular expression, or a list of accepted answers, in quotes"),
        ("smoke: {echo: 4}", "7:15", "expected a string; got 4; put it in quotes"),
        ("extends: other", "7:1", "unknown key 'extends'; known: args, env, extra_args, match, model, name, notes, policy, schema, served_model_name, service, smoke, stack, title, workload"),
    ],
)  # fmt: skip
def test_bad_values(rest: str, place: str, message: str) -> None:
    assert told(f"{HEAD}{BF16}{rest}\n") == [f"{FILE}:{place}: {message}"]


@pytest.mark.parametrize(
    ("model", "column", "message"),
    [
        ("{kind: path, path: models}", 20, "expected a path on the host that starts with / ; got 'models'"),
        ("{kind: hf, repo: a/b, revision: main}", 33, "expected a commit of 40 digits, because a branch moves; got 'main'"),
        (f"{{kind: hf, repo: gpt2, revision: {'a' * 40}}}", 18, "expected owner/name, as the hub has it; got 'gpt2'"),
        ("{kind: pypi-gguf, package: a, version: '1', file: a.whl, sha256: abc, member: m}", 66, "expected a sha256, 64 digits 0-9 and a-f; got 'abc'"),
        (f"{{kind: pypi-gguf, package: a, version: '1', file: a.whl, sha256: {'a' * 64}, member: ../m}}", 140, "expected a path inside the package; got '../m'"),
        ("{kind: ftp}", 1, "expected one of 'pypi-gguf', 'path', 'hf'; got \"ftp\""),
    ],
)  # fmt: skip
def test_bad_models(model: str, column: int, message: str) -> None:
    text = HEAD.replace("{kind: path, path: /models/m}", f"\n  {model}") + BF16
    assert told(text) == [f"{FILE}:5:{column + 2}: {message}"]


def test_a_colon_in_the_served_name_is_refused() -> None:
    text = HEAD.replace("served_model_name: m", "served_model_name: 'm:1'") + BF16
    message = "the engine keeps ':' for adapters; write a name without it: 'm:1'"
    assert told(text) == [f"{FILE}:5:20: {message}"]


def test_the_name_is_the_name_of_the_file() -> None:
    text = HEAD.replace("name: p\n", "name: q\n", 1) + BF16
    assert told(text) == [f"{FILE}:2:7: the file is called p.yaml, so the name must be 'p'"]


def test_every_fault_of_a_file_is_told_at_once() -> None:
    text = HEAD + "args: {port: 1, kv-cache-dtype: x}\nenv: {HF_TOKEN: x}\n"
    assert [line.split(": ")[0] for line in told(text)] == [
        f"{FILE}:6:7",
        f"{FILE}:6:8",
        f"{FILE}:6:17",
        f"{FILE}:7:7",
    ]


def test_no_secret_is_repeated_in_a_message() -> None:
    secret = "hf_abcdefghijklmnopqrst"
    rest = (
        f"args: {{api_key: {secret}, x: {secret}}}\nenv: {{A: {secret}}}\nextra_args: [{secret}]\n"
    )
    lines = told(HEAD + rest)
    assert len(lines) == 5
    assert not any(secret in line for line in lines)


def test_yaml_reads_no_as_false_and_the_profile_takes_it() -> None:
    text = f"{HEAD}{BF16}service: {{restart: no, memory: 2GiB}}\n"
    service = load(text, FILE, Profile).value.service
    assert (service.restart, service.memory_bytes) == ("no", 2**31)


def test_questions_are_patterns_or_lists() -> None:
    rest = "smoke: {questions: [{ask: a, expect: x+}, {ask: b, expect: [x, y]}], echo: z}\n"
    smoke = profile(BF16 + rest).smoke
    assert [question.expect for question in smoke.questions] == ["x+", ("x", "y")]
    assert smoke.echo == "z"
