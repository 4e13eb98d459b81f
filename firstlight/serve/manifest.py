"""What a deployment says of itself on its host: enough to watch, ask and stop it later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field, ValidationError

from firstlight.build.digest import short
from firstlight.core.errors import HostError
from firstlight.core.schema import Model
from firstlight.hosts.survey import Survey
from firstlight.serve import launch
from firstlight.serve.launch import Launcher
from firstlight.serve.profile import Profile
from firstlight.serve.render import Flavour

FLAVOURS: Mapping[Launcher, Flavour] = {
    "systemd-system": "system",
    "systemd-user": "user",
    "process": "process",
}


class Damaged(HostError):
    """A deployment's manifest cannot be read, so that nothing is known of it."""


class Manifest(Model):
    """manifest.json of a deployment. `id` names its folder; `sudo`: stopping it takes root.

    `memory` is the ceiling in bytes, 0 for none.
    """

    schema_: Literal[1] = Field(alias="schema", default=1)
    profile: str
    id: str
    release: str
    model: str
    served_model_name: str
    launcher: Launcher
    sudo: bool
    restart: Literal["no", "on-failure"]
    stop_s: int
    memory: int = 0
    bind: str
    port: int
    firstlight: str

    @property
    def url_on_host(self) -> str:
        """Where the server listens, as seen from its host."""
        return f"http://{self.bind}:{self.port}"


def render_manifest(manifest: Manifest) -> str:
    """The text of manifest.json."""
    return manifest.model_dump_json(by_alias=True, indent=2) + "\n"


def read_manifest(data: Mapping[str, Any], host: str) -> Manifest:
    """A manifest as it was found on a host; raises Damaged."""
    try:
        return Manifest.model_validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Damaged(
            f"a deployment's manifest.json cannot be read: {place}: {first['msg']}",
            where=host,
            remedy="deploy the profile again",
        ) from None


def home_of(root: PurePosixPath, profile: str, deployment: str) -> PurePosixPath:
    """The folder of a deployment."""
    return root / "deployments" / profile / deployment


def service_of(
    manifest: Manifest, root: PurePosixPath, library: PurePosixPath
) -> launch.Deployment:
    """The deployment as its launcher knows it."""
    return launch.Deployment(
        profile=manifest.profile,
        home=home_of(root, manifest.profile, manifest.id),
        lib=library,
        launcher=manifest.launcher,
        restart=manifest.restart,
        stop_s=manifest.stop_s,
        sudo=manifest.sudo,
        memory=manifest.memory,
    )


def current(seen: Survey, profile: str, host: str) -> Manifest | None:
    """The manifest of a profile's current deployment, or None where there is none."""
    found = seen.deployments.get(profile)
    return read_manifest(found.manifest, host) if found and found.current else None


def smoke_digest(profile: Profile) -> str:
    """Changes when a profile is to be proved by other means than before."""
    return short(profile.model_dump(mode="json", include={"smoke", "policy", "match"}))
