"""The accuracy room: from the engine's flags to the launch that sizing reads.

    flags(version, {**args, **from_words(extra_args)}, env) -> Flags

Keys are long flags in snake_case. What a flag means by version is of facts §1.4; where the engine
would decide something by itself, a note says what is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, cast, get_args

from pydantic import JsonValue

from firstlight.accuracy.geometry import Geometry, Latent
from firstlight.accuracy.kvdraft import usual
from firstlight.accuracy.kvdsa import bare_rows, depends_on_card
from firstlight.accuracy.kvdsv4flags import notes as v4_notes
from firstlight.accuracy.kvdsv4flags import settled
from firstlight.accuracy.kvlaunch import BF16, Launch, Speculation
from firstlight.accuracy.kvrules import since
from firstlight.accuracy.values import a_count, a_number, a_text
from firstlight.core.errors import FirstlightError

Args = Mapping[str, JsonValue]
Strategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
SsmDtype = Literal["float32", "bfloat16", "float16"]

_TP = ("tp_size", "tensor_parallel_size", "tp")
_DP = ("dp_size", "data_parallel_size", "dp")
_PP = ("pp_size", "pipeline_parallel_size", "pp")
_ATTN_DP = ("attn_dp_size", "attention_data_parallel_size")
_ATTN_CP = ("attn_cp_size", "attention_context_parallel_size")
# Flags that hold a count, which the engine also takes as "64k": whoever hands flags over reads it.
COUNTS = (
    *(*_TP, *_DP, *_PP, *_ATTN_DP, *_ATTN_CP),
    *("page_size", "max_running_requests", "max_total_tokens", "max_mamba_cache_size"),
    *("context_length", "chunked_prefill_size", "speculative_num_draft_tokens"),
    *("speculative_num_steps", "speculative_eagle_topk", "dcp_size", "swa_prefix_tails"),
)
_OWN_DRAFTS = ("DFLASH", "DSPARK")
_ON_GPU = ("cuda_ipc", "cuda_vmm")
_UNMODELLED = (
    *("enable_unified_memory", "enable_hisparse", "enable_kv_cache_sharding"),
    "hybrid_kvcache_ratio",
)
_SSM_ENV = "SGLANG_MAMBA_SSM_DTYPE"


@dataclass(frozen=True)
class Flags:
    """What flags say: the launch, and what stands beside it. None = not given.

    `kv_dtype` is as it is written, "auto" where nothing is; the launch has BF16 for that.
    `replicas` are servers side by side (data parallelism without DP attention), each of which
    holds what the launch holds. `notes` say what was taken where a flag leaves it open.
    """

    launch: Launch
    kv_dtype: str = "auto"
    fraction: float | None = None
    context: int | None = None
    chunk: int | None = None
    replicas: int = 1
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs that hold one replica."""
        return self.launch.tp * self.launch.pp


def from_words(words: Sequence[str]) -> dict[str, JsonValue]:
    """Flags of a command line: `--a-b 1`, `--a-b=1`, `--bare`; all values are texts or true."""
    found: dict[str, JsonValue] = {}
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, value = word[2:].partition("=")
        after = words[at + 1] if at + 1 < len(words) else "--"
        known: JsonValue = value if equals else True if after.startswith("--") else after
        found[flag.replace("-", "_")] = known
    return found


def flags(
    version: str,
    args: Args,
    env: Mapping[str, str] | None = None,
    *,
    geometry: Geometry | None = None,
    sm: int | None = None,
) -> Flags:
    """The launch of these flags; raises FirstlightError for values that no engine takes.

    What the engine decides by itself goes by the model (`geometry`) and by the card (`sm`, the
    compute capability without its dot), None where they are not known."""
    name = geometry.name if geometry else ""
    dtype = a_text(args.get("kv_cache_dtype")) or "auto"
    spec, drafted = _speculation(version, args, geometry)
    strategy, overlap, split = _strategy(version, args)
    sizes, replicas = _sizes(version, args, BF16 if dtype == "auto" else dtype)
    launch = replace(
        sizes,
        speculation=spec,
        strategy=strategy,
        overlap=overlap,
        state_ratio=_number(args, "mamba_full_memory_ratio") or 0.9,
        state_slots=_count(args, "max_mamba_cache_size"),
        ssm_dtype=_ssm_dtype(args, env or {}),
        replay_states=bool(args.get("enable_linear_replayssm_spec")),
        dsa_raw=bare_rows(args, name, version, sm),
    )
    split = split if geometry is None or geometry.states else []
    if geometry and geometry.compressed:
        ratio, tails = _number(args, "swa_full_tokens_ratio"), _count(args, "swa_prefix_tails")
        launch, drafted = settled(launch, args, ratio, tails), [*drafted, *v4_notes(args)]
        dtype = launch.kv_dtype
    noted = (*_notes(args, dtype, launch, replicas), *_card_note(version, args, geometry, sm))
    return Flags(
        launch=_without_radix(launch),
        kv_dtype=dtype,
        fraction=_number(args, "mem_fraction_static"),
        context=_count(args, "context_length"),
        # -1 switches chunks off.
        chunk=_count(args, "chunked_prefill_size", least=-1),
        replicas=replicas,
        notes=(*noted, *drafted, *split),
    )


def _sizes(version: str, args: Args, kv_dtype: str) -> tuple[Launch, int]:
    """The launch as far as no state and no draft is concerned, and how many of it there are."""
    dp, replicas = _parallel(args)
    launch = Launch(
        version=version,
        kv_dtype=kv_dtype,
        tp=_count(args, *_TP, least=1) or 1,
        dp=dp,
        cp=_count(args, *_ATTN_CP, least=1) or 1,
        pp=_count(args, *_PP, least=1) or 1,
        page_size=_count(args, "page_size", least=1) or 1,
        swa_ratio=_number(args, "swa_full_tokens_ratio") or 0.8,
        radix=not args.get("disable_radix_cache"),
        max_running=_count(args, "max_running_requests"),
        chunk=_chunk(args),
        max_total_tokens=_count(args, "max_total_tokens"),
        language_only=bool(args.get("language_model_only")),
        features_on_gpu=args.get("mm_feature_transport") in _ON_GPU,
        device="npu" if args.get("device") == "npu" else "cuda",
        index_everywhere=bool(
            args.get("disaggregation_mode") not in (None, "null")
            or args.get("enable_hierarchical_cache")
        ),
    )
    return launch, replicas


def _count(args: Args, *names: str, least: int = 0) -> int | None:
    """The first of these flags that is given; raises FirstlightError for what is no count."""
    for name in names:
        value = args.get(name)
        if value is None or value is False:
            continue
        found = a_count(value)
        if found is None or found < least:
            wanted = "a whole number" if found is None else f"{least} or more"
            raise _refused(name, value, wanted)
        return found
    return None


def _chunk(args: Args) -> int | None:
    # -1 switches chunks off.
    found = _count(args, "chunked_prefill_size", least=-1)
    return found if found and found > 0 else None


def _number(args: Args, name: str) -> float | None:
    value = args.get(name)
    if value is None or value is False:
        return None
    try:
        found = float(value) if isinstance(value, str) else a_number(value)
    except ValueError:
        found = None
    if found is None or not isfinite(found):
        raise _refused(name, value, "a number")
    return found


def _refused(name: str, value: object, wanted: str) -> FirstlightError:
    what = f"{name} is {value!r}, and {wanted} is expected"
    return FirstlightError(what, where="the profile's args", remedy="correct it there")


def _parallel(args: Args) -> tuple[int, int]:
    """Ranks of DP attention, and replicas side by side."""
    dp = _count(args, *_DP, least=1) or 1
    if ranks := _count(args, *_ATTN_DP, least=1):
        return ranks, max(1, dp // ranks) if ranks > 1 else dp
    return (dp, 1) if args.get("enable_dp_attention") else (1, dp)


def _ssm_dtype(args: Args, env: Mapping[str, str]) -> SsmDtype | None:
    """The environment wins over the flag."""
    found = env.get(_SSM_ENV) or a_text(args.get("mamba_ssm_dtype"))
    if found and found not in get_args(SsmDtype):
        raise _refused("mamba_ssm_dtype", found, " or ".join(get_args(SsmDtype)))
    return cast("SsmDtype | None", found or None)


def _speculation(
    version: str, args: Args, geometry: Geometry | None
) -> tuple[Speculation | None, list[str]]:
    algorithm = a_text(args.get("speculative_algorithm") or args.get("speculative_algo")).upper()
    if not algorithm:
        return None, []
    name = geometry.name if geometry else ""
    tokens, tree, notes = _drafted(version, args, algorithm, name)
    path = bool(args.get("speculative_draft_model_path"))
    layers = _draft_layers(algorithm, path, geometry)
    if algorithm in (*_OWN_DRAFTS, "STANDALONE"):
        notes.append(f"the rows of a {algorithm} draft are its own, and its config is not read")
    elif path and layers != 0:
        taken = "its layers are taken as the head's" if layers is None else "one layer is taken"
        notes.append(f"the draft model's config is not read: {taken}")
    kind: Literal["eagle", "dflash"] = "dflash" if algorithm in _OWN_DRAFTS else "eagle"
    return Speculation(tokens, kind, path, layers, tree=tree), notes


def _draft_layers(algorithm: str, path: bool, geometry: Geometry | None) -> int | None:
    """Layers with rows like the target's; None for its own head. N-grams have no model that keeps
    rows, and a draft that is no head is EAGLE's, of one layer."""
    if algorithm in ("NGRAM", "STANDALONE"):
        return 0
    headless = geometry is not None and not geometry.draft
    eagle = path and algorithm not in _OWN_DRAFTS
    return 1 if eagle and (algorithm == "EAGLE3" or headless) else None


def _drafted(
    version: str, args: Args, algorithm: str, name: str
) -> tuple[int, int | None, list[str]]:
    """Draft tokens, steps times branches, and a note where the engine chooses the tokens."""
    steps, branches = (_count(args, f"speculative_{key}") for key in ("num_steps", "eagle_topk"))
    tree = steps * branches if steps and branches else None
    if tokens := _block(args, algorithm):
        return tokens, tree, []
    if steps and algorithm not in _OWN_DRAFTS:
        tokens = steps + 1
    else:
        length = usual(algorithm, name, version)
        tokens, tree = length.tokens, length.steps * length.branches
    taken = f"{tokens} is taken, as {version} does" if name else f"{tokens} is taken"
    return tokens, tree, [f"speculative_num_draft_tokens is not given: {taken}"]


def _block(args: Args, algorithm: str) -> int | None:
    """Draft tokens as they are given, for DFLASH and DSPARK under another name as well."""
    tokens = _count(args, "speculative_num_draft_tokens")
    block = _count(args, f"speculative_{algorithm.lower()}_block_size")
    if tokens is None and block:
        return block + 1 if algorithm == "DSPARK" else block
    return tokens


def _card_note(
    version: str, args: Args, geometry: Geometry | None, sm: int | None
) -> Iterator[str]:
    rows = (layer.rows for layer in geometry.full) if geometry else ()
    indexed = any(isinstance(one, Latent) and one.index_dim for one in rows)
    if indexed and sm is None and depends_on_card(args, version):
        yield "which card is not known: FP8 rows of DSA are taken with scales, as below SM100"


def _strategy(version: str, args: Args) -> tuple[Strategy, bool, list[str]]:
    """How states are kept for prefixes, and whether the overlap schedule stays (facts §1.4)."""
    overlap = not args.get("disable_overlap_schedule")
    names = ("mamba_radix_cache_strategy", "mamba_scheduler_strategy")
    asked = next((a_text(args[name]) for name in names if args.get(name)), "auto")
    if asked != "auto":
        if asked not in get_args(Strategy):
            raise _refused(names[0], asked, " or ".join(get_args(Strategy)))
        return cast(Strategy, asked), overlap, []
    if not since(version, "0.5.14"):
        return "no_buffer", overlap, []
    triton = (a_text(args.get("linear_attn_backend")) or "triton") == "triton"
    wanted = overlap or (_count(args, "page_size") or 1) > 1
    taken: Strategy = "extra_buffer" if triton and wanted else "no_buffer"
    note = f"{names[0]} is auto: {taken} is taken, as {version} does where the model allows it"
    return taken, overlap and taken == "extra_buffer", [note]


def _without_radix(launch: Launch) -> Launch:
    """0.5.9 switches the radix cache off by itself for drafts without a buffer."""
    drafts = launch.speculation and launch.strategy == "no_buffer"
    return (
        replace(launch, radix=False) if drafts and not since(launch.version, "0.5.12") else launch
    )


def _notes(args: Args, dtype: str, launch: Launch, replicas: int) -> Iterator[str]:
    if dtype == "auto":
        yield "kv_cache_dtype is auto: what the engine makes of it is not said here"
    if replicas > 1:
        yield f"{replicas} replicas stand side by side; all figures are of one"
    backends = (args.get("attention_backend"), args.get("decode_attention_backend"))
    if "trtllm_mha" in backends and not args.get("page_size"):
        yield "trtllm_mha forces pages of 64 tokens; name page_size"
    if (_count(args, "dcp_size") or 1) > 1:
        yield "dcp_size is not modelled: the figures leave it out"
    for name in _UNMODELLED:
        if args.get(name):
            yield f"{name} is not modelled: the figures leave it out"
    if launch.device == "cuda" and args.get("device") == "cpu":
        yield 'device is cpu: read "GPU" as the machine, whose memory holds the pool'
