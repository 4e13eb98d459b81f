"""Tokens from memory, as the engine has them; the worked example comes out to the token."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import kv_example
from firstlight.accuracy import card, fitting, knobs, kvbytes, kvcache, kvlaunch, kvstate
from firstlight.accuracy.attention import describe
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvbytes import row
from firstlight.accuracy.kvcache import capacity, memory_for, price
from firstlight.accuracy.kvfraction import Tower, captured, default_fraction
from firstlight.accuracy.kvlaunch import BF16, FP8, GIB, Budget, Launch, Speculation
from firstlight.accuracy.kvrules import READ, rules_for, since
from firstlight.accuracy.kvstate import state_bytes
from firstlight.core.errors import FirstlightError
from tests.accuracy import shapes
from tests.accuracy.shapes import EVERY

VERSIONS = [rules.version for rules in READ]
QWEN35 = kv_example.model()


def known(config: shapes.Config) -> Geometry:
    found = describe(config)
    assert isinstance(found, Geometry), str(found)
    return found


# -- the worked example ------------------------------------------------------------------------

# reading: slots, GiB of KV, FP8 tokens, BF16 tokens (facts §3.7)
EXAMPLE = {
    "the engine's split, no speculation": (367, 9.17, 1_282_328, 641_164),
    "the same with pages of 64": (367, 9.17, 1_282_304, 641_152),
    "the same with pictures (100 MiB kept)": (365, 9.12, 1_274_926, 637_463),
    "NEXTN, 4 draft tokens, 0.5.9": (277, 6.91, 966_602, 483_301),
    "NEXTN, 0.5.16, extra_buffer": (204, 9.26, 1_294_832, 647_416),
    "NEXTN, 0.5.16, no_buffer": (157, 9.60, 1_341_722, 670_861),
    "NEXTN, 0.5.23, extra_buffer": (202, 9.19, 1_285_454, 642_727),
    "the same with a draft path": (202, 9.19, 1_205_113, 602_556),
    "the same with a draft path, 0.5.16": (204, 9.26, 258_966, 129_483),
    "--mamba-full-memory-ratio 0.3": (178, 13.40, 1_873_142, 936_571),
    "--max-mamba-cache-size 96": (96, 15.23, 2_129_474, 1_064_737),
    "--disable-radix-cache --max-running-requests 32": (32, 16.66, 2_329_538, 1_164_769),
    "--mamba-full-memory-ratio 0.1": (69, 15.83, 2_213_876, 1_106_938),
}


def test_the_worked_example_to_the_token() -> None:
    found = {name: (s, round(gib, 2), a, b) for name, s, gib, a, b in kv_example.readings()}
    assert found == EXAMPLE


@pytest.mark.parametrize("version", [rules.version for rules in READ if rules.state != "requests"])
@pytest.mark.parametrize("tp", [4, 8])
def test_the_engines_split_is_the_same_in_all_versions(version: str, tp: int) -> None:
    if tp == 4:  # the slots are twice as large there: 184 of them, and as many bytes
        launch = kv_example.launch(FP8, version=version, tp=4)
        assert capacity(QWEN35, launch, 17.4).tokens == pytest.approx(1_282_328, rel=0.003)
        return
    narrow = capacity(QWEN35, kv_example.launch(FP8, version=version), 17.4)
    wide = capacity(QWEN35, kv_example.launch(BF16, version=version), 17.4)
    assert (narrow.tokens, wide.tokens) == (1_282_328, 641_164)


def test_where_the_quick_estimates_came_from() -> None:
    told = list(kv_example.estimates())
    for line, figure in zip(
        told,
        (
            "2,432,696",  # all of it KV
            "2,561,530",  # 2.56 M: twice the memory
            "2,564,656",  # 2.56 M: V forgotten
            "1,282,328",  # 1.28 M: right for FP8, halved for nothing
            "608,174",  # 608 K: heads of tp 1
            "602,556",  # 608 K: a draft path
            "608,480",  # 608 K: 5 % less memory
            "27.16 GiB",
        ),
        strict=True,
    ):
        assert line.endswith(figure) or figure in line


def test_bytes_of_the_example() -> None:
    cells = [
        [row(QWEN35.full, kv_example.launch(d, tp=tp)).stored_bytes for d in (FP8, BF16)]
        for tp in (1, 2, 4, 8)
    ]
    assert cells == [[15_360, 30_720], *[[7_680, 15_360]] * 3]
    slot = state_bytes(QWEN35, kv_example.launch(BF16))
    assert (slot.conv_bytes, slot.ssm_bytes, slot.slot_bytes) == (414_720, 23_592_960, 24_007_680)
    assert state_bytes(QWEN35, kv_example.launch(BF16, tp=4)).slot_bytes == 48_015_360
    half = state_bytes(QWEN35, kv_example.launch(BF16, ssm_dtype="bfloat16"))
    assert half.slot_bytes == 12_211_200


# -- bytes of a token --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "stored", "priced"),
    [
        ("llama", {}, 131_072, 131_072),
        ("llama", {"tp": 16}, 16_384, 16_384),  # 8 heads: held by two GPUs each
        ("llama", {"tp": 16, "dp": 16}, 131_072, 131_072),
        ("llama", {"kv_dtype": "int8"}, 65_536, 65_536),
        ("llama", {"kv_dtype": "mxfp8"}, 65_536 + 2_048, 65_536 + 2_048),
        ("llama", {"kv_dtype": "fp4", "version": "0.5.9"}, 36_864, 36_864),  # 0.5625 a value
        ("llama", {"kv_dtype": "nvfp4"}, 36_864, 36_864 + 2_048),  # and one layer to unpack into
        ("deepseek-r1", {"tp": 8}, 70_272, 70_272),  # 1152 a layer, whatever tp
        ("deepseek-r1", {"kv_dtype": FP8}, 35_136, 35_136),  # 576
        ("deepseek-v3.2", {}, 61 * 1284, 61 * 1284),
        ("deepseek-v3.2", {"kv_dtype": FP8}, 61 * 788, 61 * 788),
        ("deepseek-v3.2", {"kv_dtype": FP8, "version": "0.5.16"}, 61 * 788, 61 * 708),
        ("deepseek-v3.2", {"kv_dtype": FP8, "dsa_raw": True}, 61 * 708, 61 * 708),
        ("deepseek-v3.2", {"device": "npu", "version": "0.5.9"}, 61 * 1408, 61 * 1284),
        ("deepseek-v3.2", {"device": "npu"}, 61 * 1408, 61 * 1408),
        ("mimo", {"tp": 4}, 9 * 320 * 2, 9 * 320 * 2),
        ("kimi-linear", {}, 7 * 1152, 7 * 1152),
    ],
)
def test_bytes_of_a_token(name: str, changes: dict[str, Any], stored: int, priced: int) -> None:
    found = row(known(EVERY[name]).full, Launch(**changes))
    assert (found.stored_bytes, found.priced_bytes) == (stored, priced)


def test_layers_that_share_an_index_keep_none_where_nobody_else_reads_it() -> None:
    """GLM-5.2 finds its own top k in 3 layers and then in every fourth."""
    shared = {**shapes.DEEPSEEK_V32, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    own = 3 + (61 - 3) // 4
    stored = {
        (version, every): row(
            known(shared).full, Launch(version=version, index_everywhere=every)
        ).index_bytes
        for version in ("0.5.17", "0.5.18")
        for every in (False, True)
    }
    assert stored == {
        ("0.5.17", False): 61 * 132,
        ("0.5.17", True): 61 * 132,
        ("0.5.18", False): own * 132,
        ("0.5.18", True): 61 * 132,
    }


def test_a_pool_that_is_priced_too_low_is_said() -> None:
    launch = Launch(kv_dtype=FP8, version="0.5.16")
    notes = capacity(known(shapes.DEEPSEEK_V32), launch, 40.0).notes
    assert "a token is priced 43,188 bytes and takes 48,068: the pool is off its budget" in notes


# -- drafts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "path", "layers"),
    [
        ("0.5.9", True, 61),
        ("0.5.12", True, 61),
        ("0.5.13", True, 61),
        ("0.5.14", False, 62),  # the engine takes the checkpoint for the path
        ("0.5.16", True, 62),
        ("0.5.20", False, 62),
        ("0.5.23", True, 62),
    ],
)
def test_a_draft_is_priced_by_version(version: str, path: bool, layers: int) -> None:
    launch = Launch(version=version, speculation=Speculation(4, path=path))
    assert price(known(shapes.DEEPSEEK_R1), launch) == layers * 1152


def test_a_draft_without_a_path_of_its_own_is_not_priced_before_0_5_20() -> None:
    llama = known({**shapes.LLAMA_8B, "num_nextn_predict_layers": 1})
    counts = {
        version: price(llama, Launch(version=version, speculation=Speculation(4))) / 4096
        for version in ("0.5.14", "0.5.19", "0.5.20")
    }
    assert counts == {"0.5.14": 32, "0.5.19": 32, "0.5.20": 33}


def test_before_0_5_7_a_pool_has_room_for_what_is_drafted() -> None:
    """npu-deepseek_r1_w4a8_1p1d_16p: 129,920 tokens of its memory, and 132,608 in its log."""
    spec = Speculation(4, path=True, tree=3)
    launch = Launch(version="0.5.6", tp=16, dp=16, page_size=128, max_running=384, speculation=spec)
    found = capacity(known(shapes.DEEPSEEK_R1), launch, 20.66 - 60.77 * 0.2)
    assert (found.tokens, found.announced) == (129_920, 132_608)
    assert found.pools[0].rows == 132_608 + 128
    later = capacity(known(shapes.DEEPSEEK_R1), dataclasses.replace(launch, version="0.5.7"), 8.506)
    assert (later.tokens, later.headroom) == (129_920, 0)
    capped = capacity(
        known(shapes.DEEPSEEK_R1), dataclasses.replace(launch, max_total_tokens=130_000), 8.506
    )
    assert capped.announced == 129_920
    unknown = dataclasses.replace(launch, speculation=Speculation(4))
    assert capacity(known(shapes.DEEPSEEK_R1), unknown, 8.506).headroom == 0


def test_a_draft_of_dsa_has_its_own_index() -> None:
    launch = Launch(kv_dtype=FP8, speculation=Speculation(4))
    assert price(known(shapes.DEEPSEEK_V32), launch) == 62 * 788


@pytest.mark.parametrize("every", [False, True])
def test_a_draft_of_shared_indexes_has_one_of_its_own(every: bool) -> None:
    shared = known({**shapes.DEEPSEEK_V32, "index_topk_freq": 4, "index_skip_topk_offset": 3})
    keys = 61 if every else 17
    launch = Launch(index_everywhere=every, speculation=Speculation(4))
    assert price(shared, launch) == 62 * 1152 + (keys + 1) * 132


def test_an_index_beside_k_and_v_is_priced_and_stored() -> None:
    """12 layers of one head a GPU, and 128 values of 16 bits for four tokens."""
    geometry, launch = known(shapes.QWEN4_EXP), Launch(version="0.5.23", tp=2)
    cell = row(geometry.full, launch)
    assert (cell.k_bytes, cell.index_bytes) == (12 * 256 * 2, 12 * 64)
    assert (cell.stored_bytes, cell.priced_bytes, cell.line_bytes) == (13_056, 13_056, 12_288)
    assert row(geometry.full, dataclasses.replace(launch, kv_dtype=FP8)).stored_bytes == 6_912
    # The engine gives its own checkpoint for the draft's path.
    drafted = dataclasses.replace(launch, speculation=Speculation(draft_tokens=4))
    assert price(geometry, drafted) == 13_056 + 13_056 // 12


def test_dflash_drafts() -> None:
    spec = Speculation(8, algorithm="dflash", layers=6, row_bytes=24_576)
    llama = known(shapes.LLAMA_8B)
    assert price(llama, Launch(version="0.5.9", speculation=spec)) == 131_072
    assert price(llama, Launch(version="0.5.16", speculation=spec)) == 131_072 * 38 // 32
    assert price(llama, Launch(speculation=spec)) == 131_072 + 24_576
    two = known(shapes.GPT_OSS_120B)
    assert price(two, Launch(version="0.5.16", speculation=spec)) == price(two, Launch())
    assert price(two, Launch(speculation=spec)) == price(two, Launch()) + 24_576


def test_a_slot_in_tokens_as_two_boots_show_it() -> None:
    """gh-club1331: 21 and 10 slots, one draft layer; 158,116 and 182,901 tokens."""
    geometry = known({**shapes.QWEN36_27B, "vision_config": None})
    spec = Speculation(4, path=True)
    launch = Launch(
        tp=2, kv_dtype=FP8, ssm_dtype="bfloat16", max_running=1, speculation=spec, state_slots=21
    )
    many = capacity(geometry, launch, 8.0).tokens
    few = capacity(geometry, dataclasses.replace(launch, state_slots=10), 8.0).tokens
    assert few - many == pytest.approx(182_901 - 158_116, abs=1)


# -- pools, stages, ranks ----------------------------------------------------------------------


def test_a_pool_has_one_page_more_and_whole_pages() -> None:
    found = capacity(known(shapes.LLAMA_8B), Launch(page_size=64), 10.0)
    (pool,) = found.pools
    assert (found.tokens, found.tokens % 64, pool.rows) == (81_920, 0, 81_984)
    assert pool.stored_gib == pytest.approx(81_984 * 131_072 / GIB)


def test_two_pools_share_the_memory_by_their_ratio() -> None:
    """3090pair-A3-gemma4-31b-ladder-ratio-0.8 has 24,248 and 19,398 tokens of 8.4 GiB."""
    gemma = known({**shapes.GEMMA4_31B, "vision_config": None})
    for version in ("0.5.12", "0.5.23"):
        found = capacity(gemma, Launch(version=version, tp=2), 8.3248)
        assert found.sliding is not None
        assert (found.tokens, found.sliding.tokens) == (24_247, 19_397)


def test_two_pools_have_eight_bits_where_four_are_asked_for() -> None:
    gpt = known(shapes.GPT_OSS_120B)
    four, eight = (capacity(gpt, Launch(kv_dtype=dtype), 20.0) for dtype in ("nvfp4", FP8))
    assert (four.tokens, four.sliding and four.sliding.tokens) == (
        eight.tokens,
        eight.sliding and eight.sliding.tokens,
    )
    assert any("no more tokens than FP8" in note for note in four.notes)
    old = capacity(gpt, Launch(kv_dtype="fp4_e2m1", version="0.5.9"), 20.0)
    assert old.tokens > 1.7 * capacity(gpt, Launch(kv_dtype=FP8, version="0.5.9"), 20.0).tokens


def test_a_draft_beside_two_pools_is_like_a_layer_of_all_tokens() -> None:
    gpt, spec = known(shapes.GPT_OSS_120B), Speculation(4, path=True, layers=1)
    plain = price(gpt, Launch())
    prices = [price(gpt, Launch(version=v, speculation=spec)) for v in ("0.5.14", "0.5.15")]
    assert prices == [plain, plain + 8 * 128 * 2]


def test_two_steps_round_twice_in_0_5_9() -> None:
    gpt = known(shapes.GPT_OSS_120B)
    old = capacity(gpt, Launch(version="0.5.9", tp=2, page_size=64), 20.0)
    new = capacity(gpt, Launch(version="0.5.12", tp=2, page_size=64), 20.0)
    assert old.tokens % 64 == new.tokens % 64 == 0
    assert 0 <= new.tokens - old.tokens <= 128


def test_the_fullest_stage_decides() -> None:
    """62 layers on 4 stages: 15, 15, 16 and 16 of them."""
    geometry = known({**shapes.LLAMA_8B, "num_hidden_layers": 62})
    assert price(geometry, Launch(pp=4)) == 16 * 4096
    assert capacity(geometry, Launch(pp=4), 4.0).tokens == 4 * GIB // (16 * 4096)


def test_more_stages_than_layers_are_refused_at_once() -> None:
    """`pp_size: 1000000000` was worked out, stage by stage."""
    geometry = known(shapes.LLAMA_8B)
    with pytest.raises(FirstlightError, match="pp_size is 1000000000, and the model has 32 layers"):
        capacity(geometry, Launch(pp=10**9), 4.0)
    assert capacity(geometry, Launch(pp=32), 4.0).tokens > 0


def test_a_window_for_the_requests_and_no_more() -> None:
    """0.5.14 on, without a radix cache: 32 x (128 + 128 + 2 pages of 64) + 2 x 8,192 + a page."""
    gpt, launch = known(shapes.GPT_OSS_120B), Launch(page_size=64, radix=False, max_running=32)
    found = capacity(gpt, dataclasses.replace(launch, chunk=8192), 20.0)
    assert found.sliding is not None
    assert found.sliding.tokens == 32 * (128 + 128 + 64 + 64) + 2 * 8192 + 64
    window = row(gpt.sliding, launch).priced_bytes * found.sliding.tokens
    full = row(gpt.full, launch).priced_bytes
    assert found.tokens == (20 * GIB - window) // full // 64 * 64
    by_ratio = capacity(gpt, launch, 20.0)
    assert any("sized by its ratio" in note for note in by_ratio.notes)
    for changes in ({"radix": True}, {"max_running": None}, {"version": "0.5.13"}):
        other = dataclasses.replace(launch, chunk=8192, **changes)
        assert capacity(gpt, other, 20.0).tokens == pytest.approx(by_ratio.tokens, abs=64)
    drafted = dataclasses.replace(launch, chunk=8192, speculation=Speculation(4, tree=3))
    more = capacity(gpt, drafted, 20.0)
    assert more.sliding is not None
    assert more.sliding.tokens == 32 * (128 + 128 * 4 + 64 + 8) + 2 * 8192 + 64
    # Ranks of DP attention share requests and a chunk; without overlap one step in whole pages.
    shared = capacity(gpt, dataclasses.replace(launch, chunk=8192, tp=2, dp=2), 20.0)
    assert shared.sliding is not None
    assert shared.sliding.tokens == 16 * (128 + 128 + 64 + 64) + 2 * 4096 + 64
    alone = capacity(gpt, dataclasses.replace(drafted, overlap=False), 20.0)
    assert alone.sliding is not None
    assert alone.sliding.tokens == 32 * (128 + 128 * 4 + 64 + 64) + 8192 + 64


def test_states_before_0_5_7() -> None:
    """As many slots as requests, or 512 of them; from 0.5.4 on a share, drafts' states with it."""
    launch = kv_example.launch(BF16, version="0.5.3")
    asked = capacity(QWEN35, dataclasses.replace(launch, max_running=96), 17.4)
    assert (asked.states.slots, asked.states.requests) == (96, 96)
    assert asked.tokens == int(17.4 * GIB - 96 * 24_007_680) // 15_360
    every = capacity(QWEN35, launch, 17.4)
    assert (every.states.slots, every.tokens) == (
        512,
        (int(17.4 * GIB) - 512 * 24_007_680) // 15_360,
    )
    share = dataclasses.replace(launch, version="0.5.4", speculation=Speculation(4), tp=8, dp=2)
    found = capacity(QWEN35, share, 17.4)
    each = found.states.slot_bytes
    assert found.states.slots == int(17.4 * 0.9 / 1.9 * GIB) // each // 5 // 2
    assert found.states.spec_gib == pytest.approx(4 * found.states.charged_gib)
    nemotron = known(EVERY["nemotron"])
    without = capacity(nemotron, Launch(version="0.5.6", max_running=64), 30.0)
    assert without.states.slots == 64


@pytest.mark.parametrize(
    ("version", "changes", "charged"),
    [
        ("0.5.7", {}, 64),  # requests of both ranks, and only where a share is divided
        ("0.5.7", {"state_slots": 96}, 0),
        ("0.5.7", {"radix": False}, 0),
        ("0.5.8", {}, 32),
        ("0.5.8", {"state_slots": 96}, 32),
    ],
)
def test_whose_drafts_are_taken_off_first(
    version: str, changes: dict[str, Any], charged: int
) -> None:
    launch = kv_example.launch(
        BF16, version=version, dp=2, max_running=64, speculation=Speculation(2), **changes
    )
    found = capacity(QWEN35, launch, 60.0).states
    assert found.spec_gib == pytest.approx(charged * 2 * found.slot_bytes / GIB)


def test_an_npu_kept_rows_in_every_layer_of_a_model_with_states() -> None:
    """Up to 0.5.9, by the order in which pools are chosen; it paid for the others as states."""
    launch = kv_example.launch(BF16, version="0.5.9", device="npu")
    old = capacity(QWEN35, launch, 17.4)
    assert (old.row_bytes, old.priced_bytes) == (60 * 1024, 15 * 1024)
    assert any("priced 15,360 bytes and takes 61,440" in note for note in old.notes)
    new = capacity(QWEN35, dataclasses.replace(launch, version="0.5.10"), 17.4)
    assert (new.row_bytes, new.tokens) == (15 * 1024, old.tokens)
    assert capacity(QWEN35, dataclasses.replace(launch, device="cuda"), 17.4).row_bytes == 15_360


def test_without_a_radix_cache_drafts_have_48_requests() -> None:
    launch = kv_example.launch(BF16, radix=False, speculation=Speculation(4))
    assert capacity(QWEN35, launch, 17.4).states.slots == 48


def test_stages_share_states_from_0_5_17() -> None:
    """23 of 45 layers; the share is a float and cut, as the engine cuts it."""
    old = capacity(QWEN35, kv_example.launch(BF16, version="0.5.16", pp=2), 17.4)
    new = capacity(QWEN35, kv_example.launch(BF16, pp=2), 17.4)
    assert (old.states.slot_bytes, new.states.slot_bytes) == (24_007_680, 12_270_591)
    assert new.states.slots > old.states.slots


def test_ranks_of_dp_attention_have_slots_and_requests_of_their_own() -> None:
    launch = kv_example.launch(BF16, tp=8, dp=4, state_slots=96, max_running=64)
    found = capacity(QWEN35, launch, 17.4)
    assert launch.attn_tp == 2
    assert (found.states.slots, launch.running) == (24, 16)


@pytest.mark.parametrize(
    ("version", "changes", "slots"),
    [
        ("0.5.9", {}, 3),
        ("0.5.23", {"strategy": "extra_buffer"}, 5),
        ("0.5.23", {"strategy": "extra_buffer", "overlap": False}, 4),
        ("0.5.23", {"strategy": "extra_buffer_lazy"}, 4),
        ("0.5.9", {"strategy": "extra_buffer", "speculation": Speculation(4)}, 4),
        ("0.5.12", {"strategy": "extra_buffer", "speculation": Speculation(4)}, 5),
        ("0.5.23", {"radix": False, "strategy": "extra_buffer"}, 1),
    ],
)
def test_slots_that_a_request_takes(version: str, changes: dict[str, Any], slots: int) -> None:
    assert Launch(version=version, **changes).slots_per_request == slots


def test_replayed_states_need_none_between_draft_tokens() -> None:
    spec = {"speculation": Speculation(4), "strategy": "extra_buffer"}
    found = capacity(QWEN35, kv_example.launch(FP8, replay_states=True, **spec), 17.4)
    assert (found.tokens, found.states.spec_gib) == (1_282_328, 0.0)


def test_max_total_tokens_caps() -> None:
    """gh-sgl4257: 10,240 by hand, however much memory there is."""
    launch = Launch(max_total_tokens=10_240)
    assert capacity(known(shapes.LLAMA_8B), launch, 19.68).tokens == 10_240


# -- the budget --------------------------------------------------------------------------------


def test_what_is_left_and_the_least_fraction() -> None:
    """gh-infx2128: refused at 0.88, and its own message says 0.9113."""
    budget = Budget(before_gib=137.9, after_gib=12.25, fraction=0.88)
    assert budget.rest_gib == pytest.approx(-4.298)
    assert budget.least_fraction == pytest.approx(0.9113, abs=0.0002)
    assert "raise --mem-fraction-static" in capacity(QWEN35, Launch(tp=8), -4.3).refused


def test_the_fraction_for_some_memory_gives_it() -> None:
    budget = Budget(94.0, 31.5, 0.85)
    fraction = budget.fraction_for(20.0)
    assert fraction == 0.878
    assert dataclasses.replace(budget, fraction=fraction).rest_gib >= 20.0


def test_pictures_keep_memory_from_0_5_18_on() -> None:
    kept = {
        version: capacity(QWEN35, Launch(version=version, tp=8), 17.4).reserve_gib
        for version in ("0.5.9", "0.5.17", "0.5.18", "0.5.23")
    }
    assert kept == {"0.5.9": 0.0, "0.5.17": 0.0, "0.5.18": 100 / 1024, "0.5.23": 100 / 1024}
    assert capacity(QWEN35, Launch(tp=8, features_on_gpu=True), 17.4).reserve_gib == 1124 / 1024


def test_the_engines_refusals() -> None:
    none = capacity(QWEN35, kv_example.launch(BF16, state_slots=900), 17.4)
    assert none.refused == "the states leave no memory for the KV cache: take fewer slots"
    assert "one slot of the state pool" in capacity(QWEN35, kv_example.launch(BF16), 0.01).refused
    few = capacity(QWEN35, kv_example.launch(BF16, state_slots=2), 17.4)
    assert few.refused == "the state pool has 2 slots, one request takes 3"
    gemma = known(shapes.GEMMA4_31B)
    tight = Launch(tp=2, swa_ratio=0.004)
    assert "holds no request of 1,025" in capacity(gemma, tight, 8.4).refused
    assert capacity(gemma, dataclasses.replace(tight, version="0.5.12"), 8.4).refused == ""


# -- versions and arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "taken", "note"),
    [
        ("0.5.16", "0.5.16", ""),
        ("0.5.23+firstlight.cpu", "0.5.23", ""),
        ("0.5.19", "0.5.18", ""),  # read, and sized as 0.5.18 is
        ("0.4.6.post2", "0.4.4", ""),
        ("0.3.6", "0.4.0", "the rules of 0.4.0 are taken"),
        ("0.0.0.dev1+g977830e91", "0.5.23", "names no release; the rules of 0.5.23"),
        ("0.6.0", "0.5.23", "newer than what was read"),
    ],
)
def test_a_version_that_was_not_read_is_said(version: str, taken: str, note: str) -> None:
    rules, told = rules_for(version)
    assert rules.version == taken
    assert note in told
    assert bool(note) == bool(told)


def test_a_build_that_names_no_release_has_what_the_newest_has() -> None:
    assert since("0.0.0.dev1", "0.5.23") and since("0.5.9", "") and not since("0.5.9", "0.5.10")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "main"}, "'main' is no engine version"),
        ({"kv_dtype": "auto"}, "'auto' is no KV dtype; known are bf16"),
        ({"tp": 8, "dp": 3}, "tp is a multiple of dp x cp"),
        ({"page_size": 0}, "page_size are 1 or more"),
        ({"swa_ratio": 0.0}, "swa_ratio lies in (0, 1]"),
        ({"strategy": "extra_buffer_lazy", "overlap": False}, "needs the overlap schedule"),
    ],
)
def test_arguments_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(FirstlightError, match=r".") as caught:
        Launch(**changes)
    assert words in str(caught.value)


def test_state_heads_that_cannot_be_shared() -> None:
    with pytest.raises(FirstlightError, match="48 state heads cannot be shared by 32 GPUs") as told:
        state_bytes(known(shapes.QWEN36_27B), Launch(tp=32))
    assert "choose a tensor parallel size that divides 48" in str(told.value)


def test_memory_has_its_unit_in_its_name() -> None:
    """A float of these values is GiB by name, or a share, or bytes."""
    plain = ("_gib", "_bytes", "ratio", "fraction", "percent")
    for module in (kvlaunch, kvbytes, kvstate, kvcache, fitting, knobs, card):
        for name, cls in inspect.getmembers(module, dataclasses.is_dataclass):
            for field in dataclasses.fields(cls):
                if str(field.type).startswith("float"):
                    assert field.name.endswith(plain), f"{name}.{field.name}"


# -- properties --------------------------------------------------------------------------------

launches = st.fixed_dictionaries(
    {
        "version": st.sampled_from(VERSIONS),
        "tp": st.sampled_from([1, 2, 4, 8]),
        "page_size": st.sampled_from([1, 16, 64]),
        "strategy": st.sampled_from(["no_buffer", "extra_buffer"]),
        "state_ratio": st.floats(0.05, 3.0),
        "swa_ratio": st.floats(0.05, 1.0),
        "radix": st.booleans(),
        "max_running": st.none() | st.integers(1, 128),
    }
)
models = st.sampled_from(sorted(set(EVERY) - {"granite4"})).map(lambda name: known(EVERY[name]))
memory = st.floats(0.5, 120.0)


@settings(max_examples=120, deadline=None)
@given(geometry=models, changes=launches, rest=memory)
def test_a_wider_dtype_never_gives_more(
    geometry: Geometry, changes: dict[str, Any], rest: float
) -> None:
    rules = rules_for(changes["version"])[0]
    widths = [rules.fp4[0], FP8, BF16]
    found = [capacity(geometry, Launch(kv_dtype=d, **changes), rest) for d in widths]
    counts = [f.tokens for f in found if not f.refused]
    assert counts == sorted(counts, reverse=True)
    assert len({f.states for f in found}) == 1


@settings(max_examples=120, deadline=None)
@given(geometry=models, changes=launches, rest=memory, less=st.floats(0.01, 0.99))
def test_a_smaller_fraction_never_gives_more(
    geometry: Geometry, changes: dict[str, Any], rest: float, less: float
) -> None:
    """To the token without states; with them, by less than one slot, which comes whole."""
    launch = Launch(**changes)
    more, fewer = capacity(geometry, launch, rest), capacity(geometry, launch, rest * less)
    slot = more.states.slot_bytes / more.priced_bytes + changes["page_size"]
    assert fewer.tokens <= more.tokens + (slot if geometry.states else 0)


@settings(max_examples=120, deadline=None)
@given(
    geometry=models,
    changes=launches,
    rest=memory,
    layers=st.lists(st.integers(0, 8), min_size=2, max_size=2).map(sorted),
)
def test_a_deeper_draft_never_gives_more(
    geometry: Geometry, changes: dict[str, Any], rest: float, layers: list[int]
) -> None:
    few, many = (
        capacity(geometry, Launch(speculation=Speculation(4, path=True, layers=n), **changes), rest)
        for n in layers
    )
    assert many.tokens <= few.tokens


@settings(max_examples=120, deadline=None)
@given(
    geometry=models,
    changes=launches,
    rest=memory,
    slots=st.integers(8, 200),
    drafts=st.lists(st.integers(1, 16), min_size=2, max_size=2).map(sorted),
)
def test_a_longer_draft_never_gives_more(
    geometry: Geometry, changes: dict[str, Any], rest: float, slots: int, drafts: list[int]
) -> None:
    """Where the slots are given; where they come from a ratio see the next test, and 0.5.4 to
    0.5.6 take no number of slots beside a radix cache."""
    fixed = {**changes, "state_slots": slots}
    if rules_for(changes["version"])[0].state == "share":
        fixed["radix"] = False
    short, long = (
        capacity(geometry, Launch(speculation=Speculation(d), **fixed), rest) for d in drafts
    )
    assert long.tokens <= short.tokens


def test_by_ratio_a_longer_draft_gives_fewer_slots_and_so_may_give_more_tokens() -> None:
    """The one exception, the engine's own from 0.5.13 on: it solves slots and drafts together, but
    charges drafts of at most max_running requests. Up to 0.5.12 it does not happen."""
    tokens = {
        version: [
            capacity(
                QWEN35, kv_example.launch(FP8, version=version, speculation=Speculation(d)), 17.4
            ).tokens
            for d in (1, 2)
        ]
        for version in ("0.5.12", "0.5.13", "0.5.16")
    }
    assert tokens["0.5.12"][1] < tokens["0.5.12"][0]
    assert tokens["0.5.13"][1] > tokens["0.5.13"][0]
    assert tokens["0.5.16"][1] > tokens["0.5.16"][0]


@settings(max_examples=60, deadline=None)
@given(geometry=models, changes=launches, wanted=st.integers(1, 3_000_000))
def test_memory_for_tokens_is_the_reverse(
    geometry: Geometry, changes: dict[str, Any], wanted: int
) -> None:
    launch = Launch(**changes)
    need = memory_for(geometry, launch, wanted)
    found, short = (capacity(geometry, launch, rest) for rest in (need, need - 2 / GIB))
    assert found.tokens >= wanted and not found.refused
    assert short.tokens < wanted or short.refused


def test_memory_that_lacks_gives_no_tokens_and_would_do_only_where_a_request_fits() -> None:
    """A share of less than nothing is no slots, not slots that give their bytes back."""
    launch = Launch(version="0.5.18", radix=False, state_ratio=1.0)
    assert capacity(QWEN35, launch, -1e-9).tokens == 0
    assert (
        capacity(QWEN35, dataclasses.replace(launch, version="0.5.5", radix=True), -1e-9).tokens
        == 0
    )
    need = memory_for(QWEN35, launch, 1)
    assert capacity(QWEN35, launch, need).states.requests == 1
    assert "one slot" in capacity(QWEN35, launch, need - 2 / GIB).refused


def test_no_memory_passes_a_cap() -> None:
    with pytest.raises(FirstlightError, match="no memory gives 20,000 tokens"):
        memory_for(known(shapes.LLAMA_8B), Launch(max_total_tokens=10_240), 20_000)


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "kv-capacity.md").read_text()
    shown = page.split("```text\n")[1].split("```")[0]
    assert shown == "\n".join(kv_example.lines()) + "\n"


@pytest.mark.parametrize(
    ("changes", "tower", "fraction"),
    [
        ({"version": "0.5.9"}, None, 0.848),
        ({"version": "0.5.9", "speculation": Speculation(4)}, None, 0.827),
        ({"version": "0.5.9"}, Tower(hidden=1152), 0.784),
        # 14,848 MiB as before, and 58 sizes of prefill graphs at 8 MiB
        ({"version": "0.5.10"}, None, 0.844),
        ({"version": "0.5.12"}, None, 0.844),
        ({"version": "0.5.12", "speculation": Speculation(4)}, None, 0.802),
        ({"version": "0.5.14", "speculation": Speculation(4)}, None, 0.844),
        ({"version": "0.5.16", "speculation": Speculation(4)}, None, 0.844),
        ({"version": "0.5.23", "max_running": 32}, None, 0.853),
    ],
)
def test_the_fraction_when_none_is_given(
    changes: dict[str, Any], tower: Tower | None, fraction: float
) -> None:
    """Eight RTX PRO 6000 of 97,887 MiB (facts §1.5)."""
    assert captured(8192) == 58
    found = default_fraction(Launch(tp=8, **changes), 97_887, tower=tower)
    assert round(found, 3) == fraction


@pytest.mark.parametrize(
    ("version", "reserved"),
    [
        # 512, 1.5 x 2048, graphs of 24 requests, 256 for two GPUs; then sizes of prefill
        ("0.5.9", 512 + 3072 + 48 + 256),
        ("0.5.16", 512 + 3072 + 48 + 256 + 8 * 42),
        ("0.5.20", 512 + 6144 + 96 + 256 + 8 * 50),
    ],
)
def test_a_5090_keeps_more_from_0_5_20(version: str, reserved: int) -> None:
    fraction = default_fraction(Launch(version=version, tp=2), 32_607)
    assert fraction == round(1 - reserved / 32_607, 3)
