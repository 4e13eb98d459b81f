# Take a file from descriptor 9: $1 = its place, $2 = its sha256, $3 = its size, $4 = bytes that a
# partial copy here must hold already. The place is filled by rename, with the right bytes or not
# at all. Exit status: 73 cannot write, 74 cut short, 75 the partial copy is another's or differs,
# 76 wrong bytes (their sha256 on stdout).
target=$1 sha256=$2 size=$3 offset=$4
case $target in '~/'*) target=$HOME/${target:2} ;; esac
partial=$target.partial
# A sender that starts afresh takes a new file: one that died may still hold the old one open.
[ "$offset" -gt 0 ] || rm -f -- "$partial"
exec 8>>"$partial" || exit 73
flock -n 8 || exit 75
[ "$(stat -c %s -- "$partial")" = "$offset" ] || exit 75
cat <&9 >&8 || exit 73
[ "$partial" -ef /proc/self/fd/8 ] || exit 75
[ "$(stat -c %s -- "$partial")" = "$size" ] || exit 74
found=$(sha256sum <"$partial") || exit 73
found=${found%% *}
if [ "$found" != "$sha256" ]; then
  rm -f -- "$partial"
  echo "$found"
  exit 76
fi
chmod 644 -- "$partial" && sync -- "$partial" && mv -fT -- "$partial" "$target" || exit 73
