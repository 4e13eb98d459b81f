"""The doctor: what about a host will stop us, may stop us, or is worth knowing, with the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firstlight.core.words import size, span
from firstlight.hosts.answers import numbers, same
from firstlight.hosts.facts import Facts
from firstlight.hosts.finding import Finding
from firstlight.hosts.machine import Disk, older

# The engine's wheels are built for manylinux_2_34.
GLIBC_NEEDED = "2.34"
# A release with its engine and torch is 3 to 8 GiB, and as much again while it is made.
DISK_NEEDED_BYTES = 20 * 2**30
# The engine alone takes 2 to 3 GiB before it has loaded any model.
MEMORY_NEEDED_BYTES = 6 * 2**30
# TLS and signatures bear minutes; readers of two logs do not bear more than this.
SKEW_ALLOWED_S = 30.0
# File systems of Windows and its shares: WSL's own disks are none of these.
_FOREIGN = ("9p", "v9fs", "drvfs", "vfat", "exfat", "ntfs", "ntfs3", "fuseblk", "cifs", "smb3")
_GRAVITY = {"error": 0, "warning": 1, "note": 2}


def findings(facts: Facts, controller_clock_s: float | None = None) -> tuple[Finding, ...]:
    """All that is wrong with a host, gravest first.

    `controller_clock_s` is the controller's own time when the answer came; None = no comparison.
    """
    found = [finding for check in CHECKS for finding in check(facts)]
    if controller_clock_s is not None:
        found += _clock(facts, controller_clock_s)
    return tuple(sorted(found, key=lambda finding: _GRAVITY[finding.severity]))


def _driver(facts: Facts) -> Iterator[Finding]:
    yield from facts.driver.problems
    for xid in facts.driver.xids[-3:]:
        what = f"the kernel logged Xid {xid.number} for card {xid.pci}: {xid.text[:120]}"
        yield Finding("warning", what, "look the number up in NVIDIA's Xid catalogue")
    if facts.system.jetson and not facts.gpus:
        what = "nothing lists the GPU of this Jetson"
        yield Finding("warning", what, "JetPack 6 and newer bring an nvidia-smi that does")
    for gpu in facts.gpus:
        if gpu.memory_mib is None:
            what = f"GPU {gpu.index} ({gpu.name or 'no name'}) gives no memory figure"
            yield Finding("error", "; ".join((what, *gpu.notes)), "does `nvidia-smi` work on it?")


def _slices(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.gpus:
        if gpu.mig and not gpu.mig_devices:
            what = f"GPU {gpu.index} is in MIG mode without a slice: CUDA finds nothing on it"
            fix = f"make slices, or `sudo nvidia-smi -i {gpu.index} -mig 0`"
            yield Finding("error", what, fix)
        elif gpu.mig:
            profiles = ", ".join(device.profile for device in gpu.mig_devices)
            what = f"GPU {gpu.index} is cut into MIG slices ({profiles}): a program gets only one"
            fix = "choose it by CUDA_VISIBLE_DEVICES in `env`; the slice's memory counts"
            yield Finding("warning", what, fix)


def _fabric(facts: Facts) -> Iterator[Finding]:
    driver = facts.driver
    if not driver.switches or facts.system.container:
        return
    if driver.fabric_state != "active":
        what = f"{driver.switches} NVSwitches, but the fabric manager is not running"
        yield Finding("error", what, "`sudo systemctl enable --now nvidia-fabricmanager`")
    version, loaded = driver.fabric_version, driver.loaded
    if version and loaded and not same(version, loaded):
        what = f"fabric manager {version} does not fit driver {loaded}"
        yield Finding("error", what, "install both of one version, then reboot")


def _kernel(facts: Facts) -> Iterator[Finding]:
    system, driver = facts.system, facts.driver
    if system.reboot_required:
        why = f" (for {', '.join(system.reboot_reasons[:6])})" if system.reboot_reasons else ""
        yield Finding(
            "warning", f"the system asks for a reboot{why}", "`sudo reboot` when it suits"
        )
    newest = system.newest_kernel
    # The kernels in a container's image are not what its machine boots.
    if not newest or newest == system.kernel or system.container:
        return
    if driver.loaded and not driver.next_kernel:
        what = f"kernel {newest} is installed for the next boot without an nvidia module"
        yield Finding("warning", what, "`dkms status`; build the module before you reboot")
    elif driver.loaded and driver.next_kernel and not same(driver.next_kernel, driver.loaded):
        what = f"the next boot, {newest}, brings driver {driver.next_kernel}, not {driver.loaded}"
        yield Finding("note", what, "check and smoke-test again after it")


def _platform(facts: Facts) -> Iterator[Finding]:
    glibc = facts.system.glibc
    if older(glibc, GLIBC_NEEDED):
        what = f"glibc {glibc} is too old: the engine needs {GLIBC_NEEDED}"
        fix = "use Debian 12, Ubuntu 22.04, Fedora 35, Rocky 9 or newer"
        yield Finding("error", what, fix)
    if facts.system.arch not in (None, "x86_64", "aarch64"):
        what = f"no engine is published for {facts.system.arch}"
        yield Finding("error", what, "use an x86_64 or aarch64 host")


def _disks(facts: Facts) -> Iterator[Finding]:
    root, tmp = facts.disk_root, facts.disk_tmp
    yield from _room(root)
    if root.writable is False:
        what = f"this user may not write to {root.near}, where {root.path} must be made"
        yield Finding("error", what, "give `root` of the host another value, or make it writable")
    if root.type in _FOREIGN:
        what = f"{root.near} is on {root.type}, where links, modes or locks may not hold"
        yield Finding("warning", what, "give `root` of the host a place on a Linux file system")
    if root.noexec:
        what = f"{root.near} is mounted noexec: no program in {root.path} can start"
        yield Finding("error", what, "give `root` of the host another value")
    if tmp.noexec:
        what = "/tmp is mounted noexec: compilers' and kernels' helpers there cannot start"
        yield Finding("warning", what, "set TMPDIR in `env` of the host to a folder that may")
    if tmp.free_bytes is not None and tmp.free_bytes < 2**30:
        what = f"only {size(tmp.free_bytes)} free on /tmp"
        yield Finding("warning", what, "clear it, or set TMPDIR in `env` of the host")


def _room(root: Disk) -> Iterator[Finding]:
    if root.free_bytes is not None and root.free_bytes < DISK_NEEDED_BYTES:
        what = (
            f"only {size(root.free_bytes)} free at {root.near}; {size(DISK_NEEDED_BYTES)} are safe"
        )
        yield Finding("warning", what, "clear it, or give `root` of the host another value")
    if root.free_inodes is not None and root.free_inodes < 100_000:
        what = f"only {root.free_inodes} inodes free at {root.near}"
        yield Finding("warning", what, "a release has some 50 000 files; delete small files")


def _memory(facts: Facts) -> Iterator[Finding]:
    memory = facts.memory
    for amount, what in (
        (memory.available_bytes, "available"),
        (memory.limit_bytes, "allowed by the cgroup"),
    ):
        if amount is not None and amount < MEMORY_NEEDED_BYTES:
            text = f"only {size(amount)} of memory {what}; {size(MEMORY_NEEDED_BYTES)} are safe"
            yield Finding("warning", text, "stop other programs, or take a smaller model")


def _account(facts: Facts) -> Iterator[Finding]:
    systemd, name = facts.systemd, facts.user.name or "USER"
    is_plain = facts.user.uid not in (None, 0)
    if systemd.is_init and is_plain and systemd.linger is False:
        what = f"user {name} does not linger: a user's service ends with the last session"
        yield Finding("note", what, f"`sudo loginctl enable-linger {name}`")
    if systemd.is_init and is_plain and systemd.kill_user_processes and not systemd.linger:
        what = "logind kills what a session started when it ends (KillUserProcesses=yes)"
        yield Finding("warning", what, f"`sudo loginctl enable-linger {name}`")
    home, root = facts.user.home, facts.disk_root.path
    if facts.system.selinux_enforcing and home and root and root.is_relative_to(home):
        what = "SELinux is enforcing: a system service may not start programs in a home"
        yield Finding("note", what, "use user services, or a `root` outside of /home")


def _tools(facts: Facts) -> Iterator[Finding]:
    pairs = [(tool.name, tool.path) for tool in facts.tools if tool.version is None]
    if facts.tools and pairs:
        what = "these programs are there but tell no version: "
        yield Finding("note", what + ", ".join(f"{n} ({p})" for n, p in pairs), "run one by hand")
    limit = facts.driver.cuda
    for cuda in facts.cudas:
        if limit and cuda.version and numbers(cuda.version)[:2] > limit:
            what = f"CUDA toolkit {cuda.version} at {cuda.path} is newer than the driver's"
            what += f" CUDA {limit[0]}.{limit[1]}: what it compiles at run time (PTX) will not load"
            yield Finding("warning", what, "use a toolkit up to the driver's, or renew the driver")


def _clock(facts: Facts, controller_clock_s: float) -> Iterator[Finding]:
    here = facts.clock.epoch_s
    if here is not None and abs(here - controller_clock_s) > SKEW_ALLOWED_S:
        side = "ahead of" if here > controller_clock_s else "behind"
        what = f"its clock is {span(abs(here - controller_clock_s))} {side} the controller's"
        yield Finding("warning", what, "`timedatectl` on both; `sudo timedatectl set-ntp true`")


def _transmission(facts: Facts) -> Iterator[Finding]:
    for note in facts.notes:
        yield Finding("note", note)


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _driver,
    _slices,
    _fabric,
    _kernel,
    _platform,
    _disks,
    _memory,
    _account,
    _tools,
    _transmission,
)
