"""The build room: what is asked of uv to resolve a stack, and how its answer is read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.utils import parse_wheel_filename

from firstlight.build.recipe import Component, Stack
from firstlight.build.wheel import Wheel, supported
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError

_GET_UV = """\
set -euo pipefail
python=$1 home=$2 requirement=$3
"$python" -m venv "$home"
printf '%s\\n' "$requirement" > "$home/requirement.txt"
"$home/bin/python" -m pip install --quiet --no-deps --only-binary :all: -r "$home/requirement.txt"
"""

_RESOLVE = """\
set -euo pipefail
uv=$1 python=$2 platform=$3 wanted=$4 never=$5
shift 5
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd "$work"
printf '%s\\n' "$wanted" > wanted.in
# What the stack has prebuilt is never asked of an index: its condition is never true.
printf '%s\\n' "$never" > never.txt
"$uv" pip compile --quiet --format pylock.toml --output-file pylock.toml \\
  --python-version "$python" --python-platform "$platform" --only-binary :all: \\
  --override never.txt "$@" wanted.in
cat pylock.toml
"""


def get_uv(python: str, home: PurePosixPath, requirement: str, known: Wheel | None) -> Script:
    """Install uv into a new venv at `home`; by hash, where a lock knows it already."""
    pinned = f"{requirement} --hash=sha256:{known.sha256}" if known else requirement
    return Script(_GET_UV, (python, str(home), pinned))


def resolve_requirements(uv: str, stack: Stack, python: str) -> Script:
    """Print the pylock.toml of everything that is installed as it is."""
    wanted = [*stack.requirements, *(need for item in stack.prebuilt for need in item.needs)]
    return _resolve(uv, stack, python, wanted)


def resolve_sources(
    uv: str, stack: Stack, components: Mapping[str, Component], python: str
) -> Script:
    """Print the pylock.toml of the components alone, without what they require."""
    wanted = [f"{name}=={components[name].version}" for name in stack.components]
    return _resolve(uv, stack, python, wanted, "--no-deps")


def resolve_tools(uv: str, stack: Stack) -> Script:
    """Print the pylock.toml of the tools; one wheel of each serves every CPython."""
    return _resolve(uv, stack, stack.python[0], list(stack.tools), "--no-deps")


def _resolve(uv: str, stack: Stack, python: str, wanted: list[str], *flags: str) -> Script:
    never = [f"{item.name}=={item.version} ; python_version < '3'" for item in stack.prebuilt]
    platform = f"{stack.arch}-manylinux_{stack.glibc.replace('.', '_')}"
    args = (uv, python, platform, "\n".join(wanted), "\n".join(never), *flags)
    return Script(_RESOLVE, args)


def parse_pylock(text: str, python: str, arch: str, glibc: str) -> tuple[Wheel, ...]:
    """The best wheel of each package for that CPython, without addresses.

    Raises FirstlightError when a package has no wheel that fits.
    """
    ranks = {tag: rank for rank, tag in enumerate(supported(python, arch, glibc))}
    place = _environment(python, arch)
    packages = [
        package
        for package in tomllib.loads(text).get("packages", [])
        if "marker" not in package or Marker(package["marker"]).evaluate(place)
    ]
    return tuple(
        _best(package, ranks, f"CPython {python}, {arch}, glibc {glibc}") for package in packages
    )


def _best(package: dict[str, Any], ranks: Mapping[Any, int], base: str) -> Wheel:
    fitting: list[tuple[int, str, dict[str, Any]]] = []
    for wheel in package.get("wheels", []):
        file = wheel.get("name") or unquote(PurePosixPath(urlsplit(wheel["url"]).path).name)
        tags = [ranks[tag] for tag in parse_wheel_filename(file)[3] if tag in ranks]
        fitting += [(min(tags), file, wheel)] if tags else []
    if not fitting:
        raise FirstlightError(
            f"{package['name']} {package['version']} has no wheel for {base}",
            remedy="pin a version that has one, or leave that Python out of the stack",
        )
    _, file, wheel = min(fitting, key=lambda item: item[:2])
    return Wheel(
        name=package["name"],
        version=package["version"],
        file=file,
        sha256=wheel["hashes"]["sha256"],
        size=wheel.get("size"),
    )


def _environment(python: str, arch: str) -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arch,
    }
