# Which of the files $@ are missing here, how much of each has come already, and the room for it.
# One line for each missing file: want, its number from 0, bytes of its partial copy, then the
# filesystem's id, free blocks and block size. The last line is "end".
number=0
for path in "$@"; do
  case $path in '~/'*) path=$HOME/${path:2} ;; esac
  if [ ! -e "$path" ]; then
    mkdir -p -- "${path%/*}" || exit 1
    bytes=0
    [ -e "$path.partial" ] && bytes=$(stat -c %s -- "$path.partial")
    printf 'want %s %s %s\n' "$number" "$bytes" "$(stat -f -c '%i %a %S' -- "${path%/*}")"
  fi
  number=$((number + 1))
done
echo end
