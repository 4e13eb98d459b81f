"""What the wheel verifier prints, read and shown; and which targets an architecture means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight.build import verdict
from firstlight.core.errors import HostError

LIBRARY: dict[str, Any] = {
    "path": "kern/ops.so",
    "size": 1 << 20,
    "machine": "x86_64",
    "cuda": True,
    "targets": {"sm_100f": 35, "sm_120a": 35},
    "ptx": ["compute_120"],
    "other": {},
    "relocatable": {},
    "compression": {"zstd": 70},
    "needed": ["libtorch.so", "libcudart.so.13", "libc.so.6"],
    "glibc": "2.14",
    "glibcxx": "3.4.21",
    "rpath": [],
    "unresolved": [],
    "unresolved_count": 0,
    "faults": [{"check": "ptx", "where": "kern/ops.so", "what": "holds PTX for compute_120"}],
    "notes": ["libcuda.so.1 comes with the driver"],
}
HOST_ONLY = LIBRARY | {
    "path": "kern/host.so",
    "cuda": False,
    "targets": {},
    "ptx": [],
    "faults": [],
}
WHEEL: dict[str, Any] = {
    "schema": 1,
    "file": "kern-1.0-cp310-abi3-linux_x86_64.whl",
    "name": "kern",
    "version": "1.0",
    "tag": "cp310-abi3-linux_x86_64",
    "size": 3 << 19,
    "sha256": "ab" * 32,
    "libraries": [LIBRARY, HOST_ONLY],
    "symbols": "not checked: no site-packages was given",
    "environment": "not checked: no interpreter was given",
    "faults": [
        {"check": "record", "where": "kern/a.py", "what": "RECORD does not list it"},
        LIBRARY["faults"][0],
    ],
    "notes": ["platform tag linux_x86_64 promises nothing of the host's glibc"],
}
TEXT = f"""\
kern 1.0  cp310-abi3-linux_x86_64  1.5 MiB
sha256 {"ab" * 32}

library       size     glibc  GPU code, by target    PTX
kern/ops.so   1.0 MiB  2.14   sm_100f:35 sm_120a:35  compute_120
kern/host.so  1.0 MiB  2.14   -                      -

needs        libcudart.so.13
symbols      not checked: no site-packages was given
environment  not checked: no interpreter was given
note: platform tag linux_x86_64 promises nothing of the host's glibc
note: 2 libraries: libcuda.so.1 comes with the driver
fault: kern/a.py: RECORD does not list it
fault: kern/ops.so: holds PTX for compute_120
2 faults for 12.0a (sm_120a)"""


def read(document: dict[str, Any]) -> verdict.Verdict:
    return verdict.read(json.dumps(document).encode(), "", "gpu01")


def test_a_verdict_is_shown_whole() -> None:
    found = read(WHEEL)
    assert verdict.text(found, "12.0a") == TEXT
    assert not found.holds
    assert verdict.to_json(found) == WHEEL


def test_a_good_wheel_has_no_fault() -> None:
    found = read(WHEEL | {"libraries": [HOST_ONLY], "faults": []})
    assert found.holds
    assert verdict.text(found, "").endswith("\nno fault")


def test_a_pure_wheel_has_no_table() -> None:
    shown = verdict.text(read(WHEEL | {"libraries": [], "faults": []}), "")
    assert "library" not in shown
    assert "needs" not in shown


def test_a_wheel_that_cannot_be_read_is_no_good() -> None:
    found = read(
        {"schema": 1, "file": "k.whl", "error": "it is no zip file", "fix": "build it again"}
    )
    assert not found.holds
    told = "error: k.whl: cannot be verified: it is no zip file\n  -> build it again"
    assert verdict.text(found, "12.0") == told


OUTPUTS = [
    (b"", "bash: python3: command not found", "no verdict: bash: python3: command not found"),
    (b'{"schema": 1}', "", "no verdict: Field required"),
    (b'{"schema": 2, "file": "k"}', "", "no verdict: Input should be 1"),
    (b"Traceback", "  File x\nImportError: no elftools", "no verdict: ImportError: no elftools"),
]


@pytest.mark.parametrize("output, error, told", OUTPUTS)
def test_what_is_no_verdict_is_refused(output: bytes, error: str, told: str) -> None:
    with pytest.raises(HostError) as caught:
        verdict.read(output, error, "gpu01")
    assert told in str(caught.value)
    assert caught.value.where == "gpu01"


ARCHES = [
    ("12.0", ["sm_120a", "sm_120f", "sm_120"]),
    ("12.0a", ["sm_120a"]),
    ("12.0f", ["sm_120f"]),
    ("12.1", ["sm_121a", "sm_121f", "sm_121", "sm_120f", "sm_120"]),
    ("9.0a", ["sm_90a"]),
]


@pytest.mark.parametrize("arch, targets", ARCHES)
def test_an_architecture_means_these_targets(arch: str, targets: list[str]) -> None:
    assert verdict.targets(arch) == targets
    assert json.loads(verdict.expectation(arch)) == {"targets": targets}


@pytest.mark.parametrize("arch", ["12", "12.0b", "sm_120", "12.0 ", "0.1", "12.00", "12,0"])
def test_what_is_no_architecture_is_refused(arch: str) -> None:
    with pytest.raises(verdict.BadArch) as caught:
        verdict.expectation(arch)
    assert (caught.value.exit_code, "write it like 12.0" in str(caught.value)) == (2, True)


def test_nothing_is_asked_without_an_architecture() -> None:
    assert json.loads(verdict.expectation("")) == {}
