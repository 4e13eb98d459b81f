"""What it costs to ask a host what a large checkpoint declares and holds.

    python -m benchmarks.audit [--folder DIR] [--tensors 150000] [--shards 80] [--gb 400] [--json]

Makes a checkpoint of that size in a temporary folder: true headers, an index, scales of the KV
cache, and weights that are holes in sparse files. It is read as `invoke audit` reads one, by one
script through a shell, and its tensors are listed with the safetensors library for comparison.
Printed are the bytes that were read (as the program counts them, and as the kernel does), the
CPU time of everything that ran on the host, its memory, and the ratio. Exits with 1 when a target
is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path, PurePosixPath

from firstlight.effects.local import LocalShell
from firstlight.flows.checkpoint import read_folder
from firstlight.hosts.inventory import Host

_LIST = """\
import sys, time
from pathlib import Path
from safetensors import safe_open
count = 0
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, "numpy") as file:
        for name in file.keys():
            one = file.get_slice(name)
            one.get_dtype(), one.get_shape()
            count += 1
print(count, time.process_time(), Path("/proc/self/io").read_text().split()[1])
"""
LAYERS = 60
Entry = tuple[str, str, list[int]]


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        made = time.monotonic()
        total = make(folder, options.tensors, options.shards, options.gb * 10**9)
        print(f"made {total / 1e9:.1f} GB in {time.monotonic() - made:.1f} s", file=sys.stderr)
        figures = {"total_bytes": total, **measure(folder)}
    targets = {
        "share of bytes read": (figures["bytes_read"] / total, 0.001),
        "scripts": (figures["scripts"], 1),
        "host CPU seconds": (figures["host_cpu_s"], 2.0),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(report(figures))
    missed = [name for name, (value, most) in targets.items() if value > most]
    print("\n".join(f"MISSED: {name}" for name in missed) or "all targets met")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit")
    parser.add_argument("--folder", type=Path, help="where the sparse files are made")
    parser.add_argument("--tensors", type=int, default=150_000)
    parser.add_argument("--shards", type=int, default=80)
    parser.add_argument("--gb", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def entries(count: int) -> Iterator[Entry]:
    """Tensors of a mixture of experts in NVFP4, with scales of its KV cache in every layer."""
    left, experts = count, count // (LAYERS * 12) + 1
    for layer in range(LAYERS):
        for one in _layer(f"model.language_model.layers.{layer}", experts):
            if left <= 0:
                return
            left -= 1
            yield one


def _layer(prefix: str, experts: int) -> Iterator[Entry]:
    for side, rows in (("q", 8192), ("k", 512), ("v", 512), ("o", 4096)):
        yield f"{prefix}.self_attn.{side}_proj.weight", "BF16", [rows, 4096]
    for side in ("k", "v"):
        yield f"{prefix}.self_attn.{side}_proj.{side}_scale", "F32", []
    for expert in range(experts):
        for part in ("gate", "up", "down"):
            name = f"{prefix}.mlp.experts.{expert}.{part}_proj"
            yield f"{name}.weight", "U8", [2048, 4096]
            yield f"{name}.weight_scale", "F8_E4M3", [2048, 512]
            yield f"{name}.weight_scale_2", "F32", []
            yield f"{name}.input_scale", "F32", []


_BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}


def make(folder: Path, tensors: int, shards: int, total: int) -> int:
    """Write the checkpoint and give its size; one tensor a shard is made larger to come to it."""
    every = list(entries(tensors))
    each = -(-len(every) // shards)
    index: dict[str, str] = {}
    size = 0
    for number in range(shards):
        part = every[number * each : (number + 1) * each]
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        index |= dict.fromkeys((name for name, _, _ in part), file)
        size += _shard(folder / file, part, total // shards)
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text)
    config = {"architectures": ["Any"], "text_config": {"num_hidden_layers": LAYERS}}
    (folder / "config.json").write_text(json.dumps(config))
    return size


def _shard(path: Path, part: list[Entry], total: int) -> int:
    """A sparse file: header and scales are written, the rest is a hole."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at, scales = 0, []
    used = sum(_BYTES[dtype] * prod(shape) for _, dtype, shape in part)
    for name, dtype, shape in part:
        if shape and total > used:
            rows = (total - used) // (_BYTES[dtype] * shape[1])
            shape, used = [shape[0] + rows, shape[1]], total
        size = _BYTES[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        if name.endswith(("k_scale", "v_scale")):
            scales.append(at)
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for place in scales:
            file.seek(8 + len(text) + place)
            file.write(struct.pack("<f", 0.5))
        file.truncate(8 + len(text) + at)
    return path.stat().st_size


def measure(folder: Path) -> dict[str, float]:
    """Read it both ways, and count."""
    shell = LocalShell(Host(name="local"))
    before, begin = _children(), time.monotonic()
    found = read_folder(shell, PurePosixPath(folder))
    wall = time.monotonic() - begin
    # The shell is waited for by a thread of its own; until then its time is nobody's.
    while _children() == before and time.monotonic() < begin + wall + 5:
        time.sleep(0.01)
    cpu = _children() - before
    listed = subprocess.run(
        [sys.executable, "-c", _LIST, str(folder)], capture_output=True, text=True, check=True
    )
    count, library_cpu, library_rchar = listed.stdout.split()
    assert int(count) == found.tensors, (count, found.tensors)
    return {
        "tensors": found.tensors,
        "scales": len(found.scales),
        "findings": len(found.findings),
        "document_bytes": len(found.model_dump_json()),
        "scripts": shell.scripts,
        "bytes_read": found.cost.bytes_read,
        "rchar": found.cost.rchar,
        "program_cpu_s": found.cost.cpu_s,
        "host_cpu_s": round(cpu, 3),
        "wall_s": round(wall, 3),
        "peak_mib": round(found.cost.peak_kib / 1024, 1),
        "library_cpu_s": float(library_cpu),
        "library_rchar": int(library_rchar),
        "library_ratio": round(cpu / float(library_cpu), 3),
    }


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(found: dict[str, float]) -> str:
    share, kernel = (100 * found[name] / found["total_bytes"] for name in ("bytes_read", "rchar"))
    lines = [
        f"{found['tensors']:.0f} tensors, {found['total_bytes'] / 1e9:.1f} GB",
        f"scripts          {found['scripts']:.0f}, answer {found['document_bytes']} bytes",
        f"bytes read       {found['bytes_read']:.0f} ({share:.5f} %)",
        f"kernel's rchar   {found['rchar']:.0f} ({kernel:.5f} %), Python's own start included",
        f"host CPU         {found['host_cpu_s']} s (the program {found['program_cpu_s']:.3f} s)",
        f"wall time        {found['wall_s']} s",
        f"memory           {found['peak_mib']} MiB",
        f"safetensors      {found['library_cpu_s']:.3f} s CPU to list the same tensors",
        f"ratio            {found['library_ratio']}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
