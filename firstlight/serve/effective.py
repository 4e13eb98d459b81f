"""The effective state room: what a server really runs with, and where that is not what was asked.

The pool line of the log is the evidence of the KV dtype. `/server_info` echoes the flag, which
proves nothing: since 0.5.20 it says `auto` after FP8 was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy.values import human_count
from firstlight.serve.profile import Profile
from firstlight.serve.serverlog import Pool, ServerLog

GIB = 2**30


@dataclass(frozen=True)
class Asked:
    """What a profile asks of the server; None and "" = not asked."""

    served_model_name: str
    kv_flag: str = ""
    require_bf16: bool = True
    max_total_tokens: int | None = None
    context_length: int | None = None
    attention_backend: str = ""
    page_size: int = 1


@dataclass(frozen=True)
class Effective:
    """What the server says of itself; None, "" and () = it does not say. Sizes in GiB.

    `kv_flag` is the echo of the flag; `kv_gib` and `capacity` are of `/server_info`.
    """

    pools: tuple[Pool, ...] = ()
    log_tokens: int | None = None
    info_tokens: int | None = None
    kv_flag: str = ""
    kv_gib: float | None = None
    weights_gib: float | None = None
    capacity: int | None = None
    context_length: int | None = None
    page_size: int = 1
    attention_backend: str = ""
    version: str = ""
    served: tuple[str, ...] = ()

    @property
    def tokens(self) -> int | None:
        """Tokens that the KV pool holds."""
        return self.info_tokens if self.info_tokens is not None else self.log_tokens

    @property
    def kv_dtypes(self) -> tuple[str, ...]:
        """The distinct dtypes of the target model's pools, "" for a pool that states none."""
        return tuple(sorted({pool.dtype for pool in self.pools if not pool.draft}))


@dataclass(frozen=True)
class Difference:
    """One thing that is not as asked (`fail`), or of which that cannot be said."""

    what: str
    asked: str
    found: str
    outcome: Literal["fail", "inconclusive"] = "fail"

    def __str__(self) -> str:
        return f"{self.what}: asked {self.asked}, found {self.found}"


def asked_by(profile: Profile) -> Asked:
    """The part of a profile that the server's own state can be compared with."""
    args = profile.args
    flag = args.get("kv_cache_dtype")
    return Asked(
        served_model_name=profile.served_model_name,
        kv_flag=flag if isinstance(flag, str) and flag != "auto" else "",
        require_bf16=profile.policy.kv == "require_bf16",
        max_total_tokens=human_count(args.get("max_total_tokens")),
        context_length=human_count(args.get("context_length")),
        attention_backend=str(args.get("attention_backend") or ""),
        page_size=human_count(args.get("page_size")) or 1,
    )


def effective(log: ServerLog, info: object, models: object) -> Effective:
    """The state by the log, the JSON of `/server_info` and of `/v1/models`; never raises.

    Only the fields named here are taken: `/server_info` holds API keys.
    """
    state = _first(_get(info, "internal_states"))
    memory = _get(state, "memory_usage")
    cards = _get(models, "data")
    cards = cards if isinstance(cards, list) else []
    lengths = [human_count(_get(card, "max_model_len")) for card in cards]
    return Effective(
        pools=log.pools or _compressed(log),
        log_tokens=log.max_total_tokens,
        info_tokens=human_count(_get(info, "max_total_num_tokens")),
        kv_flag=_text(_get(info, "kv_cache_dtype")),
        kv_gib=_size(_get(memory, "kvcache")),
        weights_gib=_size(_get(memory, "weight")),
        capacity=human_count(_get(memory, "token_capacity")),
        context_length=next((n for n in lengths if n), log.context_length),
        page_size=human_count(_get(info, "page_size")) or 1,
        attention_backend=_text(_get(info, "attention_backend")),
        version=_text(_get(info, "version")),
        served=tuple(_text(_get(card, "id")) for card in cards),
    )


def _compressed(log: ServerLog) -> tuple[Pool, ...]:
    """The pools of DeepSeek-V4, whose lines tell no bytes; their layout tells the dtype."""
    return tuple(Pool(p.rank, "compressed", p.dtype, p.tokens) for p in log.compressed)


def compare(asked: Asked, found: Effective, elements: int | None = None) -> tuple[Difference, ...]:
    """Every difference. `elements` is the count of K and V numbers per token on one rank
    (`elements_per_token`), where it is known: then the pool's size is checked too."""
    checks = (_served, _kv_dtype, _tokens, _context, _backend)
    differences = [difference for check in checks for difference in check(asked, found)]
    sizes = _number_sizes(asked, found, elements) if elements else []
    if sizes and all(size.proves for size in sizes):
        differences = [d for d in differences if (d.what, d.outcome) != _UNSTATED]
    wrong = [Difference(_SIZE, f"{size.wanted:.0f}", size.text) for size in sizes if size.wrong]
    return (*differences, *wrong)


def elements_per_token(config: object, ranks: int = 1) -> int | None:
    """K and V numbers per token on one of `ranks` tensor-parallel ranks, by config.json.

    Only for models whose layers all keep plain K and V: kv_heads * (head_dim + v_head_dim) *
    layers, with at least one head a rank. None for the others (MLA, sliding windows, linear
    attention, a config with keys of its own for heads or layers).
    """
    kinds = _get(config, "layer_types")
    listed = isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds)
    plain = not kinds or listed
    if not plain or any(_get(config, key) for key in _UNPLAIN):
        return None
    heads = human_count(_get(config, "num_attention_heads"))
    layers = human_count(_get(config, "num_hidden_layers"))
    hidden = human_count(_get(config, "hidden_size"))
    if not (heads and layers and hidden):
        return None
    kv_heads = human_count(_get(config, "num_key_value_heads")) or heads
    dim = human_count(_get(config, "head_dim")) or hidden // heads
    v_dim = human_count(_get(config, "v_head_dim")) or dim
    return max(1, kv_heads // ranks) * (dim + v_dim) * layers


_UNPLAIN = (
    *("kv_lora_rank", "full_attention_interval", "sliding_window"),
    *("text_config", "attn_type_list", "linear_attn_config", "hybrid_override_pattern"),
    *("layers_block_type", "mixer_types", "hybrid_layer_pattern", "layer_group_size"),
    *("attn_layer_period", "attn_layer_indices", "full_attn_idxs", "block_configs"),
    *("num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups", "multi_query"),
)
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "bf16": ("bfloat16",),
    "bfloat16": ("bfloat16",),
    "fp8_e4m3": ("float8_e4m3fn", "float8_e4m3fnuz"),
    "mxfp8": ("float8_e4m3fn",),
    "fp8_e5m2": ("float8_e5m2", "float8_e5m2fnuz"),
    "fp4_e2m1": ("float4_e2m1fn_x2", "uint8"),
    "fp4_mx_block16": ("float4_e2m1fn_x2", "uint8"),
    "nvfp4": ("float4_e2m1fn_x2", "uint8"),
}


def _served(asked: Asked, found: Effective) -> Iterator[Difference]:
    if not found.served:
        unsaid = "no model list from the server"
        yield Difference("served model", asked.served_model_name, unsaid, "inconclusive")
    elif asked.served_model_name not in found.served:
        yield Difference("served model", asked.served_model_name, ", ".join(found.served))


def _kv_dtype(asked: Asked, found: Effective) -> Iterator[Difference]:
    flag = "bf16" if asked.require_bf16 else asked.kv_flag
    if not flag:
        return
    wanted = _DTYPES.get(flag, ())
    targets = [pool for pool in found.pools if not pool.draft]
    for pool in targets:
        stated = pool.dtype.removeprefix("torch.")
        if stated and stated not in wanted:
            yield Difference("KV dtype", flag, f"{pool.dtype} in {_named(pool)}")
    unstated = [pool for pool in targets if not pool.dtype]
    if unstated or not targets:
        said = f"no dtype in {_named(unstated[0])}" if unstated else "no pool line in the log"
        yield Difference("KV dtype", flag, said, "inconclusive")


def _named(pool: Pool) -> str:
    words = [word for word in (pool.label, "pool of", pool.rank or "the one rank") if word]
    return f"the {' '.join(words)} ({pool.tokens} tokens)"


def _tokens(asked: Asked, found: Effective) -> Iterator[Difference]:
    if None not in (found.log_tokens, found.info_tokens) and found.log_tokens != found.info_tokens:
        said = f"{found.info_tokens} from the server: is it the server of this log?"
        yield Difference("KV tokens", f"{found.log_tokens} (by the log)", said)
    wanted = asked.max_total_tokens
    if wanted is None:
        return
    page = max(asked.page_size, found.page_size)
    if found.tokens is None:
        yield Difference("KV tokens", str(wanted), "no figure from the server", "inconclusive")
    elif found.tokens != wanted // page * page:
        yield Difference("KV tokens", str(wanted), str(found.tokens))


def _context(asked: Asked, found: Effective) -> Iterator[Difference]:
    wanted, has = asked.context_length, found.context_length
    if wanted is None:
        return
    if has is None:
        yield Difference("context length", str(wanted), "no figure from the server", "inconclusive")
    elif has < wanted:
        yield Difference("context length", str(wanted), str(has))


def _backend(asked: Asked, found: Effective) -> Iterator[Difference]:
    wanted, has = asked.attention_backend, found.attention_backend
    if wanted and has and wanted != has:
        yield Difference("attention backend", wanted, has)


_SIZE = "KV bytes per number"
_UNSTATED = ("KV dtype", "inconclusive")
_BYTES: Mapping[str, float] = {"bf16": 2.0, "bfloat16": 2.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}


@dataclass(frozen=True)
class _NumberSize:
    """Bytes per K or V number of one pool, between `low` and `high` as printed figures allow."""

    wanted: float
    low: float
    high: float
    text: str

    @property
    def wrong(self) -> bool:
        return self.high < self.wanted * 0.98 or self.low > self.wanted * 1.02

    @property
    def proves(self) -> bool:
        """The size fits what is wanted, and not its half or its double."""
        return not self.wrong and self.low > self.wanted * 0.6 and self.high < self.wanted * 1.8


def _number_sizes(asked: Asked, found: Effective, elements: int) -> list[_NumberSize]:
    """How large the pool is for its tokens: this tells one byte from two, no more.

    The log prints GiB with two decimals, so K and V are each off by up to 0.005; the pool holds
    one page more than its tokens. `/server_info` serves where the log has no pool line.
    """
    wanted = _BYTES.get("bf16" if asked.require_bf16 else asked.kv_flag)
    if wanted is None:
        return []
    pools = [(p.gib, 0.01, p.tokens) for p in found.pools if not p.draft and not p.bound]
    if not pools and found.kv_gib and found.capacity:
        pools = [(found.kv_gib, 0.001, found.capacity)]
    return [
        _NumberSize(
            wanted,
            (gib - slack) * GIB / ((tokens + found.page_size) * elements),
            (gib + slack) * GIB / ((tokens + found.page_size) * elements),
            f"{gib:.2f} GiB for {tokens} tokens of {elements} numbers",
        )
        for gib, slack, tokens in pools
    ]


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _size(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
