# firstlight build: plan for host gpu01
# in place: 0 of 5 wheels
# It stops at the first step that fails; each script is the body of a function, as in a real run,
# so that `return` ends that script with its status
set -e
as_function() {
  printf '__main() {\n%s\n}\n__main %s </dev/null\nexit "$?"\n' "$(cat)" "${*@Q}"
}
here() { as_function "$@" | bash -s; }
HOST=gpu01
export RSYNC_RSH=ssh
at_host() { ssh "$HOST" "$@"; }
on_host() { as_function "$@" | at_host exec /bin/bash -s; }
as_root() { as_function "$@" | at_host sudo /bin/bash -s; }

# 1. send the programs and patches
# sha256 000000000000 capabilities.py
# sha256 000000000000 fetch_wheels.py
# sha256 000000000000 repack_wheel.py
# sha256 000000000000 unified_diff.py
rsync -W --mkpath /here/remote/capabilities.py /here/remote/fetch_wheels.py /here/remote/repack_wheel.py /here/remote/unified_diff.py "$HOST":'/srv/first light/lib/dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd/'
# sha256 e1e1e1e1e1e1 0001-start.patch
rsync -W --mkpath /here/patches/0001-start.patch "$HOST":'/srv/first light/lib/e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1/'
# sha256 e2e2e2e2e2e2 0002-extra.patch
rsync -W --mkpath /here/patches/0002-extra.patch "$HOST":'/srv/first light/lib/e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2/'

# 2. list 5 wheels to download
# leaves /srv/first light/lib/044d5e6b9f01079913d21f9f5892c6eeaf877138fe213c182676aee10ae0d488/wheels.json
at_host 'install -D -m 644 /dev/stdin '"'"'/srv/first light/lib/044d5e6b9f01079913d21f9f5892c6eeaf877138fe213c182676aee10ae0d488/wheels.json'"'"'' <<'EOF'
{"python": "3.11", "wheels": [
  {"name": "einops", "version": "0.8.2", "file": "einops-0.8.2-py3-none-any.whl", "sha256": "b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1", "size": 1000000, "index": null},
  {"name": "filelock", "version": "3.20.0", "file": "filelock-3.20.0-py3-none-any.whl", "sha256": "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2", "size": 1000000, "index": null},
  {"name": "torch", "version": "2.13.0+cpu", "file": "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "sha256": "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1", "size": 3000000, "index": "https://torch.example/cpu"},
  {"name": "sglang", "version": "0.5.23", "file": "sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl", "sha256": "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1", "size": 39000000, "index": null},
  {"name": "uv", "version": "0.13.9", "file": "uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "sha256": "f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1", "size": 17000000, "index": null}
]}
EOF

# 3. download 5 wheels, each checked by its hash
# detached job fetch-044d5e6b9f01; a lost link does not stop it
on_host '/srv/first light' 4154 /usr/bin/python3.11 '/srv/first light/lib/dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd/fetch_wheels.py' '/srv/first light/lib/044d5e6b9f01079913d21f9f5892c6eeaf877138fe213c182676aee10ae0d488/wheels.json' <<'EOF'
set -euo pipefail
enough_space() { # $1 = folder, $2 = MiB that are needed
  local near=$1 free
  while [ ! -e "$near" ]; do near=$(dirname -- "$near"); done
  free=$(($(df -k --output=avail -- "$near" | tail -n 1) / 1024))
  [ "$free" -ge "$2" ] && return
  echo "error: no space: $1 has $free MiB free, this step needs $2 MiB" >&2
  echo "fix: make room, or give the host another root in the inventory" >&2
  return 1
}

root=$1 need=$2 python=$3 program=$4 request=$5
enough_space "$root" "$need"
mkdir -p -- "$root/wheels"
"$python" "$program" "$request" "$root/wheels"
EOF

# 4. patch sglang 0.5.23 into 0.5.23+firstlight.cpu
# leaves /srv/first light/store/sglang-0.5.23-5a22743d5902
# detached job repack-sglang-0.5.23-5a22743d5902; a lost link does not stop it
on_host '/srv/first light/store/sglang-0.5.23-5a22743d5902' /usr/bin/python3.11 '/srv/first light/lib/dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd/repack_wheel.py' '/srv/first light/wheels/c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1/sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl' firstlight.cpu --required '/srv/first light/lib/e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1/0001-start.patch' --patch '/srv/first light/lib/e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2/0002-extra.patch' <<'EOF'
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
"$python" "$program" --wheel "$wheel" --local-version "$local_version" "$@" \
  --out "$home.partial" --receipt "$home.partial/receipt.json"
mv -T -- "$home.partial" "$home"
EOF

# 5. list the files of the release
# leaves /srv/first light/lib/ce1896e1dc5d6e7ccde2c2187f8d648920038180feca5b596f37faf79ce04371/requirements.txt
at_host 'install -D -m 644 /dev/stdin '"'"'/srv/first light/lib/ce1896e1dc5d6e7ccde2c2187f8d648920038180feca5b596f37faf79ce04371/requirements.txt'"'"'' <<'EOF'
einops @ file:///srv/first%20light/wheels/b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1/einops-0.8.2-py3-none-any.whl --hash=sha256:b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1
filelock @ file:///srv/first%20light/wheels/b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2/filelock-3.20.0-py3-none-any.whl --hash=sha256:b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2
torch @ file:///srv/first%20light/wheels/a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl --hash=sha256:a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1
EOF

# 6. say what the release is made of
# leaves /srv/first light/lib/95fa8bc3781ecdaa0afc43d42187ad9ca2d7a92f35b732a76998f05333fbc9ab/manifest.json
at_host 'install -D -m 644 /dev/stdin '"'"'/srv/first light/lib/95fa8bc3781ecdaa0afc43d42187ad9ca2d7a92f35b732a76998f05333fbc9ab/manifest.json'"'"'' <<'EOF'
{
  "schema": 1,
  "release": "tiny-cpu-py311-dc2638a5d957",
  "stack": "tiny-cpu",
  "engine": "sglang",
  "python": "3.11",
  "arch": "x86_64",
  "glibc": "2.34",
  "components": [
    {
      "name": "sglang",
      "version": "0.5.23+firstlight.cpu",
      "key": "5a22743d5902",
      "source": {
        "name": "sglang",
        "version": "0.5.23",
        "file": "sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl",
        "sha256": "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1",
        "size": 39000000
      },
      "patches": [
        {
          "file": "sglang/0001-start.patch",
          "sha256": "e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1",
          "load_bearing": true
        },
        {
          "file": "sglang/0002-extra.patch",
          "sha256": "e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2",
          "load_bearing": false
        }
      ]
    }
  ],
  "wheels": [
    {
      "name": "einops",
      "version": "0.8.2",
      "file": "einops-0.8.2-py3-none-any.whl",
      "sha256": "b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1",
      "size": 1000000
    },
    {
      "name": "filelock",
      "version": "3.20.0",
      "file": "filelock-3.20.0-py3-none-any.whl",
      "sha256": "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2",
      "size": 1000000
    },
    {
      "name": "torch",
      "version": "2.13.0+cpu",
      "file": "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
      "sha256": "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
      "size": 3000000,
      "index": "torch-cpu"
    }
  ],
  "env": {
    "SGLANG_USE_CPU_ENGINE": "1"
  },
  "firstlight": "0.1.0"
}
EOF

# 7. assemble release tiny-cpu-py311-dc2638a5d957
# leaves /srv/first light/releases/tiny-cpu-py311-dc2638a5d957
# detached job release-tiny-cpu-py311-dc2638a5d957; a lost link does not stop it
on_host '/srv/first light' '/srv/first light/releases/tiny-cpu-py311-dc2638a5d957' 4096 /usr/bin/python3.11 '/srv/first light/wheels/f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1/uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl' '/srv/first light/lib/ce1896e1dc5d6e7ccde2c2187f8d648920038180feca5b596f37faf79ce04371/requirements.txt' '/srv/first light/lib/95fa8bc3781ecdaa0afc43d42187ad9ca2d7a92f35b732a76998f05333fbc9ab/manifest.json' '/srv/first light/lib/dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd/capabilities.py' sglang '/srv/first light/store/sglang-0.5.23-5a22743d5902' <<'EOF'
export UV_CACHE_DIR='/srv/first light/cache/uv'
export UV_NO_CONFIG=1
export UV_OFFLINE=1
export UV_PYTHON_DOWNLOADS=never
export SGLANG_USE_CPU_ENGINE=1
set -euo pipefail
enough_space() { # $1 = folder, $2 = MiB that are needed
  local near=$1 free
  while [ ! -e "$near" ]; do near=$(dirname -- "$near"); done
  free=$(($(df -k --output=avail -- "$near" | tail -n 1) / 1024))
  [ "$free" -ge "$2" ] && return
  echo "error: no space: $1 has $free MiB free, this step needs $2 MiB" >&2
  echo "fix: make room, or give the host another root in the inventory" >&2
  return 1
}

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
"$uv" pip install --quiet --python venv/bin/python --no-index --no-deps --require-hashes \
  --requirements requirements.txt
rm -rf -- uv

# One by one, each by itself, so that a module that crashes is named too.
for module in ${IMPORTS:-}; do
  echo "importing $module, which was built"
  # Nothing here may need a GPU.
  said=$(CUDA_VISIBLE_DEVICES="" venv/bin/python -I -c "$import" "$module" 2>&1) && continue
  said="${said:-nothing was said} (exit status $?)"
  printf '%s\n' "$said"
  echo "error: the release cannot import $module: ${said##*$'\n'}" >&2
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
[ -z "${TOOLKIT:-}" ] || ln -s -- "$TOOLKIT" cuda
cd /
# What stands there is no release: the caches of one that was removed while a server started.
rm -rf -- "$home"
mv -T -- "$home.partial" "$home"
echo "release $(basename -- "$home") is in place"
EOF
