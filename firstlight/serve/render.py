"""The render room: a deployment as the files that its host will hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from firstlight.core.errors import FirstlightError
from firstlight.hosts.inventory import UnknownName
from firstlight.serve.capabilities import Capabilities, engine_lines
from firstlight.serve.profile import API_KEY, ENGINE_SECRETS, Profile
from firstlight.serve.templates import Ready, fill, systemd_path

LAUNCH, UNIT = "launch.sh.j2", "systemd.service.j2"
MOST_STARTS = 5
MODULE = "sglang.launch_server"
Flavour = Literal["system", "user", "process"]


@dataclass(frozen=True)
class Deployment:
    """One profile on one release at one place of a host.

    `home` is the deployment's own folder; `env` holds what the stack and the host ask for (the
    profile's own comes after it); `user` is who a system unit runs as, "" for root.
    """

    profile: Profile
    home: PurePosixPath
    release: PurePosixPath
    model: PurePosixPath
    flavour: Flavour
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    capabilities: Capabilities | None = None


def server_lines(deployment: Deployment) -> tuple[tuple[str, ...], ...]:
    """All arguments of the server, one tuple a flag."""
    profile, service = deployment.profile, deployment.profile.service
    secret = [("--config", "engine.yaml")] if _engine_secrets(profile) else []
    return (
        ("--model-path", str(deployment.model)),
        ("--served-model-name", profile.served_model_name),
        ("--host", service.bind),
        ("--port", str(service.port)),
        *secret,
        *engine_lines(profile, deployment.capabilities),
    )


def render_launch(deployment: Deployment, templates: Mapping[str, str]) -> str:
    """The script that starts the server; raises ConfigError with the template's file and line."""
    profile, release = deployment.profile, deployment.release
    pairs = _engine_secrets(profile)
    names = {name.partition("=")[0] for name in pairs}
    values: dict[str, object] = {
        "home": deployment.home,
        "release": release,
        "bin": release / "venv/bin",
        "cache": release / "cache",
        "python": release / "venv/bin/python",
        "module": MODULE,
        "env": {**deployment.env, **profile.env},
        "secrets": profile.service.secrets,
        "secrets_file": profile.service.secrets_file,
        "engine_secrets": pairs,
        "secrets_of_engine": tuple(sorted(names)),
        "lines": server_lines(deployment),
    }
    return fill(LAUNCH, templates, values)


def render_unit(deployment: Deployment, templates: Mapping[str, str]) -> str:
    """The systemd unit, for the machine's manager or a user's own."""
    service = deployment.profile.service
    values: dict[str, object] = {
        "name": deployment.profile.name,
        "flavour": deployment.flavour,
        "user": deployment.user if deployment.flavour == "system" else "",
        "script": deployment.home / "launch.sh",
        "restart": service.restart,
        "starts": MOST_STARTS,
        "start_window_s": MOST_STARTS * service.start_timeout_s,
        "stop_timeout_s": service.stop_timeout_s,
        "memory": service.memory_bytes,
        "log": Ready(systemd_path(deployment.home / "log")),
    }
    return fill(UNIT, templates, values)


def render_env(secrets: Mapping[str, str]) -> str:
    """The 0600 file of secrets, a NAME=VALUE line each; raises FirstlightError for a line break."""
    for name, value in secrets.items():
        if "\n" in value or "\0" in value:
            raise FirstlightError(
                f"the secret {name} holds a line break or a NUL character",
                remedy="set it to one line of text",
            )
    return "".join(f"{name}={value}\n" for name, value in secrets.items())


def masked(secrets: Mapping[str, str]) -> str:
    """What a preview shows of `render_env`: the names alone."""
    return "".join(f"{name}=(not shown)\n" for name in secrets)


def take_secrets(profile: Profile, environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets that the controller's environment has.

    Raises UnknownName for one that it lacks, unless a file on the host may hold it.
    """
    missing = missing_secrets(profile, environ)
    if missing:
        remedy = "export it here, or put it into a 0600 file on the host: service.secrets_file"
        if profile.service.secrets_file is not None:
            remedy = "export it here: the new server is asked with it, to be proved"
        raise UnknownName(
            f"profile {profile.name} needs {', '.join(missing)}, not set in this environment",
            remedy=remedy,
        )
    return {name: environ[name] for name in profile.service.secrets if environ.get(name)}


def missing_secrets(profile: Profile, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that neither the controller's environment nor a file on the host can give.

    The API key is needed here in any case: a server is asked with it.
    """
    filed = profile.service.secrets_file is not None
    needed = (name for name in profile.service.secrets if not filed or name == API_KEY)
    return tuple(name for name in needed if not environ.get(name))


def deployment_id(
    profile: Profile,
    templates: Mapping[str, str],
    release: str,
    model: str,
    flavour: Flavour,
    env: Mapping[str, str] | None = None,
) -> str:
    """12 hex digits that change when a file of the deployment would change.

    `release` and `model` are the keys of what is deployed. What only people or the smoke test
    read (title, notes, match, policy, workload, smoke) changes no file.
    """
    told = {"title", "notes", "match", "policy", "workload", "smoke", "model", "stack", "schema_"}
    content = {
        "profile": profile.model_dump(mode="json", exclude=told),
        "templates": {name: templates.get(name) for name in (LAUNCH, UNIT)},
        "release": release,
        "model": model,
        "flavour": flavour,
        "env": dict(env or {}),
    }
    # The order of args and env shows in the files, so keys are not sorted.
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _engine_secrets(profile: Profile) -> tuple[str, ...]:
    wanted = profile.service.secrets
    return tuple(f"{name}={ENGINE_SECRETS[name]}" for name in wanted if name in ENGINE_SECRETS)
