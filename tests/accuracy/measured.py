"""Measurements for tests of the comparison: made by hand or drawn by hypothesis."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from firstlight.accuracy.scores import Answer, Measured, Retrieval, Scores

LOGPROBS = st.floats(-20.0, 0.0)


def scores(name: str, logprobs: Sequence[float], tops: Sequence[int] = ()) -> Scores:
    """A text whose tokens are numbered; by default the true one is always the most likely."""
    ids = tuple(range(len(logprobs) + 1))
    return Scores(name=name, ids=ids, logprobs=tuple(logprobs), tops=tuple(tops) or ids[1:])


def measured(kv: str, *texts: Scores, context: int = 8192, said: str = "one two") -> Measured:
    """A precision that scored these texts."""
    return Measured(
        key="k",
        kv=kv,
        dtype=f"torch.{kv}",
        pool_tokens=16384,
        pool_gib=0.35,
        context_length=context,
        limit=context,
        release="r-py311-0",
        host="local",
        at="2025-01-01T00:00:00Z",
        seconds=1.0,
        noise=0.0,
        texts=texts,
        answer=Answer(tokens=tuple(said.split(" ")), finish="stop"),
        needles=(Retrieval(length=1024, depth=0.5, tokens=900, found=True, said=" 12345."),),
    )


@st.composite
def two(draw: st.DrawFn) -> tuple[Measured, Measured]:
    """Two precisions that scored the same texts; the extremes by hypothesis, the rest by seed."""
    sizes = draw(st.lists(st.integers(1, 400), min_size=1, max_size=3))
    ends = draw(st.lists(LOGPROBS, min_size=2, max_size=8))
    one = random.Random(draw(st.integers(0, 2**32)))
    texts: tuple[list[Scores], list[Scores]] = ([], [])
    for number, size in enumerate(sizes):
        for side in texts:
            values = [one.choice([*ends, -one.expovariate(0.5)]) for _ in range(size)]
            side.append(scores(f"text{number}", values, [one.randrange(3) for _ in range(size)]))
    return measured("bf16", *texts[0]), measured("fp8", *texts[1])
