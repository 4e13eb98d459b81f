"""The script itself, run on this machine; a GPU is played by recorded answers."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest

from firstlight.core.command import Script
from firstlight.effects.local import LocalShell
from firstlight.hosts.facts import Facts, parse
from firstlight.hosts.inventory import Host

PROGRAM = Path(__file__).parents[2] / "firstlight/remote/facts.sh"
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build\n"

# Plays nvidia-smi out of the folder it lies in: `query`, `list`, `version`, `topo`, `rc`.
SMI = """#!/bin/bash
here=${0%/*}
case $1 in
--query-gpu=*)
  [ ! -e "$here/refuses" ] || case $1 in *"$(cat "$here/refuses")"*)
    echo "Field \\"$(cat "$here/refuses")\\" is not a valid field to query."; exit 2 ;; esac
  echo "${1#*=}" >>"$here/asked"; cat "$here/query" ;;
-L) cat "$here/list" ;;
--version) [ ! -e "$here/old" ] || { echo "Invalid combination of input arguments."; exit 1; }
  cat "$here/version" ;;
"") cat "$here/table" ;;
topo) cat "$here/topo" ;;
esac
exit "$(cat "$here/rc" 2>/dev/null || echo 0)"
"""


def ask(root: str = "~/firstlight", **env: str) -> Facts:
    shell = LocalShell(Host(name="local"))
    done = shell.run(Script(PROGRAM.read_text(), (root,), env), timeout_s=90)
    assert done.rc == 0, done.error_text
    return parse(done.out)


@pytest.fixture(scope="module")
def here() -> Facts:
    return ask()


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    """A folder with an nvidia-smi that says what the test puts beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    for name in ("query", "list", "version", "topo"):
        (folder / name).write_text("")
    return folder


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A folder that stands before /proc/driver, /etc and /run."""
    folder = tmp_path / "system"
    for name in ("proc/driver/nvidia", "etc", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "proc/meminfo").write_text("MemTotal: 127600748 kB\nMemAvailable: 9 kB\n")
    return folder


def played(smi: Path, system: Path) -> Facts:
    path = f"{smi}:{os.environ['PATH']}"
    return ask(PATH=path, FIRSTLIGHT_FACTS_SYSROOT=str(system))


def test_it_is_sound_shell() -> None:
    subprocess.run(["bash", "-n", str(PROGRAM)], check=True)


def test_shellcheck_has_nothing_to_say() -> None:
    try:
        done = subprocess.run(["shellcheck", str(PROGRAM)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("shellcheck is not installed")
    assert done.returncode == 0, done.stdout


def test_what_python_knows_too(here: Facts) -> None:
    uname = platform.uname()
    assert (here.system.kernel, here.system.arch) == (uname.release, uname.machine)
    assert here.cpu.usable == len(os.sched_getaffinity(0))
    assert here.memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert here.user.uid == os.getuid()
    assert here.user.home == PurePosixPath(Path.home())
    assert here.system.glibc == platform.libc_ver()[1]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert here.system.boot_id == boot
    assert here.system.id == platform.freedesktop_os_release()["ID"]


def test_nothing_is_unanswered(here: Facts) -> None:
    assert here.notes == ()


def test_this_interpreter_is_found_by_its_real_path(here: Facts) -> None:
    mine = Path(sys.executable).resolve()
    found = [python for python in here.pythons if Path(python.path) == mine]
    assert [python.version for python in found] == [platform.python_version()]
    assert found[0].implementation == sys.implementation.name


def test_no_interpreter_of_a_virtual_environment_and_none_twice(here: Facts) -> None:
    paths = [Path(python.path) for python in here.pythons]
    assert len(paths) == len({path.resolve() for path in paths})
    assert not [path for path in paths if (path.parents[1] / "pyvenv.cfg").exists()]


def test_the_root_is_expanded_and_its_nearest_parent_found() -> None:
    found = ask("~/no such folder/firstlight").disk_root
    home = PurePosixPath(Path.home())
    assert found.path == home / "no such folder/firstlight"
    assert found.near == home and found.free_bytes and found.type
    assert found.writable == os.access(Path.home(), os.W_OK)


@pytest.mark.parametrize("root", ["/a 'b' \"c\" $HOME `id` \\ *", "/tmp/new\nline", "/"])
def test_odd_roots_come_back_as_they_are(root: str) -> None:
    assert str(ask(root).disk_root.path) == root


def test_a_taken_port_is_seen() -> None:
    with contextlib.ExitStack() as open_ones:
        servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        for server in servers:
            open_ones.enter_context(server)
        ports = [server.getsockname()[1] for server in servers]
        assert all(map(ask().taken, ports))
    # Another program of this machine may be given one of them at once, hardly all three.
    assert not all(map(ask().taken, ports))


def test_a_taken_port_is_seen_without_awk(tmp_path: Path) -> None:
    (tmp_path / "awk").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "awk").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = f"{tmp_path}:{os.environ['PATH']}"
        assert ask(PATH=path).taken(server.getsockname()[1])


def test_the_clock_is_that_of_the_end() -> None:
    before = time.time()
    epoch = ask().clock.epoch_s
    assert epoch is not None and before <= epoch <= time.time()


def test_tools_tell_their_versions(here: Facts) -> None:
    git = here.tool("git")
    assert git is not None and git.version
    said = subprocess.run([git.path, "--version"], capture_output=True, text=True).stdout
    assert git.version in said


def test_omp_settings_do_not_change_the_number_of_cores() -> None:
    assert ask(OMP_NUM_THREADS="1").cpu.usable == len(os.sched_getaffinity(0))


def test_nothing_is_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ask(HOME=str(home), TMPDIR=str(home))
    assert list(home.iterdir()) == []


def test_a_broken_tool_and_a_script_named_python_do_no_harm(tmp_path: Path) -> None:
    for name, text in {
        "cmake": "#!/bin/sh\necho Traceback; exit 1\n",
        "python3.12": "#!/bin/sh\necho 3.12.99\n",
        "ninja": "#!/bin/sh\ncat\n",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    found = ask(PATH=f"{tmp_path}:{os.environ['PATH']}")
    cmake = found.tool("cmake")
    assert cmake is not None and cmake.version is None
    assert not [python for python in found.pythons if tmp_path in Path(python.path).parents]


def test_a_pyenv_version_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".pyenv/versions/3.99.0/bin"
    folder.mkdir(parents=True)
    (folder / "python3.11").symlink_to(Path(sys.executable).resolve())
    found = ask(HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert Path(sys.executable).resolve() in [Path(python.path) for python in found.pythons]


def test_recorded_reboot_required(system: Path) -> None:
    (system / "run/reboot-required").touch()
    (system / "run/reboot-required.pkgs").write_text("linux-image-6.1\nlibc6\n")
    found = ask(FIRSTLIGHT_FACTS_SYSROOT=str(system)).system
    assert found.reboot_required and found.reboot_reasons == ("linux-image-6.1", "libc6")


def test_recorded_dgx_release_keeps_its_serial_number(shared: Path, system: Path) -> None:
    text = (shared / "data/host-facts/gb10_dgx-release.txt").read_text()
    (system / "etc/dgx-release").write_text(text)
    shell = LocalShell(Host(name="local"))
    env = {"FIRSTLIGHT_FACTS_SYSROOT": str(system)}
    out = shell.run(Script(PROGRAM.read_text(), ("/",), env)).out
    assert parse(out).system.dgx == "DGX Spark 7.5.0"
    assert b"1000000000001" not in out


def test_recorded_eight_cards_through_the_script(shared: Path, smi: Path, system: Path) -> None:
    data = shared / "data/host-facts"
    (smi / "query").write_text((data / "rtxpro6000x8_query_derived.csv").read_text())
    (smi / "topo").write_text((data / "rtxpro6000x8_topo-m.txt").read_text())
    (smi / "version").write_text((data / "l40s_595.80_smi-version.txt").read_text())
    (system / "proc/driver/nvidia/version").write_text(OPEN_MODULE)
    found = played(smi, system)
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert found.topology.links["GPU0"]["GPU1"] == "PIX"
    assert (found.driver.loaded, found.driver.flavour) == ("595.58.03", "open")
    assert found.driver.cuda == (13, 2) and found.driver.problems == ()


def test_recorded_gb10_through_the_script(shared: Path, smi: Path, system: Path) -> None:
    data = shared / "data/host-facts"
    (smi / "query").write_text((data / "gb10_query.csv").read_text())
    loaded = (data / "gb10_proc_driver_nvidia_version.txt").read_text()
    (system / "proc/driver/nvidia/version").write_text(loaded)
    (gpu,) = played(smi, system).gpus
    assert (gpu.memory_mib, gpu.memory_is_system) == (127600748 // 1024, True)


def test_recorded_mismatch_through_the_script(shared: Path, smi: Path, system: Path) -> None:
    text = (shared / "data/host-facts/nvml_mismatch_rc18.txt").read_text()
    for name in ("query", "list", "version", "topo"):
        (smi / name).write_text(text)
    (smi / "rc").write_text("18")
    (system / "proc/driver/nvidia/version").write_text(OPEN_MODULE)
    found = played(smi, system)
    assert found.gpus == () and found.driver.consistent is False
    (problem,) = found.driver.problems
    assert "595.58.03" in problem.what and "550.144" in problem.what


def test_recorded_mig_through_the_script(shared: Path, smi: Path, system: Path) -> None:
    data = shared / "data/host-facts"
    (smi / "query").write_text((data / "h200mig_590.48.01_query-gpu_all.csv").read_text())
    (smi / "list").write_text((data / "h200mig_590.48.01_list.txt").read_text())
    (gpu,) = played(smi, system).gpus
    assert gpu.mig and len(gpu.mig_devices) == 5


def test_recorded_table_of_a_driver_that_knows_no_version_flag(
    shared: Path, smi: Path, system: Path
) -> None:
    text = (shared / "data/host-facts/rtx5090_rtx4090_mixed_smi_table.txt").read_text()
    (smi / "table").write_text(text)
    (smi / "old").touch()
    found = played(smi, system).driver
    assert (found.loaded, found.cuda) == ("580.82.09", (13, 0))


def test_recorded_jetson_tells_its_board(system: Path) -> None:
    (system / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.3, GCID: 1\n")
    (system / "proc/device-tree").mkdir()
    (system / "proc/device-tree/model").write_bytes(b"NVIDIA Jetson Orin Nano\0")
    found = ask(FIRSTLIGHT_FACTS_SYSROOT=str(system)).system
    assert found.jetson == "NVIDIA Jetson Orin Nano, L4T 36.4.3"


@pytest.mark.parametrize(
    ("left", "kind"),
    [
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
        ("run/secrets/kubernetes.io", "kubernetes"),
        ("etc/nothing", None),
    ],
)
def test_recorded_container_without_systemd(
    tmp_path: Path, system: Path, left: str, kind: str | None
) -> None:
    (system / left).parent.mkdir(exist_ok=True)
    (system / left).touch()
    # This machine may be a container itself, and then systemd would say so.
    (tmp_path / "systemd-detect-virt").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "systemd-detect-virt").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert ask(PATH=path, FIRSTLIGHT_FACTS_SYSROOT=str(system)).system.container == kind


@pytest.mark.parametrize("field", ["compute_cap", "index", "persistence_mode", "mig.mode.current"])
def test_recorded_refusal_of_a_field_is_asked_again_without_it(
    smi: Path, system: Path, field: str
) -> None:
    (smi / "refuses").write_text(field)
    (smi / "query").write_text("name, memory.total [MiB]\nTesla T4, 15109 MiB\n")
    (gpu,) = played(smi, system).gpus
    assert (gpu.index, gpu.name, gpu.memory_mib) == (0, "Tesla T4", 15109)
    asked = (smi / "asked").read_text().strip().split(",")
    assert field not in asked and len(asked) == 12 and all(asked)


@pytest.mark.slow
def test_a_driver_that_hangs_for_good_costs_a_limited_time(smi: Path, system: Path) -> None:
    pids = smi / "pids"
    hangs = (
        f"#!{sys.executable}\nimport os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)\n"
    )
    (smi / "nvidia-smi").write_text(hangs)
    try:
        # Were there no limit, `ask` would give up before nvidia-smi does.
        found = played(smi, system)
    finally:
        for pid in pids.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    (problem,) = found.driver.problems
    assert "no answer in time" in problem.what
    assert found.clock.epoch_s is not None and found.pythons
