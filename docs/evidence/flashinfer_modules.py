"""Builds FlashInfer modules ahead of time and says for which GPUs each library holds code.

    CUDA_HOME=STORE/cuda-toolkit-.../cuda FLASHINFER_CUDA_ARCH_LIST=12.0f \\
        python docs/evidence/flashinfer_modules.py RELEASE/venv/bin/python [NAME ...]

The python of a release with FlashInfer builds; this one, with what `.[dev]` installs, reads.
"""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "firstlight/remote"))
import elf_needs
import fatbin

MAKERS = {
    "norm": ("flashinfer.jit.norm", "gen_norm_module"),
    "fp4_quantization": (
        "flashinfer.jit.fp4_quantization",
        "gen_fp4_quantization_sm120f_module",
    ),
}
BUILD = """\
import importlib, sys
spec = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
spec.build(verbose=False)
print(spec.get_library_path())
"""


def targets(library: Path) -> str:
    """How many pieces of GPU code a library holds, by target."""
    found: collections.Counter[str] = collections.Counter()
    with elf_needs.mapped(library) as data:
        for section in elf_needs.read(data).sections:
            if section.name == fatbin.LINKED:
                end = section.offset + section.size
                found.update(entry.target for entry in fatbin.entries(data, section.offset, end))
    return " ".join(f"{target}:{count}" for target, count in sorted(found.items())) or "none"


def main(python: str, names: list[str]) -> int:
    for name in names or list(MAKERS):
        words = [python, "-c", BUILD, *MAKERS[name]]
        built = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        library = Path(built.stdout.splitlines()[-1])
        size = library.stat().st_size
        sys.stdout.write(f"{name}: {library.name}, {size:,} bytes, {targets(library)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
