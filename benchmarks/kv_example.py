"""The worked example of docs/kv-capacity.md, computed: Qwen3.5-397B-A17B on 8 cards, 17.4 GiB.

    python -m benchmarks.kv_example

Prints the tokens of each reading of "17.4 GiB available", where three quick estimates came from,
and the capacity card. The model's shape is that of its public config.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firstlight.accuracy.attention import describe
from firstlight.accuracy.card import card
from firstlight.accuracy.cardtext import text
from firstlight.accuracy.fitting import Workload
from firstlight.accuracy.geometry import Geometry, Unknown
from firstlight.accuracy.kvbytes import row
from firstlight.accuracy.kvcache import capacity, memory_for
from firstlight.accuracy.kvlaunch import BF16, FP8, GIB, Launch, Speculation
from firstlight.accuracy.kvstate import state_bytes
from firstlight.core.words import columns

REST_GIB = 17.4
CONTEXT = 262_144
# The public config.json, cut to the keys that decide the cache.
CONFIG: dict[str, Any] = json.loads(
    Path(__file__).with_name("qwen35").joinpath("config.json").read_text()
)
# The readings of facts §3.7; pictures are switched off where a line does not say otherwise.
DRAFTED = Speculation(draft_tokens=4)
WITH_PATH = Speculation(draft_tokens=4, path=True)
READINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the engine's split, no speculation", {}),
    ("the same with pages of 64", {"page_size": 64}),
    ("the same with pictures (100 MiB kept)", {"language_only": False}),
    ("NEXTN, 4 draft tokens, 0.5.9", {"version": "0.5.9", "speculation": DRAFTED}),
    (
        "NEXTN, 0.5.16, extra_buffer",
        {"version": "0.5.16", "speculation": DRAFTED, "strategy": "extra_buffer"},
    ),
    ("NEXTN, 0.5.16, no_buffer", {"version": "0.5.16", "speculation": DRAFTED}),
    ("NEXTN, 0.5.23, extra_buffer", {"speculation": DRAFTED, "strategy": "extra_buffer"}),
    ("the same with a draft path", {"speculation": WITH_PATH, "strategy": "extra_buffer"}),
    (
        "the same with a draft path, 0.5.16",
        {"version": "0.5.16", "speculation": WITH_PATH, "strategy": "extra_buffer"},
    ),
    ("--mamba-full-memory-ratio 0.3", {"state_ratio": 0.3}),
    ("--max-mamba-cache-size 96", {"state_slots": 96}),
    (
        "--disable-radix-cache --max-running-requests 32",
        {"radix": False, "max_running": 32},
    ),
    ("--mamba-full-memory-ratio 0.1", {"state_ratio": 0.1}),
)


def model() -> Geometry:
    """The example's geometry."""
    found = describe(CONFIG)
    assert not isinstance(found, Unknown), found
    return found


def launch(kv_dtype: str, **changes: Any) -> Launch:
    """Eight GPUs, no pictures, and what a reading changes."""
    return Launch(**{"kv_dtype": kv_dtype, "tp": 8, "language_only": True, **changes})


def readings() -> Iterator[tuple[str, int, float, int, int]]:
    """Each reading with its state slots, GiB of KV, and tokens in FP8 and BF16."""
    for name, changes in READINGS:
        narrow = capacity(model(), launch(FP8, **changes), REST_GIB)
        wide = capacity(model(), launch(BF16, **changes), REST_GIB)
        yield name, narrow.states.slots, narrow.kv_gib, narrow.tokens, wide.tokens


def estimates() -> Iterator[str]:
    """Where 2.56 M, 1.28 M and 608 K came from."""
    geometry = model()
    narrow, wide = launch(FP8), launch(BF16)
    cell = row(geometry.full, narrow).stored_bytes
    yield f"all of it as KV, no states: {int(REST_GIB * GIB) // cell:,} FP8"
    whole = capacity(geometry, narrow, 2 * REST_GIB)
    yield f"2.56 M FP8: the split of {2 * REST_GIB} GiB, twice what there is: {whole.tokens:,}"
    half = capacity(geometry, narrow, REST_GIB)
    keys = int(half.kv_gib * GIB) // (cell // 2)
    yield f"2.56 M FP8: the split of {REST_GIB} GiB with V forgotten: {keys:,}"
    yield f"1.28 M is right, but for FP8 and not for BF16: {half.tokens:,}"
    alone = int(REST_GIB * GIB) // row(geometry.full, launch(BF16, tp=1)).stored_bytes
    yield f"608 K BF16: both KV heads charged to every GPU, no states: {alone:,}"
    path = launch(BF16, speculation=WITH_PATH, strategy="extra_buffer")
    yield f"608 K BF16: a draft path in 0.5.20 and later: {capacity(geometry, path, 17.4).tokens:,}"
    less = 0.95 * REST_GIB
    yield f"608 K BF16: {less:.2f} GiB left, 5 % less: {capacity(geometry, wide, less).tokens:,}"
    share = memory_for(geometry, wide, 1_000_000)
    yield f"1,000,000 BF16 tokens by the engine's split would need {share:.2f} GiB"


def lines() -> Iterator[str]:
    """All that is printed."""
    slot = state_bytes(model(), launch(FP8))
    for tp in (1, 2, 4, 8):
        cells = [
            row(model().full, launch(kv_dtype, tp=tp)).stored_bytes for kv_dtype in (FP8, BF16)
        ]
        yield f"tp {tp}: {cells[0]:,} bytes a token on each GPU in FP8, {cells[1]:,} in BF16"
    yield f"a state slot at tp 8: {slot.conv_bytes:,} + {slot.ssm_bytes:,} bytes"
    yield ""
    head = ("reading of 17.4 GiB", "slots", "KV GiB", "FP8", "BF16")
    table = [(n, str(s), f"{g:.2f}", f"{a:,}", f"{b:,}") for n, s, g, a, b in readings()]
    yield columns([head, *table])
    yield ""
    yield from estimates()
    yield ""
    yield text(card(model(), launch(BF16), REST_GIB, Workload(16, 65_536), CONTEXT))


def main() -> None:
    for line in lines():
        print(line)


if __name__ == "__main__":
    main()
