# Stop process group $1 with all its members: TERM, two seconds of grace, KILL.
# Exit status 0: nobody of it is left. A zombie is dead, whoever forgot to bury it.
group=$1
lives() {
  local stat line
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    set -- ${line##*) }
    [ "$3" = "$group" ] && [ "$1" != Z ] && return 0
  done
  return 1
}
for signal in TERM KILL; do
  kill -"$signal" -- "-$group" 2>/dev/null
  for _ in {1..20}; do
    lives || exit 0
    sleep 0.1
  done
done
exit 1
