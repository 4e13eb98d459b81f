"""The launch room: who looks after a server on its host, and the scripts that start and stop it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from firstlight.core.command import Script
from firstlight.core.errors import HostError

Launcher = Literal["systemd-system", "systemd-user", "process"]
SudoKind = Literal["none", "passwordless", "password"]

FIRST_PAUSE_S = 1
LOG_BYTES = 50 * 2**20

# A user's own systemd is reached through its folder, which a shell without a login does not know.
CTL: Mapping[Launcher, str] = {
    "systemd-system": """\
units=/etc/systemd/system
ctl() { systemctl "$@"; }
""",
    "systemd-user": """\
export XDG_RUNTIME_DIR=/run/user/$EUID
units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
ctl() { systemctl --user "$@"; }
""",
}

# A user's unit writes its own log file: it is kept short here, and marked where this start begins.
_BEGIN = """\
log=$home/log
size=$(stat -c %s -- "$log" 2>/dev/null || echo 0)
[ "$size" -lt "$log_bytes" ] || mv -f -- "$log" "$log.1"
stat -c '%i.%W:%s' -- "$log" >"$home/begin" 2>/dev/null
for _ in $(seq 50); do [ -e "$XDG_RUNTIME_DIR/systemd/private" ] && break; sleep 0.1; done
"""

# A user's systemd makes a /tmp of its own only where the host lets the account have name spaces,
# and where it cannot it goes on without a word. So it is tried, with the very folder to be served.
_PRIVATE_TMP = """\
own_tmp=$units/$unit.d/own-tmp.conf
private=(-p PrivateUsers=yes -p PrivateTmp=yes)
if seen=$(timeout 20 systemd-run --user --quiet --wait --collect --pipe "${private[@]}" \
  stat -Lc %d:%i /tmp "$home" 2>/dev/null) &&
  [ "${seen%%$'\\n'*}" != "$(stat -Lc %d:%i /tmp)" ]; then
  mkdir -p -- "$units/$unit.d" || return
  printf '[Service]\\nPrivateUsers=yes\\nPrivateTmp=yes\\n' >"$own_tmp" || return
else
  rm -f -- "$own_tmp"
fi
"""

_START_UNIT = """\
[ -f "$home/unit" ] || { echo "no unit file in $home" >&2; return 1; }
if cmp -s -- "$home/unit" "$units/$unit" && ctl is-active --quiet "$unit"; then
  echo running
  return
fi
%s
mkdir -p -- "$units" && install -m 644 -- "$home/unit" "$units/$unit.new" &&
  mv -f -- "$units/$unit.new" "$units/$unit" && ctl daemon-reload || return
ctl reset-failed "$unit" 2>/dev/null
ctl enable --quiet "$unit" && ctl restart "$unit" && echo started
"""

# The unit may be that of another deployment by now, which is not ours to stop.
_STOP_UNIT = """\
cmp -s -- "$home/unit" "$units/$unit" || return 0
ctl disable --quiet "$unit"
ctl stop "$unit" || ! ctl is-active --quiet "$unit"
"""

# The programs are copied: what stops this server must be what started it. Half a program would
# stop nothing, and what is there already needs no room on a full disk.
_START_PROCESS = """\
for name in processes.sh serve.sh; do
  cmp -s -- "$lib/$name" "$home/$name" 2>/dev/null && continue
  cp -f -- "$lib/$name" "$home/$name.new" && mv -fT -- "$home/$name.new" "$home/$name" && continue
  rm -f -- "$home/$name.new"
  return 1
done
bash "$home/serve.sh" start "$home" "$restart" "$stop_s" "$pause_s" "$log_bytes" "$memory"
"""

_STOP_PROCESS = """\
[ -e "$home/serve.sh" ] || return 0
bash "$home/serve.sh" stop "$home" "$stop_s"
"""

_START: Mapping[Launcher, str] = {
    "systemd-system": CTL["systemd-system"] + _START_UNIT % "",
    "systemd-user": CTL["systemd-user"] + _START_UNIT % (_BEGIN + _PRIVATE_TMP),
    "process": _START_PROCESS,
}

_STOP: Mapping[Launcher, str] = {
    "systemd-system": CTL["systemd-system"] + _STOP_UNIT,
    "systemd-user": CTL["systemd-user"] + _STOP_UNIT,
    "process": _STOP_PROCESS,
}

_LINGER = """\
loginctl enable-linger "$1" || return
for _ in $(seq 100); do [ -e "/run/user/$(id -u "$1")/systemd/private" ] && return; sleep 0.1; done
echo "the service manager of $1 did not start" >&2
return 1
"""


@dataclass(frozen=True)
class Deployment:
    """One rendered server on a host: `home` holds launch.sh and, for systemd, unit.

    `lib` is the folder of serve.sh and processes.sh on the host. `sudo` says that we are not
    root there; it matters to a system unit alone. `stop_s` lies between SIGTERM and SIGKILL.
    `memory` is the ceiling in bytes, 0 for none; a unit has its own in its file.
    """

    profile: str
    home: PurePosixPath
    lib: PurePosixPath
    launcher: Launcher
    restart: Literal["no", "on-failure"] = "on-failure"
    stop_s: int = 60
    sudo: bool = False
    memory: int = 0

    @property
    def unit(self) -> str:
        """The unit's name; all deployments of a profile share it, for one of them runs."""
        return f"firstlight-{self.profile}.service"


@dataclass(frozen=True)
class Choice:
    """Who looks after the server, and why; `enable_linger` must be done first, by root."""

    launcher: Launcher
    reason: str
    enable_linger: bool = False


def choose_launcher(
    wanted: Literal["auto", "systemd", "process"],
    *,
    is_root: bool,
    systemd: bool,
    linger: bool,
    sudo: SudoKind,
    where: str = "",
) -> Choice:
    """The launcher for a host; raises HostError when systemd is wanted and cannot be had.

    `systemd` is True where it runs as the host's first process; `linger` where our own systemd
    runs also when we are not logged in.
    """
    if wanted == "process":
        return Choice("process", "the profile asks for it")
    if systemd and is_root:
        return Choice("systemd-system", "we are root and systemd runs")
    if systemd and linger:
        return Choice("systemd-user", "this account may linger: its services outlive a login")
    # Sudo asks even accounts for a password that may do nothing with it: `auto` does not count
    # on one, and nobody is asked in the middle of a deploy that needed no root.
    if systemd and (sudo == "passwordless" or (sudo == "password" and wanted == "systemd")):
        reason = "this account may use sudo, which lets its services outlive a login"
        return Choice("systemd-user", reason, enable_linger=True)
    lack = (
        "services of this account end with its login, and no sudo without a password changes that"
        if systemd
        else "systemd does not run there"
    )
    if wanted == "auto":
        return Choice("process", lack)
    remedy = "set `service.launcher: auto` or `process` in the profile"
    if systemd:
        remedy = f"let root run `loginctl enable-linger USER` there, or {remedy}"
    raise HostError(f"the profile wants systemd, but {lack}", where=where, remedy=remedy)


def enable_linger(user: str) -> Script:
    """Let the services of `user` run without a login, and wait until they can."""
    return Script(_LINGER, (user,), sudo=True)


def start(deployment: Deployment) -> Script:
    """Start the server and keep it up; prints `started`, or `running` if it does so already.

    A unit also starts again after a reboot, and replaces an earlier deployment of its profile,
    for which that one may take its time to stop; a process does neither.
    """
    return deployment_script(deployment, _START[deployment.launcher], may_need_root=True)


def stop(deployment: Deployment) -> Script:
    """Stop the server for good: SIGTERM, `stop_s` seconds later SIGKILL to all that it started.

    Ends with 0 as well when there is nothing to stop.
    """
    return deployment_script(deployment, _STOP[deployment.launcher], may_need_root=True)


def deployment_script(
    deployment: Deployment, text: str, *more: str, may_need_root: bool = False
) -> Script:
    """A script that knows a deployment's fields as variables; `more` arrives as $9, ${10}, ..."""
    head = "home=$1 unit=$2 lib=$3 restart=$4 stop_s=$5 pause_s=$6 log_bytes=$7 memory=$8\n"
    values = (
        *(deployment.home, deployment.unit, deployment.lib, deployment.restart),
        *(deployment.stop_s, FIRST_PAUSE_S, LOG_BYTES, deployment.memory),
    )
    root = may_need_root and deployment.launcher == "systemd-system" and deployment.sudo
    return Script(head + text, (*map(str, values), *more), sudo=root)
