"""System, processor, memory, disks, ports, clock."""

from pathlib import Path, PurePosixPath

import pytest

from firstlight.hosts import machine
from firstlight.hosts.machine import Clock, Listener
from tests.hosts_facts.wire import answers, plain


@pytest.fixture
def data(shared: Path) -> Path:
    return shared / "data/host-facts"


@pytest.mark.parametrize(
    ("file", "id_", "version", "family", "name"),
    [
        ("os-release_debian12", "debian", "12", "debian", "Debian GNU/Linux 12 (bookworm)"),
        ("os-release_ubuntu26.04", "ubuntu", "26.04", "debian", "Ubuntu 26.04 LTS"),
        ("os-release_rocky9.6", "rocky", "9.6", "fedora", "Rocky Linux 9.6 (Blue Onyx)"),
        ("os-release_fedora43", "fedora", "43", "fedora", None),
    ],
)
def test_recorded_os_release(
    data: Path, file: str, id_: str, version: str, family: str, name: str | None
) -> None:
    found = machine.read_system(answers(os__release=(data / file).read_text()))
    assert (found.id, found.version, found.family, found.name) == (id_, version, family, name)


def test_recorded_dgx_release_the_last_update_counts(data: Path) -> None:
    assert machine.read_dgx((data / "gb10_dgx-release.txt").read_text()) == "DGX Spark 7.5.0"


def test_dgx_release_without_quotes_and_without_an_update() -> None:
    assert machine.read_dgx("DGX_NAME=DGX Spark\nDGX_SWBUILD_VERSION=7.2.3\n") == "DGX Spark 7.2.3"
    assert machine.read_dgx("") is None
    twice = "DGX_OTA_VERSION=7.3.0\nDGX_OTA_VERSION=7.5.0\n"
    assert machine.read_dgx(twice) == "DGX 7.5.0"


@pytest.mark.parametrize(
    ("release", "board", "jetson"),
    [
        (
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
            "NVIDIA Jetson AGX Orin Developer Kit",
            "NVIDIA Jetson AGX Orin Developer Kit, L4T 36.4.3",
        ),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004", None, "Jetson, L4T 32.7.1"),
        ("something of tomorrow", "A board", "A board, L4T"),
        (None, "Raspberry Pi 5", None),
    ],
)
def test_jetson(release: str | None, board: str | None, jetson: str | None) -> None:
    assert machine.read_jetson(release, board) == jetson


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('ID="rocky"', "rocky"),
        ("ID='rocky'", "rocky"),
        ("ID=rocky  ", "rocky"),
        ('ID="a \\"b\\" \\$c"', 'a "b" $c'),
        ('ID=""', None),
        ("ID=", None),
        ('ID="', '"'),
    ],
)
def test_assignments(line: str, value: str | None) -> None:
    assert machine.assignments(line).get("ID") == value


def test_musl_is_no_glibc() -> None:
    assert machine.read_system(answers(os__glibc="musl 1.2.5")).glibc is None


def test_recorded_kernel_command_line(data: Path) -> None:
    text = (data / "rtxpro6000x8_cmdline.txt").read_text()
    kept = " ".join(word for word in text.split() if "iommu" in word)
    assert plain(os__cmdline=kept).system.boot_words == ("amd_iommu=off", "iommu=off")


def test_memory_and_the_smallest_ceiling() -> None:
    text = "max \n34359738368 \n9223372036854771712 \n68719476736 "
    found = plain(cgroup__memory=text, cgroup__version="2").memory
    assert (found.total_bytes, found.available_bytes) == (65536000 * 1024, 60000000 * 1024)
    assert (found.limit_bytes, found.cgroup_version, found.swap_bytes) == (32 * 2**30, 2, 0)


def test_no_ceiling_is_none() -> None:
    assert plain(cgroup__memory="max\nmax").memory.limit_bytes is None
    assert plain(cgroup__memory="9223372036854771712").memory.limit_bytes is None


def test_processor_quota() -> None:
    assert plain(cgroup__cpu="max 100000\n250000 100000\n400000 100000").cpu.quota_cores == 2.5
    assert plain(cgroup__cpu="-1  100000").cpu.quota_cores is None
    assert plain(cpu__sockets="0").cpu.sockets is None


def test_disk() -> None:
    found = plain(
        **{"disk__root__df": "1000 500 - btrfs /mnt/with a space"},
        **{"disk__root__options": "rw,nosuid,noexec", "disk__root__writable": "no"},
    ).disk_root
    assert found.path == PurePosixPath("/home/ada/.local/share/firstlight")
    assert (found.size_bytes, found.free_bytes, found.type) == (1000, 500, "btrfs")
    assert (found.free_inodes, found.noexec, found.writable) == (None, True, False)


def test_an_option_that_only_begins_like_noexec_is_not_it() -> None:
    assert plain(disk__tmp__options="rw,noexecfoo").disk_tmp.noexec is False


def test_listeners_of_both_families() -> None:
    four, six = "0100007F:1F90", "00000000000000000000000001000000:0016"
    found = plain(net__listening=f"{four}\n{six}\n{four}\njunk:12")
    assert found.listeners == (Listener(22, "::1"), Listener(8080, "127.0.0.1"))
    assert found.taken(8080) and not found.taken(8081)


def test_clock() -> None:
    assert plain(clock__now="1796027939.084321937 CEST +0200").clock == Clock(
        1796027939.084321937, "CEST", "+0200"
    )
    assert plain(clock__now="yesterday").clock == Clock()
