"""What a checkpoint holds, read from true files, from broken ones, and from hostile ones."""

from __future__ import annotations

import ast
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import json_members
import pytest
import read_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from json_members import Members, NotJson, tensors

from tests.remote.checkpoints import (
    INDEX,
    Tensor,
    checkpoint,
    f32,
    header,
    kv_scales,
    layer,
    raw,
    shard,
    zeros,
)
from tests.remote.programs import PROGRAMS, run

ONE = "model.safetensors"
K = "model.layers.0.self_attn.k_proj.weight"


def read(folder: Path) -> dict[str, Any]:
    """What the program prints."""
    found: dict[str, Any] = json.loads(read_checkpoint.answer(str(folder)))
    return found


def read_there(folder: Path) -> dict[str, Any]:
    """The same, in a process of its own, as on a host."""
    ended = run("read_checkpoint.py", folder)
    assert (ended.code, ended.err) == (0, "")
    found: dict[str, Any] = json.loads(ended.out)
    return found


def told(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["severity"], one["kind"], one["where"]) for one in found["findings"]]


def test_nothing_of_a_strangers_text_is_obeyed_by_a_terminal(tmp_path: Path) -> None:
    """A name could put a verdict of its own on the screen."""
    evil = "Llama\x1b[2J\n  bf16  bfloat16  no  safe\u202e"
    scale = {"model.layers.0.self_attn.k_proj.k_scale\x1b[1A": f32(0.5)}
    parts = ({f"{evil}.0.weight": zeros("U8", 1)} | scale, layer(1))
    config = {"architectures": [evil], evil: 1, "x" + "y" * 3000: "\x9b" + "z" * 3000}
    checkpoint(tmp_path, *parts, config=config)
    found = read_there(tmp_path)
    name = found["documents"]["config.json"]["architectures"][0]
    assert name == "Llama\\x1b[2J\\n  bf16  bfloat16  no  safe\\u202e"
    texts = [*found["documents"]["config.json"], *found["documents"]["config.json"].values()]
    texts += [one["name"] for one in (*found["groups"], *found["scales"])]
    texts += [one[key] for one in found["findings"] for key in ("where", "what")]
    assert [text for text in texts if not str(text).isprintable()] == []


def test_names_of_files_and_templates_are_a_strangers_text_too(tmp_path: Path) -> None:
    shard(tmp_path / "a\x1b[2J\n.safetensors", layer(0) | kv_scales(0, 0.5, 0.5))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "b\x1b.py").touch()
    templates = [{"name": "c\x1b\nd", "template": "x"}]
    said = json.dumps({"chat_template": templates})
    (tmp_path / "tokenizer_config.json").write_text(said)
    found = read_there(tmp_path)
    name = "a\\x1b[2J\\n.safetensors"
    assert ("error", "file-name", name) in told(found)
    # What is read of a file is told by its name, and looked up by it on a hub.
    assert (found["shards"][0]["file"], found["scales"], found["tensors"]) == (name, [], 0)
    assert found["code"] == ["b\\x1b.py"]
    assert found["chat_templates"] == {"tokenizer_config.json#c\\x1b\\nd": 1}


def test_two_shards(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, layer(0) | kv_scales(0, 0.5, 1.0), layer(1))
    found = read_there(folder)
    assert found["findings"] == []
    assert (found["tensors"], found["index"]) == (10, {"tensors": 10, "shards": 2, "missing": 0})
    groups = {one["name"]: one for one in found["groups"]}
    assert groups["model.layers.*.mlp.experts.*.up_proj.weight"] == {
        "name": "model.layers.*.mlp.experts.*.up_proj.weight",
        "dtype": "U8",
        "shape": [4, 4],
        "count": 4,
        "bytes": 64,
        "layers": "0-1",
    }
    assert [(one["name"], one["role"], one["values"]) for one in found["scales"]] == [
        ("model.layers.0.self_attn.k_proj.k_scale", "k", [0.5]),
        ("model.layers.0.self_attn.v_proj.v_scale", "v", [1.0]),
    ]
    assert sum(one["bytes"] for one in found["groups"]) == 2 * (2 * 64 + 2 * 16) + 2 * 4


def test_only_headers_and_scales_are_read(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, layer(0) | kv_scales(0, 0.5, 1.0) | {"big": zeros("U8", 1 << 20)})
    (path,) = folder.glob("*.safetensors")
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    small = sum((folder / name).stat().st_size for name in ("config.json", INDEX))
    assert read(folder)["cost"]["bytes_read"] == 8 + length + 2 * 4 + small


def test_the_same_as_the_safetensors_library(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    pytest.importorskip("numpy")
    path = shard(tmp_path / ONE, layer(0) | kv_scales(0, 0.25, 2.0))
    with library.safe_open(path, "numpy") as file:
        kinds = [(name, file.get_slice(name).get_shape()) for name in sorted(file.keys())]
        value = float(file.get_tensor("model.layers.0.self_attn.v_proj.v_scale"))
    found = read(tmp_path)
    assert found["tensors"] == len(kinds)
    assert {tuple(shape) for _, shape in kinds} == {tuple(g["shape"]) for g in found["groups"]}
    assert found["scales"][1]["values"] == [value]


SPELLINGS = [
    ("model.layers.3.self_attn.k_proj.k_scale", "k", "modelopt"),
    ("backbone.layers.3.mixer.v_proj.v_scale", "v", "modelopt"),
    ("model.layers.3.self_attn.k_scale", "k", "plain"),
    ("transformer.h.3.attn.v_scale", "v", "plain"),
    ("model.layers.3.self_attn.attn.v_scale", "v", "unknown"),
    ("model.layers.3.self_attn.kv_cache.k_scale", "k", "unknown"),
    ("model.layers.3.self_attn.attn_mqa.v_scale", "v", "unknown"),
    ("model.layers.3.attention.wk.k_scale", "k", "unknown"),
    ("model.layers.3.attention.k_scale", "k", "plain"),
    ("model.layers.3.attention.k_proj.k_scale", "k", "unknown"),
    ("model.layers.3.self_attn.kv_scale", "kv", "legacy"),
    ("model.layers.3.self_attn.v_proj.output_scale", "v", "quark"),
    ("mtp.layers.3.self_attn.k_proj.k_scale", "k", "modelopt"),
    ("model.layers.3.self_attn.k_cache_scale", "k", "unknown"),
    ("model.layers.3.self_attn.k_bmm_quantizer._amax", "k", "unknown"),
]
NO_SCALES = ["k_proj.weight_scale", "k_proj.input_scale", "q_proj.output_scale", "o_proj.k_scale_x"]


def test_every_spelling_of_a_scale(tmp_path: Path) -> None:
    others = {f"model.layers.3.self_attn.{name}": f32(9.0) for name in NO_SCALES}
    shard(tmp_path / ONE, {name: f32(0.5) for name, _, _ in SPELLINGS} | others)
    scales = read(tmp_path)["scales"]
    assert sorted((s["name"], s["role"], s["form"]) for s in scales) == sorted(SPELLINGS)
    assert {(s["layer"], tuple(s["values"])) for s in scales} == {(3, (0.5,))}


VALUES: list[tuple[Tensor, list[float | None]]] = [
    (("BF16", [1], struct.pack("<f", 0.375)[2:]), [0.375]),
    (("F16", [], struct.pack("<e", 0.1)), [0.0999755859375]),
    (("F64", [], struct.pack("<d", 0.1)), [0.1]),
    (("F8_E8M0", [], bytes([126])), [0.5]),
    (("F8_E4M3", [3], bytes([0x38, 0x7E, 0x01])), [1.0, 448.0, 2.0**-9]),
    (("F8_E5M2", [2], bytes([0x3C, 0x7B])), [1.0, 57344.0]),
    (("I32", [], struct.pack("<i", 2)), [2.0]),
    (f32(*[0.5] * 20), [0.5] * 16),
    (f32(float("nan"), 2.0), [None, 2.0]),
]


@pytest.mark.parametrize("tensor, values", VALUES, ids=lambda one: str(one)[:20])
def test_values_of_every_format(tmp_path: Path, tensor: Tensor, values: list[float]) -> None:
    shard(tmp_path / ONE, {"a.k_scale": tensor})
    (scale,) = read(tmp_path)["scales"]
    assert scale["values"] == values
    assert scale["count"] == max(1, tensor[1][0] if tensor[1] else 1)


@pytest.mark.parametrize(
    "value, severity",
    [(-1.0, "warning"), (0.0, "warning"), (float("nan"), "error"), (float("inf"), "error")],
)
def test_a_scale_that_is_none_is_told(tmp_path: Path, value: float, severity: str) -> None:
    shard(tmp_path / ONE, {"a.k_scale": f32(value)})
    assert (severity, "scale-value", f"{ONE}: a.k_scale") in told(read(tmp_path))


def test_the_second_form_of_one_model_is_left_out(tmp_path: Path) -> None:
    """Without an index the engine reads every file, but for this pair."""
    for name in ("consolidated.safetensors", ONE):
        shard(tmp_path / name, layer(0))
    found = read(tmp_path)
    assert (found["tensors"], len(found["shards"])) == (4, 1)
    assert ("warning", "extra-shard", "consolidated.safetensors") in told(found)
    shard(tmp_path / "third.safetensors", layer(1))
    assert ("error", "duplicate", f"{ONE}: {K}") in told(read(tmp_path))


def test_a_scale_too_large_to_be_one_is_not_read(tmp_path: Path) -> None:
    shard(tmp_path / ONE, {"a.k_scale": zeros("F32", 2048)})
    found = read(tmp_path)
    assert found["scales"][0]["values"] == []
    assert ("warning", "scale-value", f"{ONE}: a.k_scale") in told(found)


Make = Callable[[Path], object]


def _one(**edits: Any) -> Make:
    return lambda folder: shard(folder / ONE, layer(0), **edits)


def _bytes(data: bytes) -> Make:
    return lambda folder: (folder / ONE).write_bytes(data)


def _tensor(begin: int, end: int, dtype: str = "U8", shape: Any = None) -> dict[str, Any]:
    dims = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": dims, "data_offsets": [begin, end]}


def _text(members: dict[str, Any], data: bytes = b"", after: str = "") -> Make:
    return _bytes(raw((json.dumps(members) + after).encode(), data))


def _sparse(claim: int, size: int) -> Make:
    def make(folder: Path) -> None:
        with (folder / ONE).open("wb") as file:
            file.write(struct.pack("<Q", claim))
            file.truncate(size)

    return make


TWICE = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":%s}' % json.dumps(_tensor(1, 2))  # noqa: UP031

BROKEN: dict[str, tuple[Make, str]] = {
    "empty file": (_bytes(b""), "truncated"),
    "seven bytes": (_bytes(b"1234567"), "truncated"),
    "length beyond the file": (_bytes(raw(b"{}", length=3)), "header-length"),
    "length of 2**64-1": (_bytes(raw(b"{}", length=2**64 - 1)), "header-length"),
    "length above 100 MB": (_sparse(100_000_001, 1 << 30), "header-length"),
    "header of zeros": (_sparse(1 << 20, 1 << 21), "header-json"),
    "no JSON": (_bytes(raw(b"hello   ")), "header-json"),
    "a list": (_bytes(raw(b"[]")), "header-json"),
    "no end": (_bytes(raw(b'{"a":')), "header-json"),
    "a comma too many": (_bytes(raw(b'{"a":1,}')), "header-json"),
    "text behind its end": (_text(header({}), after=" x"), "header-json"),
    "NaN": (_bytes(raw(b'{"a":NaN}')), "header-json"),
    "deep": (_bytes(raw(b'{"a":' + b"[" * 100_000 + b"}")), "header-json"),
    "a number of 5000 digits": (_bytes(raw(b'{"a":' + b"9" * 5000 + b"}")), "header-json"),
    "a tensor that is a number": (_text({"a": 1, "b": _tensor(0, 1)}, b"1"), "header-json"),
    "a shape that is a word": (_text({"a": _tensor(0, 1, shape="x")}, b"1"), "header-json"),
    "a shape below zero": (_text({"a": _tensor(0, 1, shape=[-1, -1])}, b"1"), "header-json"),
    "a shape with a fraction": (_text({"a": _tensor(0, 1, shape=[1.0])}, b"1"), "header-json"),
    "offsets below zero": (_text({"a": _tensor(-1, 0)}, b"1"), "header-json"),
    "three offsets": (_text({"a": _tensor(0, 1) | {"data_offsets": [0, 1, 2]}}), "header-json"),
    "a key too many": (_text({"a": _tensor(0, 1) | {"x": 1}}, b"1"), "header-json"),
    "no UTF-8": (_bytes(raw(b'{"\xff":1}')), "header-json"),
    "overlap": (_text({"a": _tensor(0, 4), "b": _tensor(2, 6)}, b"123456"), "offsets"),
    "inside another": (_text({"a": _tensor(0, 6), "b": _tensor(2, 4)}, b"123456"), "offsets"),
    "gap": (_text({"a": _tensor(0, 2), "b": _tensor(4, 6)}, b"123456"), "offsets"),
    "end before begin": (_text({"a": _tensor(4, 2, shape=[2])}, b"1234"), "offsets"),
    "wrong size": (_one(**{K: _tensor(0, 64, "F32", [4, 8])}), "offsets"),
    "data cut short": (_text({"a": _tensor(0, 9)}, b"1234"), "truncated"),
    "a shape of huge numbers": (_text({"a": _tensor(0, 0, shape=[10**4000] * 2)}), "header-json"),
    "a shape of very many": (_text({"a": _tensor(0, 0, shape=[10**17] * 400)}), "header-json"),
    "offsets far away": (_text({"a": _tensor(0, 10**17)}, b"1234"), "truncated"),
    "bytes behind the data": (_text({"a": _tensor(0, 1)}, b"1234"), "offsets"),
    "unknown dtype": (_text({"a": _tensor(0, 1, "F7")}, b"1"), "dtype"),
    "twice in one header": (_bytes(raw(TWICE.encode(), b"12")), "duplicate"),
}


@pytest.mark.parametrize("make, kind", BROKEN.values(), ids=BROKEN)
def test_a_broken_shard_is_a_finding(tmp_path: Path, make: Make, kind: str) -> None:
    make(tmp_path)
    kinds = {(found[1], found[2].split(":")[0]) for found in told(read(tmp_path))}
    assert (kind, ONE) in kinds
    assert kinds <= {(kind, ONE), ("missing-file", "config.json"), ("duplicate", ONE)}


def test_empty_tensors_and_any_order_are_right(tmp_path: Path) -> None:
    """A header need not be in the order of the data, and a tensor may have no bytes."""
    members = {"b": _tensor(4, 6), "none": _tensor(4, 4, shape=[0, 3]), "a": _tensor(0, 4)}
    sorted_keys = {name: dict(sorted(one.items())) for name, one in members.items()}
    text = json.dumps({**sorted_keys, "__metadata__": {"at": "the end"}}, indent=1)
    (tmp_path / ONE).write_bytes(raw(text.encode() + b"\n  ", b"123456"))
    (tmp_path / "config.json").write_text("{}")
    found = read(tmp_path)
    assert (found["findings"], found["tensors"]) == ([], 3)


def _index(folder: Path, weight_map: Any, **more: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map, **more}))


FILE1, FILE2 = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))


def _edited(change: Callable[[dict[str, str]], object]) -> Make:
    def make(folder: Path) -> None:
        checkpoint(folder, layer(0), layer(1))
        named = json.loads((folder / INDEX).read_text())["weight_map"]
        change(named)
        _index(folder, named)

    return make


def _with(change: Callable[[Path], object]) -> Make:
    def make(folder: Path) -> None:
        checkpoint(folder, layer(0), layer(1))
        change(folder)

    return make


def _link(folder: Path) -> None:
    (folder / FILE1).unlink()
    (folder / FILE1).symlink_to("../../blobs/0123")


def _fifo(folder: Path) -> None:
    (folder / FILE1).unlink()
    os.mkfifo(folder / FILE1)


def _folder(folder: Path) -> None:
    (folder / FILE1).unlink()
    (folder / FILE1).mkdir()


def _both(folder: Path) -> None:
    shard(folder / FILE2, layer(0) | layer(1))


AMISS: dict[str, tuple[Make, tuple[str, str, str]]] = {
    "a shard that is missing": (
        _with(lambda f: (f / FILE1).unlink()),
        ("error", "missing-file", FILE1),
    ),
    "a broken link": (_with(_link), ("error", "broken-link", FILE1)),
    "a pipe": (_with(_fifo), ("error", "no-file", FILE1)),
    "a folder": (_with(_folder), ("error", "no-file", FILE1)),
    "a shard that is not named": (
        _with(lambda f: shutil.copy(f / FILE1, f / "consolidated.safetensors")),
        ("warning", "extra-shard", "consolidated.safetensors"),
    ),
    "the wrong shard": (
        _edited(lambda named: named.update({K: FILE2})),
        ("error", "index", f"{FILE1}: {K}"),
    ),
    "a tensor that is nowhere": (
        _edited(lambda named: named.update({"gone": FILE2})),
        ("error", "missing-tensor", "gone"),
    ),
    "a tensor that is not named": (
        _edited(lambda named: named.pop(K)),
        ("warning", "not-in-index", f"{FILE1}: {K}"),
    ),
    "a tensor in two shards": (_with(_both), ("error", "duplicate", f"{FILE2}: {K}")),
    "a shard outside": (
        _edited(lambda named: named.update({K: "../x.safetensors"})),
        ("error", "index", "../x.safetensors"),
    ),
    "a name that no file can have": (
        _edited(lambda named: named.update({K: "a\0b"})),
        ("error", "file-name", "a\\x00b"),
    ),
    "an index that is no JSON": (
        _with(lambda f: (f / INDEX).write_text('{"weight_map": {"a"')),
        ("error", "not-json", INDEX),
    ),
    "an index of numbers": (
        _edited(lambda named: named.update({K: 7})),  # type: ignore[dict-item]
        ("error", "missing-file", "7"),
    ),
    "an index that says a tensor twice": (
        _with(
            lambda f: (f / INDEX).write_text('{"weight_map": {"%s":"a","%s":"a"}}' % (K, K))  # noqa: UP031
        ),
        ("error", "duplicate", INDEX),
    ),
}


@pytest.mark.parametrize("make, wanted", AMISS.values(), ids=AMISS)
def test_what_is_amiss_between_files(
    tmp_path: Path, make: Make, wanted: tuple[str, str, str]
) -> None:
    make(tmp_path)
    assert wanted in told(read(tmp_path))


def test_a_broken_index_does_not_hide_the_tensors(tmp_path: Path) -> None:
    checkpoint(tmp_path, layer(0), layer(1))
    (tmp_path / INDEX).write_text("[")
    found = read(tmp_path)
    assert (found["index"], found["tensors"]) == (None, 8)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("", "not-json"),
        ("[1]", "not-json"),
        ('{"a": 1,\n "b" 2}', "not-json"),
        ('{"a": NaN}', "not-json"),
        ('{"a": 1, "a": 2}', "not-json"),
        ("[" * 5000, "not-json"),
        ('{"a": "' + "x" * (9 << 20) + '"}', "too-large"),
    ],
)
def test_a_broken_config_is_a_finding(tmp_path: Path, text: str, kind: str) -> None:
    checkpoint(tmp_path, layer(0))
    (tmp_path / "config.json").write_text(text)
    assert told(read(tmp_path)) == [("error", kind, "config.json")]


def test_small_files_are_cut_to_what_matters(tmp_path: Path) -> None:
    config = {"id2label": {str(n): "x" for n in range(9)}, "long": list(range(600)), "deep": {}}
    checkpoint(tmp_path, layer(0), config=config)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": [1]}')
    words = {"chat_template": "hello", "added_tokens_decoder": {"1": 2}, "auto_map": {"A": "b.C"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(words))
    (tmp_path / "chat_template.jinja").write_text(" \n")
    (tmp_path / "modeling_x.py").touch()
    found = read(tmp_path)
    assert found["documents"]["config.json"] == {"long": list(range(512)), "deep": {}}
    assert found["documents"]["generation_config.json"] == {"temperature": 0.6}
    assert found["documents"]["tokenizer_config.json"] == {"auto_map": {"A": "b.C"}}
    assert found["chat_templates"] == {"tokenizer_config.json": 5, "chat_template.jinja": 0}
    assert found["code"] == ["modeling_x.py"]
    assert told(found) == [("note", "cut", "config.json.long")]


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(home: Path) -> Path:
    """A repository as a hub's cache keeps it: links from a snapshot to blobs."""
    made = checkpoint(home / "made", layer(0) | kv_scales(0, 0.5, 0.5))
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    (home / "blobs").mkdir()
    (home / "snapshots" / COMMIT).mkdir(parents=True)
    for number, path in enumerate(sorted(made.iterdir())):
        path.rename(home / "blobs" / f"{number:040}")
        link = home / "snapshots" / COMMIT / path.name
        link.symlink_to(f"../../blobs/{number:040}")
    return home


def test_a_hubs_cache(tmp_path: Path) -> None:
    home = cached(tmp_path)
    by_snapshot, by_home = read(home / "snapshots" / COMMIT), read(home)
    assert by_snapshot["findings"] == []
    assert told(by_home) == [("note", "snapshot", str(home))]
    for found in (by_snapshot, by_home):
        assert (found["revision"], found["tensors"], len(found["scales"])) == (COMMIT, 6, 2)


def test_a_hubs_cache_that_does_not_say_which(tmp_path: Path) -> None:
    home = cached(tmp_path)
    (home / "refs" / "main").unlink()
    assert read(home)["revision"] == COMMIT
    (home / "snapshots" / "other").mkdir()
    assert told(read(home))[0] == ("error", "snapshot", str(home))


@pytest.mark.parametrize("name, kind", [("nowhere", "no-folder"), (ONE, "no-folder")])
def test_no_folder(tmp_path: Path, name: str, kind: str) -> None:
    shard(tmp_path / ONE, layer(0))
    assert told(read(tmp_path / name)) == [("error", kind, str(tmp_path / name))]


def test_other_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    found = read(tmp_path)
    assert ("error", "other-weights", str(tmp_path)) in told(found)
    assert "pytorch_model.bin" in found["findings"][-1]["what"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_no_permission(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    checkpoint(open_folder / "a", layer(0), layer(1))
    (open_folder / "a" / FILE1).chmod(0)
    (open_folder / "a" / "config.json").chmod(0)
    checkpoint(open_folder / "b", layer(0)).chmod(0o700)
    programs = open_folder / "programs"
    shutil.copytree(PROGRAMS, programs, ignore=shutil.ignore_patterns("__pycache__"))

    def as_nobody(folder: Path) -> dict[str, Any]:
        # The system's Python, for nobody may enter our own environment.
        argv = ["/usr/bin/python3", "-B", str(programs / "read_checkpoint.py"), str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, user=65534, cwd="/")
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = as_nobody(open_folder / "a")
    denied = [("error", "no-permission", name) for name in ("config.json", FILE1)]
    assert (told(found), found["tensors"]) == (denied, 4)
    closed = as_nobody(open_folder / "b")
    assert told(closed) == [("error", "no-permission", str(open_folder / "b"))]


def test_mistakes() -> None:
    assert (run("read_checkpoint.py").code, run("read_checkpoint.py", "a", "b").code) == (2, 2)


def test_names_of_any_kind_do_not_break_the_answer(tmp_path: Path) -> None:
    shard(tmp_path / ONE, {"a\nb.1.c": zeros("U8", 1), "é\udc80.2": zeros("U8", 1), "": f32(1.0)})
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.safetensors")).write_bytes(b"")
    found = read(tmp_path)
    assert {one["name"] for one in found["groups"]} == {"a b.*.c", "é?.*", ""}
    assert ("error", "file-name", "?.safetensors") in told(found)


def test_findings_of_one_kind_are_counted_not_repeated(tmp_path: Path) -> None:
    shard(tmp_path / ONE, {f"t{n}": zeros("U8", 2) for n in range(50)})
    _index(tmp_path, {})
    found = [one for one in read(tmp_path)["findings"] if one["kind"] == "extra-shard"]
    assert len(found) == 1
    _index(tmp_path, {"x": ONE})
    found = [one for one in read(tmp_path)["findings"] if one["kind"] == "not-in-index"]
    assert (len(found), found[-1]["what"]) == (9, "42 more such")


HOSTILE = {
    "many empty lists": (b'{"a":[', b"[],", b"[]]}"),
    "many small members": (b"{", b'"a":{},', b'"a":{}}'),
    "many tensors that overlap": (
        b"{",
        b'"k.1":{"dtype":"U8","shape":[0],"data_offsets":[9,9]},',
        b'"":{}}',
    ),
    "names that look like an end": (b"{", b'"},":{"a":1},', b'"":{}}'),
    "one long text": (b'{"a":"', b"x", b'"}'),
    "spaces": (b"{", b" ", b"}"),
}


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_of_100_mb_needs_little_memory(
    tmp_path: Path, parts: tuple[bytes, bytes, bytes]
) -> None:
    first, again, last = parts
    (tmp_path / ONE).write_bytes(raw(first + again * (99_000_000 // len(again)) + last))
    cost = read_there(tmp_path)["cost"]
    assert cost["peak_kib"] < 200 << 10
    assert cost["cpu_s"] < 20


@pytest.mark.slow
def test_a_million_tensors_need_bounded_memory(tmp_path: Path) -> None:
    names = (f"model.layers.{n}.k{n % 7}.weight.{'x' * 20}{n}" for n in range(1_100_000))
    kind = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    for number in range(2):
        part = ",".join(f'"{next(names)}":{kind}' for _ in range(550_000))
        (tmp_path / f"{number}.safetensors").write_bytes(raw(b"{%b}" % part.encode()))
    found = read_there(tmp_path)
    assert ("error", "too-large", str(tmp_path)) in told(found)
    assert found["cost"]["peak_kib"] < 400 << 10


texts = st.text(max_size=12)
shapes = st.lists(st.integers(0, 5), max_size=3)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
members = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "U8", "X"]), "shape": shapes},
    optional={"data_offsets": st.lists(st.integers(0, 99), min_size=2, max_size=2)},
)
headers = st.dictionaries(texts, members | values, max_size=12)


@settings(deadline=None)
@given(headers, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 300))
def test_members_are_those_that_json_reads(
    made: dict[str, Any], indent: int | None, ascii_only: bool, piece: int
) -> None:
    """However the text is written, and wherever the pieces of it end."""
    text = json.dumps(made, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    wanted = json.loads(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_members, "PIECE", piece)
        at = iter(range(0, len(text) + piece, piece))
        got: dict[str, Any] = {}
        for some in tensors(Members(lambda _: text[(n := next(at, len(text))) : n + piece])):
            assert not got.keys() & some.keys()
            got |= some
    assert got == wanted


@settings(deadline=None)
@given(headers, st.data())
def test_a_header_that_was_changed_is_read_or_refused_as_json_does(
    made: dict[str, Any], data: st.DataObject
) -> None:
    text = bytearray(json.dumps(made).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    pieces = iter([bytes(text)])
    try:
        wanted = json_members.DECODER.decode(bytes(text).decode("utf-8", "surrogateescape"))
    except ValueError:
        wanted = None
    try:
        some = list(tensors(Members(lambda _: next(pieces, b""))))
    except NotJson:
        # An object with a key twice is refused at its place; a header with one comes out twice.
        assert not isinstance(wanted, dict)
    else:
        names = [name for one in some for name in one]
        assert wanted is None or sorted(names) == sorted(wanted)
        assert wanted is not None or len(names) > len(set(names))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.booleans(), st.binary(max_size=60))
def test_no_bytes_are_a_crash(text: bytes, honest: bool, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        content = raw(text, data) if honest else text
        (Path(name) / ONE).write_bytes(content)
        (Path(name) / INDEX).write_bytes(text)
        (Path(name) / "config.json").write_bytes(text)
        json.dumps(read_checkpoint.read(name), allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(headers, st.binary(max_size=60))
def test_no_header_is_a_crash(made: dict[str, Any], data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(made).encode()
        (Path(name) / ONE).write_bytes(raw(text, data))
        (Path(name) / INDEX).write_bytes(b'{"weight_map": %b}' % text)
        (Path(name) / "config.json").write_bytes(text)
        json.dumps(read_checkpoint.read(name), allow_nan=False)


def test_it_needs_nothing_but_a_python() -> None:
    """Nothing that is installed, and no syntax that is newer than 3.10."""
    code = "import sys; sys.argv = ['x']; import read_checkpoint; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=PROGRAMS
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    ours = {path.stem for path in PROGRAMS.glob("*.py")}
    assert loaded - ours - set(sys.stdlib_module_names) <= {"__main__"}
    assert "json_members" in loaded
    for name in loaded & ours:
        ast.parse((PROGRAMS / f"{name}.py").read_text(), feature_version=(3, 10))
