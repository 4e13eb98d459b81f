"""The causes room: which line of a server's log says why the server died, and what to do.

The first causal line wins, never the last noise: a crash is followed by second tracebacks, by
the parent's own complaint and by a kill. A fold over lines, so that a log can be read in pieces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

LIMIT = 400
"""Longest evidence text kept, in characters."""


@dataclass(frozen=True)
class Cause:
    """Why a server died: `line` counts from 1 in the log as read, `text` is that line."""

    kind: str
    line: int
    text: str
    advice: str


@dataclass(frozen=True)
class Rule:
    """A pattern of one line; `advice` may name the pattern's groups as {0}, {1} ...

    `weight` 3 = says why, 2 = says how it ended, 1 = an error line, 0 = an echo of another's death.
    """

    kind: str
    pattern: re.Pattern[str]
    advice: str
    weight: int = 3


def _rule(kind: str, pattern: str, advice: str, weight: int = 3) -> Rule:
    return Rule(kind, re.compile(pattern), advice, weight)


PORT = "port"
"""The kind of a cause that a server may not notice itself: another process has its port."""

_SMALLER = "lower mem_fraction_static, the CUDA graph batch sizes or max_running_requests"
_BUSY = "see who holds the GPU (`nvidia-smi`), stop it, or choose another GPU"

RULES: tuple[Rule, ...] = (
    _rule(
        "pool-size",
        r"profiled value -\d+|Not enough memory\. Please try to increase --mem-fraction-static",
        "the weights leave no room for a KV cache: raise mem_fraction_static, spread the model "
        "over more GPUs, or free the GPU if `nvidia-smi` shows another process on it",
    ),
    _rule(
        "pool-size",
        r"Not enough GPU memory for hybrid",
        "no room for the state cache: lower max_running_requests, raise mem_fraction_static, "
        "or use more GPUs",
    ),
    _rule("gpu-busy", r"memory capacity is unbalanced", f"a GPU is already in use: {_BUSY}"),
    _rule(
        "gpu-memory",
        r"OutOfMemoryError|(?:CUDA|HIP|GPU|NPU|XPU) out of memory|CUDA error: out of memory"
        r"|cudaErrorMemoryAllocation",
        f"the GPU's memory is full: {_BUSY}; if it is free, {_SMALLER}",
    ),
    _rule(
        "no-kernel-image",
        r"no kernel image is available",
        "a wheel was built without this GPU's architecture: add it to the stack's arch list and "
        "build again (`invoke facts` shows the compute capability)",
    ),
    _rule(
        "unsupported-architecture",
        r"(?i)unsupported architecture|not supported on (?:this|your) (?:GPU|architecture)",
        "the chosen backend has no kernel for this GPU: choose another attention_backend or "
        "moe_runner_backend in the profile",
    ),
    _rule(
        "driver",
        r"driver version is insufficient|driver on your system is too old|No CUDA GPUs are avail"
        r"|Driver/library version mismatch|forward compatibility was attempted|"
        r"CUDA unknown error|cudaErrorNoDevice",
        "the GPU driver does not serve this CUDA build: run `invoke facts` on the host",
    ),
    _rule(
        PORT,
        r"(?i)address already in use|Errno 98\b|[Pp]ort is already in use"
        r"|port\w* at \d+ is not available",
        "another process listens on the port: stop it, or give the profile another port",
    ),
    _rule(
        "argument",
        r"^[\w./-]+(?: \w+)?: error: (.+)",
        "the engine refuses its command line: correct `args` in the profile",
    ),
    _rule(
        "kv-dtype",
        r"CPU FP8 KV cache requires|kv-cache-dtype \S+ is not supported|"
        r"NVFP4 prefill supports|kv_cache_dtype.{0,40}not supported",
        "this backend cannot hold that KV cache: set kv_cache_dtype to bf16 in the profile",
    ),
    _rule(
        "missing-symbol",
        r"undefined symbol: \S+|Could not load any common_ops library",
        "a wheel was built against another torch, CUDA or GPU: build the stack again",
    ),
    _rule(
        "missing-library",
        r"(\S+\.so[.\d]*): cannot open shared object file",
        "library {0} is not on the host, or of another CUDA version: run `invoke facts`",
    ),
    _rule(
        "missing-module",
        r"^(?:ModuleNotFoundError|ImportError): ",
        "the release lacks a Python module: add it to the stack's lock and build again",
    ),
    _rule(
        "model-missing",
        r"Repository Not Found|RepositoryNotFoundError|HFValidationError|GatedRepoError"
        r"|does not appear to have a file named|Cannot find any model weights"
        r"|is not a local folder and is not a valid|Incorrect path_or_model_id"
        r"|Can't load the configuration of|LocalEntryNotFoundError|OfflineModeIsEnabled",
        "the model folder is absent or incomplete: correct `model` in the profile",
    ),
    _rule(
        "model-unsupported",
        r"[Mm]odel architectures? .+ (?:are|is) not supported|does not recognize this architecture",
        "this engine does not know the model's architecture: use a stack with a newer engine",
    ),
    _rule(
        "weights-damaged",
        r"SafetensorError|header too (?:large|small)|InvalidHeader|MetadataIncompleteBuffer",
        "a weight file is damaged or cut short: fetch the model again",
    ),
    _rule(
        "disk",
        r"No space left on device|Disk quota exceeded",
        "the host's disk is full: free space and deploy again",
    ),
    _rule(
        "host-memory",
        r"(?i)oom-kill|OOM killer|Out of memory: Killed process|Cannot allocate memory"
        r"|DefaultCPUAllocator: (?:can't|not enough)|^MemoryError\b",
        "the host ran out of memory: raise the profile's memory ceiling, or load a smaller model",
    ),
    _rule(
        "shared-memory",
        r"Bus error|unable to (?:open|allocate) shared memory",
        "/dev/shm is too small: enlarge it on the host",
    ),
    _rule(
        "cpu",
        r"Illegal instruction",
        "a wheel uses instructions that this CPU lacks: build the stack for this host",
    ),
    _rule(
        "crash",
        r"Segmentation fault|Fatal Python error|double free or corruption",
        "native code crashed: check that all wheels of the stack were built against one torch",
    ),
    _rule(
        "communication",
        r"NCCL error|nccl(?:System|UnhandledCuda|Internal|Remote)Error|NCCL WARN.*(?:error|failed)",
        "the GPUs cannot talk to each other: set NCCL_DEBUG=INFO in the profile's env, try again",
    ),
    _rule(
        "gpu-fault",
        r"illegal memory access|device-side assert|unspecified launch failure|uncorrectable ECC",
        "a GPU kernel went wrong: try another backend; if it goes on, check the GPU (`dmesg`)",
    ),
    _rule(
        "hang",
        r"Watchdog timeout",
        "a batch never came back: try disable_custom_all_reduce, or another attention backend",
    ),
    _rule(
        "killed",
        r"[Ee]xit code: -9\b|^(?:.*: line \d+: +\d+ +)?Killed\b|status=9/KILL|code=killed"
        r"|leaked \w+ objects to clean up at shutdown",
        "something killed the server: `dmesg -T | grep -i oom` shows if memory ran out",
        2,
    ),
    _rule(
        "child",
        r"Received sigquit from a child process|scheduler died during initialization"
        r"|Please see the error messages above|scheduler is dead",
        "a child of the server failed without a word of its own; read the log before this line",
        0,
    ),
    _rule(
        "error",
        r"\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal|CRITICAL|[Ff]ailed|command not found"
        r"|No such file or directory|Permission denied)\b",
        "no known failure; the log around this line says more",
        1,
    ),
)

_EXCEPTION = Rule(
    "exception",
    re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:)?$"),
    "no known failure; the traceback above this line says where",
)
# Lines that hold the words of an error and are none.
_NOISE = re.compile(
    r"Ignore import error|^server_args=|Warning: (?!resource_tracker)|WARNING - | disabled: "
    r"|^usage: |^\s+\[-|^(?:Receive|Finish): obj=|^(?:Prefill|Decode) batch"
)
_ANNOUNCED = re.compile(r"hit an exception|Initialization failed|is dead\b")
# One look tells the many plain lines from the few that a rule could match.
_ANY = re.compile("|".join(rule.pattern.pattern.replace("(?i)", "") for rule in RULES), re.I)


@dataclass(frozen=True)
class Search:
    """How far the search for the cause has come.

    `mortal` = the best cause so far cannot have been survived; `trace` = inside a traceback,
    `announced` = one that the server itself called its end.
    """

    best: Cause | None = None
    weight: int = -1
    mortal: bool = False
    trace: bool = False
    announced: bool = False


def look(search: Search, number: int, message: str) -> Search:
    """The search after one more line, given without its time stamp."""
    if "Traceback (most recent call last)" in message:
        return replace(search, trace=True, announced=bool(_ANNOUNCED.search(message)))
    if _NOISE.search(message) or (search.trace and message[:1].isspace()):
        return search
    rule = _matching(message)
    if search.trace and (rule is None or rule.weight < 2) and _EXCEPTION.pattern.match(message):
        rule = _EXCEPTION
    return search if rule is None else _keep(search, number, message, rule)


def survived(search: Search) -> Search:
    """The server went on to its next phase: what could have been survived was no cause."""
    return replace(search, trace=False) if search.mortal else Search()


def served(search: Search) -> Search:
    """The server said that it is ready, so it survived all; but for a lost port.

    A server that cannot bind sends its warm-up request to whoever holds the port, gets an answer,
    and says that it is ready.
    """
    lost = search.best is not None and search.best.kind == PORT
    return search if lost else Search()


def _matching(message: str) -> Rule | None:
    if not _ANY.search(message):
        return None
    return next((rule for rule in RULES if rule.pattern.search(message)), None)


def _keep(search: Search, number: int, message: str, rule: Rule) -> Search:
    ended = search.trace and rule.weight == 3
    after = replace(search, trace=search.trace and not ended)
    if rule.weight <= search.weight:
        return after
    found = rule.pattern.search(message)
    groups = [group or "" for group in found.groups()] if found else []
    cause = Cause(rule.kind, number, message.strip()[:LIMIT], rule.advice.format(*groups))
    mortal = rule.weight == 3 and (rule is not _EXCEPTION or search.announced)
    return replace(after, best=cause, weight=rule.weight, mortal=mortal)
