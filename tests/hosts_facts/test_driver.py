"""The driver's parts and troubles, on recorded answers of real machines and on made ones."""

from pathlib import Path

import pytest

from firstlight.hosts import driver
from firstlight.hosts.driver import Driver, Xid, read_cuda, read_driver, read_kernel_side
from firstlight.hosts.drivertrouble import read_clients, troubles
from tests.hosts_facts.wire import answers

NVRM = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\nGCC version: 9.9"
)
DISK = "filename: /x/nvidia.ko\nversion:        {}\nlicense:        Dual MIT/GPL"


@pytest.fixture
def data(shared: Path) -> Path:
    return shared / "data/host-facts"


def healthy(version: str = "595.58.03", **changed: str) -> Driver:
    parts = {
        "driver__loaded": NVRM.format(version),
        "driver__on_disk": DISK.format(version),
        "driver__nvml": f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}",
        "driver__libcuda": f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}",
        "smi": "index, name\n0, A",
        "smi__rc": "0",
        "smi__version": "CUDA Version : 13.2",
    }
    return read_driver(answers(**{**parts, **changed}), 1)


@pytest.mark.parametrize(
    ("file", "version", "flavour"),
    [
        ("gb10_proc_driver_nvidia_version.txt", "580.126.09", "open"),
        ("proc_driver_nvidia_version_proprietary.txt", "515.76", "proprietary"),
    ],
)
def test_recorded_loaded_module(data: Path, file: str, version: str, flavour: str) -> None:
    assert driver.read_loaded((data / file).read_text()) == (version, flavour)


def test_recorded_module_on_disk(data: Path) -> None:
    text = (data / "modinfo_nvidia_open_580.82.09.txt").read_text()
    found = read_driver(answers(driver__on_disk=text), 0)
    assert (found.on_disk, found.flavour) == ("580.82.09", "open")
    assert found.consistent is None


@pytest.mark.parametrize(
    ("file", "kernel_side", "cuda"),
    [
        ("h200mig_590.48.01_smi-version.txt", "590.48.01", (13, 1)),
        ("l40s_595.80_smi-version.txt", "595.80", (13, 2)),
        ("rtx2080s_610.57.04_smi-version.txt", "610.57.04", (13, 3)),
        ("rtx4080s_fedora44_595.71.05_smi-version.txt", "595.71.05", (13, 2)),
        ("rtxpro6000x8_smi-q_first2.txt", "595.58.03", (13, 2)),
        ("gb10_smi_table.txt", "580.126.09", (13, 0)),
        ("rtx5090_rtx4090_mixed_smi_table.txt", "580.82.09", (13, 0)),
    ],
)
def test_recorded_versions_of_every_form(
    data: Path, file: str, kernel_side: str, cuda: tuple[int, int]
) -> None:
    text = (data / file).read_text()
    assert (read_kernel_side(text), read_cuda(text)) == (kernel_side, cuda)


def test_no_cuda_version_is_none() -> None:
    assert read_cuda("CUDA Version        : N/A") is None
    assert read_cuda('CUDA version : Deprecated, see "CUDA UMD version" instead') is None


@pytest.mark.parametrize(
    ("file", "library"),
    [("nvml_mismatch_rc18.txt", "550.144"), ("nvml_mismatch_570.txt", "570.124")],
)
def test_recorded_mismatch_is_a_problem_with_a_way_out(data: Path, file: str, library: str) -> None:
    text = (data / file).read_text()
    found = read_driver(
        answers(
            smi=text,
            smi__rc="18",
            driver__loaded=NVRM.format("550.120"),
            driver__on_disk=DISK.format("550.144.03"),
        ),
        0,
    )
    assert found.consistent is False and found.library == library
    (problem,) = found.problems
    assert problem.severity == "error"
    for version in ("550.120", "550.144.03", library):
        assert version in problem.what
    assert "reboot" in problem.fix and "rmmod" in problem.fix


def test_recorded_mismatch_is_known_by_its_words_alone(data: Path) -> None:
    text = (data / "nvml_mismatch_rc18.txt").read_text()
    assert read_driver(answers(smi=text), 0).consistent is False


@pytest.mark.parametrize(
    ("file", "rc", "what", "fix"),
    [
        ("smi_cannot_communicate.txt", 9, "module is not loaded", "modprobe"),
        ("smi_no_devices.txt", 6, "finds no GPU", "open kernel modules"),
        ("smi_no_devices.txt", 0, "finds no GPU", "Above-4G"),
    ],
)
def test_recorded_failures_of_nvidia_smi(
    data: Path, file: str, rc: int, what: str, fix: str
) -> None:
    (found,) = troubles((data / file).read_text(), rc)
    assert what in found.what and fix in found.fix


@pytest.mark.parametrize(
    ("text", "rc", "what"),
    [
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12, "libnvidia-ml"),
        ("", 124, "no answer in time"),
        ("", 137, "no answer in time"),
        ("", 15, "fallen off the bus"),
        ("Failed to initialize NVML: Insufficient Permissions", 4, "may not use"),
        ("Failed to initialize NVML: Unknown Error", 255, "container loses its GPUs"),
        ("Failed to initialize NVML: N/A", 255, "status 255: Failed to initialize"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", 17, "reach the"),
        ("NVIDIA-SMI has failed because you do not have suffient permissions.", 4, "may not use"),
        ("", 77, "status 77: no output"),
        ("Unable to determine the device handle for GPU0: GPU is lost.  Reboot", 15, "fallen off"),
        (
            "Unable to determine the device handle for GPU0: 0000:0b:00.0: Unknown Error\n"
            "No devices were found",
            6,
            "does not answer",
        ),
        ("0, A, [GPU requires reset]", 0, "must be reset"),
    ],
)
def test_other_failures(text: str, rc: int, what: str) -> None:
    (found,) = troubles(text, rc)
    assert what in found.what and found.fix


def test_a_good_answer_is_no_trouble() -> None:
    assert list(troubles("index, name\n0, NVIDIA H200", 0)) == []


def test_one_figure_that_is_withheld_is_no_refusal() -> None:
    assert list(troubles("index, name, memory.free\n0, A, [Insufficient Permissions]", 0)) == []


def test_parts_that_agree() -> None:
    found = healthy()
    assert found.consistent is True and found.problems == ()
    assert (found.flavour, found.cuda) == ("open", (13, 2))


def test_a_new_module_on_disk_wants_a_reboot() -> None:
    found = healthy(driver__on_disk=DISK.format("610.43.02"))
    assert found.consistent is False
    (problem,) = found.problems
    assert "loaded 595.58.03, on disk 610.43.02" in problem.what and "reboot" in problem.fix
    # Its libraries are still those of the module that is loaded: nothing is broken yet.
    assert problem.severity == "warning" and "the libraries of 610.43.02" in problem.fix


def test_new_libraries_beside_a_new_module_let_nothing_start() -> None:
    new = {
        "driver__on_disk": DISK.format("610.43.02"),
        "driver__nvml": "/x/libnvidia-ml.so.610.43.02",
    }
    (problem,) = healthy(**new).problems
    assert problem.severity == "error" and "rmmod" in problem.fix


def test_a_module_that_is_not_loaded_and_libraries_of_another() -> None:
    parts = {
        "driver__on_disk": DISK.format("580.95.05"),
        "driver__nvml": "/x/libnvidia-ml.so.595.80",
    }
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    first, second = read_driver(answers(smi=words, smi__rc="9", **parts), 0).problems
    assert "of one version, then `sudo modprobe nvidia`" in first.fix
    assert "module is not loaded" in second.what


def test_forward_compatibility_is_for_data_centre_cards() -> None:
    (problem,) = healthy(driver__libcuda="/usr/local/cuda/compat/libcuda.so.610.43.02").problems
    assert problem.severity == "warning" and "804" in problem.fix


def test_the_last_part_of_a_version_counts() -> None:
    assert healthy("570.124.04", driver__loaded=NVRM.format("570.124.06")).consistent is False


def test_foreign_libraries_are_told_from_a_pending_reboot() -> None:
    found = healthy(driver__libcuda="/usr/lib/libcuda.so.610.43.02")
    (problem,) = found.problems
    assert problem.severity == "error"
    assert "libraries are not those of 595.58.03" in problem.fix and "reboot" not in problem.fix


def test_a_library_without_a_version_in_its_name_says_nothing() -> None:
    found = healthy(driver__libcuda="/usr/lib/wsl/lib/libcuda.so.1")
    assert found.libcuda is None and found.consistent is True


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1",
        "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1",
        "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0a1b/libcuda.so.1.1",
    ],
)
def test_a_library_named_after_its_interface_says_nothing(path: str) -> None:
    found = healthy(driver__libcuda=path)
    assert found.libcuda is None and found.consistent is True and found.problems == ()


def test_wsl_has_no_module_and_its_driver_is_that_of_windows() -> None:
    said = "NVIDIA-SMI version  : 580.95.02\nDRIVER version      : 581.42\nCUDA Version : 13.0"
    found = read_driver(
        answers(
            smi="index, name, driver_version\n0, NVIDIA GeForce RTX 5090, 581.42",
            smi__rc="0",
            smi__version=said,
            driver__nvml="/usr/lib/wsl/lib/libnvidia-ml.so.1",
            driver__libcuda="/usr/lib/wsl/lib/libcuda.so.1.1",
            os__container="wsl",
        ),
        1,
    )
    assert (found.loaded, found.cuda, found.consistent) == ("581.42", (13, 0), None)
    assert found.problems == ()


def test_libraries_of_a_package_in_wsl_are_told_to_go() -> None:
    found = healthy("581.42", driver__libcuda="/x/libcuda.so.580.95.05", os__container="wsl")
    (problem,) = found.problems
    assert "remove those of packages" in problem.fix and "reboot" not in problem.fix


def test_the_list_of_cards_tells_a_version_that_nothing_else_tells() -> None:
    text = "index, name, driver_version\n0, Tesla T4, 470.256.02"
    assert read_driver(answers(smi=text, smi__rc="0"), 1).loaded == "470.256.02"


def test_a_container_with_libraries_of_another_driver_is_not_told_to_reboot() -> None:
    text = (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124"
    )
    loaded = NVRM.format("575.57.08")
    (problem,) = read_driver(
        answers(smi=text, smi__rc="18", driver__loaded=loaded, os__container="docker"), 0
    ).problems
    assert "start the container anew" in problem.fix and "reboot" not in problem.fix


def test_cards_that_a_container_is_not_given_are_worth_a_note() -> None:
    cards = "0000:01:00.0 nvidia\n0000:02:00.0 nvidia"
    (problem,) = healthy(driver__cards=cards, os__container="docker").problems
    assert problem.severity == "note" and "given no others" in problem.what


def test_cards_that_nouveau_holds() -> None:
    cards = "0000:01:00.0 nouveau\n0000:02:00.0 vfio-pci"
    found = read_driver(answers(driver__cards=cards), 0)
    assert (found.cards_on_bus, found.held_by) == (1, ("nouveau",))
    (problem,) = found.problems
    assert "nouveau holds NVIDIA cards" in problem.what and "blacklist nouveau" in problem.fix


def test_libraries_that_something_else_brought_are_no_driver_on_a_host_without_a_card() -> None:
    found = read_driver(answers(driver__nvml="/usr/lib/libnvidia-ml.so.550.163.01"), 0)
    assert found.problems == ()


def test_an_empty_nvidia_smi_is_no_sound_one() -> None:
    (problem,) = read_driver(answers(smi="", smi__rc="0"), 0).problems
    assert "lists no GPU" in problem.what and problem.fix


def test_a_container_without_libcuda_is_told_how_to_ask_for_it() -> None:
    (problem,) = healthy(smi__version="DRIVER version : 595.58.03\nCUDA Version : N/A").problems
    assert "no libcuda.so.1" in problem.what and "compute,utility" in problem.fix


def test_cards_that_the_driver_does_not_list() -> None:
    cards = "0000:01:00.0 nvidia\n0000:02:00.0 nvidia\n0000:03:00.0 vfio-pci"
    (problem,) = healthy(driver__cards=cards).problems
    assert problem.what == "2 NVIDIA cards on the bus, but the driver lists 1"


def test_cards_without_any_driver() -> None:
    (problem,) = read_driver(answers(driver__cards="0000:01:00.0 \n0000:02:00.0 "), 0).problems
    assert problem.what == "2 NVIDIA cards on the bus, but no driver"


def test_a_driver_without_nvidia_smi() -> None:
    (problem,) = read_driver(answers(driver__loaded=NVRM.format("595.80")), 0).problems
    assert "no nvidia-smi" in problem.what


def test_a_host_without_gpu_and_driver_has_no_problem() -> None:
    assert read_driver(answers(), 0) == Driver()


def test_recorded_kernel_log_xids(data: Path) -> None:
    text = (data / "dmesg_xid_gsp.txt").read_text()
    assert [(x.pci, x.number) for x in driver.read_xids(text)] == [
        ("0000:01:00", 119),
        ("0000:01:00", 8),
        ("0000:01:00", 154),
    ]
    assert "Timeout after 45s" in driver.read_xids(text)[0].text


def test_recorded_kernel_log_api_mismatch(data: Path) -> None:
    text = (data / "dmesg_api_mismatch.txt").read_text()
    assert read_clients(text) == ("470.129.06",)
    loaded = NVRM.format("470.103.01")
    (warned, _) = read_driver(answers(driver__log=text, driver__loaded=loaded), 0).problems[::-1]
    assert "470.129.06" in warned.what and "470.103.01" in warned.what


@pytest.mark.parametrize(
    "text",
    [
        "[1.0] NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)\n"
        "               NVRM: has the version 580.65.06, but this kernel module has\n"
        "               NVRM: the version 575.57.08.  Please make sure that this\n",
        "NVRM: API mismatch: the client 'gnome-shell' has the version 580.65.06,\n"
        "NVRM: but this kernel module has the version 575.57.08.",
    ],
)
def test_a_kernel_log_that_names_the_program(text: str) -> None:
    assert read_clients(text) == ("580.65.06",)


OPEN_ONLY = (
    "[    9.1] NVRM: The NVIDIA GPU 0000:{}:00.0 (PCI ID: 10de:2bb1)\n"
    "       NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
)


@pytest.mark.parametrize(
    ("log", "whats", "fix"),
    [
        (
            OPEN_ONLY.format("03") + OPEN_ONLY.format("04") + OPEN_ONLY.format("03"),
            [
                "card 0000:03:00.0 works with the open kernel modules only",
                "card 0000:04:00.0 works with the open kernel modules only",
            ],
            "nvidia-open",
        ),
        (
            "NVRM: The NVIDIA GPU 0000:3c:00.0 (PCI ID: 10de:2d04)\n"
            "      NVRM: installed in this system is not supported by the\n"
            "      NVRM: NVIDIA 555.58.02 driver release.\n",
            ["card 0000:3c:00.0 is not supported"],
            "570",
        ),
        (
            "NVRM: GPU 0000:04:00.0: RmInitAdapter failed! (0x62:0x40:2192)\n"
            "NVRM: GPU 0000:04:00.0: rm_init_adapter failed, device minor number 0\n",
            ["cannot start card 0000:04:00.0"],
            "off and on",
        ),
        (
            "[  77.1] NVRM: The NVIDIA GPU 0000:8b:00.0\n"
            "[  77.1] NVRM: (PCI ID: 10de:2bb5) installed in this system has\n"
            "[  77.1] NVRM: fallen off the bus and is not responding to commands.\n",
            ["card 0000:8b:00.0 has fallen off the bus"],
            "reseat",
        ),
        (
            "NVRM: GPU at 0000:04:00.0 has fallen off the bus.\n"
            "NVRM: GPU at PCI:0000:05:00: GPU-1\n"
            "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.\n",
            ["card 0000:04:00.0 has fallen off", "card 0000:05:00.0 has fallen off"],
            "reseat",
        ),
        (
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
            "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)\n",
            ["no place for its memory"],
            "Above-4G",
        ),
    ],
)
def test_why_a_card_is_missing_stands_in_the_kernel_s_log(
    log: str, whats: list[str], fix: str
) -> None:
    smi = {"smi": "No devices were found", "smi__rc": "6"}
    listed, *told = read_driver(answers(driver__log=log, **smi), 0).problems
    assert "finds no GPU" in listed.what
    assert [what in found.what for what, found in zip(whats, told, strict=True)] == [True] * len(
        told
    )
    assert all(found.severity == "error" and fix in found.fix for found in told)


def test_a_card_that_failed_once_and_works_now_is_no_trouble() -> None:
    log = "NVRM: GPU 0000:04:00.0: RmInitAdapter failed! (0x62:0x40:2192)"
    assert healthy(driver__log=log).problems == ()


def test_xid_of_a_slice_and_of_an_old_module() -> None:
    text = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 43, pid=1\nNVRM: Xid (0000:02:00): 13, x\n"
    assert [(x.pci, x.number) for x in driver.read_xids(text)] == [
        ("0000:01:00", 43),
        ("0000:02:00", 13),
    ]


def test_recorded_kernel_log_of_a_sound_host_has_no_fault(data: Path) -> None:
    text = (data / "rtxpro6000x8_dmesg_nvrm.txt").read_text()
    assert driver.read_xids(text) == () and read_clients(text) == ()


def test_xid_of_a_made_line() -> None:
    line = "[1.0] NVRM: Xid (PCI:0000:06:00): 79, pid='<unknown>', GPU has fallen off the bus."
    assert driver.read_xids(line) == (
        Xid("0000:06:00", 79, "pid='<unknown>', GPU has fallen off the bus."),
    )
