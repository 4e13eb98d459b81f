"""Small profiles and flag tables that several tests of the serve room share."""

from pathlib import Path, PurePosixPath

from firstlight.core.errors import ConfigError
from firstlight.core.schema import Document, load
from firstlight.serve.arguments import check_args
from firstlight.serve.capabilities import Capabilities, Flag
from firstlight.serve.policy import check_profile
from firstlight.serve.profile import Profile
from firstlight.serve.render import Deployment, Flavour

ROOT = Path(__file__).parents[2]
FILE = "recipes/profiles/p.yaml"

HEAD = """\
schema: 1
name: p
stack: s
model: {kind: path, path: /models/m}
served_model_name: m
"""

ENGINE = Capabilities(
    engine="sglang",
    version="9.9",
    flags={
        "--kv-cache-dtype": Flag(type="str", choices=("auto", "bf16", "fp8_e4m3"), default="auto"),
        "--max-total-tokens": Flag(type="human_readable_int"),
        "--tp-size": Flag(type="int", aliases=("--tensor-parallel-size",)),
        "--mem-fraction-static": Flag(type="float"),
        "--log-level-http": Flag(type="str"),
        "--log-requests-level": Flag(type="int", choices=(0, 1, 2)),
        "--cuda-graph-max-bs-decode": Flag(type="int"),
        "--cuda-graph-max-bs-prefill": Flag(type="int"),
        "--trust-remote-code": Flag(kind="store_true", type="bool", nargs=0, default=False),
        "--disable-cuda-graph": Flag(
            kind="action:DeprecatedStoreTrueAction",
            deprecated=True,
            new_flag="--cuda-graph-backend-{decode,prefill}=disabled",
        ),
        "--nsa-backend": Flag(type="str", deprecated=True, new_flag="--log-level-http"),
        "--grpc-mode": Flag(kind="store_true", deprecated=True),
        "--tf32": Flag(kind="optional-bool", nargs=0, default=True, aliases=("--no-tf32",)),
        "--lora-paths": Flag(type="str", nargs="*"),
        "--numa-node": Flag(type="int", nargs="+"),
        "--label": Flag(kind="append", type="str"),
        "--override": Flag(type="loads"),
        "--checksum": Flag(type="str", nargs="?"),
    },
)


def sound(text: str, file: str) -> Document[Profile]:
    """A profile that has no fault of its own; raises ConfigError with all of them."""
    document = load(text, file, Profile)
    if faults := check_profile(document):
        raise ConfigError(faults)
    return document


def told(text: str) -> list[str]:
    """Every fault of a profile file, as a person sees them."""
    try:
        sound(text, FILE)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def checked(text: str, capabilities: Capabilities = ENGINE) -> list[str]:
    """Every fault of a profile file against an engine, as a person sees them."""
    faults = check_args(sound(text, FILE), capabilities)
    return [str(fault) for fault in sorted(faults)]


def profile(rest: str = "args: {kv_cache_dtype: bf16}\n") -> Profile:
    return sound(HEAD + rest, FILE).value


def deployment(
    read: Profile, root: PurePosixPath | None = None, flavour: Flavour = "process"
) -> Deployment:
    root = root or PurePosixPath("/srv/fl")
    return Deployment(
        profile=read,
        home=root / "deployments/p/1",
        release=root / "releases/r1",
        model=root / "models/m",
        flavour=flavour,
        user="ml",
        capabilities=ENGINE,
    )


def templates() -> dict[str, str]:
    """The project's own templates, by name."""
    return {path.name: path.read_text() for path in (ROOT / "templates").iterdir()}
