"""The accuracy room: how a model is served, as far as its KV cache depends on it.

GiB is 2^30 bytes everywhere; SGLang prints "GB" and means GiB. Every field that holds memory ends
in `_gib` or `_mib`, every size in bytes in `_bytes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy.kvrules import Rules, rules_for
from firstlight.core.errors import FirstlightError

GIB = 1 << 30
_MIB_PER_GIB = 1024
# What speculation sets when nobody does (facts §1.4).
_SPEC_RUNNING = 48

BF16, FP8, FP4 = "bf16", "fp8_e4m3", "fp4"
_WIDTHS = {
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "half": 2,
    "fp32": 4,
    "float32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "mxfp8": 1,
    "int8": 1,
}
_FP4 = ("fp4", "fp4_e2m1", "fp4_mx_block16", "nvfp4")


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding with `draft_tokens` (D) a step.

    `path`: --speculative-draft-model-path is given (what the engine sets itself is known).
    `layers` of the draft model's own config; None means the target's own next-token head.
    `row_bytes`: bytes per token and GPU of a draft whose rows are not like the target's (DFLASH).
    `tree`: --speculative-num-steps times --speculative-eagle-topk, None where neither is known.
    """

    draft_tokens: int
    algorithm: Literal["eagle", "dflash"] = "eagle"
    path: bool = False
    layers: int | None = None
    row_bytes: int | None = None
    tree: int | None = None


@dataclass(frozen=True)
class Launch:
    """The arguments that sizing reads, under short names; defaults are the engine's.

    `dp` counts ranks of DP attention (1 = off), `cp` context parallel ranks. `state_ratio` is
    --mamba-full-memory-ratio, `state_slots` --max-mamba-cache-size, `strategy`
    --mamba-radix-cache-strategy, `swa_ratio` --swa-full-tokens-ratio. `kv_dtype` is a dtype, never
    `auto`: what auto becomes is for the audit to say. `dsa_raw`: the DSA kernels read FP8 rows
    without scales (trtllm, tilelang). `features_on_gpu`: --mm-feature-transport is not cpu.
    `chunk`: --chunked-prefill-size, None where it is not known or off. `index_everywhere`: prefill
    and decode apart, or a hierarchical cache: DSA layers that share an index keep keys as well.
    Of DeepSeek-V4 alone: `swa_given`: the ratio is the profile's own; `prefix_tails` is
    --swa-prefix-tails; `uniform_rows`: --dsv4-attn-backend is trtllm.
    """

    version: str = "0.5.23"
    kv_dtype: str = BF16
    tp: int = 1
    dp: int = 1
    cp: int = 1
    pp: int = 1
    page_size: int = 1
    swa_ratio: float = 0.8
    state_ratio: float = 0.9
    state_slots: int | None = None
    ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    radix: bool = True
    strategy: Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"] = "no_buffer"
    overlap: bool = True
    replay_states: bool = False
    max_running: int | None = None
    chunk: int | None = None
    max_total_tokens: int | None = None
    speculation: Speculation | None = None
    language_only: bool = False
    features_on_gpu: bool = False
    device: Literal["cuda", "npu"] = "cuda"
    dsa_raw: bool = False
    index_everywhere: bool = False
    swa_given: bool = False
    prefix_tails: int | None = None
    uniform_rows: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def rules(self) -> Rules:
        """The rules of this version, or of the neighbour that stands for it."""
        return rules_for(self.version)[0]

    @property
    def attn_tp(self) -> int:
        """GPUs that share the heads of one token."""
        return self.tp // self.dp // self.cp

    @property
    def asked(self) -> int | None:
        """Requests at once on all ranks, as asked for; 48 when only speculation asks."""
        return self.max_running or (_SPEC_RUNNING if self.speculation else None)

    @property
    def running(self) -> int | None:
        """Requests at once on one rank, as asked for."""
        return max(1, self.asked // self.dp) if self.asked else None

    @property
    def slots_per_request(self) -> int:
        """State slots that one running request takes (facts §3.3)."""
        if not self.radix or self.rules.state == "requests":
            return 1
        if self.rules.state == "share":
            return 3
        if self.strategy == "no_buffer":
            return 3
        once = self.speculation and self.rules.spec_tracks_once
        return 4 if self.strategy == "extra_buffer_lazy" or not self.overlap or once else 5


def _check(launch: Launch) -> None:
    parallel = (launch.tp, launch.dp, launch.cp, launch.pp, launch.page_size)
    if min(parallel) < 1 or launch.tp % (launch.dp * launch.cp):
        raise _refused("tp is a multiple of dp x cp, and all of them and page_size are 1 or more")
    if not 0 < launch.swa_ratio <= 1 or not launch.state_ratio > 0:
        raise _refused("swa_ratio lies in (0, 1], state_ratio above 0")
    if launch.kv_dtype not in _WIDTHS and launch.kv_dtype not in _FP4:
        known = ", ".join((*_WIDTHS, *_FP4))
        raise _refused(f"{launch.kv_dtype!r} is no KV dtype; known are {known}")
    if launch.strategy == "extra_buffer_lazy" and not launch.overlap:
        raise _refused("extra_buffer_lazy needs the overlap schedule")
    rules_for(launch.version)


def _refused(what: str) -> FirstlightError:
    return FirstlightError(what, where="KV capacity", remedy="correct the launch arguments")


def is_fp4(kv_dtype: str) -> bool:
    """Whether values are packed two in a byte, with one scale for 16."""
    return kv_dtype in _FP4


def width(kv_dtype: str) -> int:
    """Bytes of one value; 1 for FP4, whose packing is counted apart."""
    return _WIDTHS.get(kv_dtype, 1)


@dataclass(frozen=True)
class Budget:
    """Free memory of one GPU around the loading of weights, the least of all ranks.

    `before_gib` after the process groups are up, `after_gib` after the weights (and, from 0.5.14,
    the draft's), `fraction` is --mem-fraction-static. `measured` is False where `after_gib` is an
    estimate from the weights on disk.
    """

    before_gib: float
    after_gib: float
    fraction: float
    measured: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1 or not self.before_gib > 0:
            raise _refused("mem_fraction_static lies between 0 and 1, and there is memory")

    @property
    def rest_gib(self) -> float:
        """What is left for KV and states: after - before x (1 - fraction) (facts §3.1)."""
        return self.after_gib - self.before_gib * (1 - self.fraction)

    @property
    def least_fraction(self) -> float:
        """The fraction at which nothing is left: 1 - after / before."""
        return 1 - self.after_gib / self.before_gib

    def fraction_for(self, rest_gib: float) -> float:
        """The fraction, rounded up to three places, that leaves `rest_gib` or more."""
        exact = 1 - (self.after_gib - rest_gib) / self.before_gib
        return math.ceil(round(exact * 1000, 6)) / 1000


def reserve_gib(launch: Launch, multimodal: bool) -> float:
    """What is kept off the budget for the embeddings of pictures (0.5.18 on; facts §3.1)."""
    if not multimodal or launch.language_only or not launch.rules.reserve_mib:
        return 0.0
    return (launch.rules.reserve_mib + (1024 if launch.features_on_gpu else 0)) / _MIB_PER_GIB
