"""The capacity card: three dtypes side by side, the price of BF16, and what buys it back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import kv_example
from firstlight.accuracy.attention import describe
from firstlight.accuracy.card import CONTEXTS, Card, card
from firstlight.accuracy.cardtext import text
from firstlight.accuracy.fitting import Workload, fit
from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvcache import capacity
from firstlight.accuracy.kvlaunch import BF16, FP8, Budget, Launch, Speculation
from tests.accuracy import shapes

QWEN35 = kv_example.model()
# 30 layers of K and V, 3 heads by 64 numbers: 23,040 bytes of bf16 a token.
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
LAUNCH = kv_example.launch(BF16)


def known(config: shapes.Config) -> Geometry:
    found = describe(config)
    assert isinstance(found, Geometry), str(found)
    return found


def example(workload: Workload | None = None) -> Card:
    return card(QWEN35, LAUNCH, 17.4, workload, 262_144)


def test_dtypes_stand_side_by_side() -> None:
    found = example()
    assert [column.kv_dtype for column in found.columns] == [BF16, FP8, "nvfp4"]
    tokens = [column.capacity.tokens for column in found.columns]
    assert tokens == [641_164, 1_282_328, 2_038_137]
    old = card(QWEN35, kv_example.launch(BF16, version="0.5.9"), 17.4)
    assert old.columns[2].kv_dtype == "fp4_e2m1"


def test_requests_at_once_and_what_stops_more() -> None:
    found = example()
    fits = {f.context: (f.requests, f.bound) for f in found.column(BF16).fits}
    assert fits == {
        8_192: (78, "tokens"),
        32_768: (19, "tokens"),
        131_072: (4, "tokens"),
        262_144: (2, "tokens"),
    }
    assert found.column(FP8).fits[0].requests == 122
    assert found.column(FP8).fits[0].bound == "states"


def test_own_lengths_stand_among_the_contexts() -> None:
    found = card(QWEN35, LAUNCH, 17.4, Workload(4, 48_000), 200_000)
    assert found.contexts == (8_192, 32_768, 48_000, 131_072, 200_000)
    assert example().contexts == CONTEXTS
    # Rows of lengths that the model does not take were all 0.
    assert card(QWEN35, LAUNCH, 17.4, None, 8_192).contexts == (8_192,)
    assert card(QWEN35, LAUNCH, 17.4, Workload(1, 2_048), 4_096).contexts == (2_048, 4_096)


def test_the_price_of_bf16() -> None:
    price = example().price
    assert price is not None
    assert (price.tokens, round(price.percent, 1)) == (641_164, 50.0)


def test_an_argument_that_bounds_the_pool_bounds_its_memory_too() -> None:
    """5 GiB were told for each, where 16,384 tokens take 0.35, 0.18 and 0.10."""
    found = card(known(SMALL), Launch(max_total_tokens=16_384), 5.0, None, 8_192)
    lines = {line.split("  ")[0]: line.split()[-3:] for line in text(found).splitlines()}
    assert lines["tokens"] == ["16,384"] * 3
    assert lines["GiB of KV"] == ["0.35", "0.18", "0.10"]
    said = "BF16 costs no tokens: max_total_tokens 16,384 bounds the pool, not the memory."
    assert said in text(found)
    # FP8 alone reaches it here; and where no argument bounds, none is named.
    half = text(card(known(SMALL), Launch(max_total_tokens=400_000), 5.0, None, 8_192))
    assert "41.7 % of FP8's, which max_total_tokens 400,000 bounds." in half
    assert "bounds" not in text(card(known(SMALL), Launch(), 5.0, None, 8_192))


def test_state_slots_buy_over_a_million_bf16_tokens() -> None:
    """The knobs of the worked example; the rest of their figures is in test_kvcache."""
    found = {knob.flags: (knob.tokens, knob.states) for knob in example().knobs}
    assert found == {
        "--disable-radix-cache --max-running-requests 32": (1_164_769, 32),
        "--mamba-full-memory-ratio 0.1": (1_106_938, 23),
        "--max-mamba-cache-size 96": (1_064_737, 32),
        "--mamba-full-memory-ratio 0.3": (936_571, 59),
    }


def test_affordable_is_said_with_figures() -> None:
    found = example(Workload(4, 131_072))
    assert found.affordable is True
    assert found.sentence == (
        "Affordable in BF16: 4 requests of 131,072 tokens take 524,288 of 641,164 tokens, "
        "and the state pool allows 122."
    )


def test_not_affordable_names_the_knob_to_turn_first() -> None:
    found = example(Workload(16, 65_536))
    assert found.affordable is False
    assert found.sentence == (
        "Not affordable in BF16 as launched: 16 requests of 65,536 tokens do not fit, they take "
        "1,048,576 tokens and it holds 641,164. With --mamba-full-memory-ratio 0.1 it is: "
        "1,106,938 tokens (fewer prefixes keep their state)."
    )


def test_the_state_pool_can_be_what_is_too_small() -> None:
    launch = replace(LAUNCH, state_slots=12)
    found = card(QWEN35, launch, 17.4, Workload(8, 8_192))
    assert found.sentence == (
        "Not affordable in BF16 as launched: 8 requests of 8,192 tokens do not fit, the state pool "
        "allows 4. With --max-mamba-cache-size 24 it is: 1,177,273 tokens (fewer prefixes keep "
        "their state)."
    )


def test_no_knob_is_said_too() -> None:
    found = example(Workload(64, 262_144))
    assert "No argument here buys it; the best of them holds 4." in found.sentence
    assert "FP8 with checked scales" in found.sentence


def test_one_whole_context_must_fit() -> None:
    found = card(known(shapes.LLAMA_8B), Launch(), 10.0, Workload(1, 8_192), 131_072)
    assert found.affordable is False
    assert found.sentence.endswith("one request of the whole 131,072 does not fit.")


def test_without_a_workload_nothing_is_judged() -> None:
    found = example()
    assert (found.affordable, found.sentence) == (
        None,
        "BF16 holds 641,164 tokens; no workload is given to weigh them by.",
    )


def test_what_would_not_start_says_how_much_would() -> None:
    found = card(QWEN35, LAUNCH, -1.0, Workload(4, 8_192))
    assert found.affordable is False
    assert found.sentence.startswith("BF16 would not start: the weights leave no memory")
    assert found.price is None
    assert "does not start" in text(found)


def test_what_no_memory_starts_says_so() -> None:
    found = card(QWEN35, replace(LAUNCH, state_slots=1), 8.0, Workload(4, 8_192))
    assert "has 1 slots, one request takes" in found.sentence
    assert "(no memory gives 8,192 tokens)" in found.sentence


def test_the_fraction_is_named_where_the_memory_around_the_load_is_known() -> None:
    budget = Budget(before_gib=22.0, after_gib=12.0, fraction=0.75, measured=False)
    work = Workload(8, 8_192)
    found = card(known(shapes.LLAMA_8B), Launch(), budget, work)
    (knob,) = found.knobs
    assert knob.flags == "--mem-fraction-static 0.819"
    assert knob.fit is not None
    assert knob.fit.requests == 8
    assert "1.52 GiB less for activations and graphs" in knob.cost
    assert "With --mem-fraction-static 0.819 it is" in found.sentence
    assert "an estimate from the weights on disk" in text(found)


def test_a_smaller_window_ratio_is_a_knob_of_two_pools() -> None:
    gemma = known(shapes.GEMMA4_31B)
    found = card(gemma, Launch(tp=2, language_only=True), 8.4, Workload(4, 40_000))
    (knob,) = found.knobs
    assert knob.flags.startswith("--swa-full-tokens-ratio 0.02")
    assert knob.fit is not None
    assert knob.fit.requests >= 4
    assert capacity(gemma, knob.launch, 8.4).refused == ""


def test_windows_bound_what_fits() -> None:
    gemma = known(shapes.GEMMA4_31B)
    launch = Launch(tp=2, swa_ratio=0.02, language_only=True)
    found = capacity(gemma, launch, 8.4)
    held = fit(gemma, launch, found, 8_192)
    assert found.sliding is not None
    assert held.requests == found.sliding.tokens // 1025
    assert held.bound == "window"


def test_ranks_of_dp_attention_add_up() -> None:
    alone = card(known(shapes.DEEPSEEK_R1), Launch(tp=8), 20.0)
    ranks = card(known(shapes.DEEPSEEK_R1), Launch(tp=8, dp=8), 20.0)
    one, eight = (c.column(BF16).fits[0].requests for c in (alone, ranks))
    assert eight == 8 * one


def test_the_card_as_text() -> None:
    lines = text(example(Workload(16, 65_536))).splitlines()
    assert lines[0] == ("Qwen3_5MoeForConditionalGeneration: MHA/GQA + GDN, SGLang 0.5.23, tp 8")
    assert "17.40 GiB on each GPU for KV and states" in lines[1]
    table = {line[:28].strip(): line.split()[-3:] for line in lines[3:11]}
    assert table["tokens"] == ["641,164", "1,282,328", "2,038,137"]
    assert "BF16 costs 641,164 tokens, 50.0 % of FP8's." in lines


def test_the_drafts_rows_are_told_where_they_lie_outside_the_budget() -> None:
    """641,164 rows of one layer in BF16: 2 x 256 values of 2 bytes each."""
    launch = replace(LAUNCH, version="0.5.9", state_slots=368, max_running=1)
    found = card(QWEN35, replace(launch, speculation=Speculation(0)), 17.4)
    lines = text(found).splitlines()
    told = next(line for line in lines if line.startswith("GiB of the draft's rows"))
    assert told.split()[-3] == f"{641_165 * 1024 / (1 << 30):.2f}"
    assert "Note: the draft's pool lies outside the budget in this version" in lines


def test_a_version_that_was_not_read_is_on_the_card() -> None:
    found = card(known(shapes.LLAMA_8B), Launch(version="0.6.1"), 10.0)
    assert "Note: 0.6.1 is newer than what was read; the rules of 0.5.23 are taken" in text(found)


@settings(max_examples=40, deadline=None)
@given(
    rest=st.floats(1.0, 60.0),
    concurrency=st.integers(1, 64),
    context=st.integers(1_000, 262_144),
    drafts=st.booleans(),
)
def test_a_knob_that_is_named_really_suffices(
    rest: float, concurrency: int, context: int, drafts: bool
) -> None:
    launch = replace(LAUNCH, speculation=Speculation(4) if drafts else None)
    found = card(QWEN35, launch, rest, Workload(concurrency, context))
    now = capacity(QWEN35, launch, rest)
    for knob in found.knobs:
        held = fit(QWEN35, launch, now, context).requests
        assert knob.tokens > now.tokens or (knob.fit and knob.fit.requests > held)
        again = capacity(QWEN35, knob.launch, rest)
        assert (again.refused, again.tokens) == ("", knob.tokens)
    if "With --" in found.sentence:
        assert any(k.fit and k.fit.requests >= concurrency for k in found.knobs)
