"""What the doctor finds: each finding alone on an otherwise sound host."""

import pytest

from firstlight.hosts.doctor import findings
from firstlight.hosts.finding import Finding
from tests.hosts_facts.wire import plain, without

NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build"
GPU = {"driver__loaded": NVRM, "smi__rc": "0", "smi": "index, name, memory.total\n0, A, 9 MiB"}


def only(found: tuple[Finding, ...]) -> Finding:
    (finding,) = found
    return finding


def test_a_sound_host_has_no_findings() -> None:
    assert findings(plain(), 1796027940.0) == ()


@pytest.mark.parametrize(
    ("changed", "severity", "what", "fix"),
    [
        ({"os__glibc": "glibc 2.31"}, "error", "glibc 2.31 is too old", "Debian 12"),
        ({"os__arch": "riscv64"}, "error", "riscv64", "x86_64 or aarch64"),
        ({"os__reboot": "linux-image-amd64\nlibc6"}, "warning", "(for linux-image", "sudo reboot"),
        ({"os__reboot": ""}, "warning", "asks for a reboot", "sudo reboot"),
        ({"disk__tmp__options": "rw,noexec"}, "warning", "/tmp is mounted noexec", "TMPDIR"),
        ({"disk__tmp__df": "9 9 9 tmpfs /tmp"}, "warning", "9 B free on /tmp", "TMPDIR"),
        (
            {"disk__root__df": "9 90000000000 - 9p /mnt/c"},
            "warning",
            "is on 9p",
            "Linux file system",
        ),
        ({"disk__root__options": "noexec"}, "error", "/home/ada is mounted noexec", "`root`"),
        ({"disk__root__df": "9 1073741824 - xfs /"}, "warning", "only 1.0 GiB free", "`root`"),
        (
            {"disk__root__df": "90000000000 80000000000 12 ext4 /"},
            *("warning", "only 12 inodes", "delete"),
        ),
        ({"disk__root__writable": "no"}, "error", "may not write to /home/ada", "`root`"),
        ({"cgroup__memory": "1073741824"}, "warning", "1.0 GiB of memory allowed", "smaller"),
        (
            {"memory__info": "MemAvailable: 1048576 kB"},
            "warning",
            "1.0 GiB of memory avail",
            "stop",
        ),
        ({"systemd__linger": "no"}, "note", "ada does not linger", "enable-linger ada"),
        ({"os__tegra": "# R35 (release), REVISION: 4.1"}, "warning", "this Jetson", "JetPack 6"),
        ({"os__selinux": "1"}, "note", "SELinux is enforcing", "/home"),
        ({"tools": "cmake\t/usr/bin/cmake\t"}, "note", "cmake (/usr/bin/cmake)", "by hand"),
        (
            {**GPU, "os__newest_kernel": "6.1.0-41-amd64"},
            *("warning", "6.1.0-41-amd64 is installed for the next boot without", "dkms"),
        ),
        (
            {**GPU, "os__newest_kernel": "6.1.0-41-amd64", "driver__next": "610.43.02"},
            *("note", "brings driver 610.43.02, not 595.58.03", "smoke"),
        ),
        ({**GPU, "driver__switches": "0000:01:00.0"}, "error", "not running", "enable --now"),
        (
            {
                **GPU,
                **{"driver__switches": "a b", "driver__fabric_state": "active"},
                "driver__fabric_version": "Fabric Manager version is : 590.48.01",
            },
            *("error", "fabric manager 590.48.01 does not fit driver 595.58.03", "one version"),
        ),
        (
            {**GPU, "driver__log": "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."},
            *("warning", "Xid 79 for card 0000:01:00", "catalogue"),
        ),
        (
            {**GPU, "smi": "index, name, memory.total\n0, A, [Unknown Error]"},
            *("error", "GPU 0 (A) gives no memory figure; memory: Unknown Error", "nvidia-smi"),
        ),
        (
            {
                **GPU,
                "smi__version": "CUDA Version : 13.0",
                "toolkits": "/usr/local/cuda\t/usr/local/cuda\trelease 13.1, V13.1.115\t",
            },
            *("warning", "toolkit 13.1.115 at /usr/local/cuda is newer", "toolkit up to"),
        ),
        ({"smi": "No devices were found", "smi__rc": "6"}, "error", "finds no GPU", "dmesg"),
    ],
)
def test_one_thing_wrong(changed: dict[str, str], severity: str, what: str, fix: str) -> None:
    found = only(findings(plain(**changed)))
    assert found.severity == severity
    assert what in found.what and fix in found.fix


MIG = "index, name, uuid, memory.total, mig.mode.current\n0, A, GPU-a, 9 MiB, Enabled"


def test_a_card_in_mig_mode_without_a_slice() -> None:
    found = only(findings(plain(**{**GPU, "smi": MIG})))
    assert found.severity == "error" and "without a slice" in found.what and "-mig 0" in found.fix


def test_a_card_that_is_cut_into_slices() -> None:
    listed = "GPU 0: A (UUID: GPU-a)\n  MIG 2g.35gb     Device  0: (UUID: MIG-1)"
    found = only(findings(plain(**{**GPU, "smi": MIG, "smi__list": listed})))
    assert found.severity == "warning" and "(2g.35gb)" in found.what


def test_a_container_is_not_asked_for_what_is_its_machine_s() -> None:
    inside = {
        "os__container": "docker",
        "driver__switches": "0000:01:00.0",
        "os__newest_kernel": "6.1.0-41-amd64",
    }
    assert findings(plain(**{**GPU, **inside})) == ()


def test_a_session_that_takes_all_with_it_is_a_warning() -> None:
    host = plain(systemd__linger="no", systemd__kill_user="KillUserProcesses=yes")
    assert [finding.severity for finding in findings(host)] == ["warning", "note"]


def test_root_needs_no_linger() -> None:
    assert findings(plain(systemd__linger="no", user__uid="0")) == ()


@pytest.mark.parametrize(
    ("clock_s", "what"),
    [
        (1796027939.5 - 3600, "its clock is 1 h 00 min ahead of the controller's"),
        (1796027939.5 + 90, "its clock is 1 min 30 s behind the controller's"),
    ],
)
def test_clock_skew(clock_s: float, what: str) -> None:
    assert only(findings(plain(), clock_s)).what == what


def test_a_small_skew_is_none() -> None:
    assert findings(plain(), 1796027939.5 + 29) == ()


def test_a_missing_answer_is_a_note() -> None:
    assert only(findings(without("os.glibc"))) == Finding("note", "no answer to 'os.glibc'")


def test_the_gravest_comes_first() -> None:
    host = plain(systemd__linger="no", os__reboot="x", os__glibc="glibc 2.28")
    assert [f.severity for f in findings(host)] == ["error", "warning", "note"]
