"""The policy room: what a profile may not say, whatever the engine would accept.

The first rule is why this project exists. With `--kv-cache-dtype auto` the engine follows the
checkpoint, and goes to FP8 without a warning; long sessions are then damaged quietly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from firstlight.accuracy.values import human_count
from firstlight.core.errors import Fault
from firstlight.core.schema import Document, Place
from firstlight.serve.limits import check_limits
from firstlight.serve.profile import ENGINE_SECRETS, ENV_NAME, Profile, file_stem
from firstlight.serve.trial import trial_name

_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|token|secret|password|passwd)\Z", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(?:hf_|sk-|ghp_|github_pat_|glpat-|AKIA)[A-Za-z0-9_-]{16,}")

# Flags that the profile says elsewhere, so that a reader finds them in one place.
_ELSEWHERE: Mapping[str, str] = {
    "model_path": "the model is named in model",
    "model": "the model is named in model",
    "served_model_name": "the name is given by served_model_name of the profile",
    "host": "the address belongs in service.bind",
    "port": "the port belongs in service.port",
    "config": "a second file would be read unseen; write its flags in args",
}
_ENGINE_SECRET_KEYS: Mapping[str, str] = {
    flag.replace("-", "_"): name for name, flag in ENGINE_SECRETS.items()
}


def check_profile(document: Document[Profile]) -> list[Fault]:
    """Every fault of a profile that the schema alone does not show."""
    profile = document.value
    found = [*_named(document), *_extra(profile), *_environment(profile)]
    found += _workload(profile)
    for key, value in profile.args.items():
        found += _argument(key, value)
    found += _characters(profile)
    faults = [document.fault(place, message) for place, message in found]
    return [*faults, *check_limits(document), *check_cache(document)]


def check_cache(document: Document[Profile]) -> list[Fault]:
    """Where a profile asks for a KV cache that its own policy rules out, whatever the model."""
    return [document.fault(place, message) for place, message in _kv(document.value)]


Finding = tuple[Place, str]
_BACKEND_FLAGS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")


def _named(document: Document[Profile]) -> Iterator[Finding]:
    stem, name = file_stem(document.file), document.value.name
    if stem != name:
        yield ("name",), f"the file is called {stem}.yaml, so the name must be {stem!r}"
    if name.endswith(trial_name("")):
        # A comparison of the profile before that word would take this one's server away.
        yield ("name",), f"names that end with {trial_name('')} are those of `invoke compare`"


def _kv(profile: Profile) -> Iterator[Finding]:
    if profile.policy.kv != "require_bf16":
        return
    given = profile.args.get("kv_cache_dtype")
    # One model takes the longer spelling alone; the audit tells which spelling a model refuses.
    strict = [flag for flag in _BACKEND_FLAGS if profile.args.get(flag) == "trtllm_mla"]
    if given == "bf16" or (given == "bfloat16" and not strict):
        return
    if given is None or given is False or given == "auto":
        why = "the checkpoint decides, and FP8 comes without a warning"
        said = "is 'auto'" if given else "is not given"
    elif not isinstance(given, str):
        # It is no value at all, which its limits tell.
        return
    elif given == "bfloat16":
        said, why = "is 'bfloat16'", "trtllm_mla refuses that spelling"
    else:
        said, why = f"is {given!r}", "this cache is not BF16"
    place = ("args", "kv_cache_dtype") if "kv_cache_dtype" in profile.args else ("args",)
    message = f"policy.kv is require_bf16, but kv_cache_dtype {said}: {why}"
    yield place, f"{message}; write args.kv_cache_dtype: bf16"


def _workload(profile: Profile) -> Iterator[Finding]:
    """A workload that the profile's own arguments rule out."""
    work = profile.workload
    if work is None:
        return
    longest = human_count(profile.args.get("context_length"))
    most = human_count(profile.args.get("max_running_requests"))
    if longest is not None and work.context > longest:
        message = f"args.context_length is {longest:,}: no request can have {work.context:,} tokens"
        yield ("workload", "context"), message
    if most is not None and work.concurrency > most:
        message = f"args.max_running_requests is {most:,}: {work.concurrency:,} never run at once"
        yield ("workload", "concurrency"), message


def _argument(key: str, value: JsonValue) -> Iterator[Finding]:
    plain = key.lstrip("-").replace("-", "_")
    if plain != key:
        yield ("args", key, "<key>"), f"flags are written in snake_case; write {plain}"
    elif plain in _ELSEWHERE:
        yield ("args", key, "<key>"), f"{key} is not written in args: {_ELSEWHERE[plain]}"
    elif plain in _ENGINE_SECRET_KEYS:
        yield ("args", key, "<key>"), _engine_secret(plain)
    elif (_SECRET_NAME.search(plain) and isinstance(value, str)) or _is_secret(value):
        message = f"{key} looks like a secret; name its variable in service.secrets instead"
        yield ("args", key), message


def _engine_secret(key: str) -> str:
    name = _ENGINE_SECRET_KEYS[key]
    return f"{key} is a secret: list {name} in service.secrets, and keep its value out of files"


def _is_secret(value: JsonValue) -> bool:
    return any(_SECRET_VALUE.search(text) for text in _texts(value)) or (
        isinstance(value, dict) and any(_SECRET_NAME.search(key) for key in value)
    )


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _extra(profile: Profile) -> Iterator[Finding]:
    for index, word in enumerate(profile.extra_args):
        place: Place = ("extra_args", index)
        flag = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if _is_secret(word):
            yield place, "this looks like a secret; name its variable in service.secrets instead"
        elif word.startswith("--") and flag:
            yield from ((place, message) for message in _misplaced(flag))


def _misplaced(flag: str) -> Iterator[str]:
    """What is wrong with a flag of extra_args; the engine takes a flag's beginning for the flag."""
    for key, where in _ELSEWHERE.items():
        if key.startswith(flag):
            yield f"--{key.replace('_', '-')} is not written in extra_args: {where}"
            return
    if "kv_cache_dtype".startswith(flag):
        yield "--kv-cache-dtype belongs in args.kv_cache_dtype, where policy.kv can see it"
    for key in _ENGINE_SECRET_KEYS:
        if key == flag:
            yield _engine_secret(key)


def _environment(profile: Profile) -> Iterator[Finding]:
    for name, value in profile.env.items():
        if not ENV_NAME.match(name):
            yield ("env", name, "<key>"), f"not a name for an environment variable: {name!r}"
        elif _SECRET_NAME.search(name) or _is_secret(value):
            message = f"{name} looks like a secret; list {name} in service.secrets instead"
            yield ("env", name, "<key>"), message


def _characters(profile: Profile) -> Iterator[Finding]:
    """No argument and no variable of a process can hold a NUL character."""
    places: list[tuple[Place, JsonValue]] = [
        *((("args", key), value) for key, value in profile.args.items()),
        *((("env", key), value) for key, value in profile.env.items()),
        *((("extra_args", index), word) for index, word in enumerate(profile.extra_args)),
    ]
    for place, value in places:
        if any("\0" in text for text in _texts(value)):
            yield place, "a NUL character cannot be handed to a program"
