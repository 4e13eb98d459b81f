#!/usr/bin/env bash
# Runs on a host: a long job that no lost connection can hurt, its log, its end and its lock.
#
#   supervise.sh start ROOT ID LOCK CONTROLLER AGAIN MEMORY <SCRIPT
#       prints started | attached | finished; MEMORY is a ceiling in MiB, 0 for none
#   supervise.sh poll FOLDER OFFSET MAX       prints a line that starts with @job, then log bytes
#   supervise.sh cancel FOLDER GRACE_S        prints @left and how many processes are left
#   supervise.sh run ...                      the supervisor itself; start calls it
#
# A supervisor has a guard beside it, which ends the job when the supervisor alone was killed.
#
# A job's folder is ROOT/jobs/ID:
#   script, log   what runs, and what it says
#   supervise.sh  this program as it was at the start, with processes.sh
#   pid, backend  the supervisor with its guard, and what holds its processes together
#   exit          "status done" or "status cancelled", renamed into place when all is over
#   memory        the ceiling that the kernel holds all its processes to, in bytes, or "none"
#   waiting       who holds the lock that it waits for
#   cancel        the seconds between SIGTERM and SIGKILL that a person granted it
# ROOT/lock/NAME is locked by flock(1). Its first line is "pid ticks boot" of the holder, or
# "released"; the second says it for people; the third is the holder's folder. Who locks `all`
# runs beside nobody that locks anything: the others share that lock.
# shellcheck source=processes.sh
source "${0%/*}/processes.sh"

# Prints "status word" of a job that is over.
ended() { [[ -s $1/exit ]] && cat -- "$1/exit"; }

# Prints running | N done | N cancelled | lost | rebooted. A supervisor writes the exit file
# before it goes, so that file is looked at again once the supervisor is seen to be gone.
state_of() {
  local boot=''
  ended "$1" && return
  alive "$1/pid" && { echo running && return; }
  ended "$1" && return
  { read -r _ _ boot _ <"$1/pid"; } 2>/dev/null
  if [[ $boot == "$BOOT" ]]; then echo lost; else echo rebooted; fi
}

# Puts a job's folder in place and starts its supervisor, unless that was done before.
start() {
  local root=$1 id=$2 lock=$3 controller=$4 again=$5 memory=$6 mask state folder try
  mask=$(umask)
  umask 077
  if ! mkdir -p -- "$root/jobs" || ! cd -P -- "$root/jobs"; then die "cannot make $root/jobs"; fi
  folder=$PWD/$id
  # Two starts at once must not both find nothing running.
  exec 9>>.start
  flock -w 60 9 || die "another start in $root/jobs does not come to its end"
  state=missing
  [[ -d $folder ]] && state=$(state_of "$folder")
  [[ $state == running ]] && { echo attached && return; }
  [[ $state == '0 done' && $again != again ]] && { echo finished && return; }
  end_tree "$folder" 5 || die "cannot end what is left of an earlier run of $id"
  prepare "$folder" || die "cannot write $folder; is the disk full?"
  detach "firstlight-job-$id-$$-$RANDOM" \
    bash "$folder.partial/supervise.sh" run "$folder" "$root" "$lock" "$controller" "$mask" "$memory"
  for ((try = 0; try < 200; try++)); do
    [[ -e $folder/pid ]] && { echo started && return; }
    sleep 0.05
  done
  die "the supervisor of $folder did not start; is the disk full?"
}

# Makes the folder of a new run; the run before it is kept as FOLDER.old.
prepare() {
  local folder=$1
  rm -rf -- "$folder.partial" && mkdir -- "$folder.partial" || return
  cat >"$folder.partial/script" && chmod 700 "$folder.partial/script" || return
  : >"$folder.partial/log" && cp -- "$0" "${0%/*}/processes.sh" "$folder.partial" || return
  [[ ! -d $folder ]] || { rm -rf -- "$folder.old" && mv -T -- "$folder" "$folder.old"; }
}

# The supervisor. Its folder gets its real name only once the supervisor is recorded in it, so
# that a folder without one is never seen. A session that closes must not reach us: HUP is ignored,
# also by the job, as with nohup.
run() {
  local folder=$1 root=$2 lock=$3 controller=$4 mask=$5 memory=$6
  local child='' ending='' grace=10 rc=143 how='done' parent session ticks left group kills
  local life held=() mine=''
  umask 077
  cd -- "$folder.partial" && exec >>log 2>&1 && exec {life}> >(guard "$folder") || exit 1
  stamp "$!" && record_backend || exit 1
  trap '' HUP
  trap 'ending=yes' TERM INT
  hold_memory || exit 1
  mv -T -- "$folder.partial" "$folder" || exit 1
  take_lock && work
  if [[ -n $ending ]]; then
    # Who asks does so until we are gone, and each time would break off a read of ours.
    trap '' TERM INT
    [[ -s cancel ]] && read -r grace <cancel && how=cancelled
    note "asked to end; ending the job"
  elif find_members "$folder" && ((${#left[@]})); then
    note "the job is over; ending what it left running"
  fi
  [[ -n $ending ]] || ((rc == 0)) || tell_kills
  end_tree "$folder" "$grace" || note "some of its processes could not be ended"
  look_at "${child:-none}" && ((parent == $$)) && kill -KILL "$child"
  [[ -z $mine ]] || printf 'released\n' >"$mine"
  printf '%s %s\n' "$rc" "$how" | put exit
}

# Waits for the end of the supervisor, which alone holds the other end of its standard input, and
# ends the job when that was no end of its own. No start comes between, else its job would end too.
guard() {
  local folder=$1
  trap '' HUP TERM INT
  read -r _
  [[ ! -s exit ]] && exec 9>>"${folder%/*}/.start" && flock 9 || return
  [[ ! -s exit && . -ef $folder ]] || return
  note "the supervisor was killed; ending the job"
  end_tree "$folder" 10
}

# Records what the kernel holds the job to, and what it had killed before.
hold_memory() {
  find_memory_group
  kills=$(memory_kills)
  memory_ceiling | put memory || return
  ((memory == 0)) || [[ $(<memory) != none ]] || note "no ceiling of $memory MiB: nothing on this" \
    "host holds a job to one; only the number of its compilers bounds its memory"
}

# Says why a job may have failed. Without a group of its own it is only a guess.
tell_kills() {
  local ceiling='no ceiling' more=$(($(memory_kills) - kills))
  ((more > 0)) || return
  [[ $(<memory) == none ]] || ceiling="ceiling $(($(<memory) >> 20)) MiB"
  if is_our_group; then
    note "the job ran out of memory ($ceiling; processes killed: $more)"
  else
    note "processes of this host killed for lack of memory while the job ran: $more"
  fi
}

# Runs the script to its end, or until somebody asks for the end. Job control gives the child the
# signal dispositions of a foreground program; without it the shell would have it ignore SIGINT.
work() {
  set -m
  (
    umask "$mask"
    cd -- "${HOME:-/}" || cd /
    for fd in "${held[@]}"; do exec {fd}>&-; done
    export FIRSTLIGHT_JOB="$folder"
    # When memory runs out a compiler is to be killed, not its supervisor and not a model server.
    ((memory == 0)) || echo 500 >"/proc/$BASHPID/oom_score_adj"
    exec bash "$folder/script"
  ) </dev/null {life}>&- &
  child=$!
  set +m
  [[ -n $ending ]] || wait "$child"
  rc=$?
  [[ -n $ending ]] || return
  look_at "$child" && rc=143 && kill -TERM "$child" && return
  # It ended just before it was asked to.
  ending=''
  wait "$child"
  rc=$?
}

# Takes the lock, if the job has one; false when the end was asked for before it was free.
take_lock() {
  [[ -n $lock ]] || return 0
  [[ $lock == all ]] || hold all --shared || return
  hold "$lock" --exclusive || return
  mine=$root/lock/$lock
  printf '%s\n%s\n%s\n' "$(cut -d' ' -f1-3 pid)" \
    "$(id -un), job ${folder##*/}, started from $controller, since $(now)" "$folder" >"$mine"
}

# Takes the lock $1 in the way $2; a file of another user is enough to share it.
hold() {
  local file=$root/lock/$1 way=$2 told='' holder fd
  if ! (umask "$mask" && mkdir -p -- "$root/lock" && { [[ -e $file ]] || : >>"$file"; }) ||
    ! { if [[ $way == --shared ]]; then exec {fd}<"$file"; else exec {fd}<>"$file"; fi; }; then
    rc=1
    note "cannot write the lock file $file"
    return 1
  fi
  held+=("$fd")
  # Whoever shares it, or waits for it, may read who holds it.
  chmod a+r -- "$file" 2>/dev/null
  until flock -n "$way" "$fd"; do
    holder=$(sed -n 2p "$file")
    [[ -n $holder ]] || { [[ $1 == all ]] && holder='other jobs'; }
    if [[ $holder != "$told" ]]; then
      told=$holder
      note "waiting for the lock '$1', held by ${holder:-somebody}"
      printf '%s\n' "${holder:-somebody}" | put waiting
    fi
    flock -w 2 "$way" "$fd" &
    wait $!
    [[ -z $ending ]] || return 1
  done
  rm -f waiting
  take_over "$file"
}

# Says that the last holder of the lock never released it, and ends what is left of its job.
take_over() {
  local boot='' holder='' remains=''
  { read -r _ _ boot && read -r holder && read -r remains; } <"$1"
  [[ -n $boot ]] || return 0
  # Who only shares it may not be let write there; then the next one says it once more.
  { printf 'released\n' >"$1"; } 2>/dev/null
  if [[ $boot != "$BOOT" ]]; then
    note "took over a stale lock of $holder: the host was rebooted"
    return
  fi
  note "took over a stale lock of $holder: its holder is gone"
  [[ -z $remains ]] || end_tree "$remains" 5 || note "not all of $remains could be ended"
}

# The state is read before the size of the log: what was written before the end is then seen.
poll() {
  local folder=$1 offset=$2 most=$3 state size count=0 waiting='' rc=- how
  state=$(state_of "$folder")
  how=${state#* }
  [[ $how == "$state" ]] || rc=${state%% *}
  [[ $how == running && -s $folder/waiting ]] && read -r waiting <"$folder/waiting"
  size=$(stat -c %s -- "$folder/log") || size=0
  ((size > offset)) && count=$((size - offset < most ? size - offset : most))
  printf '@job %s %s %d %d %s\n' "$how" "$rc" "$size" "$count" "$waiting"
  ((count == 0)) || tail -c "+$((offset + 1))" -- "$folder/log" | head -c "$count"
}

# Asks the supervisor to end the job; where it cannot, or is gone, does that itself.
cancel() {
  local folder grace=$2 pid give_up left
  folder=$(cd -P -- "$1" && pwd) || exit 1
  if [[ $(state_of "$folder") == running ]]; then
    printf '%s\n' "$grace" | put "$folder/cancel"
    read -r pid _ <"$folder/pid"
    for ((give_up = SECONDS + grace + 15; SECONDS < give_up; )); do
      alive "$folder/pid" || break
      kill -TERM "$pid" || break
      sleep 0.2
    done
    alive "$folder/pid" && kill -KILL "$pid"
  fi
  end_tree "$folder" "$grace"
  ended "$folder" >/dev/null || printf '143 cancelled\n' | put "$folder/exit"
  find_members "$folder"
  printf '@left %d\n' "${#left[@]}"
}

case ${1:-} in
  start | run | poll | cancel) "$@" ;;
  *) die "unknown word '${1:-}'" ;;
esac
