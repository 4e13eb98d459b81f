"""`invoke sbom`: what a release on a host is made of, as a CycloneDX bill of materials."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from firstlight.build.order import release_of
from firstlight.build.sbom import render_sbom
from firstlight.core.command import Command, Script
from firstlight.core.errors import HostError
from firstlight.core.report import Report
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import recipes
from firstlight.flows.given import whole
from firstlight.flows.orders import all_orders
from firstlight.flows.reach import opener, reached
from firstlight.hosts.survey import MARK

# $1 = root, then releases, the most wanted first. One line a file, its JSON without line ends.
_READ = f"""\
tell() {{ printf '{MARK}\\t%s\\t%s\\n' "$1" "$(tr -d '\\n\\t' <"$2")"; }}
root=$1
case $root in '~/'*) root=$HOME/${{root:2}} ;; esac
shift
for release in "$@"; do
  home=$root/releases/$release
  [ -s "$home/manifest.json" ] || continue
  tell manifest "$home/manifest.json" || return
  for receipt in "$home"/receipts/*.json; do
    [ ! -e "$receipt" ] || tell receipt "$receipt" || return
  done
  break
done
printf '{MARK}\\tend\\n'
"""

_AGAIN = "remove the manifest.json of that release, and `invoke build` makes it again"
# The end of the year 9999: no later time can be written.
_LAST_S = 253_402_300_799


def run(root: Path, console: Console, *, host: str = "", stack: str = "") -> Report:
    """Print the bill of materials of the stack's release, as it is locked now: one round trip."""
    at = _time(os.environ.get("SOURCE_DATE_EPOCH", ""))
    inventory = catalog.inventory(root)
    target = inventory.host(host)
    name = stack or _stack(root, recipes.profile_name(inventory, target, ""))
    # What a release is called does not depend on where it lies.
    ids = [release_of(order) for order in all_orders(root, name, PurePosixPath("/")).values()]
    with reached(opener(inventory, target, console), console) as shell:
        manifest, receipts = _read(shell, ids)
    if manifest is None:
        raise HostError(
            f"stack {name}, as it is locked now, is not built there",
            where=target.name,
            remedy=Command(("invoke", "build", "--host", target.name, "--stack", name)).line(),
        )
    try:
        text = render_sbom(manifest, receipts, at)
    except (KeyError, TypeError, ValueError) as error:
        raise HostError(
            f"what a release says of itself cannot be told: {type(error).__name__}: {error}",
            where=target.name,
            remedy=f"was it made by another version of firstlight? {_AGAIN}",
        ) from None
    return Report(text, json.loads(text))


def _read(shell: Shell, ids: list[str]) -> tuple[Mapping[str, Any] | None, list[Any]]:
    """The manifest of the first release that is there, if any, and its receipts."""
    result = shell.run(Script(_READ, (shell.host.root, *ids)))
    answers = [line.split("\t", 2)[1:] for line in result.text.splitlines() if MARK in line]
    if answers[-1:] != [["end"]]:
        said = result.error_text.strip() or "no whole answer"
        raise HostError(f"cannot read what a release is made of: {said}", where=shell.host.name)
    try:
        found = [(key, json.loads(text)) for key, text in answers[:-1]]
    except ValueError as error:
        what = f"a manifest or receipt below {shell.host.root}/releases is no JSON: {error}"
        raise HostError(what, where=shell.host.name, remedy=_AGAIN) from None
    manifests = [data for key, data in found if key == "manifest"]
    return next(iter(manifests), None), [data for key, data in found if key == "receipt"]


def _stack(root: Path, profile: str) -> str:
    return recipes.profile(root, profile).value.stack


def _time(text: str) -> int | None:
    if not text:
        return None
    return whole("SOURCE_DATE_EPOCH", text, _LAST_S, "seconds since 1970")
