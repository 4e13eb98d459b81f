"""fatbin.py on what nvcc makes, on fatbins made here byte by byte, and on bytes that are none."""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from pathlib import Path

import elf_needs
import fatbin
import pytest
from fatbin import Entry, Malformed
from hypothesis import given
from hypothesis import strategies as st

from tests.remote import cuda

FLAGS = {"": 0, "a": 0x100000, "f": 0x200000}
PACKED = {"none": 0, "zstd": 0x8000, "lz4": 0x2000}


def container(entries: bytes, size: int | None = None) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries) if size is None else size) + entries


def entry(
    kind: int, arch: int, flags: int, payload: bytes, header: int = 64, size: int | None = None
) -> bytes:
    head = struct.pack("<HHIQ", kind, 0x101, header, len(payload) if size is None else size)
    head += struct.pack("<12xI8xQ", arch, flags)
    return head + bytes(max(0, header - len(head))) + payload


def listed(data: bytes) -> list[Entry]:
    return list(fatbin.entries(data, 0, len(data)))


def held(path: Path, section: str) -> Counter[tuple[str, str, bool]]:
    """What a file holds in one section: target, compression, and whether it is an empty cubin."""
    with elf_needs.mapped(path) as data:
        places = [s for s in elf_needs.read(data).sections if s.name == section]
        found = (e for s in places for e in fatbin.entries(data, s.offset, s.offset + s.size))
        return Counter((e.target, e.compression, e.empty) for e in found)


@pytest.mark.parametrize("target", ["sm_120", "sm_120a", "sm_120f", "sm_121a"])
def test_targets_of_one_card_are_told_apart(tmp_path: Path, target: str) -> None:
    made = cuda.library(tmp_path, *cuda.code(target))
    found = held(made, fatbin.LINKED)
    # The device link adds a cubin without any code, which is not what was compiled.
    assert found == {(target, "none", False): 1, (target, "none", True): 1}
    assert held(made, fatbin.RELOCATABLE) == Counter()


def test_ptx_alone_is_no_machine_code(tmp_path: Path) -> None:
    made = cuda.library(tmp_path, *cuda.code("compute_120"))
    assert held(made, fatbin.LINKED) == {("compute_120", "zstd", False): 1}


def test_what_is_not_compressed_is_read_the_same(tmp_path: Path) -> None:
    made = cuda.library(tmp_path, *cuda.code("sm_120a", "compute_120f"), "--no-compress")
    found = {key: count for key, count in held(made, fatbin.LINKED).items() if not key[2]}
    assert found == {("sm_120a", "none", False): 1, ("compute_120f", "none", False): 1}


def test_an_object_for_a_device_link_says_its_targets_elsewhere(tmp_path: Path) -> None:
    source, made = tmp_path / "k.cu", tmp_path / "k.o"
    source.write_text(cuda.KERNEL)
    cuda.call([cuda.nvcc(), "-c", "-rdc=true", *cuda.code("sm_120f"), "-o", made, source])
    assert {target for target, _, _ in held(made, fatbin.RELOCATABLE)} == {"sm_120f"}
    assert held(made, fatbin.LINKED) == Counter()


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    """Any row of containers with padding between them; PTX, for machine code must be an ELF."""
    rows, wanted = b"", []
    for _ in range(data.draw(st.integers(1, 4))):
        inside = b""
        for _ in range(data.draw(st.integers(0, 4))):
            arch = data.draw(st.integers(30, 999))
            suffix = data.draw(st.sampled_from(sorted(FLAGS)))
            packed = data.draw(st.sampled_from(sorted(PACKED)))
            payload = data.draw(st.binary(max_size=40))
            header = data.draw(st.sampled_from([48, 64, 80, 112]))
            inside += entry(1, arch, FLAGS[suffix] | PACKED[packed], payload, header)
            wanted.append(Entry("ptx", f"compute_{arch}{suffix}", packed, len(payload)))
        rows += container(inside) + bytes(-len(inside) % 8 + 8 * data.draw(st.integers(0, 3)))
    assert listed(rows) == wanted


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_read_or_refused(noise: bytes) -> None:
    for data in (noise, container(noise), container(entry(2, 120, 0, noise))):
        with contextlib.suppress(Malformed):
            listed(data)


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_wrong_byte_is_read_or_refused(at: int, value: int) -> None:
    data = bytearray(container(entry(1, 120, FLAGS["a"], b"ptx") + entry(1, 121, 0, b"more", 80)))
    data[at % len(data)] = value
    with contextlib.suppress(Malformed):
        listed(bytes(data))


ABSURD = [
    (container(b"", size=1 << 60), "says 1152921504606846976 bytes; 16 are left"),
    (container(entry(1, 120, 0, b"ptx", size=1 << 63)), "says 64 + 9223372036854775808 bytes"),
    (container(entry(1, 120, 0, b"ptx", header=0)), "says 0 + 3 bytes"),
    (container(b"\1\0" * 8), "the header of the entry at 16 is cut short"),
    (struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0), "a container at 0 says 0 bytes"),
    (container(entry(2, 120, 0, b"no ELF")), "the machine code at 80 is no cubin"),
    (container(entry(2, 120, 0, b"\x7fELF")), "the header of the cubin at 80 is cut short"),
    (bytes(64), "64 bytes for a fatbin, and none begins there"),
]


@pytest.mark.parametrize("data, told", ABSURD)
def test_what_is_no_fatbin_says_why(data: bytes, told: str) -> None:
    with pytest.raises(Malformed) as caught:
        listed(data)
    assert told in str(caught.value)


def test_a_cubin_with_an_absurd_table_is_refused() -> None:
    cubin = bytearray(b"\x7fELF" + bytes(60))
    struct.pack_into("<Q10xHH", cubin, 40, 1 << 40, 64, 9)
    with pytest.raises(Malformed, match="is cut short"):
        listed(container(entry(2, 120, 0, bytes(cubin))))


def test_places_outside_of_the_file_are_refused() -> None:
    with pytest.raises(Malformed, match="from 8 to 90 in a file of 16 bytes"):
        list(fatbin.entries(bytes(16), 8, 90))
