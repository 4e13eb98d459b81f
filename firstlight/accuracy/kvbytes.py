"""The accuracy room: bytes of one token on one GPU, as the engine prices and as it stores them.

Both are the same almost always. They differ for FP8 rows of DSA before 0.5.17 (priced without their
scales), for the index of an NPU before 0.5.20, and where a draft is priced like the target's
layers. Formulas: facts §3.2 and §3.5, sources in kvrules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from firstlight.accuracy.classes import OWN_PATH
from firstlight.accuracy.geometry import Geometry, Heads, Latent, Layer
from firstlight.accuracy.kvlaunch import FP8, Launch, is_fp4, width
from firstlight.core.errors import FirstlightError

_FP4_BLOCK = 16
_MX_BLOCK = 32
_DSA_BLOCK = 128


@dataclass(frozen=True)
class Row:
    """Bytes of one token in some layers on one GPU: what is stored (`k`, `v`; a latent row counts
    as `k`; `index`, `scales`), and what the engine charges for it (`priced`). `logged` is False
    where the log's line of the pool leaves the index out."""

    k_bytes: int = 0
    v_bytes: int = 0
    index_bytes: int = 0
    scale_bytes: int = 0
    priced_bytes: int = 0
    logged: bool = True

    @property
    def stored_bytes(self) -> int:
        """All that one token takes."""
        return self.k_bytes + self.v_bytes + self.index_bytes + self.scale_bytes

    @property
    def line_bytes(self) -> int:
        """What the log's line of the pool has of it."""
        return self.stored_bytes - (0 if self.logged else self.index_bytes)


def row(layers: Sequence[Layer], launch: Launch) -> Row:
    """Bytes of one token over these layers; all of them keep rows of one shape."""
    shapes = {layer.rows for layer in layers}
    if not layers:
        return Row()
    (shape,) = shapes
    if isinstance(shape, Latent):
        return _latent_row(shape, layers, launch)
    assert isinstance(shape, Heads)
    return _heads_row(shape, len(layers), launch)


def _heads_row(shape: Heads, layers: int, launch: Launch) -> Row:
    heads, size = shape.on_gpu(launch.attn_tp), width(launch.kv_dtype)
    k, v = heads * shape.k_dim * layers * size, heads * shape.v_dim * layers * size
    index = shape.index_bytes * layers
    if is_fp4(launch.kv_dtype):
        scales = heads * shape.k_dim * layers * 2 // _FP4_BLOCK
        work = heads * shape.k_dim * 2 if launch.rules.fp4_workspace else 0
        return Row(k // 2, v // 2, index, scales, (k + v) // 2 + scales + work + index, False)
    scales = (k + v) // _MX_BLOCK if launch.kv_dtype == "mxfp8" else 0
    return Row(k, v, index, scales, k + v + scales + index, logged=False)


def _latent_row(shape: Latent, layers: Sequence[Layer], launch: Launch) -> Row:
    size = width(launch.kv_dtype)
    raw = shape.row * len(layers) * size
    keys = _with_index(layers, launch)
    index = _index_bytes(shape, launch) * keys
    priced_index = index if launch.rules.index_npu else shape.index_bytes * keys
    priced_index *= launch.rules.index_priced
    if is_fp4(launch.kv_dtype):
        scales = shape.row // _FP4_BLOCK * len(layers)
        return Row(raw // 2, 0, index, scales, raw // 2 + scales + priced_index)
    scaled = _scaled_row(shape, launch) * len(layers) or raw
    priced = scaled if launch.rules.dsa_scaled else raw
    return Row(scaled, 0, index, 0, priced + priced_index)


def _with_index(layers: Sequence[Layer], launch: Launch) -> int:
    """Layers that keep index keys: those that find their own top k, or all of them."""
    every = launch.index_everywhere or not launch.rules.index_shared
    return sum(1 for layer in layers if layer.indexed or every)


def _scaled_row(shape: Latent, launch: Launch) -> int:
    """A DSA row in FP8: a float32 scale for 128 values, and the rope part in 16 bits; else 0."""
    if not shape.index_dim or launch.kv_dtype != "fp8_e4m3" or launch.dsa_raw:
        return 0
    return shape.rank + shape.rank // _DSA_BLOCK * 4 + shape.rope * 2


def _index_bytes(shape: Latent, launch: Launch) -> int:
    """An index key is 8 bit with scales; on an NPU it has the width of the cache."""
    if launch.device == "npu" and width(launch.kv_dtype) > 1:
        return shape.index_dim * width(launch.kv_dtype)
    return shape.index_bytes


def stored(layers: Sequence[Layer], launch: Launch) -> tuple[Layer, ...]:
    """Layers that have rows in the pool of all tokens: those with attention, or all of them."""
    full = tuple(layer for layer in layers if layer.rows and not layer.sliding)
    whole = launch.device == "npu" and launch.rules.npu_whole
    if not full or not whole or not any(layer.state for layer in layers):
        return full
    return full[:1] * len(layers)


def own_draft(geometry: Geometry, launch: Launch) -> Row:
    """What the draft's rows take, where the draft is the target's own next-token head."""
    spec = launch.speculation
    if spec is None:
        return Row()
    if spec.row_bytes is not None:
        return Row(k_bytes=spec.row_bytes, priced_bytes=spec.row_bytes)
    template = next(iter(geometry.draft or geometry.full or geometry.sliding), None)
    layers = spec.layers if spec.layers is not None else len(geometry.draft)
    return row((Layer(template.rows),) * layers if template else (), launch)


def priced_layers(geometry: Geometry, launch: Launch) -> int:
    """Draft layers that the engine counts when it prices a token (facts §3.5).

    From 0.5.14 it counts only with a path, given or set by itself, by the draft config's
    `num_nextn_predict_layers`, and where that key is absent, as in Qwen3.5, by all hidden layers.
    From 0.5.20 the key of the target counts without a path too, and a path, given or set, gives the
    layers of its own head.
    """
    spec, rule = launch.speculation, launch.rules.draft
    if spec is None or rule == "outside":
        return 0
    path = spec.path or geometry.name in OWN_PATH
    if rule == "path" and not path:
        return 0
    if spec.layers is not None:
        return spec.layers
    if rule == "path":
        return geometry.nextn if geometry.nextn is not None else len(geometry.layers)
    return len(geometry.draft) if path else geometry.nextn or 0


def with_draft(cell: Row, full: Sequence[Layer], geometry: Geometry, launch: Launch) -> int:
    """The price of a token in one pool, with the draft as this version counts it."""
    spec, price = launch.speculation, cell.priced_bytes
    if spec is None or not full:
        return price
    if spec.algorithm == "dflash":
        return _with_dflash(price, len(full), launch)
    drafts = priced_layers(geometry, launch)
    if not drafts:
        return price
    if not launch.rules.index_shared:
        return int(price * (1 + drafts / len(full)))
    index = cell.index_bytes
    each = index // max(1, _with_index(full, launch))
    return price + int((price - index) * drafts / len(full)) + each * drafts


def _with_dflash(price: int, full: int, launch: Launch) -> int:
    spec = launch.speculation
    assert spec is not None
    layers = spec.layers or 0
    if launch.rules.dflash == "added" and spec.row_bytes is not None:
        return price + spec.row_bytes
    if launch.rules.dflash == "outside" or not layers:
        return price
    return price * (full + layers) // full


def in_pools(layers: Sequence[Layer], launch: Launch) -> int:
    """The price of a token in one of two pools; from 0.5.11 on these have eight bits for what is
    asked for in four (0.5.12 pool_configurator.py:197-240, 0.5.23:663-716)."""
    eight = is_fp4(launch.kv_dtype) and not launch.rules.two_steps
    return row(layers, replace(launch, kv_dtype=FP8) if eight else launch).priced_bytes


def with_draft_in_pools(price: int, full: int, geometry: Geometry, launch: Launch) -> int:
    """The price of a token in the pool of all tokens where there are two, with the draft."""
    spec = launch.speculation
    if spec is None or not full or not launch.rules.pools_draft:
        return price
    if spec.algorithm == "dflash":
        return _with_dflash(price, full, launch) if launch.rules.dflash == "added" else price
    return price // full * (full + priced_layers(geometry, launch))


def stages(layers: Sequence[Layer], pp: int) -> Iterable[Sequence[Layer]]:
    """The layers of each pipeline stage; the last ones have one more where they do not divide.

    Raises FirstlightError where there are more stages than layers."""
    if pp > max(1, len(layers)):
        what = f"pp_size is {pp}, and the model has {len(layers)} layers"
        raise FirstlightError(what, where="KV capacity", remedy="correct pp_size")
    base, more = divmod(len(layers), pp)
    start = 0
    for stage in range(pp):
        end = start + base + (1 if stage >= pp - more else 0)
        yield layers[start:end]
        start = end
