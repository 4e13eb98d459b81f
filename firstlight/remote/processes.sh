#!/usr/bin/env bash
# Read by the programs that run on a host: which processes belong to a folder, how they end, how a
# program is started so that a lost connection does not end it.
#
# A supervisor records itself in its folder as `pid`: "pid ticks boot helper". With the ticks since
# boot at which it started, and the boot's own id, a reused number is never taken for it.
set -u

BOOT=$(</proc/sys/kernel/random/boot_id)

note() { printf 'firstlight: %s\n' "$*"; }

die() {
  printf 'firstlight: %s\n' "$*" >&2
  exit 1
}

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# Sets parent, session and ticks of process $1; false when it is gone or only a zombie.
look_at() {
  local stat='' field
  { IFS= read -rd '' stat <"/proc/$1/stat"; } 2>/dev/null
  [[ -n $stat ]] || return 1
  read -ra field <<<"${stat##*) }"
  [[ ${field[0]} != [ZX] ]] || return 1
  parent=${field[1]} session=${field[3]} ticks=${field[19]}
}

# Writes standard input to $1, whole or not at all.
put() {
  cat >"$1.new" && mv -f -- "$1.new" "$1" && return
  rm -f -- "$1.new"
  return 1
}

# Records this process as the supervisor of the folder it stands in, with its helper $1 or "".
stamp() {
  local ticks parent session
  look_at $$
  printf '%s %s %s %s\n' $$ "$ticks" "$BOOT" "$1" | put pid
}

# True while the process that the first line of file $1 names is that process still.
alive() {
  local pid='' since='' boot='' ticks parent session
  { read -r pid since boot _ <"$1"; } 2>/dev/null
  [[ -n $since && $boot == "$BOOT" ]] && look_at "$pid" && [[ $ticks == "$since" ]]
}

# Puts into `left` what carries the mark of folder $1 in its environment.
find_marked() {
  mapfile -t left < <(grep -slzxF -- "FIRSTLIGHT_JOB=$1" /proc/[0-9]*/environ)
  left=("${left[@]#/proc/}")
  left=("${left[@]%/environ}")
}

# Puts into `left` what runs for folder $1: whatever carries its mark in the environment, even in a
# session of its own; and, marked or not, its cgroup and its supervisor's session. A session whose
# supervisor is gone does not count: its number may be somebody else's by now. The supervisor, its
# helper, who asks, and their own children are not meant; so nothing here may have grandchildren.
find_members() {
  local folder=$1 path pid keep=" $BASHPID " group=' ' supervisor='' helper='' parent session ticks
  find_marked "$folder"
  # A program that is just being started shows no environment; a cgroup would show it.
  ((${#left[@]})) || [[ -s $folder/cgroup ]] || { sleep 0.05 && find_marked "$folder"; }
  if alive "$folder/pid"; then
    read -r supervisor _ _ helper <"$folder/pid"
    keep+="$supervisor ${helper:-$supervisor} "
  fi
  [[ -s $folder/cgroup ]] && group=" $(tr '\n' ' ' 2>/dev/null <"$(<"$folder/cgroup")")"
  for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    look_at "$pid" || continue
    [[ $session == "${supervisor:-none}" || $group == *" $pid "* ]] || continue
    [[ $keep == *" $pid "* || $keep == *" $parent "* ]] || left+=("$pid")
  done
  # Gone, or not yet collected by its parent: not running.
  for path in "${!left[@]}"; do look_at "${left[path]}" || unset "left[path]"; done
  return 0
}

# Ends what runs for folder $1: SIGTERM, then SIGKILL after $2 seconds.
end_tree() {
  local left asked='' kill_after=$((SECONDS + $2))
  while find_members "$1" && ((${#left[@]})); do
    if ((SECONDS > kill_after + 10)); then
      return 1
    elif ((SECONDS > kill_after)); then
      kill -KILL "${left[@]}" 2>/dev/null
    elif [[ -z $asked ]]; then
      kill -TERM "${left[@]}" 2>/dev/null
      asked=yes
    fi
    sleep 0.2
  done
}

# Starts "${@:2}" so that it outlives this connection: in a scope of systemd named $1 where we may
# have one, for a cgroup lets no process slip away; else in a session of its own. The scope must
# not be stopped because one compiler ran out of memory; older systemd has no such setting.
# A caller's `memory` is the ceiling of the scope in MiB, 0 for none. Swap is no way around it: a
# build that swaps takes hours, and the pages of a server on the same host go the same way.
detach() {
  local unit=$1 scope=() properties=() asked ceiling=''
  if [[ -d /run/systemd/system ]] && ((EUID == 0)); then
    scope=(systemd-run --system)
  elif [[ -e /var/lib/systemd/linger/$(id -un) ]]; then
    export XDG_RUNTIME_DIR=/run/user/$EUID
    scope=(systemd-run --user)
  fi
  shift
  ((${memory:-0} == 0)) || ceiling="MemoryMax=${memory}M MemorySwapMax=0"
  if ((${#scope[@]})); then
    scope+=(--scope --quiet --collect --description=firstlight)
    for asked in "OOMPolicy=continue $ceiling" "$ceiling" 'OOMPolicy=continue' ''; do
      read -ra properties <<<"$asked"
      properties=("${properties[@]/#/--property=}")
      "${scope[@]}" "${properties[@]}" true </dev/null >/dev/null 2>&1 || continue
      set -- "${scope[@]}" "${properties[@]}" "--unit=$unit" -- "$@"
      break
    done
  fi
  setsid -f "$@" </dev/null >/dev/null 2>&1 9>&-
}

# Records where systemd holds our processes, if it does. Its own hierarchy is mounted at the first
# of these places, or beside the older ones at one of the others.
record_backend() {
  local group place backend=setsid
  group=$(sed -nE 's/^[0-9]+:(name=systemd)?:(.*\/firstlight-[^/]*\.scope)$/\2/p;T;q' /proc/self/cgroup)
  for place in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    [[ -n $group && -r $place$group/cgroup.procs ]] || continue
    backend="systemd ${group##*/}"
    printf '%s\n' "$place$group/cgroup.procs" >cgroup
    break
  done
  printf '%s\n' "$backend" >backend
}

# Sets `group` to the folder of the cgroup that counts our memory, with a file of its ceiling:
# cgroup v2 where its memory controller is on for us, else v1; false where there is neither.
find_memory_group() {
  local path place
  path=$(sed -n 's/^0:://p' /proc/self/cgroup)
  for place in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    group=$place${path%/}
    [[ -n $path && -r $group/memory.events ]] && return
  done
  path=$(sed -nE 's/^[0-9]+:([^:]*,)?memory(,[^:]*)?:(.*)$/\3/p' /proc/self/cgroup)
  # A container sees its own group as the top, whatever /proc says.
  for group in "/sys/fs/cgroup/memory${path%/}" /sys/fs/cgroup/memory; do
    [[ -n $path && -r $group/memory.oom_control ]] && return
  done
  group=
  return 1
}

# True when that group holds nothing but one job.
is_our_group() { [[ -n $group && ${group##*/} == firstlight-* ]]; }

# Prints the ceiling of that group in bytes, or none; v1 says none with a number near 2^63.
memory_ceiling() {
  local bytes=''
  is_our_group && { read -r bytes <"$group/memory.max" ||
    read -r bytes <"$group/memory.limit_in_bytes"; } 2>/dev/null
  if [[ $bytes =~ ^[0-9]{1,18}$ ]] && ((bytes < 1 << 60)); then echo "$bytes"; else echo none; fi
}

# Prints how many processes the kernel has killed for lack of memory: of that group, or, where there
# is none, of the whole host.
memory_kills() {
  local file kills=''
  for file in "$group/memory.events" "$group/memory.oom_control" /proc/vmstat; do
    [[ -r $file ]] && kills=$(sed -n 's/^oom_kill //p' "$file") && [[ -n $kills ]] && break
  done
  echo "${kills:-0}"
}
