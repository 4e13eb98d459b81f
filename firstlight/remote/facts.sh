#!/usr/bin/env bash
# Facts of this host: read-only, one round trip, bash 4 or newer. $1 = firstlight's root, which may start with ~/.
# One answer a line: `@@fact KEY LENGTH VALUE`. In VALUE a backslash, a newline and a carriage return stand as \\ \n \r;
# LENGTH counts its bytes before that, so that an answer which a shell's noise has damaged is told from a whole one.
# Slow questions start at once in the background and are collected at the end; a tool that is missing is no answer.
# FIRSTLIGHT_FACTS_SYSROOT (empty on a real host) stands before the paths of most files: tests put recordings there.
export LC_ALL=C
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin
PATH=$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/lib/wsl/lib:/run/current-system/sw/bin
export PATH
shopt -u patsub_replacement 2>/dev/null # bash 5.2 would read & in a replacement
shopt -u failglob nullglob
sys=${FIRSTLIGHT_FACTS_SYSROOT:-}
told=0
deadline=$((SECONDS + 45))
declare -A waiting=()

fact() { # KEY VALUE
  local value=${2:0:60000} length
  length=${#value}
  value=${value//$'\\'/$'\\\\'}
  value=${value//$'\n'/$'\\n'}
  value=${value//$'\r'/$'\\r'}
  printf '@@fact %s %d %s\n' "$1" "$length" "$value"
  told=$((told + 1))
}
told_if() { [ -n "$2" ] && fact "$1" "$2"; }                     # KEY VALUE
ask() { told_if "$1" "$("${@:2}" 2>/dev/null </dev/null)"; }      # KEY COMMAND...
copy() { [ -r "$2" ] && told_if "$1" "$(cat -- "$2" 2>/dev/null)"; } # KEY FILE
have() { type -P "$1" >/dev/null; }

later() { # KEY COMMAND...: start it now
  local stream
  exec {stream}< <(
    "${@:2}" </dev/null 2>/dev/null
    printf '\nrc %d' "$?"
  )
  waiting[$1]=$stream
}
collect() { # KEY: its output, and as KEY.rc its exit status; never waits for a program that nothing can end
  local text='' stream=${waiting[$1]:-}
  [ -n "$stream" ] || return
  IFS= read -r -d '' -t "$((SECONDS < deadline ? deadline - SECONDS : 1))" text <&"$stream"
  case $text in
    *$'\nrc '*) fact "$1" "${text%$'\nrc '*}" && fact "$1.rc" "${text##*$'\nrc '}" ;;
    *) fact "$1" "$text" && fact "$1.rc" 124 ;;
  esac
}

# --- slow questions -------------------------------------------------------------------------------------------------

# Without persistence mode the first question starts every card, which takes seconds for each.
smi() { timeout -k 3 40 nvidia-smi "$@" 2>&1; }
smi_cards() { # a driver that does not know a field names it and refuses: ask again without
  local fields=index,name,uuid,driver_version,compute_cap,memory.total,memory.free,pci.bus_id,pcie.link.gen.max
  local text='' rc=0 unknown _
  fields=$fields,pcie.link.width.max,vbios_version,mig.mode.current,persistence_mode
  for _ in 1 2 3 4 5; do
    text=$(smi --query-gpu="$fields" --format=csv)
    rc=$?
    case $text in *'Field "'*'" is not a valid field'*) ;; *) break ;; esac
    unknown=${text#*Field \"}
    fields=,$fields,
    fields=${fields/",${unknown%%\"*},"/,}
    fields=${fields#,}
    fields=${fields%,}
  done
  printf '%s' "$text"
  return "$rc"
}
smi_version() { # an older one knows no --version, and says the same above its table
  local text rc
  text=$(smi --version)
  rc=$?
  case $rc,$text in
    124,* | 137,* | *CUDA* | *NVML*) ;;
    *)
      text=$(smi)
      rc=$?
      ;;
  esac
  printf '%s' "${text%%|====*}"
  return "$rc"
}
python_probe='
import os, sys
from importlib.util import find_spec
def has(name):
    try:
        return find_spec(name) is not None
    except Exception:
        return False
v = sys.version_info
flags = getattr(sys, "abiflags", "")
lacks = [n for n in ("_bz2", "_ctypes", "_hashlib", "_lzma", "_sqlite3", "_ssl", "zlib") if not has(n)]
header = os.path.join(sys.base_prefix, "include", "python%d.%d%s" % (v[0], v[1], flags), "Python.h")
print("\t".join([
    "%d.%d.%d" % v[:3], v[3], sys.implementation.name, flags, "64" if sys.maxsize > 2**32 else "32",
    "yes" if has("venv") and has("ensurepip") else "no", "yes" if os.path.exists(header) else "no",
    ",".join(lacks), os.path.realpath(sys.executable)]))
'
python_folders() {
  local folder IFS=:
  for folder in $PATH; do printf '%s\n' "$folder"; done
  IFS=$' \t\n'
  printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin /opt/python*/bin /opt/python/*/bin /usr/local/python*/bin \
    "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/*/bin "$HOME"/.local/share/mise/installs/python/*/bin \
    "$HOME"/.asdf/installs/python/*/bin "$HOME"/{miniconda3,miniforge3,anaconda3}/bin \
    /opt/{conda,miniconda3,miniforge3}/bin
}
python_files() {
  local folder path
  while IFS= read -r folder; do
    for path in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
      [ -x "$path" ] && [ -f "$path" ] && readlink -f -- "$path"
    done
  done < <(python_folders)
}
pythons() { # each interpreter once; not those of virtual environments, and no wrapper that is a script
  local path head
  while IFS= read -r path; do
    IFS= read -r -n 2 -d '' head <"$path"
    [ "$head" = '#!' ] || [ -e "${path%/bin/*}/pyvenv.cfg" ] && continue
    { timeout 10 "$path" -I -S -c "$python_probe" 2>/dev/null || printf 'broken\t%s\n' "$path"; } &
  done < <(python_files | sort -u)
  wait
}
tools() {
  local name path
  for name in cc c++ gcc g++ clang cmake ninja make patch git rsync curl uv ccache tar zstd docker podman nvidia-ctk; do
    path=$(type -P "$name") || continue
    { printf '%s\t%s\t%s\n' "$name" "$path" "$(timeout 5 "$path" --version 2>/dev/null | head -n 1)"; } &
  done
  wait
}
toolkits() { # the one that CUDA_HOME names comes first
  local folder nvcc
  nvcc=$(readlink -f -- "$(type -P nvcc)")
  nvcc=${nvcc%/bin/nvcc}
  [ -d "$nvcc/nvvm" ] || nvcc='' # a wrapper script somewhere on PATH is no toolkit
  for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-* /opt/cuda /opt/cuda-* "$nvcc"; do
    if [ ! -x "$folder/bin/nvcc" ] && [ ! -r "$folder/version.json" ]; then continue; fi
    printf '%s\t%s\t%s\t%s\n' "$folder" "$(readlink -f -- "$folder")" \
      "$(timeout 10 "$folder/bin/nvcc" --version 2>/dev/null | tr '\n\t' '  ')" \
      "$(tr -d '\n\t' <"$folder/version.json" 2>/dev/null)"
  done
}
sudo_kind() { # where a mailer is, `sudo -n` that needs a password mails the administrator; sudo 1.9.17 lists without
  local version
  have sudo || return 127
  version=$(sudo -V 2>/dev/null | head -n 1)
  printf '%s\n' "$version"
  if [ ! -x /usr/sbin/sendmail ] || [[ $version == *sudo-rs* ]]; then
    timeout 10 sudo -k -n true 2>&1
  elif [ "$(printf '1.9.17\n%s\n' "${version##* }" | sort -V | head -n 1)" = 1.9.17 ]; then
    timeout 10 sudo -k -n -l 2>&1
  else
    printf 'not asked: sudo would mail the administrator\n'
  fi
}
user_manager() { XDG_RUNTIME_DIR=/run/user/$(id -u) timeout 5 systemctl --user is-system-running; }

[ "$(id -u)" = 0 ] || later sudo sudo_kind
if have nvidia-smi; then
  later smi smi_cards
  later smi.topo smi topo -m
  later smi.version smi_version
  later smi.list smi -L
fi
later pythons pythons
later tools tools
later toolkits toolkits
have systemctl && later systemd.user user_manager

# --- the machine ----------------------------------------------------------------------------------------------------

listening() { # no awk: that none listens must not be said because a tool is missing
  local at state _
  while read -r _ at _ state _; do
    [ "$state" = 0A ] && printf '%s\n' "$at"
  done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
}
newest_kernel() {
  local folder
  for folder in "$sys"/lib/modules/*/; do
    [ -e "$folder/modules.dep" ] && basename -- "$folder"
  done | sort -V | tail -n 1
}
boot_words() { grep -oE '[^ ]*(iommu|nvidia|pcie_acs|pci=|hugepages)[^ ]*' "$sys/proc/cmdline"; }
sockets() { cat /sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id | sort -u | wc -l; }
flags() {
  grep -m 1 -E '^(flags|Features)' /proc/cpuinfo |
    grep -owE 'avx2|avx512f|avx512_bf16|amx_(tile|bf16|int8)|sve2?|asimd|bf16|i8mm'
}
model() { sed -n 's/^model name[[:space:]]*: *//p' /proc/cpuinfo | head -n 1; }
# Not the whole file: it holds the machine's serial number.
dgx() { grep -E '^DGX_(NAME|SWBUILD_VERSION|OTA_VERSION)=' "$sys/etc/dgx-release"; }
container() { # without systemd's own answer: what engines leave in the containers that they make
  local kind
  kind=$(systemd-detect-virt -c) || case $(uname -r) in *[Mm]icrosoft*) kind=wsl ;; esac
  if [ "${kind:-none}" != none ]; then
    printf '%s' "$kind"
  elif [ -e "$sys/run/.containerenv" ]; then
    printf podman
  elif [ -e "$sys/.dockerenv" ]; then
    printf docker
  elif [ -e "$sys/run/secrets/kubernetes.io" ]; then
    printf kubernetes
  fi
}
board() { tr -d '\0' <"$sys/proc/device-tree/model"; }
upwards() { # FOLDER PATH FILE: the file's text in this group and in every group above it
  local group=${2%/}
  while :; do
    [ -r "$1$group/$3" ] && tr '\n' ' ' <"$1$group/$3" && echo
    [ -n "$group" ] || break
    group=${group%/*}
  done
}
old_quotas() { paste -d ' ' <(upwards "$1" "$2" cpu.cfs_quota_us) <(upwards "$1" "$2" cpu.cfs_period_us); }
own_group() { sed -n "s/^[0-9]*:$1:\\(\\/.*\\)/\\1/p" /proc/self/cgroup | head -n 1; } # CONTROLLERS, a pattern
cgroups() {
  local top=/sys/fs/cgroup
  if [ -e "$top/cgroup.controllers" ]; then
    fact cgroup.version 2
    ask cgroup.memory upwards "$top" "$(own_group '')" memory.max
    ask cgroup.cpu upwards "$top" "$(own_group '')" cpu.max
  elif [ -d "$top/memory" ]; then
    fact cgroup.version 1
    ask cgroup.memory upwards "$top/memory" "$(own_group '.*memory.*')" memory.limit_in_bytes
    ask cgroup.cpu old_quotas "$top/cpu" "$(own_group '\(.*,\)\{0,1\}cpu\(,.*\)\{0,1\}')"
  fi
}
disk() { # KEY PATH: where it would be made, on which file system
  local near=$2
  while [ -n "$near" ] && [ ! -e "$near" ]; do near=${near%/*}; done
  near=${near:-/}
  fact "$1.path" "$2"
  fact "$1.near" "$near"
  if [ -w "$near" ] && [ -x "$near" ]; then fact "$1.writable" yes; else fact "$1.writable" no; fi
  told_if "$1.df" "$(timeout 5 df -B1 --output=size,avail,iavail,fstype,target -- "$near" 2>/dev/null | tail -n 1)"
  told_if "$1.options" "$(timeout 5 findmnt -n -o OPTIONS -T "$near" 2>/dev/null | tail -n 1)"
}
root=${1:-$HOME/.local/share/firstlight}
# shellcheck disable=SC2088 # the tilde arrives unexpanded, as text
case $root in "~/"*) root=$HOME/${root:2} ;; esac

copy os.release "$sys/etc/os-release" || copy os.release "$sys/usr/lib/os-release"
ask os.dgx dgx
copy os.tegra "$sys/etc/nv_tegra_release" && ask os.board board
ask os.container container
ask os.kernel uname -r
ask os.arch uname -m
ask os.glibc getconf GNU_LIBC_VERSION
ask os.newest_kernel newest_kernel
ask os.cmdline boot_words
copy os.boot_id /proc/sys/kernel/random/boot_id
copy os.selinux /sys/fs/selinux/enforce
[ -e "$sys/run/reboot-required" ] && fact os.reboot "$(cat "$sys/run/reboot-required.pkgs" 2>/dev/null)"
ask cpu.usable env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
ask cpu.sockets sockets
ask cpu.model model
ask cpu.flags flags
ask memory.info grep -E '^(MemTotal|MemAvailable|SwapTotal):' "$sys/proc/meminfo"
cgroups
disk disk.root "$root"
disk disk.tmp /tmp
disk disk.shm /dev/shm
fact net.listening "$(listening)"

# --- the driver -----------------------------------------------------------------------------------------------------

library() { # KEY NAME: the library that a program of this architecture would load
  local path folder
  path=$(ldconfig -p 2>/dev/null | awk -v name="$2" '$1 == name && /x86-64|AArch64/ { print $NF; exit }')
  for folder in /run/opengl-driver/lib /usr/lib/wsl/lib /usr/lib64 /usr/lib/{x86_64,aarch64}-linux-gnu; do
    [ -z "$path" ] && [ -e "$folder/$2" ] && path=$folder/$2
  done
  [ -n "$path" ] && fact "$1" "$(readlink -f -- "$path")"
}
module_on_disk() { modinfo nvidia | grep -E '^(filename|version|license|vermagic):'; }
cards_on_bus() { # NVIDIA's display (0300) and 3D (0302) devices, with the driver that holds each
  local device vendor class holder
  for device in /sys/bus/pci/devices/*; do
    { read -r vendor <"$device/vendor" && read -r class <"$device/class"; } 2>/dev/null || continue
    [ "$vendor" = 0x10de ] || continue
    holder=$(readlink -- "$device/driver")
    case $class in 0x0300* | 0x0302*) printf '%s %s\n' "${device##*/}" "${holder##*/}" ;; esac
  done
}
kernel_log() { dmesg | grep -E 'NVRM|Xid' | tail -n 40; }
switches() { ls "$sys/proc/driver/nvidia-nvswitch/devices"; }

copy driver.loaded "$sys/proc/driver/nvidia/version"
ask driver.on_disk module_on_disk
library driver.nvml libnvidia-ml.so.1
library driver.libcuda libcuda.so.1
ask driver.cards cards_on_bus
ask driver.log kernel_log
ask driver.switches switches
if [ -e "$sys/proc/driver/nvidia/version" ]; then
  ask driver.next modinfo -k "$(newest_kernel)" -F version nvidia
  ask driver.fabric_state systemctl is-active nvidia-fabricmanager
  ask driver.fabric_version nv-fabricmanager --version
fi

# --- the account ----------------------------------------------------------------------------------------------------

ask user.uid id -u
ask user.name id -un
told_if user.shell "$(timeout 5 getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7)"
fact user.home "$HOME"
ask user.groups id -Gn
copy systemd.init /proc/1/comm
if have systemctl; then
  told_if systemd.version "$(systemctl --version 2>/dev/null | head -n 1)"
  ask systemd.state timeout 5 systemctl is-system-running
  ask systemd.kill_user timeout 5 loginctl show-session -p KillUserProcesses
  if [ -e "/var/lib/systemd/linger/$(id -un)" ]; then fact systemd.linger yes; else fact systemd.linger no; fi
  if [ -d "/run/user/$(id -u)" ]; then fact systemd.runtime "/run/user/$(id -u)"; fi
fi

for key in sudo smi smi.topo smi.version smi.list pythons tools toolkits systemd.user; do collect "$key"; done
ask clock.now date +'%s.%N %Z %z'
fact end "$told"
