"""The accuracy room: how many requests of one length a pool holds at once, and what stops more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy.geometry import Geometry
from firstlight.accuracy.kvcache import Capacity
from firstlight.accuracy.kvlaunch import Launch
from firstlight.accuracy.kvwindow import requests_in

Bound = Literal["tokens", "window", "states", "max_running"]


@dataclass(frozen=True)
class Workload:
    """What is to be served: so many requests at once, each with `context` live tokens (prefixes
    that are shared counted once)."""

    concurrency: int
    context: int

    @property
    def tokens(self) -> int:
        """Tokens that live at once."""
        return self.concurrency * self.context


@dataclass(frozen=True)
class Fit:
    """`requests` of `context` tokens fit at once; `bound` is what would have to grow for more."""

    context: int
    requests: int
    bound: Bound


def fit(geometry: Geometry, launch: Launch, found: Capacity, context: int) -> Fit:
    """How many requests of `context` tokens the whole replica holds at once.

    A request takes whole pages; of a sliding pool its window and a page (0.5.23
    pool_configurator:198), and of one that is kept small beside compressed rows what it takes at
    most; of the state pool its slots (facts §3.3). Ranks of DP attention add up.
    """
    if found.refused:
        return Fit(context, 0, "tokens")
    page = launch.page_size
    bounds: list[tuple[int, Bound]] = [(found.tokens // (-(-context // page) * page), "tokens")]
    if found.sliding and geometry.compressed:
        bounds.append((requests_in(geometry.window, found.sliding.tokens, launch), "window"))
    elif found.sliding and geometry.window:
        window = min(context, geometry.window + page)
        bounds.append((found.sliding.tokens // window, "window"))
    if geometry.states:
        bounds.append((found.states.requests, "states"))
    if launch.max_running:
        bounds.append((max(1, launch.max_running // launch.dp), "max_running"))
    requests, bound = min(bounds)
    return Fit(context, requests * launch.dp, bound)
