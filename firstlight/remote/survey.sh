# What of ours is on this host: read-only, one round trip. $1 = root, which may start with ~/.
# Each answer is one line: marker, key, value(s), separated by tabs; a shell's noise has no marker.
tell() { local IFS=$'\t'; printf '@@firstlight\t%s\n' "$*"; }
each() { # $1 = key, $2 = folder: one answer for each finished entry
  local path
  for path in "$2"/*; do
    case $path in *.partial | *.old | */'*') continue ;; esac
    tell "$1" "${path##*/}"
  done
}
root=$1
case $root in '~/'*) root=$HOME/${root:2} ;; esac
tell root "$root"
tell user "$(id -un)"
tell boot "$(cat /proc/sys/kernel/random/boot_id)"
near=$root
while [ ! -e "$near" ]; do near=$(dirname -- "$near"); done
if [ -w "$near" ]; then tell writable yes; else
  # No user may write on a disk that is mounted like that.
  findmnt -nro OPTIONS -T "$near" 2>/dev/null | tail -n 1 | grep -qE '^ro(,|$)' && disk=read-only
  tell writable no "$near" "${disk:-}"
fi
# What may not be looked into is not empty. Of a folder above the root it is enough to get through.
closed() { [ -d "$1" ] && { [ ! -x "$1" ] || { [ "$1" != "${2:-}" ] && [ ! -r "$1" ]; }; }; }
[ "$near" = "$root" ] || through=$near
for path in "$near" "$root"/{deployments,releases,store,models,lib,jobs,wheels,sources,holds,lock} \
  "$root"/deployments/*; do
  closed "$path" "${through:-}" && tell closed "$path"
done
[ -r "$root/route" ] && tell route "$(head -n 1 "$root/route")"
# A folder without its manifest is what a server's caches made of a release that is gone. A machine
# that lost its power may have left a file its name and no content: that release is to be made again.
for path in "$root"/releases/*/manifest.json; do
  [ -s "$path" ] || continue
  path=${path%/manifest.json}
  case $path in *.partial | *.old | */'*') continue ;; esac
  [ ! -e "$path/capabilities.json" ] || [ -s "$path/capabilities.json" ] || continue
  tell release "${path##*/}"
done
each artifact "$root/store"
each model "$root/models"
each library "$root/lib"
for path in "$root"/jobs/*/; do
  case $path in *.old/ | *.partial/) continue ;; esac
  [ -d "$path" ] && [ ! -e "$path/exit" ] && tell job "$(basename -- "$path")"
done
for path in "$root"/wheels/*/*; do
  case $path in *.partial* | */'*') continue ;; esac
  tell wheel "${path#"$root"/wheels/}"
done
for path in "$root"/sources/*/*; do
  case $path in *.partial* | */'*') continue ;; esac
  tell source "${path#"$root"/sources/}"
done
for path in "$root"/deployments/*/; do
  [ -d "$path" ] || continue
  name=$(basename -- "$path")
  tell deployment "$name" "$(readlink -- "$path/current")" "$(readlink -- "$path/previous")" \
    "$(readlink -- "$path/started")"
  [ -r "$path/current/manifest.json" ] && tell manifest "$name" "$(tr -d '\n\t' <"$path/current/manifest.json")"
  [ -r "$path/current/proof.json" ] && tell proof "$name" "$(tr -d '\n\t' <"$path/current/proof.json")"
  [ -r "$path/failed.json" ] && tell failed "$name" "$(tr -d '\n\t' <"$path/failed.json")"
done
tell end
