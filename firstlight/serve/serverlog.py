"""The server log room: what an SGLang server's log says, read piece by piece.

A log is a fold: `feed` takes the value so far and the next piece of text, cut anywhere, and gives
the next value. Line formats of SGLang 0.2 to 0.5.23 are known. Its "GB" is GiB (2^30 bytes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce

from firstlight.build.failures import SHOWN, Rules
from firstlight.serve import compressedlog
from firstlight.serve.causes import Cause, Search, look, served, survived
from firstlight.serve.logparts import ENDS, LONGEST, bar, parts


class Phase(StrEnum):
    """How far a server has come; the value is what a person reads."""

    STARTING = "starting"
    WEIGHTS = "loading weights"
    POOL = "KV pool"
    GRAPHS = "graph capture"
    WARMUP = "warm-up"
    READY = "ready"
    DIED = "died"


@dataclass(frozen=True)
class Weights:
    """One `Load weight end` line; sizes in GiB, times in seconds, None = not printed."""

    rank: str
    type: str
    elapsed_s: float | None
    avail_gib: float | None
    used_gib: float | None


@dataclass(frozen=True)
class Pool:
    """One KV pool of one rank; `kv_gib` is the one figure of an MLA pool.

    `label` is "", "SWA", "Full" or the engine's own word; `draft` marks a speculative model's pool;
    `dtype` is torch's name, "" when no line states it; `bound` marks a figure that may shrink.
    `tokens` is 0 until the summary tells it, where the pool's own line does not (before 0.4.3).
    """

    rank: str
    label: str
    dtype: str
    tokens: int
    k_gib: float | None = None
    v_gib: float | None = None
    kv_gib: float | None = None
    draft: bool = False
    bound: bool = False

    @property
    def gib(self) -> float:
        """Keys and values together, in GiB."""
        return self.kv_gib if self.kv_gib is not None else (self.k_gib or 0.0) + (self.v_gib or 0.0)


@dataclass(frozen=True)
class StatePool:
    """One `Mamba Cache` line: slots for requests (None = not printed, before 0.5.5), and the
    sizes of their states in GiB."""

    rank: str
    slots: int | None
    conv_gib: float
    ssm_gib: float


@dataclass(frozen=True)
class ServerLog:
    """All that a log has said so far. `tail` is an unfinished line, `lines` counts the finished.

    `done`, `total` are the progress of the phase at hand (0 of 0 = not told).
    `died_in` is the phase that the log's death ended; `passed` are the phases of this boot so far.
    `boots` counts starts; what a former boot said is forgotten, but for its cause of death.
    `stopping`: it was asked to end, so that its end needs no cause.
    """

    phase: Phase = Phase.STARTING
    died_in: Phase | None = None
    stopping: bool = False
    passed: tuple[Phase, ...] = ()
    lines: int = 0
    last: str = ""
    tail: str = ""
    boots: int = 0
    weights: tuple[Weights, ...] = ()
    pools: tuple[Pool, ...] = ()
    states: tuple[StatePool, ...] = ()
    compressed: compressedlog.Known = ()
    stated_dtype: str = ""
    swa_tokens: int = 0
    finished_pools: tuple[str, ...] = ()
    max_total_tokens: int | None = None
    context_length: int | None = None
    max_running: int | None = None
    done: int = 0
    total: int = 0
    search: Search = field(default_factory=Search)
    former: Cause | None = None


def begin(rules: Rules) -> ServerLog:
    """A log of which nothing has been read, whose causes of death are told by these rules."""
    return ServerLog(search=Search(rules))


def read(text: str, rules: Rules | None = None) -> ServerLog:
    """A whole log at once; without rules its figures are told, and no known cause of death."""
    return finish(feed(begin(rules or Rules()), text))


def feed(log: ServerLog, text: str) -> ServerLog:
    """The log after the next piece of text; a carriage return ends a line as a newline does."""
    *pieces, tail = ENDS.split(log.tail + text)
    lines = zip(pieces[0::2], pieces[1::2], strict=True)
    return replace(reduce(_piece, lines, log), tail=tail[:LONGEST])


def finish(log: ServerLog) -> ServerLog:
    """The log of a process that will write no more: an unfinished line counts as a line."""
    return feed(log, "\n") if log.tail else log


def cause(log: ServerLog) -> Cause | None:
    """Why the server died, as its log tells; a crash loop keeps the first boot's cause."""
    return log.search.best or log.former


def newly_passed(before: ServerLog, log: ServerLog) -> tuple[Phase, ...]:
    """The phases that the server went through since a former look, however far apart they are."""
    same_boot = log.boots == before.boots
    return log.passed[len(before.passed) :] if same_boot else log.passed


def last_line(log: ServerLog) -> str:
    """The newest text of the log, without its time stamp; a bar being drawn counts."""
    _, message, _ = parts(log.tail)
    return message.strip()[:SHOWN] or log.last


def progress(log: ServerLog) -> tuple[int, int]:
    """Steps done and in all of the phase at hand, (0, 0) when the log tells none."""
    return bar(log.tail) or (log.done, log.total)


_FIGURE = r"(-?\d+(?:\.\d+)?)"


def _piece(log: ServerLog, piece: tuple[str, str]) -> ServerLog:
    rank, message, stamped = parts(piece[0][:LONGEST])
    lines = log.lines + (piece[1] == "\n")
    last = message.strip()[:SHOWN]
    if not last:
        return replace(log, lines=lines)
    # One copy for the many lines that change nothing else: a served log grows long.
    done, total = bar(piece[0]) or (log.done, log.total)
    said = _reading(replace(log, lines=lines, last=last, done=done, total=total), rank, message)
    search = look(said.search, log.lines + 1, message, stamped)
    # Who is asked to end kills its own processes, and says of each that it died.
    if search is said.search or (said.stopping and not search.mortal):
        return said
    return replace(said, search=search)


def _reading(log: ServerLog, rank: str, message: str) -> ServerLog:
    """What the first known pattern in a message makes of the log."""
    if not _WORTH.search(message):
        return log
    for pattern, act in _ACTS:
        found = pattern.search(message)
        if found:
            return act(log, rank, found)
    return log


def _enter(log: ServerLog, rank: str, phase: Phase) -> ServerLog:
    """A new phase, told by the first rank only: ranks do not march in step."""
    if log.phase is phase or not _leads(rank):
        return log
    passed = (*log.passed, phase)
    return replace(log, phase=phase, passed=passed, done=0, total=0, search=survived(log.search))


def _leads(rank: str) -> bool:
    return all(word.rstrip("0123456789") + "0" == word for word in rank.split())


def _boot(log: ServerLog, _rank: str, _found: re.Match[str]) -> ServerLog:
    if log.phase is Phase.STARTING and not log.search.mortal and not log.stopping:
        return replace(log, boots=log.boots + 1)
    former = log.former or log.search.best
    fresh = begin(log.search.rules)
    return replace(fresh, lines=log.lines, last=log.last, boots=log.boots + 1, former=former)


def _loading(log: ServerLog, rank: str, _found: re.Match[str]) -> ServerLog:
    return _enter(log, rank, Phase.WEIGHTS)


def _shards(log: ServerLog, rank: str, _found: re.Match[str]) -> ServerLog:
    """Told by a bar alone, which may also be drawn once more when all is loaded."""
    return _drawn(log, rank, Phase.WEIGHTS) if log.phase is Phase.STARTING else log


def _drawing(log: ServerLog, rank: str, _found: re.Match[str]) -> ServerLog:
    """Told by a bar alone, where the server was asked for warnings only."""
    return _drawn(log, rank, Phase.GRAPHS) if log.phase in _BEFORE_GRAPHS else log


_BEFORE_GRAPHS = (Phase.STARTING, Phase.WEIGHTS, Phase.POOL)


def _drawn(log: ServerLog, rank: str, phase: Phase) -> ServerLog:
    """A phase whose bar is the first word of it, with the steps that the bar shows."""
    return replace(_enter(log, rank, phase), done=log.done, total=log.total)


def _loaded(log: ServerLog, rank: str, found: re.Match[str]) -> ServerLog:
    text = found.string
    kind = re.search(r"type=(\w+)", text)
    weights = Weights(
        rank,
        kind[1] if kind else "",
        _number(rf"elapsed={_FIGURE}", text),
        _number(rf"avail mem={_FIGURE}", text),
        _number(rf"mem usage={_FIGURE}", text),
    )
    return _enter(replace(log, weights=(*log.weights, weights)), rank, Phase.POOL)


def _number(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None


def _stated(log: ServerLog, _rank: str, found: re.Match[str]) -> ServerLog:
    """Versions before 0.5.16 state the dtype once, on one rank, near the pool lines."""
    dtype = found[1]
    pools = tuple(p if p.dtype else replace(p, dtype=dtype) for p in log.pools)
    return replace(log, stated_dtype=dtype, pools=pools)


def _windows(log: ServerLog, _rank: str, found: re.Match[str]) -> ServerLog:
    return replace(log, swa_tokens=int(found[1]))


def _pool(log: ServerLog, rank: str, found: re.Match[str]) -> ServerLog:
    sizes = {key: float(found[key]) for key in ("k_gib", "v_gib", "kv_gib") if found[key]}
    tokens = int(found["tokens"] or log.max_total_tokens or 0)
    pool = Pool(
        rank=rank,
        label=found["label"] or _unsaid_label(log, rank, tokens),
        dtype=found["dtype"] or log.stated_dtype,
        tokens=tokens,
        draft=rank in log.finished_pools,
        bound=found["how"] != "is allocated",
        **sizes,
    )
    return _enter(replace(log, pools=(*log.pools, pool)), rank, Phase.POOL)


def _unsaid_label(log: ServerLog, rank: str, tokens: int) -> str:
    """Before 0.5.20 the pool of a sliding window is known by its token count alone."""
    taken = any(pool.rank == rank and pool.label == "SWA" for pool in log.pools)
    return "SWA" if tokens == log.swa_tokens and not taken else ""


def _state_pool(log: ServerLog, rank: str, found: re.Match[str]) -> ServerLog:
    slots = int(found[1]) if found[1] else None
    state = StatePool(rank, slots, float(found[2]), float(found[3]))
    return replace(log, states=(*log.states, state))


def _compressed(log: ServerLog, rank: str, found: re.Match[str]) -> ServerLog:
    """A line of DeepSeek-V4's pools; a draft's, which come last, are not told apart."""
    read = next(act for start, act in _COMPRESSED if found.string.startswith(start))
    known = read(log.compressed, rank, found.string)
    return _enter(replace(log, compressed=known), rank, Phase.POOL)


_COMPRESSED = (
    (("DSV4 m", "DSv4 m"), compressedlog.priced),
    (("DSV4 p", "DSv4 p"), compressedlog.sized),
    ("Initialize", compressedlog.slotted),
)


def _pools_end(log: ServerLog, rank: str, _found: re.Match[str]) -> ServerLog:
    """Whatever pool the same rank makes after its first `Memory pool end` is a draft's."""
    if rank in log.finished_pools:
        return log
    return replace(log, finished_pools=(*log.finished_pools, rank))


def _capturing(log: ServerLog, rank: str, _found: re.Match[str]) -> ServerLog:
    return _enter(log, rank, Phase.GRAPHS)


def _summary(log: ServerLog, rank: str, found: re.Match[str]) -> ServerLog:
    if not _leads(rank):
        return log
    running = _number(r"max_running_requests=(\d+)", found.string)
    context = _number(r"context_len=(\d+)", found.string)
    tokens = int(found[1])
    told = replace(
        log,
        pools=tuple(p if p.tokens else replace(p, tokens=tokens) for p in log.pools),
        max_total_tokens=tokens,
        max_running=None if running is None else int(running),
        context_length=None if context is None else int(context),
    )
    return _enter(told, rank, Phase.WARMUP)


def _ready(log: ServerLog, _rank: str, _found: re.Match[str]) -> ServerLog:
    search = served(log.search)
    return replace(log, phase=Phase.READY, done=0, total=0, search=search, former=None)


def _asked_to_end(log: ServerLog, _rank: str, _found: re.Match[str]) -> ServerLog:
    return replace(log, stopping=True, search=survived(log.search))


def _died(log: ServerLog, _rank: str, _found: re.Match[str]) -> ServerLog:
    if log.stopping:
        return log
    died_in = log.died_in if log.phase is Phase.DIED else log.phase
    return replace(log, phase=Phase.DIED, died_in=died_in)


_ACTS = tuple(
    (re.compile(pattern), act)
    for pattern, act in (
        (r"^server_args=", _boot),
        (r"^Load weight begin", _loading),
        (r"^ *(?:Loading \w+ checkpoint|Multi-thread loading) shards:", _shards),
        (r"^ *(?:Capturing|Compiling) (?:batches|num tokens) \(", _drawing),
        # Newer versions may end it once more, once the graphs are captured.
        (r"^Load weight end(?!\. Committed)", _loaded),
        (r"^Using KV cache dtype: (torch\.\w+)", _stated),
        (r"^Use sliding window memory pool\..*swa_layer_tokens=(\d+)", _windows),
        (
            r"^(?:(?P<label>\S.{0,40}?) )?KV Cache (?P<how>is allocated|VA upper bound)\. "
            r"(?:dtype: (?P<dtype>[\w.]+), )?(?:#tokens: (?P<tokens>\d+), )?"
            rf"(?:K size: (?P<k_gib>{_FIGURE}) GB, V size: (?P<v_gib>{_FIGURE}) GB"
            rf"|KV size: (?P<kv_gib>{_FIGURE}) GB)",
            _pool,
        ),
        (
            r"^Mamba Cache is allocated\. (?:max_mamba_cache_size: (\d+), )?"
            rf"conv_state size: {_FIGURE} ?GB, ssm_state size: {_FIGURE} ?GB",
            _state_pool,
        ),
        (rf"{compressedlog.PRICE}|{compressedlog.SIZES}|{compressedlog.SLOTS}", _compressed),
        (r"^Memory pool end", _pools_end),
        (r"^Capture .*\b(?:begin|end)\b", _capturing),
        (r"^max_total_num_tokens=(\d+)", _summary),
        (r"The server is fired up and ready to roll!", _ready),
        # Our supervisor's own words: an engine that still imports has none.
        (r"^firstlight: asked to stop$", _asked_to_end),
        (r"^SIGTERM received|^Gracefully exiting\.\.\.|^KeyboardInterrupt$", _asked_to_end),
        (
            r"\w hit an exception|Received sigquit from a child|^SIGQUIT received\."
            r"|^Initialization failed\. [wc]|scheduler died during initialization"
            r"|Rank \d+ scheduler is dead|^Subprocess \S+ \(pid=\d+\) crashed"
            r"|^Scheduler or DataParallelController \d+ terminated with -?[1-9]",
            _died,
        ),
    )
)
# One look tells the few lines that move the log on from the many that do not.
_WORTH = re.compile(
    r"^server_args=|Load weight|^ *(?:Loading|Multi-thread|Capturing|Compiling) |KV [Cc]ache"
    r"|sliding window|Mamba Cache|Memory pool|^DS[Vv]4 |DeepSeekV4Token"
    r"|^Capture |max_total_num_tokens=|fired up|hit an exception|sigquit|Initialization failed"
    r"|[Ss]cheduler|^SIG(?:TERM|QUIT) |^Gracefully|^Keyboard|^Subprocess |^firstlight: asked"
)
