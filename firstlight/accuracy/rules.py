"""The accuracy room: what each version of the engine does with a declared KV cache, as data.

Five versions of SGLang were read; paths are below `sglang/srt/`, § are those of the facts. A row
holds from the version `since` up to, and not with, `until`. What no row says is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from firstlight.accuracy.classes import indexed_in
from firstlight.accuracy.configclasses import INDEXED_ALWAYS, SINKS_ALWAYS
from firstlight.accuracy.declared import Family, KvForm
from firstlight.accuracy.engineclasses import (
    AS_THEY_ARE,
    DROPS,
    HIDES,
    LOADS,
    SHOWS,
    SPELLINGS,
)

READ = ("0.5.9", "0.5.12", "0.5.16", "0.5.20", "0.5.23")

_FP4: tuple[Family, ...] = ("modelopt_fp4",)
_FP8: tuple[Family, ...] = ("modelopt_fp8",)
_MIXED: tuple[Family, ...] = ("modelopt_mixed",)
_MXFP8: tuple[Family, ...] = ("modelopt_mxfp8",)
_PLAIN: tuple[Family, ...] = ("fp8",)
_QUANT = "layers/quantization"


@dataclass(frozen=True)
class Span:
    """When a row holds, and where in the engine it was read."""

    since: str
    until: str
    source: str

    def holds(self, version: str) -> bool:
        """Whether it holds in that version, which is one of READ."""
        place = READ.index(version)
        return READ.index(self.since) <= place and not (
            self.until and READ.index(self.until) <= place
        )


@dataclass(frozen=True)
class FormRule(Span):
    """Whether the engine reads one form of declaring the cache, or passes it over."""

    families: tuple[Family, ...]
    form: KvForm
    read: bool


@dataclass(frozen=True)
class Override(Span):
    """What rewrites or refuses `--kv-cache-dtype` before anything is loaded.

    It applies to `architectures` whose text config has `key` ("" for any) and whose weights are
    `algo`, or where a flag of `flags` has one of `words`. `auto` becomes that, `always` every
    value; values outside `allowed` are refused, () refuses none; `strict` refuses `auto` as well
    where nothing rewrites it. `least_sm` is the compute capability from which that is so; `below`
    is what `auto` becomes under it, "" leaves it alone.
    """

    name: str
    architectures: frozenset[str] = frozenset()
    key: str = ""
    algo: str = ""
    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    auto: str = ""
    always: str = ""
    allowed: tuple[str, ...] = ()
    strict: bool = False
    least_sm: int = 0
    below: str = ""


@dataclass(frozen=True)
class Value(Span):
    """A value of `--kv-cache-dtype`, and the dtype it means; "" is refused."""

    name: str
    dtype: str
    least_sm: int = 0


@dataclass(frozen=True)
class Backend(Span):
    """What an attention backend does with loaded scales.

    `on_fp8`: it applies them to an FP8 cache, ignores them, or forgets them on some path.
    `on_wide`: it multiplies by them also when the cache is of 16 bits and was written without.
    """

    name: str
    on_fp8: Literal["applies", "ignores", "forgets"]
    on_wide: bool


_MODELOPT = f"{_QUANT}/modelopt_quant.py"
_CT = f"{_QUANT}/compressed_tensors/compressed_tensors.py"
FORMS: tuple[FormRule, ...] = (
    FormRule("0.5.9", "", f"§2.2; 0.5.23 {_MODELOPT}:1611", _FP4, "nested-algo", True),
    FormRule("0.5.9", "", f"§2.2; 0.5.23 {_MODELOPT}:1611", _FP4, "flat-scheme", True),
    FormRule("0.5.9", "", f"§2.2; 0.5.23 {_MODELOPT}:1611", _FP4, "flat-name", True),
    FormRule("0.5.9", "0.5.16", f"§2.2; 0.5.12 {_MODELOPT}:1188", _FP4, "flat-algo", False),
    FormRule("0.5.16", "", f"§2.2; 0.5.16 {_MODELOPT}:1253", _FP4, "flat-algo", True),
    FormRule("0.5.9", "", f"§2.2; 0.5.9 {_MODELOPT}:445", _FP8, "nested-algo", True),
    FormRule("0.5.9", "", f"§2.2; 0.5.9 {_MODELOPT}:430", _FP8, "flat-scheme", True),
    FormRule("0.5.9", "", f"0.5.23 {_MODELOPT}:483", _FP8, "flat-name", False),
    FormRule("0.5.9", "0.5.16", f"§2.2; 0.5.9 {_MODELOPT}:418", _FP8, "flat-algo", False),
    FormRule("0.5.16", "", f"§2.2; 0.5.16 {_MODELOPT}:442", _FP8, "flat-algo", True),
    FormRule("0.5.12", "", f"0.5.12 {_MODELOPT}:663", _MIXED, "nested-algo", True),
    FormRule("0.5.12", "", f"0.5.12 {_MODELOPT}:644", _MIXED, "flat-scheme", True),
    FormRule("0.5.12", "", f"0.5.12 {_MODELOPT}:645", _MIXED, "flat-name", False),
    FormRule("0.5.12", "0.5.16", f"0.5.12 {_MODELOPT}:645", _MIXED, "flat-algo", False),
    FormRule("0.5.16", "", f"0.5.16 {_MODELOPT}:604", _MIXED, "flat-algo", True),
    FormRule(
        "0.5.9", "0.5.20", "§2.2: not before 0.5.20", ("compressed-tensors",), "flat-scheme", False
    ),
    FormRule(
        "0.5.20",
        "",
        f"§2.2; 0.5.23 {_CT}:143",
        ("compressed-tensors",),
        "flat-scheme",
        True,
    ),
    FormRule("0.5.9", "0.5.20", "§2.2: not before 0.5.20", _PLAIN, "flat-algo", False),
    FormRule("0.5.20", "", f"§2.2; 0.5.23 {_QUANT}/fp8.py:273", _PLAIN, "flat-algo", True),
    FormRule("0.5.9", "", f"0.5.23 {_QUANT}/fp8.py:344: no scheme", _PLAIN, "flat-scheme", False),
    FormRule("0.5.9", "", f"0.5.23 {_QUANT}/fp8.py:344: no scheme", _PLAIN, "flat-name", False),
    # Before 0.5.20 it is taken for plain FP8 of ModelOpt, which its weights are not.
    FormRule("0.5.20", "", "0.5.23 configs/model_config.py:1875", _MXFP8, "flat-algo", True),
    FormRule("0.5.20", "", "0.5.23 configs/model_config.py:1877", _MXFP8, "flat-scheme", True),
    FormRule("0.5.20", "", "0.5.23 configs/model_config.py:1879", _MXFP8, "flat-name", False),
    # These ask their own keys alone, in all versions that were read.
    FormRule("0.5.9", "", f"0.5.23 {_CT}:314", ("compressed-tensors",), "flat-algo", False),
    FormRule("0.5.9", "", f"0.5.23 {_QUANT}/quark/quark.py:630", ("quark",), "flat-algo", False),
    FormRule("0.5.9", "", f"0.5.23 {_QUANT}/quark/quark.py:630", ("quark",), "flat-scheme", False),
    FormRule("0.5.9", "", f"0.5.23 {_QUANT}/quark/quark.py:630", ("quark",), "flat-name", False),
)
# Kinds of weights whose cache is FP8 without a word about it, and since when they are known.
UNSAID: Mapping[Family, tuple[str, str]] = {
    "minimax_m3_nvfp4": ("0.5.23", f"0.5.23 {_QUANT}/minimax_m3_nvfp4.py:32"),
}

_DTYPE = "§2.3; 0.5.23 mem_cache/kv_cache_dtype.py:34"
VALUES: tuple[Value, ...] = (
    Value("0.5.9", "", _DTYPE, "bf16", "bfloat16"),
    Value("0.5.9", "", _DTYPE, "bfloat16", "bfloat16"),
    Value("0.5.9", "", _DTYPE, "fp8_e4m3", "fp8_e4m3"),
    Value("0.5.9", "", _DTYPE, "fp8_e5m2", "fp8_e5m2"),
    Value("0.5.16", "", f"{_DTYPE}, arg_groups/kv_cache_hook.py:125", "nvfp4", "nvfp4", 100),
    Value("0.5.16", "", _DTYPE, "mxfp8", "mxfp8", 100),
    Value("0.5.16", "", _DTYPE, "fp4_mx_block16", "fp4_mx_block16"),
    Value("0.5.9", "0.5.16", _DTYPE, "fp4_e2m1", "fp4_e2m1"),
)

_WIDE = ("bf16", "bfloat16")


def _dsa(since: str, until: str, names: frozenset[str], key: str = "index_topk") -> Override:
    return Override(
        since,
        until,
        "§2.3; 0.5.9 server_args.py:1129, 0.5.12 :1692, 0.5.23 arg_groups/overrides.py:491",
        "DSA",
        architectures=names,
        key=key,
        auto="fp8_e4m3",
        allowed=(*_WIDE, "fp8_e4m3"),
        least_sm=100,
        below="bfloat16",
    )


def _sinks(names: frozenset[str], key: str = "learnable_sink") -> Override:
    return Override(
        "0.5.20",
        "",
        "0.5.23 arg_groups/overrides.py:522",
        "DSA with learnable sinks",
        architectures=names,
        key=key,
        auto="bfloat16",
        allowed=_WIDE,
    )


OVERRIDES: tuple[Override, ...] = (
    _sinks(indexed_in("0.5.20")),
    _sinks(SINKS_ALWAYS, key=""),
    _dsa("0.5.9", "0.5.16", indexed_in("0.5.9")),
    _dsa("0.5.16", "0.5.20", indexed_in("0.5.16")),
    _dsa("0.5.20", "", indexed_in("0.5.20")),
    # Their configurations have the key where the file has none.
    _dsa("0.5.9", "", INDEXED_ALWAYS, key=""),
    Override(
        "0.5.12",
        "",
        "§2.3; 0.5.12 arg_groups/deepseek_v4_hook.py:28; the pool has a layout of FP8 alone and "
        "stops at 16 bits, which the arguments allow (0.5.23 deepseek_v4_memory_pool.py:321)",
        "DeepSeek-V4",
        architectures=frozenset({"DeepseekV4ForCausalLM", "DeepseekV41ForCausalLM"}),
        auto="fp8_e4m3",
        allowed=("fp8_e4m3",),
    ),
    Override(
        "0.5.23",
        "",
        "§2.3; 0.5.23 arg_groups/model_overrides/minimax_m3.py:116",
        "MiniMax-M3 NVFP4",
        architectures=frozenset(
            {"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"}
        ),
        algo="NVFP4",
        auto="fp8_e4m3",
        allowed=("fp8_e4m3",),
        least_sm=100,
    ),
    Override(
        "0.5.23",
        "",
        "§2.3; 0.5.23 arg_groups/overrides.py:318",
        "Muse Spark",
        architectures=frozenset({"MuseSparkForConditionalGeneration"}),
        auto="fp8_e4m3",
    ),
    Override(
        "0.5.12",
        "0.5.23",
        "0.5.12 server_args.py:2746, 0.5.20 arg_groups/overrides.py:1271",
        "tokenspeed_mla",
        flags=("attention_backend", "decode_attention_backend"),
        words=("tokenspeed_mla",),
        allowed=("fp8_e4m3",),
        strict=True,
    ),
    Override(
        "0.5.9",
        "",
        "0.5.9 server_args.py:1889, 0.5.23 arg_groups/overrides.py:1214: not spelled bfloat16",
        "trtllm_mla",
        flags=("attention_backend", "decode_attention_backend"),
        words=("trtllm_mla",),
        allowed=("bf16", "fp8_e4m3", "fp4_e2m1"),
    ),
    Override(
        "0.5.23",
        "",
        "§2.3; 0.5.23 arg_groups/serving_hook.py:326",
        "tokenspeed_mla",
        flags=("attention_backend", "decode_attention_backend"),
        words=("tokenspeed_mla",),
        always="fp8_e4m3",
    ),
    Override(
        "0.5.9",
        "0.5.12",
        "§2.3; 0.5.9 server_args.py:1226",
        "NSA context parallel, in-seq-split",
        architectures=indexed_in("0.5.9"),
        key="index_topk",
        flags=("enable_nsa_prefill_context_parallel",),
        words=("true",),
        always="bf16",
    ),
)

BACKENDS: tuple[Backend, ...] = (
    Backend("0.5.9", "0.5.12", "§2.5", "triton", "ignores", False),
    Backend("0.5.12", "", "§2.6; 0.5.12 triton_backend.py:980", "triton", "applies", True),
    Backend(
        "0.5.9",
        "0.5.20",
        "§2.5: a prefix hit forgets them; 0.5.16 flashinfer_backend.py:1387; §2.6",
        "flashinfer",
        "forgets",
        True,
    ),
    Backend("0.5.20", "", "§2.6; 0.5.23 flashinfer_backend.py:1572", "flashinfer", "applies", True),
    Backend("0.5.9", "", "§2.6: it is guarded, sglang#18396", "trtllm_mla", "applies", False),
)
# What a launch without a named backend takes on SM120 (§2.6 speaks of these two).
USUAL_BACKENDS = ("flashinfer", "triton")

# Since when a string of FP8 is no longer written back, so that a draft does not inherit it (§2.4).
DRAFT_APART = "0.5.20"


def neighbours(version: str) -> tuple[str, ...]:
    """The version itself where it was read, the two around it, or () where it is outside."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return ()
    read = {one: Version(one) for one in READ}
    if exact := [one for one, known in read.items() if known.public == wanted.public]:
        return (exact[0],)
    older = [one for one in READ if read[one] < wanted]
    newer = [one for one in READ if read[one] > wanted]
    return (older[-1], newer[0]) if older and newer else ()


def shows(architecture: str, version: str) -> bool | None:
    """Whether the loaded object has `quant_config`; None where the class was not read."""
    return _in(architecture, version, SHOWS, HIDES)


def loads(architecture: str, version: str) -> bool | None:
    """Whether the class loads scales of the cache; None where that was not read."""
    return _in(architecture, version, LOADS, DROPS)


def takes(architecture: str, version: str, spelling: str) -> bool:
    """Whether a class that loads scales loads those that are spelled so."""
    since = SPELLINGS.get(architecture, {})
    known = [since[one] for one in READ[: READ.index(version) + 1] if one in since]
    return not known or spelling in known[-1]


def maps_alone(architecture: str, version: str) -> bool:
    """Whether no name reaches the class but through `maybe_remap_kv_scale_name`."""
    return loads(architecture, version) is True and architecture not in AS_THEY_ARE


def _in(
    name: str, version: str, yes: Mapping[str, frozenset[str]], no: Mapping[str, frozenset[str]]
) -> bool | None:
    known = READ[: READ.index(version) + 1]
    if any(name in yes.get(one, ()) for one in known):
        return True
    return False if any(name in no.get(one, ()) for one in known) else None
