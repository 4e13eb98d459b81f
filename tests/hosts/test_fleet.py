"""The test hosts are what the other tests take them for."""

from __future__ import annotations

import socket
from pathlib import Path, PurePosixPath

import pytest

from tests.hosts import fleet
from tests.hosts.fleet import TestHost
from tests.hosts.site import Site

SHELLS = {
    "root": "bash",
    "zoe": "zsh",
    "finn": "fish",
    "bob": "bash",
    "nolin": "bash",
}


def test_gpu01_has_finished_its_boot(gpu01: TestHost) -> None:
    failed = fleet.run(gpu01, "systemctl list-units --failed --plain --no-legend").stdout
    state = fleet.run(gpu01, "systemctl is-system-running", check=False).stdout.strip()
    assert (state, failed) == ("running", "")


@pytest.mark.parametrize("user", SHELLS)
def test_each_user_logs_in_to_their_own_shell(gpu01: TestHost, user: str) -> None:
    asked = {"fish": "status fish-path", "zsh": "echo $ZSH_NAME", "bash": "echo $BASH"}
    shell = SHELLS[user]
    done = fleet.ssh(gpu01, f"id -un; {asked[shell]}", user)
    assert done.returncode == 0, done.stderr
    name, path = done.stdout.splitlines()[-2:]
    assert (name, path.rpartition("/")[2]) == (user, shell)


def test_zoe_is_noisy_before_every_command(gpu01: TestHost) -> None:
    assert fleet.ssh(gpu01, "true", "zoe").stdout == "zshenv of zoe speaks\n"


def test_three_kinds_of_sudo(gpu01: TestHost) -> None:
    assert fleet.ssh(gpu01, "sudo -n id -u", "zoe").stdout.splitlines()[-1] == "0"
    assert "a password is required" in fleet.ssh(gpu01, "sudo -n id -u", "finn").stderr
    right = fleet.run(gpu01, "sudo -S -p '' id -u", "finn", stdin="correct horse\n")
    assert right.stdout == "0\n"
    wrong = fleet.run(gpu01, "sudo -S -p '' id -u", "finn", stdin="wrong\n", check=False)
    assert wrong.returncode != 0
    refused = fleet.run(gpu01, "sudo -S -p '' id -u", "bob", stdin="x\n", check=False)
    assert refused.returncode != 0


def test_units_of_a_lingering_user_outlive_the_login(gpu01: TestHost) -> None:
    done = fleet.ssh(gpu01, "systemd-run --user --wait --pipe echo from a unit", "bob")
    assert (done.returncode, done.stdout) == (0, "from a unit\n"), done.stderr
    started = fleet.ssh(gpu01, "systemd-run --user --unit=stays sleep 600", "bob")
    assert started.returncode == 0, started.stderr
    assert fleet.ssh(gpu01, "systemctl --user is-active stays", "bob").stdout == "active\n"
    fleet.ssh(gpu01, "systemctl --user stop stays", "bob")
    shown = fleet.run(gpu01, "loginctl show-user bob --property Linger --value").stdout
    assert shown == "yes\n"
    assert not fleet.run(gpu01, "ls /var/lib/systemd/linger").stdout.count("nolin")


def test_a_host_has_no_way_out(gpu01: TestHost) -> None:
    assert "default" not in fleet.run(gpu01, "ip route").stdout
    done = fleet.run(gpu01, "bash -c '< /dev/tcp/192.0.2.1/80'", check=False)
    assert "Network is unreachable" in done.stderr


def test_passwords_are_not_taken(gpu01: TestHost) -> None:
    settings = fleet.run(gpu01, "sshd -T").stdout.splitlines()
    assert "passwordauthentication no" in settings
    assert "maxstartups 10:30:100" in settings


def test_each_host_has_its_own_keys(site: Site, gpu01: TestHost, bastion: TestHost) -> None:
    keys = {line.split()[2] for host in (gpu01, bastion) for line in host.known_hosts.splitlines()}
    assert len(keys) == len((gpu01.known_hosts + bastion.known_hosts).splitlines())
    swapped = bastion.known_hosts.replace(bastion.address, gpu01.address)
    impostor = TestHost(site, "gpu01", gpu01.address, gpu01.identity, swapped, gpu01.pid)
    done = fleet.ssh(impostor, "true")
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_gpu02_is_reached_through_the_bastion_alone(gpu02: TestHost) -> None:
    with pytest.raises(OSError, match="No route to host"):
        socket.create_connection((gpu02.address, 22), timeout=10)
    done = fleet.ssh(gpu02, "hostname", "nolin")
    assert (done.stdout, done.stderr) == ("gpu02\n", "")


def test_a_reboot_is_a_new_boot_of_the_same_tree(gpu01: TestHost) -> None:
    before = fleet.ssh(gpu01, "cat /proc/sys/kernel/random/boot_id; touch /root/kept").stdout
    fleet.reboot(gpu01)
    after = fleet.ssh(gpu01, "cat /proc/sys/kernel/random/boot_id; ls /root/kept")
    assert after.returncode == 0, after.stderr
    boot, kept = after.stdout.splitlines()
    assert (boot != before.strip(), kept) == (True, "/root/kept")


def test_a_pulled_cable_stops_everything_and_tells_nobody(gpu01: TestHost) -> None:
    fleet.link_down(gpu01)
    try:
        with pytest.raises(OSError):
            socket.create_connection((gpu01.address, 22), timeout=2)
        assert fleet.run(gpu01, "ip -brief address show eth0").stdout.count(gpu01.address) == 1
    finally:
        fleet.link_up(gpu01)
    assert fleet.ssh(gpu01, "true").returncode == 0


def test_cut_sessions_leave_sshd_and_the_programs(gpu01: TestHost, gpu01_user: str) -> None:
    with fleet.open_ssh(gpu01, "echo ready; exec sleep 601", gpu01_user) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "ready\n"
        fleet.kill_sshd_sessions(gpu01)
        assert session.wait(timeout=60) == 255
    assert fleet.run(gpu01, f"pgrep -u {gpu01_user} -f 'sleep 601'").returncode == 0
    assert fleet.ssh(gpu01, "true").returncode == 0


def test_a_user_and_a_folder_for_one_test(
    gpu01: TestHost, gpu01_user: str, gpu01_root: PurePosixPath
) -> None:
    done = fleet.ssh(gpu01, f"touch {gpu01_root}/mine && stat -c %U {gpu01_root}/mine", gpu01_user)
    assert done.stdout == f"{gpu01_user}\n"


def test_the_home_knows_every_host(ssh_home: Path, gpu01: TestHost, gpu02: TestHost) -> None:
    known = (ssh_home / ".ssh" / "known_hosts").read_text()
    assert gpu01.known_hosts in known
    assert gpu02.known_hosts in known
    assert (ssh_home / ".ssh" / "id_ed25519").stat().st_mode & 0o777 == 0o600
