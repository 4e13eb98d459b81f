"""The build room: the scripts of a build as a person reads them; values come as arguments."""

from __future__ import annotations

_ENOUGH_SPACE = """\
enough_space() { # $1 = folder, $2 = MiB that are needed
  local near=$1 free
  while [ ! -e "$near" ]; do near=$(dirname -- "$near"); done
  free=$(($(df -k --output=avail -- "$near" | tail -n 1) / 1024))
  [ "$free" -ge "$2" ] && return
  echo "error: no space: $1 has $free MiB free, this step needs $2 MiB" >&2
  echo "fix: make room, or give the host another root in the inventory" >&2
  return 1
}
"""

FETCH = f"""\
set -euo pipefail
{_ENOUGH_SPACE}
root=$1 need=$2 python=$3 program=$4 request=$5
enough_space "$root" "$need"
mkdir -p -- "$root/wheels"
"$python" "$program" "$request" "$root/wheels"
"""

REPACK = """\
set -euo pipefail
home=$1 python=$2 program=$3 wheel=$4 local_version=$5
shift 5
# What is left are the patches, in order, each with its flag.
[ ! -e "$home" ] || exit 0
rm -rf -- "$home.partial"
trap 'rm -rf -- "$home.partial"' EXIT
# Ended from outside, it waits for the program at hand, which would go on writing there.
trap 'exit 143' TERM
mkdir -p -- "$home.partial"
"$python" "$program" --wheel "$wheel" --local-version "$local_version" "$@" \\
  --out "$home.partial" --receipt "$home.partial/receipt.json"
mv -T -- "$home.partial" "$home"
"""

COMPILE = """\
set -euo pipefail
python=$1 program=$2 request=$3
exec "$python" "$program" "$request"
"""

FETCH_SOURCES = """\
set -euo pipefail
root=$1 python=$2 program=$3 request=$4
mkdir -p -- "$root/sources"
exec "$python" "$program" "$request" "$root/sources"
"""

COMPARE = """\
set -uo pipefail
python=$1 program=$2 elftools=$3 first=$4 second=$5
PYTHONPATH=$elftools "$python" "$program" "$first"/*.whl "$second"/*.whl
code=$?
# 1 means that they differ, which is an answer.
[ "$code" -le 1 ] || exit "$code"
"""

TOOLKIT = """\
set -euo pipefail
python=$1 program=$2
shift 2
# What is left says where the toolkit goes, what it must hold, and its wheels.
exec "$python" "$program" "$@"
"""

# Hard links out of the cache, so that a second release costs little disk; never the network,
# never a person's own settings, never a Python that uv would bring itself.
UV_ENV = {"UV_NO_CONFIG": "1", "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}

ASSEMBLE = f"""\
set -euo pipefail
{_ENOUGH_SPACE}
root=$1 home=$2 need=$3 python=$4 uv_wheel=$5 requirements=$6 manifest=$7 program=$8 engine=$9
shift 9
# What is left are the folders of the artifacts, made on this host.
if [ -s "$home/manifest.json" ]; then
  [ "$engine" != none ] && [ ! -s "$home/capabilities.json" ] || exit 0
fi
enough_space "$root" "$need"
rm -rf -- "$home.partial"
trap 'rm -rf -- "$home.partial"' EXIT
# Ended from outside, it waits for the program at hand, which would go on writing there.
trap 'exit 143' TERM
mkdir -p -- "$home.partial/cache" "$home.partial/receipts"
cd -- "$home.partial"
import='import importlib, sys; importlib.import_module(sys.argv[1])'

echo "unpacking uv"
"$python" -m zipfile -e "$uv_wheel" uv
uv=$(echo "$PWD"/uv/*.data/scripts/uv)
chmod 755 "$uv"

echo "listing what to install, each file with its hash"
cp -- "$requirements" requirements.txt
for made in "$@"; do
  cp -- "$made/receipt.json" "receipts/$(basename -- "$made").json"
  "$python" -I - "$made" >>requirements.txt <<'PY'
import json, pathlib, sys
home = pathlib.Path(sys.argv[1])
made = json.loads((home / "receipt.json").read_text())
print(made["name"], "@", (home / made["file"]).as_uri(), "--hash=sha256:" + made["sha256"])
PY
done

echo "installing $(grep -c -- --hash= requirements.txt) wheels"
"$uv" venv --quiet --relocatable --python "$python" venv
"$uv" pip install --quiet --python venv/bin/python --no-index --no-deps --require-hashes \\
  --requirements requirements.txt
rm -rf -- uv

# One by one, each by itself, so that a module that crashes is named too.
for module in ${{IMPORTS:-}}; do
  echo "importing $module, which was built"
  # Nothing here may need a GPU.
  said=$(CUDA_VISIBLE_DEVICES="" venv/bin/python -I -c "$import" "$module" 2>&1) && continue
  said="${{said:-nothing was said}} (exit status $?)"
  printf '%s\\n' "$said"
  echo "error: the release cannot import $module: ${{said##*$'\\n'}}" >&2
  echo "fix: add what it lacks to requirements or requires_of of the stack, then lock and build" >&2
  exit 1
done

# What is compiled now, the first start of a server need not compile.
unset PYTHONDONTWRITEBYTECODE
if [ "$engine" != none ]; then
  echo "asking $engine which flags it takes"
  venv/bin/python -I "$program" "$engine" >capabilities.json
fi
cp -- "$manifest" manifest.json
# A server compiles kernels too, with the toolkit that the release was built with.
[ -z "${{TOOLKIT:-}}" ] || ln -s -- "$TOOLKIT" cuda
cd /
# What stands there is no release: the caches of one that was removed while a server started.
rm -rf -- "$home"
mv -T -- "$home.partial" "$home"
echo "release $(basename -- "$home") is in place"
"""
