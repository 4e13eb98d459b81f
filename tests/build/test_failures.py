"""The table of known failures: each of its rules, what is no error, what is unknown, huge logs."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.build.failures import (
    Explanation,
    FailureTable,
    Rules,
    check_failures,
    explain,
    rules_of,
)
from firstlight.build.loglines import LIMIT, cut, plain
from firstlight.build.needles import any_of, needles
from firstlight.core.errors import ConfigError
from firstlight.core.schema import load

FILE = Path(__file__).parents[2] / "recipes" / "failures.yaml"
DOCUMENT = load(FILE.read_text(encoding="utf-8"), "recipes/failures.yaml", FailureTable)
TABLE = DOCUMENT.value
RULES = rules_of(TABLE)
LOGS = Path(__file__).with_name("failure_logs.txt").read_text(encoding="utf-8")
EACH = re.findall(r"^## (\S+)\n(.*?)(?=\n## |\Z)", LOGS, re.M | re.S)


def told(log: str, rules: Rules = RULES) -> Explanation | None:
    return explain(cut([log]), rules)


def marked(log: str) -> tuple[list[str], int]:
    """The lines of a log and the number of the marked one, without its mark."""
    lines = log.splitlines()
    (at,) = (at for at, line in enumerate(lines) if line.startswith("=> "))
    lines[at] = lines[at].removeprefix("=> ")
    return lines, at + 1


@pytest.mark.parametrize(("name", "log"), EACH, ids=[name for name, _ in EACH])
def test_each_rule_finds_its_line(name: str, log: str) -> None:
    lines, number = marked(log)
    found = explain(lines, RULES)
    assert found is not None
    assert (found.rule, found.line, found.text) == (name, number, plain(lines[number - 1]).strip())
    assert found.cause and found.fix and "{" not in found.cause


def test_no_rule_is_without_a_log_and_the_table_has_no_fault() -> None:
    assert {name for name, _ in EACH} == {rule.id for rule in TABLE.rules}
    assert check_failures(DOCUMENT) == ()


def test_every_recorded_failure_is_covered(shared: Path) -> None:
    with (shared / "data" / "build-failures.csv").open(encoding="utf-8") as file:
        reports = {row["url"] for row in csv.DictReader(file)}
    covered = {link for rule in TABLE.rules for link in (rule.link, *rule.also)}
    assert len(reports) > 30
    assert reports - covered == set()


UNSEEN = {
    "nvcc error   : 'ptxas' died due to signal 9 (Kill signal)": "compiler-killed",
    "nvcc fatal   : Unsupported gpu architecture 'compute_52'": "gpu-architecture-dropped",
    "nvcc fatal   : Unsupported gpu architecture 'compute_130a'": "gpu-architecture",
    "ImportError: x.so: undefined symbol: _ZNK2at10TensorBase4sizeEv": "torch-abi",
    "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.32' not found": "libstdcxx-old",
    "ImportError: libm.so.6: version `GLIBC_2.41' not found (required by a.so)": "glibc-old",
    "RuntimeError: The detected CUDA version (13.3) mismatches the version that was used to "
    "compile PyTorch (12.6).": "torch-cuda-mismatch",
    "#23 418.7 /usr/bin/ld: cannot find -lcublasLt: No such file or directory": "link-cuda-library",
    "2026-01-02T10:00:00.12Z \x1b[31mx.h:1:10: fatal error: cub/cub.cuh: No such file\x1b[0m": (
        "cccl-headers"
    ),
    "FileNotFoundError: [Errno 2] No such file or directory: 'protoc'": "protoc-missing",
    "/bin/sh: line 1: cargo: command not found": "rust-missing",
    "ImportError: libcudart.so.12: cannot open shared object file: No such file": "cuda-library",
    "error: #error -- unsupported GNU version! gcc versions later than 14 are not": (
        "host-compiler-too-new"
    ),
    "(EngineCore_DP0 pid=7) ERROR 03-05 09:56:09 [core.py:1100] ptxas fatal   : Value 'sm_121a' is "
    "not defined for option 'gpu-name'": "triton-ptxas",
    "Thu Jan 23 11:55:50 2025[1,1]<stderr>:ImportError: u.so: undefined symbol: cuInit": (
        "driver-symbol"
    ),
    "DEBUG /usr/bin/ld: cannot find -lcuda: No such file or directory": "link-driver-stub",
    "ImportError: libcusparse.so.12: cannot open shared object file: No such file": (
        "cuda-part-library"
    ),
}


@pytest.mark.parametrize(("line", "name"), UNSEEN.items(), ids=list(UNSEEN.values()))
def test_other_versions_of_a_known_failure_are_known(line: str, name: str) -> None:
    found = told(f"[1/2] c++ -Werror=x -c error.cc\n{line}\nerror: something else\n")
    assert found is not None and (found.rule, found.line) == (name, 2)


QUIET = """\
-- Performing Test HAS_FLAG - Failed
-- Could NOT find Git (missing: GIT_EXECUTABLE)
CMake Warning at a.cmake:3 (message):
  Could NOT find Python (missing: Development), error: no module
[1/3] c++ -Werror=all -c error.cpp -o error.o
      [2/3] /opt/cuda/bin/nvcc -DSAY="No space left on device" -c fatal_error.cu
      ptxas info    : 0 bytes gmem, error: none
   12 |   throw Error("no kernel image is available"); // error: quoted
      |         ^~~~~ error: here
h:7:8 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v7 symbol, error: none
INFO: flash-attn requires CUDA 12.3; this one is newer, error: none
copying torch/errors.py -> build
adding 'x/error_handling.py'
test_error_paths (t.T) ... ok
tests/test_error.py::test_failed PASSED
0 errors, 0 warnings
warning: error: nope
TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation.
x.cc:3: warning: unused variable 'error' [-Werror]
gcc -Wno-error=x -DNAME="no kernel image is available" -c fatal.c
   Compiling thiserror v1.0.1
handle_error: installed
FETCHCONTENT=1 cmake -DFETCHCONTENT_FULLY_DISCONNECTED=ON
SETUPTOOLS_SCM_PRETEND_VERSION=1.0 pip wheel .
Successfully built error-tools
"""


def test_words_of_an_error_are_no_error() -> None:
    assert told(QUIET) is None


UNKNOWN = {
    "compiler": """\
c++ -c a.cc
FAILED: a.o
a.cc: In function 'f':
=> a.cc:3: error: no y [-Werror]
""",
    "nvcc": """\
[1/1] nvcc -c x.cu
=> x.cu(12): error: identifier "foo" is undefined
1 error detected in the compilation of "x.cu".
""",
    "rust": """\
=> error[E0425]: cannot find value `x`
error: could not compile `foo` (lib) due to 1 previous error
""",
    "python": """\
Traceback (most recent call last):
  File 'x'
    raise E('error: z')
=> KeyError: 'a'

Traceback (most recent call last):
  File 'y'
RuntimeError: Error compiling objects for extension
""",
    "docker": """\
#12 3.4 Collecting x
=> #12 35.01 f.cc:3:9: error: expected ';'
#12 36.2 make: *** [x] Error 1
#12 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 2
""",
    "cmake": """\
-- The C compiler
=> CMake Error at CMakeLists.txt:6 (add_executable):
  Cannot find source file:
-- Configuring incomplete, errors occurred!
""",
    "only an echo": """\
ok
=> FAILED: a.o
ninja: build stopped: subcommand failed.
""",
    "a missing build file": """\
=> ninja: error: loading 'build.ninja': No such file or directory
""",
    "what a compiler refuses, before a download that was handled": """\
[1/9] nvcc -c a.cu
=> a.cu(17): error: no instance of overloaded function "f"
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File 'setup.py'
urllib.error.HTTPError: HTTP Error 404: Not Found

During handling of the above exception, another exception occurred:
""",
    "a hint is no cause": """\
fatal: not a git repository (or any of the parent directories): .git
ninja explain: command line changed for a.o
-- Not building MLA kernels as no compatible archs were found
=> RuntimeError: it broke
""",
    "what was survived": """\
ERROR: x 1 requires y==2, but you have y 3 which is incompatible.
Successfully installed x-1
fatal: early EOF
Submodule path 'cutlass': checked out 'dc48'
find: '/root/.cache': Permission denied
-- Configuring done
PermissionError: [Errno 13] Permission denied: 'LICENSE'
[1/3] c++ -c a.cc
=> RuntimeError: it broke
""",
    "the advice of torch is no cause": """\
=> torch.AcceleratorError: CUDA error: nobody knows this
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
""",
    "an exception without its traceback": """\
ok
=> Exception: nobody knows this
""",
    "why uv builds nothing": """\
  x Failed to download and build `a==2.8.1`
=>   ╰─▶ Nobody knows this about `b`
  help: `a` was included because `c` depends on it
""",
    "a compiler's wrapper": """\
x.exc.BackendFailed: backend='inductor' raised:
=> KeyError: 's4'
""",
    "an index": """\
Traceback (most recent call last):
  File 'z'
=> IndexError: list index out of range
""",
}


@pytest.mark.parametrize("log", UNKNOWN.values(), ids=list(UNKNOWN))
def test_what_is_unknown_is_shown_by_its_first_error(log: str) -> None:
    lines, number = marked(log)
    found = explain(lines, RULES)
    assert found is not None and not found.known
    assert found.line == number
    assert found.cause.startswith("unknown")
    assert (found.line, plain(lines[number - 1])) in found.context
    before = [line for line in lines[: number - 1] if line.strip()][-2:]
    assert [text for n, text in found.context if n < number] == [plain(line) for line in before]


TORCH_TOO_OLD = """\
torch/cuda/__init__.py:235: UserWarning:
GPU with CUDA capability sm_120 is not compatible with the current PyTorch installation.
Traceback (most recent call last):
  File 'a.py'
RuntimeError: CUDA error: no kernel image is available for execution on the device
"""


def test_what_brought_a_cause_about_is_told_instead_of_it() -> None:
    found = told(TORCH_TOO_OLD)
    assert found is not None and (found.rule, found.line) == ("torch-sm-support", 2)
    other = told(TORCH_TOO_OLD.replace("CUDA error: no kernel image is", "Disk quota exceeded"))
    assert other is not None and other.rule == "disk-quota"


def test_a_rule_can_only_stand_behind_one_that_is_there() -> None:
    text = (
        BAD.replace("nothing (here", "nothing").replace("{name} is", "x").replace("[]", "['yyyy']")
    )
    text = text.replace("nowhere\n", "build\n    behind: [twice, nobody]\n")
    faults = check_failures(load(text, "f.yaml", FailureTable))
    assert "f.yaml:10:13: there is no rule 'nobody'" in map(str, faults)
    assert not any("'twice'" in str(fault) and "no rule" in str(fault) for fault in faults)


def test_a_bar_drawn_over_itself_is_one_line() -> None:
    found = told("ok\n 10%\r 50%\r\x1b[1merror:\x1b[0m it broke\r\n")
    assert found is not None and (found.line, found.text) == (2, "error: it broke")


def test_lines_may_be_numbered_from_where_a_log_was_cut() -> None:
    found = explain(["x", "No space left on device"], RULES, first=1001)
    assert found is not None and (found.rule, found.line) == ("disk", 1002)


def test_rules_of_servers_are_not_asked_about_builds() -> None:
    log = "RuntimeError: CUDA out of memory.\n"
    build, serve = told(log, rules_of(TABLE, "build")), told(log, rules_of(TABLE, "serve"))
    assert build is not None and not build.known
    assert serve is not None and serve.rule == "gpu-memory"


def test_rules_of_compilers_are_asked_about_servers_too() -> None:
    """Triton and FlashInfer compile when a server starts."""
    for line in ("a.cu:1:10: fatal error: curand_kernel.h: No such file", "ld: cannot find -lcuda"):
        found = told(line + "\n", rules_of(TABLE, "serve"))
        assert found is not None and found.known


def test_a_log_of_any_size_is_read_in_small_memory() -> None:
    """A line without an end, and many lines: what is kept at once stays small."""
    longest = max(map(len, cut(itertools.repeat("x" * 1000, 5000))))
    assert longest <= LIMIT + 1000
    lines = (
        "[1/9] nvcc -c a.cu" if n != 90_000 else "No space left on device" for n in range(100_000)
    )
    found = explain(lines, RULES)
    assert found is not None and found.line == 90_001


BAD = """\
schema: 1
rules:
  - id: twice
    where: build
    patterns: ['nothing (here']
    cause: "{name} is no group"
    fix: x
  - id: twice
    where: nowhere
    patterns: []
    cause: x
    fix: x
"""


def test_faults_of_the_table_have_their_place() -> None:
    with pytest.raises(ConfigError) as refused:
        load(BAD, "f.yaml", FailureTable)
    assert [(fault.line, fault.column) for fault in refused.value.faults] == [(9, 12), (10, 15)]
    text = BAD.replace("nowhere", "build").replace("[]", "['a.b', 'some|']")
    faults = [str(fault) for fault in check_failures(load(text, "f.yaml", FailureTable), ["port"])]
    assert faults == [
        "f.yaml:5:16: 'nothing (here' is no regular expression: missing ), unterminated subpattern "
        "at position 8",
        "f.yaml:6:12: {name} is no named group of every pattern",
        "f.yaml:10:16: pattern 'a.b' needs 4 plain letters in a row in every match",
        "f.yaml:10:23: pattern 'some|' matches every line",
        "f.yaml:8:9: rule 'twice' is given twice",
        "f.yaml:3:3: needs rule 'port': a start is judged by it",
    ]


PATTERNS = [pattern for rule in TABLE.rules for pattern in rule.patterns]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_every_match_holds_one_of_the_plain_texts_of_its_pattern(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS))
    line = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    # What only Unicode lower-cases into a letter is no text of a log's tools.
    if line.isascii():
        assert any(needle in line.lower() for needle in needles(pattern))


@settings(deadline=None)
@given(st.lists(st.text(), max_size=8), st.integers(1, 40))
def test_any_text_is_survived_and_cut_anywhere_the_same(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert "\n".join(cut(parts)) == text.removesuffix("\n")
    explain(cut(parts), RULES)


@given(st.lists(st.text("ab|.", min_size=1), max_size=8), st.text("ab|.", max_size=20))
def test_one_look_finds_any_of_many_texts(texts: list[str], line: str) -> None:
    assert bool(any_of(texts).search(line)) == any(text in line for text in texts)


FULL = "No space left on device"
LEAKED = "resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown"
SOUND = {
    "a request as text": f'Received request: {{"text": "why {FULL}?"}}',
    "a request as SGLang logs it": f"Finish: obj=GenerateReqInput(text='RuntimeError: {FULL}')",
    "a request as JSON": f'{{"time": 1, "event": "request.received", "obj": ["Error: {FULL}"]}}',
    "a prompt amid a line": f"Added cmpl-1 with prompt: 'Error: {FULL}', params: x",
    "a text amid JSON": f'{{"level": "info", "text": "Traceback, Error: {FULL}"}}',
    "a sentence with backticks": f"If you see `{FULL}`, remove a release.",
    "a sentence with quotes": f"On \"{FULL}\" remove a release; it means ('{FULL}').",
    "an echo that is quoted": "`ninja: build stopped: subcommand failed.` means a bad end",
    "tests that passed": f"E   AssertionError: {FULL}\n=== 204 passed, 2 warnings in 3.2s ===",
    "tests that passed quietly": f"E   AssertionError: {FULL}\n204 passed in 3.20s",
    "versions that pip put up with": (
        "ERROR: pip's dependency resolver does not currently take into account all packages\n"
        "a 1 requires b==2, but you have b 3 which is incompatible.\nSuccessfully installed b-3"
    ),
    "what a server did without": "\n".join(
        (
            "Failed to load generation config for x: x does not appear to have a file named "
            "generation_config.json.. Proceeding without it.",
            f"Could not cache non-existence of file. Will ignore error and continue. Error: {FULL}",
            "[g] Failed to initialize cutlass MXFP8 gemm on sm120. Error: Error Internal",
            "The server is fired up and ready to roll!",
        )
    ),
    "tactics that do not fit": (
        "2025-11-11 06:41:27,319 - WARNING - autotuner.py:485 - flashinfer.jit: [Autotuner]: "
        "Skipping tactic 15, due to failure while profiling: [x][ERROR] Assertion failed: "
        "Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal"
    ),
    "a request that was too long": (
        "SKIP: 90000 tokens exceeds the served context (HTTP Error 400: Bad Request)"
    ),
    "the end that was asked for": "\n".join(
        (
            "INFO:     Application startup complete.",
            "(A pid=1) INFO 08-02 11:46:06 [x.py:1] [shutdown] API server: shutdown triggered",
            "(A pid=1) ERROR 08-02 11:46:06 [y.py:2] x.EngineDeadError: it encountered an issue.",
            LEAKED,
        )
    ),
}


@pytest.mark.parametrize("log", SOUND.values(), ids=list(SOUND))
def test_words_that_a_log_only_cites_are_no_cause(log: str) -> None:
    assert told(f"begin\n{log}\n") is None


CITING = {
    f'tar: "{FULL}"': "a tool quotes with a colon before",
    f'level=error msg="{FULL}"': "a logger's value",
    f'{{"level": "error", "message": "{FULL}"}}': "a logger's JSON",
    f'cp failed with "{FULL}" there': "a line that calls it failed",
    f"RuntimeError: writing (`{FULL}`)": "an exception",
    f"OSError: {FULL}: prompt='x'": "before a user's text",
    f"=== 1 failed, 203 passed in 3.2s ===\n{FULL}": "tests of which one failed",
    f"{FULL}\n=== test session starts ===\nE {FULL}\n=== 9 passed in 3.2s ===": "before tests",
    f"{FULL}\n=== 1 failed, 203 passed in 3.2s ===": "tests of which one failed, after it",
    f"{FULL}\nSuccessfully installed b-3": "what says why stays",
}


def test_a_server_that_ends_unasked_has_a_cause() -> None:
    ends = {LEAKED: "killed", "torch.OutOfMemoryError: CUDA out of memory": "gpu-memory"}
    for end, rule in ends.items():
        found = told(f"The server is fired up and ready to roll!\n{end}\n")
        assert found is not None and (found.rule, found.line) == (rule, 2)
    before = told(f"RuntimeError: it broke\nSIGTERM received. signum=None\n{LEAKED}\n")
    assert before is not None and before.line == 1


@pytest.mark.parametrize("log", CITING, ids=list(CITING.values()))
def test_a_cause_is_not_lost_among_quotes(log: str) -> None:
    found = told(f"begin\n{log}\n")
    assert found is not None and found.rule == "disk"
