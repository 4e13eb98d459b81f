"""known_hosts files are read as OpenSSH reads them: its own ssh-keygen -F is the judge."""

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.effects.ssh.known_hosts import fingerprint, judge, name_of, of_host, read

A = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
B = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8JTTHY5t0GbKTCKH7tYmY5aGSGqD8JZvFs5UGmFpXV"


def blob(public: str) -> bytes:
    return base64.b64decode(public.split()[1])


def write(folder: Path, *lines: str) -> Path:
    file = folder / "known_hosts"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("names", "name", "found"),
    [
        ("gpu01", "gpu01", True),
        ("gpu01", "gpu011", False),
        ("gpu02,gpu01", "gpu01", True),
        ("*.lab.example", "a.lab.example", True),
        ("*.lab.example", "lab.example", False),
        ("*.lab.example,!b.lab.example", "b.lab.example", False),
        ("gpu0?", "gpu07", True),
        ("[gpu01]:2222", "[gpu01]:2222", True),
        ("[gpu01]:2222", "gpu01", False),
        ("GPU01", "gpu01", True),
        ("g.u01", "gpu01", False),
    ],
)
def test_names(tmp_path: Path, names: str, name: str, found: bool) -> None:
    file = write(tmp_path, f"{names} {A}")
    assert bool(of_host(read([file]), name)) is found
    # ssh-keygen -F agrees, up to the case of letters, which ssh itself has lowered by then.
    asked = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True)
    assert (asked.returncode == 0) is found or names == "GPU01"


def test_hashed_names_are_found(tmp_path: Path) -> None:
    file = write(tmp_path, f"gpu01 {A}", f"[gpu01]:2222 {B}")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "gpu01" not in file.read_text()
    keys = read([file])
    assert [key.line for key in of_host(keys, "gpu01")] == [1]
    assert [key.line for key in of_host(keys, "[gpu01]:2222")] == [2]
    assert of_host(keys, "gpu02") == ()


def test_verdicts(tmp_path: Path) -> None:
    file = write(tmp_path, "# a comment", "", f"gpu01 {A}", f"@revoked * {B}", f"gpu02 {B}")
    keys = read([file, tmp_path / "absent"])
    assert judge(of_host(keys, "gpu01"), "ssh-ed25519", blob(A)).trusted
    unknown = judge(of_host(keys, "gpu03"), "ssh-ed25519", blob(A))
    assert (unknown.trusted, unknown.old) == (False, None)
    revoked = judge(of_host(keys, "gpu02"), "ssh-ed25519", blob(B))
    assert not revoked.trusted and revoked.old is not None and revoked.old.revoked
    file = write(tmp_path, f"gpu01 {B}")
    changed = judge(of_host(read([file]), "gpu01"), "ssh-ed25519", blob(A))
    assert not changed.trusted and changed.old is not None and changed.old.line == 1


@pytest.mark.parametrize(
    "line",
    [
        f"@cert-authority * {A}",
        "gpu01 ssh-ed25519",
        "gpu01 ssh-ed25519 not-base64!",
        "|1|bad ssh-ed25519 AAAA",
        "|1|a|b ssh-ed25519 AAAA",
        "@unheard-of gpu01 " + A,
        "@revoked",
    ],
)
def test_a_line_that_says_nothing_trusts_nobody(tmp_path: Path, line: str) -> None:
    assert of_host(read([write(tmp_path, line)]), "gpu01") == ()


@given(st.text(max_size=80), st.text(max_size=20))
def test_no_text_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, line: str, name: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_text(line, "utf-8", errors="ignore")
    of_host(read([file]), name)


def test_names_and_fingerprints_are_those_of_openssh(tmp_path: Path) -> None:
    assert name_of("GPU01", 22) == "gpu01"
    assert name_of("10.0.0.1", 2222) == "[10.0.0.1]:2222"
    file = write(tmp_path, A)
    shown = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[1] == fingerprint(blob(A))
