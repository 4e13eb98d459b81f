#!/bin/bash
# Starts the model server of one deployment. Written by firstlight: a change made here is lost.
set -eu

fail() {
  printf 'launch.sh: %s\n' "$1" >&2
  exit 78 # EX_CONFIG: starting again would not help, and systemd is told not to
}

cd '/srv/it'"'"'s 50%/deployments/p/1'

# A release that was removed must not come back as a folder of caches.
[ -x '/srv/it'"'"'s 50%/releases/r1/venv/bin/python' ] ||
  fail "no "'/srv/it'"'"'s 50%/releases/r1/venv/bin/python'": its release was removed; run invoke build, then deploy again"

# One python and its packages, and nothing of the account that runs it.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
export PATH='/srv/it'"'"'s 50%/releases/r1/venv/bin':"${PATH:-/usr/bin:/bin}"
export HOME="${HOME:-"$PWD"}"

# What is compiled at run time belongs to the release: another release never reads it.
mkdir -p '/srv/it'"'"'s 50%/releases/r1/cache'
export XDG_CACHE_HOME='/srv/it'"'"'s 50%/releases/r1/cache'
export TRITON_CACHE_DIR='/srv/it'"'"'s 50%/releases/r1/cache/triton'
export FLASHINFER_WORKSPACE_BASE='/srv/it'"'"'s 50%/releases/r1/cache/flashinfer'
export TORCHINDUCTOR_CACHE_DIR='/srv/it'"'"'s 50%/releases/r1/cache/inductor'
export CUDA_CACHE_PATH='/srv/it'"'"'s 50%/releases/r1/cache/cuda'

# The weights are on this host; a name that is no folder must not start a download.
export HF_HUB_OFFLINE=1

# The compiler of the release, where it has one; by its real path, which caches remember.
if cuda=$(readlink -e '/srv/it'"'"'s 50%/releases/r1/cuda'); then
  export CUDA_HOME="$cuda" CUDA_PATH="$cuda" PATH="$cuda/bin:$PATH"
fi

# The stack, the host and the profile, in this order.
export STACK=1
export OMP_NUM_THREADS=1
export GREETING='$HOME `x` "y" % é'

# Secrets come from files that only the owner may read. A line is never evaluated.
read_secrets() {
  [ -f "$1" ] || fail "no file $1"
  [ -O "$1" ] || fail "$1 belongs to somebody else"
  case "$(stat -c %a -- "$1")" in *00) ;; *) fail "$1 can be read by others; chmod 600 it" ;; esac
  while IFS= read -r line || [ -n "$line" ]; do
    name=${line%%=*}
    [[ $line == *=* && $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
    case " $wanted " in *" $name "*) export "$name=${line#*=}" ;; esac
  done <"$1"
}
wanted='HF_TOKEN SGLANG_API_KEY'
[ ! -e env ] || read_secrets "$PWD/env"
read_secrets '/etc/it'"'"'s.env'
for name in $wanted; do
  [ -n "${!name:-}" ] || fail "the secret $name is not set"
done

# The engine takes these only as flags; a file keeps them out of the list of processes.
rm -f engine.yaml
(
  umask 077
  '/srv/it'"'"'s 50%/releases/r1/venv/bin/python' -c '
import json, os, sys
pairs = (pair.split("=") for pair in sys.argv[1:])
print(json.dumps({flag: os.environ[name] for name, flag in pairs}, ensure_ascii=False))' \
    SGLANG_API_KEY=api-key >engine.yaml
)
unset SGLANG_API_KEY

exec '/srv/it'"'"'s 50%/releases/r1/venv/bin/python' -m sglang.launch_server \
  --model-path '/srv/it'"'"'s 50%/models/m' \
  --served-model-name m \
  --host 127.0.0.1 \
  --port 31000 \
  --config engine.yaml \
  --kv-cache-dtype bf16 \
  --tp-size 8 \
  --trust-remote-code \
  --override '{"a": "it'"'"'s 50%"}' \
  --lora-paths 'a b'
