"""DeepSeek-V4's compressed pools: what a token costs, what requests keep, and published boots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.accuracy.attention import describe
from firstlight.accuracy.card import card
from firstlight.accuracy.cardtext import text
from firstlight.accuracy.fitting import Workload
from firstlight.accuracy.geometry import Geometry, Unknown
from firstlight.accuracy.knobs import knobs
from firstlight.accuracy.kvcache import Capacity, capacity, memory_for, price
from firstlight.accuracy.kvdsv4 import READ
from firstlight.accuracy.kvdsv4flags import unmodelled
from firstlight.accuracy.kvflags import flags
from firstlight.accuracy.kvlaunch import BF16, FP8, GIB, Launch, Speculation
from firstlight.accuracy.kvneed import needs
from tests.accuracy import shapes

VERSIONS = [f"0.5.{n}" for n in range(12, 24)]


def known(config: shapes.Config, version: str = "0.5.23") -> Geometry:
    found = describe(config, version)
    assert isinstance(found, Geometry), str(found)
    return found


FLASH, PRO, V41 = (known(c) for c in (shapes.DSV4_FLASH, shapes.DSV4_PRO, shapes.DSV41_FLASH))


def launch(version: str, geometry: Geometry = FLASH, **args: Any) -> Launch:
    """The launch as the engine makes it of these flags."""
    return flags(version, args, geometry=geometry).launch


def counts(found: Capacity) -> dict[str, int]:
    return {pool.name: pool.tokens for pool in found.pools}


# -- what a token costs ------------------------------------------------------------------------

# Flash has 43 layers, 21 of ratio 4 and 20 of ratio 128; a row takes 448 + 2 x 64 + 8 = 584 bytes,
# an index key 128 + 4. States are 32-bit: 4 x (512 + 128) values of ratio 4, 8 rows by page or
# window, and 2 x 512 of ratio 128.
_ROWS = 584 / 4 * 21 + 584 / 128 * 20 + 132 / 4 * 21
_STATES = 4 * (512 + 128) * 4 * 21
# A page of 256 rows takes 260 lines of 576, one of 64 rows 65 of them, one of 2 rows 3.
_PADDED = 585 / 4 * 21 + 864 / 128 * 20 + 132 / 4 * 21
COSTS = {
    # 44 ratios are listed, that of the draft with them, and all count.
    "0.5.12": 0.1 * (584 * 44 + 8 / 128 * _STATES + 128 / 128 * 2 * 512 * 4 * 20) + _ROWS,
    "0.5.13": 0.1 * (584 * 43 + 8 / 128 * _STATES + 128 / 128 * 2 * 512 * 4 * 20) + _ROWS,
    "0.5.15": 0.1 * (584 * 43 + 8 / 128 * _STATES) + _ROWS,
    "0.5.20": 0.1 * (584 * 43 + 8 / 128 * _STATES) + _ROWS,
    "0.5.21": 0.1 * (585 * 43 + 8 / 256 * _STATES) + _PADDED,
    "0.5.23": 0.1 * (585 * 43 + 8 / 256 * _STATES) + _PADDED,
}


@pytest.mark.parametrize(("version", "cost"), COSTS.items())
def test_a_token_of_the_context_costs_a_share_of_many_rows(version: str, cost: float) -> None:
    assert price(FLASH, launch(version)) == pytest.approx(cost, abs=1e-9)
    assert round(price(FLASH, launch("0.5.12")), 2) == 15955.85
    assert round(price(FLASH, launch("0.5.23")), 2) == 7086.75


def test_a_draft_is_one_layer_more_and_doubles_the_states() -> None:
    drafted = launch("0.5.23", speculative_algorithm="EAGLE", speculative_num_draft_tokens=4)
    cost = (0.1 * (585 * 43 + 16 / 256 * _STATES) + _PADDED) * 44 / 43
    assert price(FLASH, drafted) == pytest.approx(cost, abs=1e-9)
    found = capacity(FLASH, drafted, 20.0)
    rows = (256 + 1) * 256 + 256 + 1
    fixed = -(-rows // 128) * 128 * 2 * 512 * 4 * 20
    assert found.fixed_gib * GIB == pytest.approx(fixed)
    # The draft's layer has rows of the window alone: pages of 256, one of them in reserve.
    draft = next(pool for pool in found.pools if pool.name == "draft")
    assert draft.stored_gib * GIB == (draft.tokens // 256 + 1) * 585 * 256


def test_low_ratios_cost_by_their_sources() -> None:
    """Three sources of ratio 2 and one of ratio 1; index keys of 64 + 4 bytes; the window is not in
    a token's price, since requests decide its size."""
    of = {v: launch(v, V41, chunked_prefill_size=8192) for v in ("0.5.22", "0.5.23")}
    assert price(V41, of["0.5.22"]) == (584 + 68) * (1 + 3 / 2)
    assert price(V41, of["0.5.23"]) == (585 + 68) * (1 + 3 / 2)
    found = capacity(V41, of["0.5.23"], 40.0)
    # 256 requests: a window, 128 before eviction, a page and a page of decode each; two chunks and
    # a page; and 4 tails of a window and a page for each request.
    cap = 256 * (128 + 128 + 256 + 256) + 2 * 8192 + 256 + 1024 * (128 + 256)
    assert counts(found)["sliding"] == -(-cap // 256) * 256
    # States of ratio 2: two rows for each request, one slot and one ring in reserve, in 3 layers.
    assert counts(found)["c2 state"] == 257 * 2
    states = (257 * 2 + 2 + 1 + 1) * 2 * 512 * 4 * 3
    window = counts(found)["sliding"] * 585 * 40
    assert found.fixed_gib * GIB == states + window
    # Rows of ratio 1 have a page in reserve, and their index one page more of 64.
    assert part(found, "c1") == (found.tokens + 256) * 585 + (found.tokens + 256 + 64) * 68


def test_a_window_by_requests_and_its_draft_are_paid_before_the_tokens() -> None:
    """7 drafts of 4 requests: rings of 16 rows for pairs, three layers of them; the window's rows
    count as 41 layers."""
    args = {"max_running_requests": 4, "chunked_prefill_size": 1024, "swa_prefix_tails": 0}
    drafts = {"speculative_algorithm": "DSPARK", "speculative_num_draft_tokens": 7}
    asked = replace(launch("0.5.23", V41, **args, **drafts), language_only=True)
    found = capacity(V41, asked, 8.0)
    # Steps of 7 drafts are allocated twice.
    cap = 4 * (128 + 128 * 7 + 256 + 2 * 7) + 2 * 1024 + 256
    assert counts(found)["sliding"] == -(-cap // 256) * 256
    assert counts(found)["c2 state"] == 5 * 16
    states = -(-(5 * 16 + 16 + 1) // 2) * 2 * 2 * 512 * 4 * 3
    assert found.fixed_gib * GIB == states + counts(found)["sliding"] * (585 * 40 * (41 / 40))
    # What is left pays for the tokens, and for pages in reserve: 256 rows of ratio 1 and 2 and of
    # the index 64 beyond a page, in one layer of ratio 1 and three of ratio 2.
    left = 8 * GIB - found.fixed_gib * GIB
    reserve = 256 * 585 * 4 + (256 + 64) * 68 + (256 // 2 + 64) * 68 * 3
    each = (585 + 68) * (1 + 3 / 2) * 41 / 40
    assert found.tokens * each + reserve <= left < (found.tokens + 256) * each + reserve
    assert int(left / each) // 256 * 256 - found.tokens in (256, 512)


def part(found: Capacity, name: str) -> float:
    """Bytes of one pool."""
    return next(pool for pool in found.pools if pool.name == name).stored_gib * GIB


def test_pages_in_reserve_by_version() -> None:
    """65,536 tokens of Flash: 16,384 rows of ratio 4 in pages of 64, 512 of ratio 128 in pages of
    2; one page in reserve, from 0.5.21 on a page of 256 tokens' worth of rows, of 0.5.22 on also
    of the index."""
    of = {
        version: capacity(FLASH, launch(version, max_total_tokens=65_536), 1000.0)
        for version in ("0.5.12", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
    }
    index = {"0.5.12": 257, "0.5.20": 257, "0.5.21": 257, "0.5.22": 260, "0.5.23": 260}
    for version, found in of.items():
        old = version in ("0.5.12", "0.5.20")
        rows = 257 if old else 260
        assert part(found, "c4") == (rows * 65 * 576 + index[version] * 64 * 132) * 21
        assert part(found, "c128") == (257 if old else 384) * 3 * 576 * 20
        # The window's pool has its own layers, also where another count is priced.
        assert part(found, "sliding") == (6400 // 256 + 1) * 260 * 576 * 43


def test_requests_are_half_the_tokens_at_most() -> None:
    tiny = launch("0.5.23", max_total_tokens=256, swa_full_tokens_ratio=1.0)
    assert "holds no request" in capacity(FLASH, tiny, 20.0).refused
    small = launch("0.5.23", max_total_tokens=512, swa_full_tokens_ratio=1.0)
    assert counts(capacity(FLASH, small, 20.0))["c128 state"] == (256 + 1) * 128
    old = launch("0.5.15", max_total_tokens=256, swa_full_tokens_ratio=1.0)
    assert counts(capacity(FLASH, old, 20.0))["c128 state"] == (128 + 1) * 128


def test_a_ratio_that_is_given_decides_and_tails_can_be_fewer() -> None:
    by_ratio = launch("0.5.23", V41, swa_full_tokens_ratio=0.1, chunked_prefill_size=8192)
    found = counts(capacity(V41, by_ratio, 10.0))
    assert found["sliding"] == int(found["c1"] * 0.1) // 256 * 256
    few = launch("0.5.23", V41, swa_prefix_tails=0, chunked_prefill_size=8192)
    none = launch("0.5.23", V41, disable_radix_cache=True, chunked_prefill_size=8192)
    assert capacity(V41, few, 10.0) == replace(capacity(V41, none, 10.0))


def test_trtllm_has_rows_of_512_bytes_without_padding() -> None:
    asked = launch("0.5.23", dsv4_attn_backend="trtllm")
    rows = 512 / 4 * 21 + 512 / 128 * 20 + 132 / 4 * 21
    assert price(FLASH, asked) == pytest.approx(0.1 * (512 * 43 + 8 / 256 * _STATES) + rows)
    # 0.5.20 stores them and does not price them so.
    old = launch("0.5.20", dsv4_attn_backend="trtllm")
    assert price(FLASH, old) == price(FLASH, launch("0.5.20"))
    assert (
        capacity(FLASH, old, 20.0).target_gib < capacity(FLASH, launch("0.5.20"), 20.0).target_gib
    )


def test_stages_hold_their_own_layers_and_the_least_decides() -> None:
    """Of 61 layers in two stages the second has 31: 15 of ratio 4 and 16 of 128, and no window
    alone."""
    halves = launch("0.5.23", PRO, pp_size=2, max_running_requests=64)
    found = capacity(PRO, halves, 30.0)
    second = 0.1 * (585 * 31 + 8 / 256 * 4 * 640 * 4 * 16) + 585 / 4 * 16 + 132 / 4 * 16
    second += 864 / 128 * 15
    assert found.priced_bytes == pytest.approx(second)
    assert price(PRO, launch("0.5.12", PRO, pp_size=2)) == price(PRO, launch("0.5.12", PRO))


# -- published boots ---------------------------------------------------------------------------

# The published launch of Pro: 8 ranks of DP attention, 64 requests each, cards of 288 GiB.
_PRO = {
    "tp_size": 8,
    "dp_size": 8,
    "enable_dp_attention": True,
    "swa_full_tokens_ratio": 0.15,
    "max_running_requests": 512,
}
_DRAFTED = {
    "tp_size": 3,
    "max_running_requests": 4,
    "chunked_prefill_size": 1024,
    "speculative_algorithm": "DSPARK",
    "speculative_num_draft_tokens": 6,
}
# Version, model, arguments, GiB that the pools were counted from (two decimals), and what the log
# then says: bytes of a token, tokens, tokens of the window. The first two are of a build right
# before 0.5.12, those of 0.5.15 of its post1, the last of a build before 0.5.21 on three GB10.
BOOTS = [
    ("0.5.12", FLASH, {}, 19.58, 15955.85, 1_317_632, None),
    ("0.5.12", FLASH, {}, 45.78, 15955.85, 3_080_960, None),
    ("0.5.13", PRO, _PRO, 105.08, 32781.44, 3_441_920, 516_096),
    ("0.5.15", PRO, _PRO, 91.24, 13735.04, 7_053_056, 1_057_792),
    ("0.5.15", PRO, _PRO, 105.08, 13735.04, 8_135_424, 1_220_096),
    ("0.5.15", PRO, _PRO, 113.39, 13735.04, 8_784_896, 1_317_632),
    ("0.5.15", PRO, _PRO, 118.93, 13735.04, 9_217_792, 1_382_656),
    ("0.5.15", PRO, _PRO, 124.47, 13735.04, 9_650_944, 1_447_424),
    ("0.5.21", V41, _DRAFTED, 8.84, 1670.75, 5_491_200, 13_312),
]


@pytest.mark.parametrize(("version", "model", "args", "gib", "cost", "tokens", "window"), BOOTS)
def test_published_boots_come_out_to_what_their_decimals_hide(
    version: str,
    model: Geometry,
    args: dict[str, Any],
    gib: float,
    cost: float,
    tokens: int,
    window: int | None,
) -> None:
    booted = replace(launch(version, model, **args), language_only=True)
    low, high = (capacity(model, booted, gib + off) for off in (-0.005, 0.005))
    assert round(low.priced_bytes, 2) == cost
    assert low.tokens <= tokens <= high.tokens
    assert high.tokens - low.tokens < 0.01 * tokens
    exact = capacity(model, replace(booted, max_total_tokens=tokens), 1000.0)
    assert window is None or counts(exact)["sliding"] == window


def test_slots_of_states_are_those_of_a_published_boot() -> None:
    """0.5.13, where both states go by windows of 128: 8 and 128 rows for each."""
    booted = launch("0.5.13", PRO, **_PRO, max_total_tokens=3_441_920)
    found = counts(capacity(PRO, booted, 1000.0))
    assert (found["c4 state"], found["c128 state"]) == (32_256, 516_096)
    assert (found["c4"], found["c128"]) == (860_480, 26_890)


# -- what the engine makes of flags ------------------------------------------------------------


def test_page_requests_and_window_are_the_engines_own() -> None:
    found = launch("0.5.23", page_size=64)
    assert (found.page_size, found.max_running, found.swa_ratio) == (256, 256, 0.1)
    assert (found.kv_dtype, found.swa_given, found.uniform_rows) == (FP8, False, False)
    # Before 0.5.20 the usual value of others counts as not given.
    assert launch("0.5.19", swa_full_tokens_ratio=0.8).swa_ratio == 0.1
    assert launch("0.5.20", swa_full_tokens_ratio=0.8).swa_ratio == 0.8
    notes = flags("0.5.23", {"page_size": 64}, geometry=FLASH).notes
    assert notes == ("DeepSeek-V4 has pages of 256 tokens, whatever is asked for",)


@pytest.mark.parametrize(
    ("args", "env", "what"),
    [
        ({"enable_hisparse": True}, {}, "enable_hisparse"),
        ({"enable_encoder_swa_bounded_replay": True}, {}, "the windows of requests"),
        ({"disaggregation_mode": "decode"}, {}, "a server of decode keeps in reserve"),
        ({"device": "npu"}, {}, "the pools of device npu"),
        ({"speculative_algorithm": "NGRAM"}, {}, "drafts by NGRAM, which the engine refuses"),
        ({"dcp_size": 2}, {}, "dcp_size"),
        ({}, {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}, "SGLANG_OPT_USE_ONLINE_COMPRESS"),
        ({}, {"SGLANG_DSV4_KV_LAYOUT": "v41"}, "SGLANG_DSV4_KV_LAYOUT"),
    ],
)
def test_what_is_not_modelled_is_told(args: dict[str, Any], env: dict[str, str], what: str) -> None:
    found = unmodelled(FLASH, launch("0.5.23", **args), args, env, 120)
    assert len(found) == 1
    assert what in found[0]
    assert unmodelled(known(shapes.LLAMA_8B), Launch(), args, env, 120) == ()


def test_rows_of_other_kernels_are_told_by_the_card() -> None:
    chunk = {"chunked_prefill_size": 8192}

    def lacks(sm: int | None, **args: str | int) -> tuple[str, ...]:
        asked = {**chunk, **args}
        return unmodelled(V41, launch("0.5.23", V41, **asked), asked, {}, sm)

    mega = ("DeepSeek-V4 with the rows of flashmla_mega: not modelled here",)
    assert lacks(100) == lacks(103, dsv4_attn_backend="auto") == mega
    assert lacks(120) == lacks(90) == lacks(100, tp_size=4) == ()
    assert lacks(100, dsv4_attn_backend="flashmla") == lacks(100, dsv4_attn_backend="trtllm") == ()
    assert lacks(120, pp_size=2)[0].endswith("which the engine refuses: not modelled here")
    (bare,) = unmodelled(V41, launch("0.5.23", V41), {}, {}, 120)
    assert "--chunked-prefill-size, which is not given" in bare
    given = {"swa_full_tokens_ratio": 0.1}
    assert unmodelled(V41, launch("0.5.23", V41, **given), given, {}, 120) == ()


def test_versions_without_the_class_are_told() -> None:
    old = describe(shapes.DSV4_FLASH, "0.5.11")
    assert isinstance(old, Unknown)
    assert "0.5.11 has none, 0.5.12 has" in str(old)
    later = describe(shapes.DSV41_FLASH, "0.5.20")
    assert isinstance(later, Unknown)
    assert "the pools of DeepSeek-V4.1: 0.5.20 has none, 0.5.21 has" in str(later)


# -- the card ----------------------------------------------------------------------------------


def test_bf16_and_fp4_have_no_layout() -> None:
    found = card(FLASH, launch("0.5.23", tp_size=4), 40.0, Workload(16, 65_536), 1_048_576)
    wide, narrow, four = (column.capacity for column in found.columns)
    fixed = -(-((256 + 1) * 128 + 128 + 1) // 128) * 128 * 2 * 512 * 4 * 20
    assert narrow.tokens == int((40 * GIB - fixed) / 7086.75) // 256 * 256
    for none in (wide, four):
        assert (none.tokens, none.pools) == (0, ())
        assert "a layout of FP8 alone" in none.refused
    assert (found.price, found.affordable) == (None, True)
    assert found.sentence == (
        "Affordable in FP8: 16 requests of 65,536 tokens take 1,048,576 of 5,677,312 tokens."
    )
    lines = text(found).splitlines()
    assert next(line for line in lines if line.startswith("tokens  ")).split("  ")[-1] == (
        "no layout"
    )
    assert sum("no BF16 and no FP4" in line for line in lines) == 1
    assert not any(line.startswith("BF16 costs") for line in lines)


def test_a_smaller_window_gives_tokens_and_holds_its_requests() -> None:
    asked = launch("0.5.23", chunked_prefill_size=8192, max_running_requests=64)
    work = Workload(48, 131_072)
    (knob,) = (k for k in knobs(FLASH, asked, 20.0, None, work) if "--swa" in k.flags)
    assert knob.tokens > 1.5 * capacity(FLASH, asked, 20.0).tokens
    found = capacity(FLASH, knob.launch, 20.0)
    # 48 requests of a window, 128 before eviction and two pages; two chunks and a page.
    assert counts(found)["sliding"] >= 48 * (128 + 128 + 512) + 2 * 8192 + 256
    assert knob.fit is not None and knob.fit.bound == "tokens"


def test_without_a_memory_its_needs_are_told() -> None:
    found = needs(FLASH, launch("0.5.23"), Workload(4, 100_000))
    assert [need.row_bytes for need in found] == [0, 7087, 0]
    assert found[0].gib is None and found[1].gib
    at_hand = capacity(FLASH, launch("0.5.23"), found[1].gib)
    assert at_hand.tokens >= 4 * 100_096


def test_what_the_engine_refuses() -> None:
    tight = launch("0.5.23", swa_full_tokens_ratio=0.0042, max_total_tokens=65_536)
    assert capacity(FLASH, tight, 20.0).refused == (
        "the sliding pool of 256 tokens holds no request of 384"
    )
    assert not capacity(FLASH, replace(tight, version="0.5.19"), 20.0).refused
    long = replace(launch("0.5.23"), speculation=Speculation(11))
    assert "keep 10 draft tokens at most, 11" in capacity(FLASH, long, 20.0).refused
    assert not capacity(FLASH, replace(long, version="0.5.17"), 20.0).refused
    assert "holds no page" in capacity(FLASH, launch("0.5.23"), 2.0).refused
    wide = replace(launch("0.5.23"), kv_dtype=BF16)
    assert "none of bf16" in capacity(FLASH, wide, 20.0).refused


MODELS = st.sampled_from([FLASH, PRO])


@settings(max_examples=30, deadline=None)
@given(
    MODELS,
    st.sampled_from(VERSIONS),
    st.floats(3, 150),
    st.integers(1, 1024),
    st.sampled_from([0.01, 0.1, 0.5, 1.0]),
)
def test_pools_keep_within_the_memory(
    model: Geometry, version: str, gib: float, running: int, ratio: float
) -> None:
    """What all pools take is what there was, but for the pages that they keep in reserve, and
    before 0.5.21 for the padding of pages, half a row of ratio 128 each."""
    asked = launch(version, model, max_running_requests=running, swa_full_tokens_ratio=ratio)
    found = capacity(model, asked, gib)
    if found.refused:
        return
    assert found.tokens % 256 == 0
    padding = 0.0 if VERSIONS.index(version) >= VERSIONS.index("0.5.21") else 0.02 * gib
    assert found.target_gib <= gib + 0.06 + padding
    assert found.notes or found.target_gib < gib + 0.2
    again = memory_for(model, asked, found.tokens)
    assert capacity(model, asked, again).tokens >= found.tokens
    assert again <= gib + 1e-6


def test_the_rules_are_in_the_order_of_versions() -> None:
    numbers = [tuple(map(int, rules.version.split("."))) for rules in READ]
    assert numbers == sorted(numbers)
    assert all(rules.source.startswith(rules.version) for rules in READ)
