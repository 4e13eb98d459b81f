"""Test hosts: the one tree that all of them share, made by debootstrap and kept by its digest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.call import FleetError, call

CACHE = Path("/var/cache/firstlight-tests")
SETUP = Path(__file__).with_name("setup_base.sh")
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "dbus-user-session",
    "libpam-systemd",
    "openssh-server",
    "python3",
    "python3-venv",
    "zsh",
    "fish",
    "iproute2",
    "procps",
    "rsync",
    "sudo",
)


@dataclass(frozen=True)
class AptSource:
    """Where this machine gets its own packages from: what debootstrap wants to know."""

    mirror: str
    suite: str
    components: tuple[str, ...]
    keyring: str | None = None


def base_tree() -> Path:
    """The finished base tree; made on the first call (minutes), found on every later one."""
    source = apt_source()
    tree = CACHE / f"base-{base_key(source)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "lock"):
        if not tree.exists():
            partial = tree.with_name(f"{tree.name}.partial")
            clear_tree(partial)
            _make(partial, source)
            partial.rename(tree)
    return tree


def base_key(source: AptSource) -> str:
    """A digest of what the tree is made from; not of the mirror, which changes no content."""
    words = (platform.machine(), source.suite, *source.components, *PACKAGES, SETUP.read_text())
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


def _make(tree: Path, source: AptSource) -> None:
    keyring = [f"--keyring={source.keyring}"] if source.keyring else []
    call(
        "debootstrap",
        "--variant=minbase",
        f"--components={','.join(source.components)}",
        f"--include={','.join(PACKAGES)}",
        *keyring,
        source.suite,
        str(tree),
        source.mirror,
        timeout_s=1200,
    )
    call("chroot", str(tree), "/bin/bash", "-s", stdin=SETUP.read_text())


def apt_source(etc: Path = Path("/etc/apt")) -> AptSource:
    """The first source of this machine's own distribution; raises FleetError for none."""
    files = [
        *(etc / "sources.list.d" / name for name in ("debian.sources", "ubuntu.sources")),
        etc / "sources.list",
    ]
    for file in files:
        found = read_source(file.read_text()) if file.exists() else None
        if found is not None:
            return found
    places = ", ".join(map(str, files))
    raise FleetError(f"no http mirror of this distribution in {places}")


def read_source(text: str) -> AptSource | None:
    """The first binary source with an http mirror, in either format of apt; None for none."""
    one_line = [_from_line(line) for line in text.splitlines()]
    paragraphs = [_from_paragraph(part) for part in text.split("\n\n")]
    return next((found for found in (*one_line, *paragraphs) if found is not None), None)


def _from_line(line: str) -> AptSource | None:
    if not line.startswith("deb "):
        return None
    options, _, rest = line[4:].strip().rpartition("]")
    words = dict(option.partition("=")[::2] for option in options.lstrip("[").split())
    mirror, suite, *components = rest.split()
    return _checked([mirror], [suite], components, words.get("signed-by"))


def _from_paragraph(text: str) -> AptSource | None:
    lines = [line for line in text.splitlines() if ":" in line and line[0] not in "# \t"]
    fields = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    if "deb" not in fields.get("Types", []):
        return None
    keyring = next(iter(fields.get("Signed-By", [])), None)
    return _checked(
        fields.get("URIs", []), fields.get("Suites", []), fields.get("Components", []), keyring
    )


def _checked(
    mirrors: Sequence[str], suites: Sequence[str], components: Sequence[str], keyring: str | None
) -> AptSource | None:
    reachable = [mirror for mirror in mirrors if mirror.startswith(("http://", "https://"))]
    plain = [suite for suite in suites if "-" not in suite and "/" not in suite]
    if not (reachable and plain and components):
        return None
    return AptSource(reachable[0], plain[0], tuple(components), keyring)


def clear_tree(tree: Path) -> None:
    """Remove a tree, after everything mounted in it; never reaches into another file system."""
    for place in reversed(mounts_under(tree)):
        call("umount", str(place))
    call("rm", "-rf", "--one-file-system", "--", str(tree))


def mounts_under(tree: Path) -> list[Path]:
    """Where something is mounted in the tree, in the order of mounting."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [Path(line.split()[4].replace(r"\040", " ")) for line in lines]
    return [place for place in places if place.is_relative_to(tree)]


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock file; waits for whoever holds it. The kernel frees it when the holder dies."""
    with file.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
