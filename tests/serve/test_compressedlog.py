"""What a log says of DeepSeek-V4's pools, and how a launch's log meets what was predicted."""

from __future__ import annotations

from typing import Any

from firstlight.accuracy.attention import describe
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvflags import flags
from firstlight.accuracy.kvmatch import Match, matched
from firstlight.flows.capacity import short, to_json, told_by
from firstlight.serve.compressedlog import CompressedPools
from firstlight.serve.effective import Asked, compare, effective
from firstlight.serve.serverlog import Phase, read
from tests.accuracy.shapes import DSV4_FLASH

# 26 GiB for the pools: (26 x 2^30 - 33,152 x 1,024 x 4 x 20) / 7,086.75 in pages of 256, and a
# tenth of that for the windows; 8 rows of state for each of their pages, 128 for each request.
_PRICED = (
    "DSV4 memory calculation: unified=False, unified_fp8=False, dspark_draft_bf16=False, "
    "bytes_per_full_token=7086.75, available_bytes=26.00 GB, c128_state_fixed=2.53 GB, "
    "c2_state_fixed=0.00 GB, swa_fixed=0.00 GB, swa_ring_fixed=0.00 GB, c4_state_fixed=0.00 GB, "
    "full_token=3556096"
)
_SIZES = (
    "DSV4 pool sizes: full={0}, swa={1}, c4=889024, c128=27782, c4_state={2}, c128_state=0"
).format
_SLOTS = (
    "Initialize DeepSeekV4TokenToKVPool with max_num_reqs=256 swa_size=355584 c4_size=889024 "
    "c4_logical_size=889024 c128_size=27782 c4_state_pool_size={0} c128_state_pool_size={1} "
    "unified=False unified_fp8=False"
).format


def log_of(*messages: str, ranks: tuple[str, ...] = ("TP0", "TP1")) -> str:
    """The messages as each rank says them, between the weights and the summary."""
    lines = [
        *("Load weight begin. avail mem=92.00 GB",),
        "Load weight end. elapsed=9.00 s, type=DeepseekV4ForCausalLM, avail mem=44.40 GB, "
        "mem usage=47.60 GB.",
        *messages,
        "Memory pool end. avail mem=17.00 GB",
        "max_total_num_tokens=3556096, max_running_requests=256, context_len=1048576",
    ]
    return "".join(f"[2026-01-01 10:00:00 {rank}] {line}\n" for line in lines for rank in ranks)


WHOLE = log_of(_PRICED, _SIZES(3556096, 355584, 11112), _SLOTS(11112, 32896))


def match(text: str, **args: Any) -> Match:
    model = describe(DSV4_FLASH)
    assert isinstance(model, Geometry)
    told, dtype = told_by(read(text))
    assert told is not None
    assert dtype == "fp8_e4m3"
    launch = flags("0.5.23", {"tp_size": 2, **args}, geometry=model).launch
    return matched(model, launch, told, None, 0.8)


def test_its_lines_are_read_by_rank() -> None:
    found = read(WHOLE)
    assert found.compressed == tuple(
        CompressedPools(rank, 3556096, 355584, 11112, 32896, 7086.75, 26.0, 2.53)
        for rank in ("TP0", "TP1")
    )
    assert Phase.POOL in found.passed


def test_the_last_line_of_tokens_holds_and_a_draft_adds_nothing() -> None:
    """A cap is told by a second line; the draft's own buffers have the window alone."""
    capped = log_of(
        _PRICED,
        _SIZES(3556096, 355584, 11112),
        _SIZES(65536, 6400, 200),
        _SLOTS(200, 32896),
        _SLOTS(0, 0),
    )
    found = read(capped).compressed[0]
    assert (found.tokens, found.window, found.c4_states) == (65536, 6400, 200)
    assert found.c128_states == 32896


def test_lines_of_older_versions_have_less() -> None:
    old = "DSv4 memory calculation: bytes_per_full_token=15955.85, available_bytes=19.58 GB, "
    found = read(log_of(f"{old}full_token=1317632", _SIZES(1317632, 131584, 8224))).compressed[0]
    assert (found.priced_bytes, found.available_gib, found.fixed_gib) == (15955.85, 19.58, 0.0)
    assert found.c128_states is None
    assert found.dtype == "torch.float8_e4m3fn"


def test_a_unified_buffer_tells_no_dtype() -> None:
    text = log_of(_PRICED.replace("unified=False", "unified=True", 1), _SIZES(256, 256, 8))
    assert read(text).compressed[0].dtype == ""
    assert told_by(read(text))[1] is None


def test_a_log_that_says_what_was_predicted_has_no_finding() -> None:
    found = match(WHOLE)
    assert found.findings == ()
    assert {figure.what: figure.predicted for figure in found.figures} == {
        "tokens, by the free memory of the log": 3556096,
        "tokens, by the memory that the pools are counted from": 3556096,
        "bytes that a token is charged": 7086.75,
        "slots of the pool sliding": 355584,
        "slots of the pool c4 state": 11112,
        "slots of the pool c128 state": 257 * 128,
    }
    assert short(to_json(found)).startswith("6 figures predicted, all within 2 %")


def test_other_pools_than_predicted_are_findings() -> None:
    found = match(WHOLE, swa_full_tokens_ratio=0.2)
    assert {figure.what.split(",")[0] for figure in found.findings} == {
        "tokens",
        "bytes that a token is charged",
        "slots of the pool sliding",
        "slots of the pool c4 state",
    }


def test_the_layout_proves_the_dtype() -> None:
    found = effective(read(WHOLE), {}, {"data": [{"id": "v4"}]})
    assert found.kv_dtypes == ("torch.float8_e4m3fn",)
    assert found.tokens == 3556096
    assert compare(Asked("v4", "fp8_e4m3", require_bf16=False), found) == ()
    (wrong, *_) = compare(Asked("v4", "bf16"), found)
    assert wrong.found == "torch.float8_e4m3fn in the compressed pool of TP0 (3556096 tokens)"
