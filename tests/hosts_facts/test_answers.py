"""The wire: marked lines among noise, damage noticed, no bytes that raise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.hosts import doctor, facts, facttable
from firstlight.hosts.answers import decode, numbers, version_in, whole
from tests.hosts_facts.wire import PLAIN, wire

KEYS = st.sampled_from(
    [
        *PLAIN,
        *("smi", "smi.rc", "smi.topo", "smi.version", "smi.list", "toolkits", "os.dgx", "sudo"),
        *("driver.loaded", "driver.on_disk", "driver.nvml", "driver.cards", "driver.log"),
        *("cgroup.memory", "cgroup.cpu", "os.newest_kernel", "os.reboot", "driver.next"),
        *("driver.switches", "driver.fabric_version", "driver.libcuda", "disk.shm.df", "unknown"),
        *("os.container", "os.tegra", "os.board"),
    ]
)
# Text made of the pieces that readers look for, so that fuzzing goes deep and not only wide.
PIECES = st.lists(
    st.sampled_from(
        [
            *("\t", "\n", ",", " ", ":", "0", "9" * 30, "GPU0", "GPU1", "X", "NV18", "[N/A]"),
            *("CPU", "Affinity", "index", "name", "memory.total [MiB]", "12.0", "97887 MiB"),
            *("NVRM version: ", "Module", "595.58.03", "yes", "final", "cpython", "/usr/bin/p"),
            *("NVRM: Xid (PCI:0000:01:00): 119, x", "0100007F:1F90", "MemTotal:", "kB", "²", "٣"),
        ]
    ),
    max_size=30,
).map("".join)


def test_values_survive_the_wire_whatever_they_hold() -> None:
    sent = {
        "a": "one\ntwo\r\n\\n three\\",
        "b": "tab\there @@fact c 1 x",
        "c": "ünïcode ☃",
        "d": "",
    }
    got = decode(wire(sent))
    assert {key: got.values[key] for key in sent} == sent
    assert got.notes == ()


@given(st.dictionaries(st.from_regex(r"[a-z0-9_.]{1,20}", fullmatch=True), st.text(), max_size=8))
def test_any_text_survives_the_wire(sent: dict[str, str]) -> None:
    sent = {k: v.encode("utf-8", "replace").decode() for k, v in sent.items() if k != "end"}
    got = decode(wire(sent))
    assert {key: value for key, value in got.values.items() if key != "end"} == sent


def test_noise_before_between_and_behind_does_not_mix_in() -> None:
    lines = wire({"os.kernel": "6.1.0", "os.arch": "x86_64"}).splitlines(keepends=True)
    noisy = (
        b"Welcome!\n\x1b[1mprompt> " + lines[0] + b"motd\n" + lines[1] + b"\n" + lines[2] + b"bye"
    )
    got = decode(noisy)
    assert (got.one("os.kernel"), got.one("os.arch"), got.notes) == ("6.1.0", "x86_64", ())


def test_carriage_returns_of_a_terminal_are_no_part_of_a_value() -> None:
    assert decode(wire({"os.arch": "x86_64"}).replace(b"\n", b"\r\n")).one("os.arch") == "x86_64"


def test_a_damaged_line_is_dropped_and_noted() -> None:
    got = decode(wire({"os.kernel": "6.1.0"}).replace(b"6.1.0", b"6.1.0 you have mail"))
    assert got.one("os.kernel") is None
    assert got.notes == ("the answer to 'os.kernel' arrived damaged",)


def test_an_answer_cut_short_is_noted() -> None:
    cut = wire({"os.kernel": "6.1.0", "os.arch": "x86_64"}).split(b"@@fact end")[0]
    assert decode(cut).notes == ("the host's answer was cut short",)


def test_missing_answers_are_none_and_noted_and_unknown_ones_ignored() -> None:
    found = facts.parse(wire({"os.arch": "aarch64", "from.the.future": "x"}))
    assert found.system.arch == "aarch64"
    assert found.memory.total_bytes is None and found.pythons == ()
    assert "no answer to 'memory.info'" in found.notes
    assert not any("future" in note or "os.arch" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "number"),
    [("42", 42), (" 42\n", 42), ("-1", None), ("4 2", None), ("", None), ("²", None), ("٣", None)],
)
def test_only_a_number_alone_is_a_number(text: str, number: int | None) -> None:
    assert whole(text) == number


def test_a_number_too_long_to_be_true_is_none() -> None:
    assert whole("9" * 5000) is None


def test_versions() -> None:
    assert version_in("gcc 13.3.0 x") == "13.3.0"
    assert version_in("no dots 13") is None
    assert numbers("2.9") < numbers("2.34")


def _whole_story(text: bytes) -> None:
    found = facts.parse(text)
    json.dumps(facts.to_json(found))
    facttable.text(found)
    doctor.findings(found, 1.0)
    facts.python_for(found, ["3.11", "3.12"])


@given(st.binary(max_size=400))
def test_no_bytes_raise(text: bytes) -> None:
    _whole_story(text)


@given(st.dictionaries(KEYS, st.one_of(PIECES, st.text(max_size=60)), max_size=12))
def test_no_answers_raise(values: dict[str, str]) -> None:
    clean = {k: v.encode("utf-8", "replace").decode() for k, v in values.items()}
    _whole_story(wire(clean))
