"""The build room: what is asked of uv to resolve a stack, and how its answer is read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.utils import canonicalize_name, parse_wheel_filename

from firstlight.build.choose import Choice
from firstlight.build.recipe import Stack
from firstlight.build.toolkit import requirements
from firstlight.build.wheel import Wheel, supported
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError

Choices = Mapping[str, Choice]

_GET_UV = """\
set -euo pipefail
python=$1 home=$2 requirement=$3
"$python" -m venv "$home"
printf '%s\\n' "$requirement" > "$home/requirement.txt"
"$home/bin/python" -m pip install --quiet --no-deps --only-binary :all: -r "$home/requirement.txt"
"""

_RESOLVE = """\
set -euo pipefail
uv=$1 python=$2 platform=$3 wanted=$4 never=$5 pins=$6
shift 6
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd "$work"
printf '%s\\n' "$wanted" > wanted.in
# What the stack has prebuilt is never asked of an index: its condition is never true.
printf '%s\\n' "$never" > never.txt
printf '%s\\n' "$pins" > pins.txt
"$uv" pip compile --quiet --format pylock.toml --output-file pylock.toml \\
  --python-version "$python" --python-platform "$platform" --only-binary :all: \\
  --override never.txt --constraint pins.txt "$@" wanted.in
cat pylock.toml
"""


def get_uv(python: str, home: PurePosixPath, requirement: str, known: Wheel | None) -> Script:
    """Install uv into a new venv at `home`; by hash, where a lock knows it already."""
    pinned = f"{requirement} --hash=sha256:{known.sha256}" if known else requirement
    return Script(_GET_UV, (python, str(home), pinned))


def resolve_requirements(uv: str, stack: Stack, choices: Choices, python: str) -> Script:
    """Print the pylock.toml of everything that is installed as it is.

    What `requires_of` names is in it with all that it requires; see `without_own`.
    """
    wanted = [*stack.requirements, *(need for item in stack.prebuilt for need in item.needs)]
    wanted += [pinned(one) for one in choices.values() if one.as_is]
    wanted += [pinned(choices[name]) for name in stack.requires_of]
    return _resolve(uv, stack, python, wanted, _own(stack, choices))


def resolve_sources(uv: str, stack: Stack, choices: Choices, python: str) -> Script:
    """Print the pylock.toml of the patched components alone, without what they require."""
    wanted = [pinned(one) for one in choices.values() if one.repacked]
    return _resolve(uv, stack, python, wanted, [], "--no-deps")


def resolve_tools(uv: str, stack: Stack) -> Script:
    """Print the pylock.toml of the tools; one wheel of each serves every CPython."""
    return _resolve(uv, stack, stack.python[0], list(stack.tools), [], "--no-deps")


def resolve_toolkit(uv: str, stack: Stack) -> Script:
    """Print the pylock.toml of the CUDA toolkit; its wheels are the same for every CPython."""
    return _resolve(uv, stack, stack.python[0], list(requirements(stack.cuda)), [])


def resolve_build(uv: str, stack: Stack, choices: Choices, name: str, python: str) -> Script:
    """Print the pylock.toml of what a component is built with."""
    build = choices[name].build
    assert build is not None
    wanted = [*build.requires, *_published(stack, choices, build.needs)]
    return _resolve(uv, stack, python, wanted, _own(stack, choices))


def resolve_check(uv: str, stack: Stack, choices: Choices, name: str, python: str) -> Script:
    """Print the pylock.toml of what a component's wheel is tried out with."""
    build = choices[name].build
    assert build is not None
    run = [pinned(choices[one]) if one == name else one for one in build.check.run]
    wanted = [*run, *_published(stack, choices, build.check.run)]
    own = [one for one in _own(stack, choices) if one not in build.check.run]
    return _resolve(uv, stack, python, wanted, own)


def without_own(wheels: Iterable[Wheel], choices: Choices) -> tuple[Wheel, ...]:
    """Wheels without those that we make ourselves.

    The package `cuda-toolkit` that torch requires is another thing than ours of that name.
    """
    made = (one for one in choices.values() if one.repacked or one.from_source)
    own = {canonicalize_name(one.name) for one in made}
    return tuple(wheel for wheel in wheels if canonicalize_name(wheel.name) not in own)


def pinned(choice: Choice) -> str:
    """A component as a requirement."""
    return f"{choice.name}=={choice.version}"


def _published(stack: Stack, choices: Choices, names: Iterable[str]) -> list[str]:
    """Of these names, what is installed as it is published; a prebuilt one's requirements."""
    named = set(names)
    found = [pinned(one) for one in choices.values() if one.as_is and one.name in named]
    return found + [need for item in stack.prebuilt if item.name in named for need in item.needs]


def _own(stack: Stack, choices: Choices) -> list[str]:
    """What no index is to be asked for: we make it."""
    return [
        one.name
        for one in choices.values()
        if not one.as_is and one.name not in stack.requires_of and one.source.kind != "toolkit"
    ]


def _resolve(
    uv: str, stack: Stack, python: str, wanted: list[str], own: list[str], *flags: str
) -> Script:
    never = [f"{name} ; python_version < '3'" for name in own]
    never += [f"{item.name}=={item.version} ; python_version < '3'" for item in stack.prebuilt]
    platform = f"{stack.arch}-manylinux_{stack.glibc.replace('.', '_')}"
    pins = "\n".join(stack.requirements)
    texts = ("\n".join(wanted), "\n".join(never), pins)
    return Script(_RESOLVE, (uv, python, platform, *texts, *flags))


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
