"""The build room: what names an artifact that is made from source, and the CUDA toolkit.

A key digests what changes the bits: the recipe as it was filled in, the sources, the patches, what
it is built with. The driver, the count of jobs and the compiler cache do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from firstlight.build.choose import Choice
from firstlight.build.digest import short
from firstlight.build.lock import LockFile
from firstlight.build.recipe import Python, Stack
from firstlight.build.release import Artifact, Layout, Patch, artifact

# Counts up when what our programs do to a source, or to a toolkit's wheels, changes the bits.
WAY = 1


def toolkit_artifact(layout: Layout, choice: Choice, lock: LockFile, cuda: str) -> Artifact:
    """The CUDA toolkit that is put together from a lock's wheels."""
    wheels = sorted(wheel.sha256 for wheel in lock.toolkit)
    return artifact(layout, choice, short({"way": WAY, "cuda": cuda, "wheels": wheels}))


def built_artifact(
    layout: Layout,
    choice: Choice,
    stack: Stack,
    lock: LockFile,
    series: Python,
    patches: Iterable[Patch],
    made: Mapping[str, Artifact],
) -> Artifact:
    """What a component's source becomes for one CPython; `made` are the artifacts that it needs."""
    python, build = lock.pythons[series], choice.build
    assert build is not None
    recipe = build.model_dump(
        mode="json", include={"backend", "project", "subdir", "env", "config", "cmake"}
    )
    key = short(
        {
            "way": WAY,
            "name": choice.name,
            "version": choice.version,
            "local_version": choice.local_version,
            "recipe": recipe,
            "gencodes": gencodes(choice, stack),
            "arch": [stack.arch, list(stack.arch_list)],
            "sources": [[one.name, one.sha256] for one in lock.archives[choice.name]],
            "patches": [[patch.sha256, patch.load_bearing] for patch in patches],
            # What is built with wheels for any CPython may itself be for one alone.
            "python": series,
            "wheels": sorted(wheel.sha256 for wheel in python.build.get(choice.name, ())),
            "toolkit": [stack.toolkit, stack.cuda],
            "needs": sorted(made[name].key for name in choice.needs if name in made),
        }
    )
    return artifact(layout, choice, key)


def gencodes(choice: Choice, stack: Stack) -> list[str]:
    """The gencodes that the launcher keeps; none = all."""
    arch = choice.build.arch if choice.build else None
    kept = arch.gencodes if arch else {}
    return [kept[capability] for capability in stack.arch_list if capability in kept]
