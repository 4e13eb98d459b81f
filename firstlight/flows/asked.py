"""What the recipes ask for now, beside what is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firstlight.build.order import Order, release_of
from firstlight.build.recipe import Python
from firstlight.core.command import Command
from firstlight.core.errors import FirstlightError
from firstlight.flows import recipes, target
from firstlight.flows.orders import all_orders, built_release
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import Survey
from firstlight.serve.manifest import Manifest


@dataclass(frozen=True)
class Asked:
    """`release` is what a deploy would serve now, "" where that is not known; `same`: it would be
    this very deployment; `words` tell a person what is another, or why nothing can be told."""

    release: str = ""
    built: bool = False
    same: bool = False
    words: str = ""


def asked_now(root: Path, host: Host, seen: Survey, made: Manifest) -> Asked:
    """Hold a deployment against the recipes; recipes that cannot be read are told, not raised."""
    try:
        profile = recipes.profile(root, made.profile).value
        orders = all_orders(root, profile.stack, seen.root)
        built = built_release(orders, seen)
        release = built or _likely(orders, made.release)
        wanted = target.expected_id(root, host, profile, release, made.launcher)
    except FirstlightError as error:
        return Asked(words=f"not known: {str(error).splitlines()[0]}")
    if wanted == made.id:
        return Asked(release, built is not None, same=True)
    what = "the profile or a template is another now"
    if release != made.release:
        what = f"release {release}"
    verb = "build" if built is None else "deploy"
    again = Command(("invoke", verb, "--profile", made.profile, "--host", host.name)).line()
    return Asked(release, built is not None, words=f"{what}; {again}")


def _likely(orders: Mapping[Python, Order], served: str) -> str:
    """Of the releases that may be built, the one for the Python that is served."""
    ids = [release_of(order) for order in orders.values()]
    kind = served.rpartition("-")[0]
    return next((release for release in ids if release.rpartition("-")[0] == kind), ids[0])
