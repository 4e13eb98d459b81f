#!/usr/bin/env bash
# Runs on a host: a model server where systemd does not look after it.
#
#   serve.sh start FOLDER RESTART STOP_S PAUSE_S LOG_BYTES MEMORY   prints started | running
#   serve.sh stop FOLDER STOP_S
#   serve.sh state FOLDER                                           prints Name=value lines
#   serve.sh run|pump ...                                           supervisor and log writer
#
# FOLDER is a deployment: launch.sh becomes the server. RESTART is no or on-failure: after a crash
# it starts again in PAUSE_S seconds, then twice that, and so on; at most 5 times in 10 minutes.
# A server that holds more than MEMORY bytes is killed, which counts as a crash; 0 is no ceiling.
# The files beside launch.sh:
#   log, log.1     what the server says; past LOG_BYTES the log becomes log.1 and a new one begins
#   begin          "file:byte" of the log where the last start began
#   pid, server    the supervisor and the server, as "pid ticks boot"
#   stop           there while somebody wants it stopped       restarts   how often it crashed
#   exit           "status stopped", "status ended" or "status gave-up", when all is over
# shellcheck source=processes.sh
source "${0%/*}/processes.sh"

MOST_RESTARTS=5 WINDOW_S=600
LOOK_S=2 # between two looks at the server's memory
NO_USE=78 # EX_CONFIG, from launch.sh: the next start would fail as this one did

start() {
  # `detach` takes it for the ceiling of the scope, in MiB.
  local folder mask try memory=$(($6 >> 20))
  folder=$(cd -P -- "$1" && pwd) || exit 1
  mask=$(umask)
  umask 077
  take_turn "$folder"
  if alive "$folder/pid"; then
    [[ -s $folder/stop ]] || { echo running && return; }
    # A stop that was left halfway goes on by itself; this start comes after it.
    for ((try = 5 * ($3 + 15); try > 0; try--)); do alive "$folder/pid" || break; sleep 0.2; done
    ! alive "$folder/pid" || die "the server of $folder does not come to its end"
  fi
  end_tree "$folder" "$3" || die "cannot end what is left of an earlier server in $folder"
  rm -f -- "$folder"/{pid,server,exit,stop,restarts,cgroup}
  stat -c '%i.%W:%s' -- "$folder/log" >"$folder/begin" 2>/dev/null
  detach "firstlight-server-$$-$RANDOM" bash "$0" run "$folder" "$mask" "${@:2}"
  for ((try = 0; try < 200; try++)); do
    [[ -s $folder/pid ]] && { echo started && return; }
    sleep 0.05
  done
  die "the supervisor of $folder did not start; is the disk full?"
}

stop() {
  local folder give_up
  folder=$(cd -P -- "$1" && pwd) || exit 1
  take_turn "$folder"
  if alive "$folder/pid"; then
    { echo stop >"$folder/stop"; } 2>/dev/null
    for ((give_up = SECONDS + $2 + 15; SECONDS < give_up; )); do
      alive "$folder/pid" || break
      kill -TERM "$(cut -d' ' -f1 "$folder/pid")" || break
      sleep 0.2
    done
    alive "$folder/pid" && kill -KILL "$(cut -d' ' -f1 "$folder/pid")"
  fi
  end_tree "$folder" "$2" 9>&- || die "some processes of $folder could not be ended"
  # Nothing runs any more, whether or not that can be written down.
  [[ ! -e $folder/pid || -s $folder/exit ]] || put_end "$folder" '143 stopped' ||
    rm -f -- "$folder/pid" 2>/dev/null
  return 0
}

# One start or stop of a folder at a time. A disk that takes nothing more hinders no stop.
take_turn() {
  { exec 9>>"$1/.start" || exec 9<"$1/.start"; } 2>/dev/null
  flock -w 120 9 || die "another start or stop of $1 does not come to its end"
}

# Records how it ended. On a full disk that takes the room of what a living server alone needs.
put_end() {
  { echo "$2" | put "$1/exit"; } 2>/dev/null && return
  { rm -f -- "$1/server" "$1/stop" && echo "$2" | put "$1/exit"; } 2>/dev/null
}

# The exit file is read before the supervisor is called lost: it is the last thing that it writes.
state() {
  local folder pid='' rc='' word='' boot='' restarts=0
  folder=$(cd -P -- "$1" && pwd) || exit 1
  [[ -s $folder/restarts ]] && restarts=$(<"$folder/restarts")
  if alive "$folder/server"; then read -r pid _ <"$folder/server"; fi
  if alive "$folder/pid"; then
    word=starting
    ((restarts == 0)) || word=restarting
    [[ -z $pid ]] || word=running
    [[ ! -s $folder/stop ]] || word=stopping
  elif { read -r rc word <"$folder/exit"; } 2>/dev/null; then
    :
  elif { read -r _ _ boot _ <"$folder/pid"; } 2>/dev/null; then
    word=lost
    [[ $boot == "$BOOT" ]] || word=rebooted
  fi
  printf '%s\n' "State=${word:-missing}" "MainPID=$pid" "ExitStatus=$rc" "Restarts=$restarts"
}

# The supervisor. HUP is ignored, also by the server, as with nohup.
run() {
  local folder=$1 mask=$2 restart=$3 stop_s=$4 pause=$5 log_bytes=$6 memory=$7
  local rc=143 how=ended ending='' crashes=() writer parent session ticks group
  cd -- "$folder" || exit 1
  # In a session of its own, the log writer is none of those that end with the server.
  exec > >(exec setsid bash "$0" pump "$folder" "$log_bytes") 2>&1
  writer=$!
  trap '' HUP
  trap 'ending=yes' TERM INT
  record_backend
  find_memory_group
  # Whom nobody knows nobody can stop.
  stamp "$writer" || exit 1
  while serve && try_again; do :; done
  [[ -z $ending ]] || how=stopped
  # Its last words are in the log before the end is told.
  exec >/dev/null 2>&1
  for ((give_up = SECONDS + 5; SECONDS < give_up; )); do look_at "$writer" || break; sleep 0.05; done
  put_end . "$rc $how"
}

# Runs the server to its end; nothing of it is left then. Job control gives it the signal
# dispositions of a foreground program.
serve() {
  local child give_up kills
  kills=$(memory_kills)
  set -m
  (
    umask "$mask"
    export FIRSTLIGHT_JOB="$folder"
    exec bash "$folder/launch.sh"
  ) </dev/null &
  child=$!
  set +m
  look_at "$child" && printf '%s %s %s\n' "$child" "$ticks" "$BOOT" | put server
  ((memory == 0)) || [[ $(memory_ceiling) != none ]] || watch_memory "$child"
  [[ -n $ending ]] || wait "$child"
  rc=$?
  if [[ -n $ending ]]; then
    # Who asks does so until we are gone, and each time would break off a wait or a read of ours.
    trap '' TERM INT
    note "asked to stop"
    kill -TERM "$child" 2>/dev/null
    for ((give_up = SECONDS + stop_s + 1; SECONDS < give_up; )); do
      look_at "$child" || break
      sleep 0.1
    done
    look_at "$child" && ((parent == $$)) && kill -KILL "$child" &&
      note "the server did not stop within $stop_s s; killed"
    # One that came just before breaks off the first of these.
    wait "$child"
    wait "$child"
    rc=$?
  fi
  kills=$(($(memory_kills) - kills))
  ((kills == 0)) || ! is_our_group || too_much "its processes killed: $kills"
  end_tree "$folder" 0 || note "some processes of the server could not be ended"
}

too_much() { note "the server was above its ceiling of $((memory >> 20)) MiB (service.memory); $*"; }

# For hosts where the kernel holds no ceiling for us. Looks at the server's memory until it is gone,
# or is to stop, or holds too much and is killed. RLIMIT_AS would be no ceiling: CUDA reserves far
# more addresses than it ever uses.
watch_memory() {
  local family held
  grep -qs ^Pss_Anon: /proc/self/smaps_rollup ||
    { note "this kernel does not tell what a process holds: no memory ceiling" && return; }
  while [[ -z $ending ]] && look_at "$1"; do
    find_family "$1"
    # Quick to read, but pages that processes share are in it once for each.
    sum_kib Rss status
    ((held <= memory >> 10)) || sum_kib Pss_ smaps_rollup
    if ((held > memory >> 10)); then
      too_much "it held $((held >> 10)) MiB and is killed"
      kill -KILL "${family[@]}" 2>/dev/null
      return
    fi
    sleep "$LOOK_S" &
    wait $!
    kill $! 2>/dev/null
  done
}

# Puts process $1 and what descends from it into `family`. Cheaper than find_members, which looks
# at every process of the host.
find_family() {
  local young=("$1") paths
  family=()
  while ((${#young[@]})); do
    family+=("${young[@]}")
    paths=("${young[@]/#//proc/}")
    # shellcheck disable=SC2068 # the star is one for the shell: every thread has children
    read -rd '' -a young < <(cat -- ${paths[@]/%//task/*/children} 2>/dev/null)
  done
}

# Puts into `held` the KiB of the family's own and shared memory, by file $2 of each. Mapped files
# do not count: the kernel may drop their pages when it likes.
sum_kib() {
  local paths=("${family[@]/#//proc/}") kib
  held=0
  while read -r _ kib _; do ((held += kib)); done < <(
    grep -hsE "^$1(Anon|Shmem):" "${paths[@]/%//$2}"
  )
}

# True when the server should start again, after a pause.
try_again() {
  local recent=() crash
  [[ -z $ending && $restart == on-failure && $rc != 0 && $rc != "$NO_USE" ]] || return
  for crash in "${crashes[@]}"; do
    ((SECONDS - crash >= WINDOW_S)) || recent+=("$crash")
  done
  if ((${#recent[@]} >= MOST_RESTARTS)); then
    note "the server ended with status $rc, after $MOST_RESTARTS restarts in $WINDOW_S s; giving up"
    how=gave-up
    return 1
  fi
  crashes=("${recent[@]}" "$SECONDS")
  printf '%s\n' "$(($(cat restarts 2>/dev/null || echo 0) + 1))" | put restarts
  note "the server ended with status $rc; starting it again in $((pause << ${#recent[@]})) s"
  sleep "$((pause << ${#recent[@]}))" &
  wait $!
  [[ -z $ending ]]
}

# Writes standard input to the log, as it comes, and begins a new file past so many bytes. Signals
# do not end it: the server's last words come after them. When the disk is full it drops what it
# reads, for a server must not stand still because of its log.
pump() {
  local before after
  trap '' HUP TERM INT
  cd -- "$1" || exit 1
  while :; do
    before=$(stat -c %s log 2>/dev/null || echo 0)
    if ((before >= $2)); then
      mv -f log log.1
      before=0
    fi
    if dd bs=64K count=$(($2 - before)) iflag=count_bytes status=none >>log 2>/dev/null; then
      after=$(stat -c %s log 2>/dev/null || echo 0)
      ((after != before)) || return 0
    else
      (($(head -c 65536 | wc -c))) || return 0
    fi
  done
}

case ${1:-} in
  start | stop | state | run | pump) "$@" ;;
  *) die "unknown word '${1:-}'" ;;
esac
