# What may be pruned on this host, how old and how large it is, and what names it: read-only, one
# round trip. $1 = root, which may start with ~/; the rest is with which the ids of build jobs begin.
# Answers as in survey.sh. An item is a path below
# root: a release, an artifact, a folder of wheels, of sources, of lib, of build or of uv's cache, the
# compilers' cache.
tell() { local IFS=$'\t'; printf '@@firstlight\t%s\n' "$*"; }
root=$1
case $root in '~/'*) root=$HOME/${root:2} ;; esac
tell root "$root"
tell now "$(date +%s)"
[ -e "$root" ] || { tell end && return; }
cd -- "$root" || return
shift
# The last sign of whoever holds this host for a build: the hold itself, or the end of a job after it.
ends=()
for kind in "$@"; do ends+=(jobs/"$kind"*/exit); done
ended=$(stat -c %Y -- "${ends[@]}" 2>/dev/null | sort -n | tail -n 1)
for hold in holds/*; do
  [[ -f $hold && $hold != *.partial ]] && sign=$(stat -c %Y -- "$hold") || continue
  tell hold "$hold" "$((${ended:-0} > sign ? ended : sign))" "$(head -n 1 -- "$hold" | tr '\t' ' ')"
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
  [ -d "$item" ] || continue
  made=$item/manifest.json
  [ -e "$made" ] || made=$item
  tell item "$item" "$(stat -c %Y -- "$made")"
done
# Whatever a release or an artifact names in its papers: digests of files, folders of the store.
for item in releases/* store/*; do
  for paper in "$item"/manifest.json "$item"/receipt.json "$item"/receipts/*.json; do
    [ -r "$paper" ] || continue
    while read -r name; do
      tell names "$item" "$name"
    done < <(grep -oE '\b[0-9a-f]{64}\b' -- "$paper" | sort -u)
    for other in store/*/; do
      other=${other%/}
      [ "$other" = "$item" ] && continue
      # By its folder or by its key alone, with which the name of the folder ends.
      if [[ ${paper##*/} == *"${other##*-}"* ]] || grep -qF -- "${other##*-}" "$paper"; then
        tell names "$item" "$other"
      fi
    done
  done
done
for link in deployments/*/current deployments/*/previous deployments/*/started; do
  [ -L "$link" ] || continue
  profile=${link%/*}
  release=$(sed -nE 's/^ *"release": "([^"]*)",?$/\1/p' 2>/dev/null <"$link/manifest.json" | head -n 1)
  tell uses "${profile##*/}" "${link##*/}" "$release"
done
tell end
