"""The log lines room: what one line of a log is once colours and stamps are off: error or noise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from firstlight.build import cited

LIMIT = 4096
"""What is read of one line, in characters; compiler lines can be much longer."""


def cut(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces cut anywhere; of a longer line its first LIMIT
    characters after the last carriage return are kept, so memory stays small."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
        if len(rest) > 2 * LIMIT:
            # A carriage return at the very end may be the first half of a line's end.
            drawn = rest.rstrip("\r").rpartition("\r")[2]
            rest = drawn[:LIMIT]
    if rest:
        yield rest


def clean(line: str) -> str:
    """A line without colours and without what moves a terminal: NUL, bells, and their kin."""
    if line.isprintable():
        return line
    return _COLOUR.sub("", line).translate(_CONTROLS)


def plain(line: str) -> str:
    """A clean line without the stamps of docker, CI, journals, ranks and loggers."""
    bare = clean(line)
    stamp = _STAMP.match(bare)
    return bare[stamp.end() :].rstrip() if stamp else bare.rstrip()


def flat(line: str) -> str:
    """A plain line with straight quotes only, as patterns are written."""
    return line if line.isascii() else line.translate(_QUOTES)


def indent(line: str) -> int:
    """How many blanks a line begins with."""
    return len(line) - len(line.lstrip())


def is_mild(line: str) -> bool:
    """True for lines that may hold the words of an error and are none: warnings, status lines,
    command lines, tests that passed."""
    if _MILD_BEGINS.match(line) or cited.is_request(line):
        return True
    low = line.lower()
    held = any(word in low for word in _MILD_WORDS) and _MILD_WITHIN.search(line)
    return bool(held) and not _RAISED.match(line)


def is_refused(line: str) -> bool:
    """True for what a compiler refuses; no step survives that, whatever is said later."""
    return bool(_REFUSED.search(line))


def goes_on(line: str) -> bool:
    """True where a new step has begun or one ended well, or a server is ready: what was wrong
    before was survived."""
    return any(text in line for text in _STEPS) and bool(_GOES_ON.search(line))


class Turn(Enum):
    """What a log says between its errors: pip has done all, or a server serves; that server is
    asked to end; tests begin, and all passed."""

    DONE = auto()
    ASKED = auto()
    TESTS = auto()
    PASSED = auto()


def turn(line: str) -> Turn | None:
    """What a line says has turned out well: of pytest's tests none failed, so that what they print
    are no errors."""
    if any(text in line for text in _STEPS) and _DONE.search(line):
        return Turn.DONE
    if ("SIGTERM" in line or "[shutdown]" in line) and _ASKED.search(line):
        return Turn.ASKED
    if "test session starts" in line:
        return Turn.TESTS
    return Turn.PASSED if " passed" in line and _PASSED.match(line) else None


def error_weight(line: str, low: str, exception: bool) -> int | None:
    """2 for what a compiler refuses, 1 for another error that may be the first one, 0 for the echo
    of another, None for no error.

    `low` is the line in lower case; `exception` = the line ends a Python traceback.
    """
    if exception and _EXCEPTION.match(line):
        return 0 if _ECHO.search(line) else 1
    if not any(word in low for word in _WORDS) or is_mild(line):
        return None
    line = cited.uncited(line)
    if _ECHO.search(line):
        return 0
    if is_refused(line):
        return 2
    return 1 if _ERROR.search(line) else None


_COLOUR = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - set(map(ord, "\t\r\n")))
_QUOTES = str.maketrans("\u2018\u2019\u00b4\u201c\u201d", "'''\"\"")

_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?"
_RANKS = r"(?: [A-Z_]+\d+)*"
_WHO = r"(?:[\w.-]+ [\w.@-]+\[\d+\]: )?"  # a journal: host, program and its number
_STAMP = re.compile(
    r"(?:#\d+ (?=[\d.]+ |ERROR)(?:\d+\.\d+ )?"  # docker build: #12 34.56
    r"|[A-Za-z][\w.-]* +\| "  # docker compose: service-1  |
    rf"|\[{_DAY}{_RANKS}\] ?|(?:[A-Z][a-z]{{2}} )?{_DAY}(?: - \S+ - (?=[A-Z]+ - )|(?: UTC)? {_WHO})"
    rf"|\[\d\d:\d\d:\d\d{_RANKS}\] ?|\[ *\d+\.\d{{3,6}}\] {_WHO}"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ [\w.@-]+(?:\[\d+\])?: "  # a journal
    r"|std(?:out|err) [FP] "  # Kubernetes
    r"|\[rank\d+\]: |\(\w+ pid=\d+(?:, ip=[\w.:]+)?\) "  # torch, Ray
    r"|ERROR \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]+:\d+\] ?"  # vLLM, each line of a traceback
    r"|DEBUG (?=[\[\s/\w])"  # uv, each line of a build
    r"|[EF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\] (?:\[\d+/\d+\] )?"  # torch's compiler
    r"|(?:[A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}\[\d+,\d+\]<std(?:err|out)>: ?"  # MPI
    r"|##\[error\]|::error[^:]*::)+"
)

_TOOLS = (
    r"(?:nvcc|g\+\+|gcc|cc|c\+\+|clang(?:\+\+)?|cicc|ptxas|ld|ar|ccache|sccache|cmake|ninja|make"
    r"|cargo|rustc|python[\d.]*|pip|uv|docker|x86_64-linux-gnu-\S+|aarch64-linux-gnu-\S+)"
)
_MILD_BEGINS = re.compile(
    r"\s*(?:WARN|WARNING|Warning)\b|\[?W\d{3,4} \d"
    r"|\s*CMake (?:Deprecation )?Warning|\s*-- |\s*[Nn]ote:|server_args=|usage: |\s+\[-"
    r"|\s*\[\d+/\d+\] |\+ |#\$ |\s*(?:ptxas|nvlink) info|\s*INFO\b"
    r"|\s*\d+ \| |\s+\| "  # the source that a compiler quotes
    rf"|\s*(?:cd \S+ && )?(?:: && )?(?:\S*/)?{_TOOLS} +(?:-|\S+\.(?:c|cc|cpp|cu|o|py|rs)\b)"
    r"|(?:Prefill|Decode) batch|ok \d"
    r"|\s*(?:copying|adding|creating|writing|removing|byte-compiling|inflating:|extracting:"
    r"|Compiling \S+ v|Downloading|Collecting|Using cached|Installing collected)\b"
)
# SGLang raises errors whose text begins with "Warning:".
_RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")
_MILD_WITHIN = re.compile(
    r"(?i:\bwarning\b(?: #\S+)? ?:)|- WARNING -|\wWarning: |: note: | disabled: "
    r"|Ignore import error|Will ignore error and continue|the state was deleted in TokenizerManager"
    r"|tainting kernel|(?<!\] )\b[Nn]o errors?\b|NCCL INFO|\bPASSED\b|\.\.\. ok$|\(ignored\)"
    r"|\bTest +#?\d+.*Passed"
)
# Plain texts without one of which the pattern within a line cannot match.
_MILD_WORDS = (
    "warning", ": note: ", " disabled: ", "ignore ", "nccl info", "passed", "... ok",
    "(ignored)", "the state was deleted", "tainting kernel", "no error",
)  # fmt: skip

_READY = r"(?:The server is fired up and ready to roll!|Application startup complete\.)$"
_STEPS = ("[1/", "-- ", "Successfully ", ": checked out '", "ready to roll", "startup complete")
_GOES_ON = re.compile(
    r"^\s*\[1/\d+\] |\bSuccessfully (?:installed|built)\b|: checked out '"
    rf"|^\s*-- (?:Configuring|Generating) done|{_READY}"
)
_DONE = re.compile(rf"\bSuccessfully (?:installed|built) |{_READY}")
_ASKED = re.compile(r"^SIGTERM received\.|\[shutdown\] .*(?:shutdown triggered|signal=SIGTERM)$")
_PASSED = re.compile(r"^(?:=+ )?\d+ passed\b(?!.*\b(?:failed|errors?)\b).* in \d")
# Words without one of which a line is no error at all; one look saves the pattern.
_WORDS = (
    "error", "fatal", "failed", "undefined reference", "not found", "no such", "denied",
    "killed", "***", "exception", "panicked", "core dumped", "segmentation", "cannot find",
    "critical", "unable to", "could not", "╰─▶",
)  # fmt: skip
_REFUSED = re.compile(
    r"^\s*[^\s:]+(?::\d+:(?:\d+:)?|\(\d+\):) (?:fatal |catastrophic )?error\b"
    r"|^\s*(?:nvcc|ptxas|nvlink|cudafe\+\+) (?:fatal|error) *:|^error\[E\d+\]"
)
_EXCEPTION = re.compile(r"^\s*[A-Za-z_][\w.]*(?:: .*|:)?$")
# What is said once something else has failed.
_ECHO = re.compile(
    r"subprocess-exited-with-error|metadata-generation-failed|ninja: build stopped|^\s*FAILED:? "
    r"|CalledProcessError|Error compiling objects|ld returned \d+ exit status"
    r"|legacy-install-failure"
    r"|[mM]ake(?:\[\d+\])?: \*\*\*|[Cc]ould not build wheels"
    r"|Failed (?:to (?:download and )?build|building wheel)|Call to `\S+` failed"
    r"|errors? occurred!|did not complete successfully|ailed to build installable wheels"
    r"|errors? (?:detected|generated)\b|Command .* (?:failed|returned non-zero)"
    r"|aborted due to (?:\w+ )?(?:previous )?errors?|could not compile|CMake build failed"
    r"|command .* failed with exit (?:code|status)|exit code: \d+|Error building extension"
    r"|Building wheel for .* (?:did not run|error)|build backend returned an error"
    r"|failed to run custom build command|sigquit from a child|error messages? above"
    r"|process exited with|See root cause above|\braised:$"
)
_ERROR = re.compile(
    r"(?:^|[\s:\]>)(|])(?:[\w.]*[A-Z]\w*Error|[eE]rror|ERROR|FATAL|[Ff]atal)"
    r"(?:\[\w+\]| [A-Z]+\d+| #\d+)? *:"
    r"|^\s*(?:ERROR|FATAL|CRITICAL|error|fatal)\b|^\s*(?:nvcc|ptxas|nvlink|cudafe\+\+) fatal"
    r"|^\s*CMake (?:Internal )?Error|^\s*\[(?:ERROR|FATAL|error)\]|- (?:ERROR|CRITICAL) - "
    r"|^\s*[a-z_][\w.]*(?:\.[A-Z]\w*)?(?:Error|Exception)(?::|$)"
    r"|^\s*(?:[A-Z]\w*(?:Error|Exception|Exit)|Exception)(?::|$)"
    r"|undefined reference to |cannot find -l|command not found|: not found$|panicked at"
    r"|: No such file or directory|: Permission denied|: cannot |[Cc]ore dumped"
    r"|^\s*(?:Killed|Segmentation fault|Aborted)\b|\bfailed: |^\*\*\* "
    r"|^\s*(?:Could not|Unable to|Cannot) |^E: |: unable to |Error response from daemon"
    r"|^\s*╰─▶ "  # uv: why
)
