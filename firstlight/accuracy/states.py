"""The accuracy room: the states of linear-attention layers, by the keys that configs give them.

Each form is one reading of SGLang's `mamba2_cache_params` (`configs/mamba_utils.py` and the
config of the model, 0.5.23). The matrix is float32 unless the config says otherwise; the window of
the convolution is bfloat16 (facts §1.4, §3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from firstlight.accuracy.configkeys import Config, count, section
from firstlight.accuracy.geometry import State

SSM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class StateForm:
    """One kind of state: the key that tells it, the counts it needs, and how they become one."""

    kind: str
    sign: str
    needed: Mapping[str, Sequence[str]]
    read: Callable[[Config], State]


def state_form(text: Config) -> StateForm | None:
    """The form whose sign the config carries."""
    return next((form for form in STATE_FORMS if text.get(form.sign) is not None), None)


def _ssm_bytes(text: Config) -> int:
    """An invalid name means float32, as the engine takes it (`mamba2_state_dtype`)."""
    return SSM_BYTES.get(str(text.get("mamba_ssm_dtype")), 4)


def _gdn(text: Config) -> State:
    heads = count(text, "linear_num_value_heads") or 0
    dim = count(text, "linear_value_head_dim") or 0
    return State(
        "GDN",
        heads=heads,
        head_dim=dim,
        state=count(text, "linear_key_head_dim") or 0,
        channels=heads * dim,
        groups=count(text, "linear_num_key_heads") or 0,
        kernel=count(text, "linear_conv_kernel_dim") or 0,
        ssm_bytes=_ssm_bytes(text),
    )


def _mamba2(text: Config) -> State:
    """Nemotron-H: the convolution runs over all heads and the groups' B and C."""
    heads, dim = count(text, "mamba_num_heads") or 0, count(text, "mamba_head_dim") or 0
    return State(
        "Mamba 2",
        heads=heads,
        head_dim=dim,
        state=count(text, "ssm_state_size") or 0,
        channels=heads * dim,
        groups=count(text, "n_groups") or 0,
        kernel=count(text, "conv_kernel") or 0,
        ssm_bytes=_ssm_bytes(text),
    )


def _mamba2_short(text: Config) -> State:
    """Granite 4 and Falcon-H1; Granite's state is float32 whatever its config says."""
    heads, hidden = count(text, "mamba_n_heads") or 0, count(text, "hidden_size") or 0
    wide = count(text, "mamba_d_ssm") or (count(text, "mamba_expand") or 2) * hidden
    return State(
        "Mamba 2",
        heads=heads,
        head_dim=count(text, "mamba_d_head") or wide // max(1, heads),
        state=count(text, "mamba_d_state") or 0,
        channels=wide,
        groups=count(text, "mamba_n_groups") or 0,
        kernel=count(text, "mamba_d_conv") or 0,
        ssm_bytes=_ssm_bytes(text) if count(text, "mamba_d_ssm") else 4,
    )


def _kda(text: Config) -> State:
    """Kimi Linear: three convolutions, one over each of q, k and v."""
    config = section(text, "linear_attn_config")
    return _delta(
        count(config, "num_heads") or 0,
        count(config, "head_dim") or 0,
        count(config, "short_conv_kernel_size") or 4,
    )


def _delta(heads: int, dim: int, kernel: int) -> State:
    return State("KDA", heads, dim, dim, channels=3 * heads * dim, groups=0, kernel=kernel)


def _bailing(text: Config) -> State:
    """Ling 3 (KDA) and Ling 2.5 (lightning attention: a matrix, no convolution)."""
    dim = count(text, "head_dim") or 0
    if kernel := count(text, "short_conv_kernel_size"):
        return _delta(count(text, "num_attention_heads") or 0, dim, kernel)
    heads = count(text, "num_linear_key_value_heads") or 0
    return State("lightning", heads, dim, dim, channels=0, groups=0, kernel=1)


def _lightning(text: Config) -> State:
    """MiniCPM-SALA."""
    dim = count(text, "lightning_head_dim") or 0
    heads = count(text, "lightning_nkv") or 0
    return State("lightning", heads, dim, dim, channels=0, groups=0, kernel=1)


def _short_conv(text: Config) -> State:
    """LFM 2: a window over the hidden values and no matrix."""
    hidden, kernel = count(text, "hidden_size") or 0, count(text, "conv_L_cache") or 0
    return State("short conv", 1, hidden, 0, channels=hidden, groups=1, kernel=kernel)


def _keys(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


STATE_FORMS = (
    StateForm(
        "GDN",
        "linear_num_value_heads",
        _keys(
            "linear_num_value_heads",
            "linear_num_key_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
        ),
        _gdn,
    ),
    StateForm(
        "Mamba 2",
        "mamba_num_heads",
        _keys("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"),
        _mamba2,
    ),
    StateForm(
        "Mamba 2",
        "mamba_n_heads",
        _keys("mamba_n_heads", "mamba_d_state", "mamba_n_groups", "mamba_d_conv", "hidden_size"),
        _mamba2_short,
    ),
    StateForm("KDA", "linear_attn_config", {}, _kda),
    StateForm(
        "lightning", "lightning_nkv", _keys("lightning_nkv", "lightning_head_dim"), _lightning
    ),
    StateForm("KDA or lightning", "layer_group_size", _keys("head_dim"), _bailing),
    StateForm("short conv", "conv_L_cache", _keys("conv_L_cache", "hidden_size"), _short_conv),
)
