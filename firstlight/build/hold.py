"""The build room: the hold of a build, a file in `holds/` of a host for as long as the build lasts.

Between two jobs of a build nothing of it runs there. The hold says that more is to come, also when
the machine that plans it was lost; pruning respects it, until nobody has given a sign for a day.
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

# Who removes holds this lock alone (prune.LOCK): a hold never begins in the midst of that.
TAKE = f"""\
root=$1 file=$1/holds/$2 what=$3 who=$4
mkdir -p -- "$root/lock" "$root/holds" || return
[ -e "$root/lock/all" ] || : >>"$root/lock/all" || return
exec 8<"$root/lock/all" || return
if ! flock -n --shared 8; then
  sed -n 2p -- "$root/lock/all"
  return {BUSY}
fi
if [ -s "$file" ] && [ "$(sed -n 2p -- "$file")" != "$who" ]; then
  echo "took over the hold of the $(head -n 1 -- "$file")"
fi
printf '%s\\n%s\\n' "$what, from $who, since $(date -u +%Y-%m-%dT%H:%M:%SZ)" "$who" \\
  >"$file.partial" && mv -f -- "$file.partial" "$file"
"""

LET_GO = """\
file=$1/holds/$2
[ ! -e "$file" ] || [ "$(sed -n 2p -- "$file")" != "$3" ] || rm -f -- "$file"
"""

LET_ALL_GO = """\
for file in "$1"/holds/*; do
  [ -f "$file" ] || continue
  head -n 1 -- "$file"
  rm -f -- "$file" || return
done
"""

LIST = """\
for file in "$1"/holds/*; do
  [ -f "$file" ] && head -n 1 -- "$file"
done
return 0
"""


@dataclass(frozen=True)
class Hold:
    """One build's hold as a host has it; `text` says whose, `sign` when it last gave a sign.

    `sign` is in seconds since 1970: when the hold was taken, or a job of a build ended after that.
    """

    item: str
    sign: int
    text: str

    def is_stale(self, now: int) -> bool:
        """True when whoever held it is taken for lost."""
        return now - self.sign > STALE_S


def take_step(root: PurePosixPath, name: str, what: str, who: str) -> Step:
    """The step that begins a hold, or takes over the one of that name and says whose it was."""
    script = Script(TAKE, (str(root), name, what, who))
    return Step("hold", "keep pruning from what this build counts on", Run(script, _TAKE_S))


def let_go_step(root: PurePosixPath, name: str, who: str) -> Step:
    """The step that ends a hold, unless another has taken it over."""
    return Step("let-go", "let pruning go on", Run(Script(LET_GO, (str(root), name, who))))
