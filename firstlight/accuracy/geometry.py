"""The accuracy room: what each layer of a model keeps for a token and for a request, as values.

Shapes are of the whole model; what one GPU holds follows from `attn_tp`, the GPUs that share one
token's attention. Bytes are left to kvcache. Formulas: docs/kv-capacity.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.core.errors import FirstlightError

_INDEX_BLOCK = 128  # values of an index key that share one float32 scale


@dataclass(frozen=True)
class Heads:
    """K and V of `kv_heads` heads, `k_dim` and `v_dim` values each (MHA, GQA, MQA).

    `index_dim` > 0 adds the key of a sparse index (QSA) in 16 bits, whole on every GPU;
    `index_pool` tokens share one key.
    """

    kv_heads: int
    k_dim: int
    v_dim: int
    index_dim: int = 0
    index_pool: int = 1

    @property
    def index_bytes(self) -> int:
        """Bytes of one token's index key (0.5.23 qsa_kv_pool.py:63)."""
        return self.index_dim * 2 // self.index_pool

    def on_gpu(self, attn_tp: int) -> int:
        """Heads that one GPU holds: split, and held again by each GPU when there are fewer."""
        return max(1, self.kv_heads // attn_tp)


@dataclass(frozen=True)
class Latent:
    """One row of `rank + rope` values for all heads (MLA), on every GPU whole.

    `index_dim` > 0 adds the key of the sparse index (DSA) in layers that are `indexed`;
    `index_pool` tokens share one key.
    """

    rank: int
    rope: int
    index_dim: int = 0
    index_pool: int = 1

    @property
    def row(self) -> int:
        """Values of one token in one layer."""
        return self.rank + self.rope

    @property
    def index_bytes(self) -> int:
        """Bytes of one token's index key: 8-bit values and a float32 scale for each block."""
        whole = self.index_dim + self.index_dim // _INDEX_BLOCK * 4
        return -(-whole // self.index_pool)


@dataclass(frozen=True)
class State:
    """What a linear-attention layer keeps for one request: a window of a convolution, and a matrix.

    `channels` are the values that the convolution runs over besides 2 x `groups` x `state`;
    the matrix is `heads` x `head_dim` x `state` values of `ssm_bytes` each (GDN: value heads,
    value dim, key dim). `kernel` - 1 positions of the window are kept, 2 bytes a value.
    """

    kind: str
    heads: int
    head_dim: int
    state: int
    channels: int
    groups: int
    kernel: int
    ssm_bytes: int = 4
    conv_bytes: int = 2

    def conv_on_gpu(self, attn_tp: int) -> int:
        """Bytes of one layer's window on one GPU; groups that do not divide are extended."""
        groups = self.groups + (attn_tp - self.groups if self.groups % attn_tp else 0)
        values = self.channels + 2 * groups * self.state
        return (
            _shared(values, attn_tp, "values of a convolution")
            * (self.kernel - 1)
            * self.conv_bytes
        )

    def ssm_on_gpu(self, attn_tp: int, ssm_bytes: int | None = None) -> int:
        """Bytes of one layer's matrix on one GPU."""
        if not self.state:
            return 0
        heads = _shared(self.heads, attn_tp, "state heads")
        return heads * self.head_dim * self.state * (ssm_bytes or self.ssm_bytes)


def _shared(count: int, attn_tp: int, what: str) -> int:
    if count % attn_tp:
        raise FirstlightError(
            f"{count} {what} cannot be shared by {attn_tp} GPUs",
            where="the state of a linear-attention layer",
            remedy=f"choose a tensor parallel size that divides {count}",
        )
    return count // attn_tp


@dataclass(frozen=True)
class Layer:
    """What one layer keeps: rows of attention, a state, both (Falcon-H1) or nothing (MLP)."""

    rows: Heads | Latent | None = None
    sliding: bool = False
    state: State | None = None
    indexed: bool = True


@dataclass(frozen=True)
class Compressed:
    """What DeepSeek-V4 keeps: by layer how many tokens one row stands for (0: the window alone), in
    which the list may go on for a draft. Rows have `nope` 8-bit and `rope` 16-bit values and an
    index key of `index_dim`. Of ratio 1 and 2 (V4.1, `v41`) only `sources` have rows.
    """

    ratios: tuple[int, ...]
    sources: tuple[int, ...] = ()
    nope: int = 448
    rope: int = 64
    index_dim: int = 128
    v41: bool = False

    @property
    def width(self) -> int:
        """Values of one row, as the states have them."""
        return self.nope + self.rope

    @property
    def index_bytes(self) -> int:
        """Bytes of one row's index key in 8 bits, with its scales."""
        return self.index_dim + self.index_dim // _INDEX_BLOCK * 4

    @property
    def low_index_bytes(self) -> int:
        """The same of ratio 1 and 2, in 4 bits and a scale for 32 values."""
        return self.index_dim // 2 + self.index_dim // 32

    def owns(self, number: int) -> bool:
        """Whether a layer has compressed rows of its own."""
        return self.ratios[number] in (4, 128) or number in self.sources


@dataclass(frozen=True)
class Geometry:
    """The KV cache of a model by layer; `kind` is a word for people.

    `draft` are the layers of its own next-token head (NEXTN, MTP), `nextn` what the config says
    under `num_nextn_predict_layers`, None where that key is absent: the engine prices by the key.
    `compressed` is what DeepSeek-V4 keeps, whose layers have nothing else.
    `window` in tokens; `two_pools_since` the first version that gives sliding layers a pool, "" for
    a model that has none or a launch that never has two.
    """

    name: str
    kind: str
    layers: tuple[Layer, ...]
    draft: tuple[Layer, ...] = ()
    nextn: int | None = None
    window: int = 0
    two_pools_since: str = ""
    multimodal: bool = False
    context: int | None = None
    notes: tuple[str, ...] = ()
    compressed: Compressed | None = None

    @property
    def full(self) -> tuple[Layer, ...]:
        """Layers with rows of every token."""
        return tuple(layer for layer in self.layers if layer.rows and not layer.sliding)

    @property
    def sliding(self) -> tuple[Layer, ...]:
        """Layers with rows in the second pool."""
        return tuple(layer for layer in self.layers if layer.rows and layer.sliding)

    @property
    def states(self) -> tuple[State, ...]:
        """The states, one for each layer that has one."""
        return tuple(layer.state for layer in self.layers if layer.state)


@dataclass(frozen=True)
class Unknown:
    """A model whose cache cannot be computed, and the facts that are missing, one a line."""

    name: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name or 'this model'}: " + "; ".join(self.missing)
