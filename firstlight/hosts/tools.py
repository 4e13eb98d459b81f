"""What there is to build with: compilers, build tools, CUDA toolkits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.hosts.answers import Answers, version_in

_IN_BRACKETS = re.compile(r"\([^()]*\)")
_RELEASE = re.compile(r"release [0-9.]{1,20}, V([0-9]{1,6}(?:\.[0-9]{1,9})+)")
_TOOLKIT = re.compile(r'"cuda"\s*:\s*\{[^{}]*"version"\s*:\s*"([0-9.]{1,30})"')
# What facts.sh looks for: of another program it is not known whether it is there.
SOUGHT = frozenset({
    "cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make", "patch", "git", "rsync", "curl",
    "uv", "ccache", "tar", "zstd", "docker", "podman", "nvidia-ctk",
})  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """One program on PATH; `version` is None when it does not start or tells none."""

    name: str
    path: PurePosixPath
    version: str | None = None


@dataclass(frozen=True)
class Cuda:
    """One CUDA toolkit; `path` as it is called, `real_path` behind the links.

    `version` is nvcc's, so None where only a runtime is installed; `bundle` is the toolkit's own.
    """

    path: PurePosixPath
    real_path: PurePosixPath
    version: str | None = None
    bundle: str | None = None


def read_tools(answers: Answers) -> tuple[Tool, ...]:
    """Programs by name."""
    rows = (line.split("\t") for line in answers.lines("tools"))
    found = (Tool(r[0], PurePosixPath(r[1]), tool_version(r[2])) for r in rows if len(r) == 3)
    return tuple(sorted(found, key=lambda tool: tool.name))


def tool_version(line: str) -> str | None:
    """The version in a `--version` line; a maker's own, in brackets before it, is not it."""
    return version_in(_IN_BRACKETS.sub(" ", line)) or version_in(line)


def read_cudas(answers: Answers) -> tuple[Cuda, ...]:
    """Toolkits, the preferred one first, each once however many links lead to it."""
    found: dict[PurePosixPath, Cuda] = {}
    for cuda in _cudas(answers):
        found.setdefault(cuda.real_path, cuda)
    return tuple(found.values())


def _cudas(answers: Answers) -> Iterator[Cuda]:
    for line in answers.lines("toolkits"):
        path, real, nvcc, bundle = (*line.split("\t"), "", "", "", "")[:4]
        if path.startswith("/"):
            real_path = PurePosixPath(real or path)
            yield Cuda(PurePosixPath(path), real_path, nvcc_version(nvcc), bundle_version(bundle))


def nvcc_version(text: str) -> str | None:
    """`13.1.115` from `nvcc --version`."""
    found = _RELEASE.search(text)
    return found[1] if found else None


def bundle_version(text: str) -> str | None:
    """The toolkit's version from its version.json."""
    found = _TOOLKIT.search(text)
    return found[1] if found else None
