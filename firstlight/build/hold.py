"""The build room: the hold of a build, a file in `holds/` of a host for as long as the build lasts.

Between two jobs of a build nothing of it runs there. The hold says that more is to come, also when
the machine that plans it was lost; pruning respects it, until nobody has given a sign for a day.
Each holder has a file of its own, NAME@MARK, so that one who ends leaves the others theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from firstlight.core.command import Script
from firstlight.core.plan import Run, Step

# With which the ids of the jobs begin that builds and downloads are made of.
BUILD_JOBS = ("fetch-", "toolkit-", "build-", "repack-", "release-")
# How TAKE says that a pruning runs; its first line then is who prunes.
BUSY = 75
# Longer than any step between two jobs: what a slow link is sent in a night.
STALE_S = 24 * 3600
_TAKE_S = 60.0

# Whatever is in the file, it is told in one line of printable text.
SAYS = """\
says() {
  local line
  line=$(head -c 300 -- "$1" 2>/dev/null | head -n 1 | LC_ALL=C tr -cd '[:print:]')
  case $line in
    *', from '*', since '*) printf 'the %s\\n' "$line" ;;
    *) printf 'an unreadable hold %q\\n' "${1##*/}" ;;
  esac
}
"""

# Who removes holds this lock alone (prune.LOCK): a hold never begins in the midst of that.
TAKE = f"""\
{SAYS}
root=$1 file=$1/holds/$2@$3 name=$2 what=$4 who=$5
mkdir -p -- "$root/lock" "$root/holds" || return
[ -e "$root/lock/all" ] || : >>"$root/lock/all" || return
exec 8<"$root/lock/all" || return
if ! flock -n --shared 8; then
  sed -n 2p -- "$root/lock/all"
  return {BUSY}
fi
# Who else holds it under that name: the mark of each, and what people read of it.
for other in "$root/holds/$name@"*; do
  case $other in "$file" | *.partial | *[[:cntrl:]]*) continue ;; esac
  [ ! -f "$other" ] || printf '%s\\t%s\\n' "${{other##*@}}" "$(says "$other")"
done
printf '%s\\n' "$what, from $who, since $(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$file.partial" &&
  mv -f -- "$file.partial" "$file"
"""

LET_GO = """\
rm -f -- "$1/holds/$2@$3"
"""

LET_ALL_GO = f"""\
{SAYS}
for file in "$1"/holds/*; do
  [ -f "$file" ] || continue
  says "$file"
  rm -f -- "$file" || return
done
"""

LIST = f"""\
{SAYS}
for file in "$1"/holds/*; do
  [ ! -f "$file" ] || says "$file"
done
"""


@dataclass(frozen=True)
class Hold:
    """One build's hold as a host has it; `text` says whose, `sign` when it last gave a sign.

    `sign` is in seconds since 1970: when the hold was taken, or a job of a build ended after that.
    """

    item: str
    sign: int
    text: str

    @property
    def name(self) -> str:
        """What is held: a release, an artifact, a shipping."""
        return self.item.removeprefix("holds/").partition("@")[0]

    def is_stale(self, now: int) -> bool:
        """True when whoever held it is taken for lost; a clock that was ahead proves nothing."""
        return abs(now - self.sign) > STALE_S


def take_step(root: PurePosixPath, name: str, mark: str, what: str, who: str) -> Step:
    """The step that begins a hold; it prints who holds the same, a mark and a text in a line."""
    script = Script(TAKE, (str(root), name, mark, what, who))
    return Step("hold", "keep pruning from what this build counts on", Run(script, _TAKE_S))


def let_go_step(root: PurePosixPath, name: str, mark: str) -> Step:
    """The step that ends one holder's hold."""
    return Step("let-go", "let pruning go on", Run(Script(LET_GO, (str(root), name, mark))))
