"""The table of facts and the list of findings, letter by letter."""

from textwrap import dedent

import pytest

from firstlight.hosts.doctor import findings
from firstlight.hosts.facts import parse, to_json
from firstlight.hosts.facttable import findings_text, text
from tests.hosts_facts.wire import PLAIN, plain, wire

CARD = "NVIDIA RTX PRO 6000, GPU-{0}, 12.0, 97887 MiB, 5, 16, 595.58.03"
GPUS = {
    "smi": "index, name, uuid, compute_cap, memory.total [MiB], pcie.link.gen.max,"
    " pcie.link.width.max, driver_version\n"
    + "".join(f"{n}, {CARD.format(n)}\n" for n in range(4))
    + "4, NVIDIA GeForce RTX 4090, GPU-4, 8.9, 24564 MiB, 4, 16, 595.58.03",
    "smi.rc": "0",
    "smi.version": "CUDA Version        : 13.2",
    "smi.topo": "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNODE\t0-9\nGPU1\tNODE\tX\t0-9\n",
    "driver.loaded": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release",
    "driver.on_disk": "version: 595.58.03\nlicense: Dual MIT/GPL",
    "driver.nvml": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.595.58.03",
    "toolkits": "/usr/local/cuda\t/usr/local/cuda-13.0\trelease 13.0, V13.0.88\t",
    "cgroup.memory": "34359738368",
    "cpu.model": "AMD EPYC 9654",
    "cpu.flags": "avx512f avx2",
    "os.newest_kernel": "6.1.0-41-amd64",
    "driver.next": "595.58.03",
}


def test_a_host_with_gpus() -> None:
    assert text(parse(wire({**PLAIN, **GPUS}))) == dedent(
        """\
        system        Debian GNU/Linux, x86_64, glibc 2.36
        kernel        6.1.0-40-amd64, 6.1.0-41-amd64 at the next boot
        processor     16 usable cores, 1 socket, AMD EPYC 9654, avx2, avx512f
        memory        62.5 GiB, 57.2 GiB available, limited to 32.0 GiB
        root          /home/ada/.local/share/firstlight, not there yet, would be made in /home/ada, 465.7 GiB free, ext4
        /tmp          465.7 GiB free, ext4
        python        3.11.2  /usr/bin/python3.11
        tools         cc 12.2.0, git 2.39.5
        CUDA toolkit  13.0.88  /usr/local/cuda
        GPU           0-3: 4 x NVIDIA RTX PRO 6000, 97887 MiB, sm_120, PCIe 5 x16
                      4: NVIDIA GeForce RTX 4090, 24564 MiB, sm_89, PCIe 4 x16
        driver        595.58.03 loaded, 595.58.03 on disk, 595.58.03 libraries, open kernel modules, runs CUDA up to 13.2, all parts agree
        GPU links     NODE; no NVLink
        user          ada, uid 1000, shell /usr/bin/zsh, in ada video
        systemd       running, version 252, user manager running, lingers
        sudo          passwordless
        time zone     UTC +0000
        taken ports   22 8080"""  # noqa: E501
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"os__container": "wsl"}, "Debian GNU/Linux, inside of wsl, x86_64, glibc 2.36"),
        (
            {"os__tegra": "# R36 (release), REVISION: 4.3", "os__board": "NVIDIA Jetson Thor"},
            "Debian GNU/Linux, NVIDIA Jetson Thor, L4T 36.4.3, x86_64, glibc 2.36",
        ),
    ],
)
def test_what_kind_of_machine_it_is(said: dict[str, str], shown: str) -> None:
    assert text(plain(**said)).splitlines()[0].split(maxsplit=1)[1] == shown


def test_a_host_that_says_nothing() -> None:
    shown = text(parse(b""))
    assert shown.splitlines()[:3] == [
        "system       unknown",
        "kernel       unknown",
        "processor    ? usable cores",
    ]
    assert "note         the host's answer was cut short" in shown.splitlines()


def test_findings_with_their_fixes() -> None:
    host = plain(os__glibc="glibc 2.31", disk__tmp__options="noexec")
    assert findings_text(findings(host)) == dedent(
        """\
        error: glibc 2.31 is too old: the engine needs 2.34
          -> use Debian 12, Ubuntu 22.04, Fedora 35, Rocky 9 or newer
        warning: /tmp is mounted noexec: compilers' and kernels' helpers there cannot start
          -> set TMPDIR in `env` of the host to a folder that may"""
    )


def test_json_is_plain_and_names_its_units() -> None:
    data = to_json(parse(wire({**PLAIN, **GPUS})))
    assert data["memory"]["total_bytes"] == 65536000 * 1024
    assert data["disk_root"]["free_bytes"] == 500000000000
    assert data["disk_root"]["path"] == "/home/ada/.local/share/firstlight"
    assert data["gpus"][0]["memory_mib"] == 97887
    assert data["gpus"][0]["compute_capability"] == [12, 0]
    assert data["driver"]["consistent"] is True
    assert data["pythons"][0]["path"] == "/usr/bin/python3.11"
