# What may be pruned on this host, how old and how large it is, and what names it: read-only, one
# round trip. $1 = root, which may start with ~/; the rest is with which the ids of build jobs begin.
# Answers as in survey.sh, and what build/hold.py puts before it says whose a hold is. A name that no
# line can carry is told as odd and passed over. An item is a path below root: a release, an artifact,
# a folder of wheels, of sources, of lib, of build or of uv's cache, the compilers' cache.
LC_ALL=C
tell() { local IFS=$'\t'; printf '@@firstlight\t%s\n' "$*"; }
odd() { [[ $1 == *[![:print:]]* ]] && tell odd "$(printf %q "$1")"; }
root=$1
case $root in '~/'*) root=$HOME/${root:2} ;; esac
tell root "$root"
now=$(date +%s)
tell now "$now"
[ -e "$root" ] || { tell end && return; }
cd -- "$root" || return
shift
# The last sign of whoever holds this host for a build: the hold itself, or the end of a job after it.
ends=()
for kind in "$@"; do ends+=(jobs/"$kind"*/exit); done
# A time to come is of a clock that was ahead.
ended=$(stat -c %Y -- "${ends[@]}" 2>/dev/null | awk -v now="$now" '$1 <= now' | sort -n | tail -n 1)
for hold in holds/*; do
  [[ -f $hold && $hold != *.partial ]] && ! odd "$hold" && sign=$(stat -c %Y -- "$hold") || continue
  tell hold "$hold" "$((${ended:-0} > sign ? ended : sign))" "$(says "$hold")"
done
# Several links to one file are one file: its bytes are free when all of them are gone.
find -H releases store wheels sources lib build twice cache/uv cache/ccache -type f -printf '%D:%i\t%n\t%b\t%p\n' 2>/dev/null |
  awk -F '\t' '
    NF == 4 {
      depth = split($4, part, "/")
      item = part[1] "/" part[2]
      if (part[1] == "cache" && part[3] ~ /^archive/ && depth > 4) item = item "/" part[3] "/" part[4]
      if ($2 == 1) { bytes[item] += $3 * 512; next }
      links[$1] = $2; seen[$1]++; size[$1] = $3 * 512
      if (!(($1, item) in held)) {
        held[$1, item] = 1
        holders[$1] = holders[$1] == "" ? item : holders[$1] "\t" item
      }
    }
    END {
      for (file in size) {
        outside = seen[file] < links[file] ? "\telsewhere" : ""
        bytes[holders[file] outside] += size[file]
      }
      for (who in bytes) printf "@@firstlight\tbytes\t%.0f\t%s\n", bytes[who], who
    }'
for item in releases/* store/* wheels/* sources/* lib/* build/* twice/* cache/ccache* cache/uv/archive*/*; do
  [ -d "$item" ] && ! odd "$item" || continue
  made=$item/manifest.json
  [ -e "$made" ] || made=$item
  # What a server's caches made of a release that is gone.
  [[ $item != releases/* || -e $item/manifest.json || -e $item/venv ]] || tell husk "$item"
  tell item "$item" "$(stat -c %Y -- "$made")"
done
# Whatever a release or an artifact names in its papers: digests of files, folders of the store.
for item in releases/* store/*; do
  [[ $item != *[![:print:]]* ]] || continue
  for paper in "$item"/manifest.json "$item"/receipt.json "$item"/receipts/*.json; do
    [ -r "$paper" ] || continue
    while read -r name; do
      tell names "$item" "$name"
    done < <(grep -oE '\b[0-9a-f]{64}\b' -- "$paper" | sort -u)
    for other in store/*/; do
      other=${other%/}
      [[ $other != "$item" && $other != *[![:print:]]* ]] || continue
      # By its folder or by its key alone, with which the name of the folder ends.
      if [[ ${paper##*/} == *"${other##*-}"* ]] || grep -qF -- "${other##*-}" "$paper"; then
        tell names "$item" "$other"
      fi
    done
  done
done
for link in deployments/*/{current,previous,started,coming}; do
  [ -L "$link" ] || continue
  profile=${link%/*}
  release=$(sed -nE 's/^ *"release": "([^"]*)",?$/\1/p' 2>/dev/null <"$link/manifest.json" | head -n 1)
  tell uses "$(printf %q "${profile##*/}")" "${link##*/}" "$release"
done
tell end
