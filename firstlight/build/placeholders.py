"""The build room: the closed vocabulary of `${...}` in a component's environment and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Known when a build is planned.
PLANNED = {
    "version": "the component's version",
    "tag": "the stack's tag",
    "cuda": "the CUDA release, 13.0",
    "cuda_tag": "the CUDA release as a wheel names it, cu130",
    "torch": "torch's version",
    "arch_list": "the stack's capabilities, each as this component spells it",
    "threads": "threads of one nvcc",
}
# Known where and when the component is built.
ON_HOST = {
    "jobs": "how many compilers run side by side",
    "cuda_home": "the toolkit's folder, a real path",
    "source": "the folder of the source tree",
    "build": "a folder to build in",
    "venv": "the build's Python environment",
    "launcher": "what goes before nvcc: it filters gencodes and asks the compiler cache",
    "fetched:NAME": "the folder of a fetched source, for each name in `fetched`",
}
_USE = re.compile(r"\$\{([^}]*)\}")


def used(text: str) -> tuple[str, ...]:
    """The words inside every `${...}` of a text."""
    return tuple(_USE.findall(text))


def unclosed(text: str) -> bool:
    """True when a `${` of a text never ends, and would reach the build as it stands."""
    return "${" in _USE.sub("", text)


def unknown(text: str, fetched: Iterable[str]) -> tuple[str, ...]:
    """The words of a text that the vocabulary does not have."""
    return tuple(word for word in used(text) if word not in vocabulary(fetched))


def vocabulary(fetched: Iterable[str]) -> tuple[str, ...]:
    """Every word that a component with these fetched sources may use."""
    plain = (word for word in (*PLANNED, *ON_HOST) if ":" not in word)
    return (*plain, *(f"fetched:{name}" for name in fetched))


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with every word that has a value replaced; the others stay for the host."""
    return _USE.sub(lambda use: values.get(use[1], use[0]), text)
