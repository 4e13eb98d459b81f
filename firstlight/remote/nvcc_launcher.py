"""Goes before a compiler: keeps the gencodes that are wanted, and asks the compiler cache.

    nvcc_launcher.py nvcc ...

FIRSTLIGHT_GENCODES lists the architectures to keep (`120a`), separated by commas; without it all
are kept. FIRSTLIGHT_CCACHE is the compiler cache to go through; without it there is none. A build
file that hard-codes its targets is so trimmed without a patch.
"""

from __future__ import annotations

import itertools
import os
import re
import sys

WORDS = ("-gencode", "--generate-code")
ARCH = re.compile(r"arch=compute_(\w+)")


def wanted(specification: str, keep: set[str]) -> bool:
    found = ARCH.search(specification)
    return found is None or found[1] in keep


def filtered(argv: list[str], keep: set[str]) -> list[str]:
    """The command without the gencodes that are not wanted; all of them, when none would stay."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word in WORDS:
            pair = [word, *itertools.islice(words, 1)]
            kept += pair if wanted(pair[-1], keep) else []
        elif name not in WORDS or not equals or wanted(value, keep):
            kept.append(word)
    asked = any(word.startswith(WORDS) for word in argv)
    return argv if asked and not any(word.startswith(WORDS) for word in kept) else kept


def main(argv: list[str]) -> None:
    keep = {name for name in os.environ.get("FIRSTLIGHT_GENCODES", "").split(",") if name}
    command = filtered(argv, keep) if keep else argv
    cache = os.environ.get("FIRSTLIGHT_CCACHE")
    if cache:
        command = [cache, *command]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"nvcc_launcher: {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
