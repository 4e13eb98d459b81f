#!/bin/bash
# Starts the model server of one deployment. Written by firstlight: a change made here is lost.
set -eu

fail() {
  printf 'launch.sh: %s\n' "$1" >&2
  exit 78 # EX_CONFIG: starting again would not help, and systemd is told not to
}

cd /srv/fl/deployments/p/1

# A release that was removed must not come back as a folder of caches.
[ -x /srv/fl/releases/r1/venv/bin/python ] ||
  fail "no "/srv/fl/releases/r1/venv/bin/python": its release was removed; run invoke build, then deploy again"

# One python and its packages, and nothing of the account that runs it.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
export PATH=/srv/fl/releases/r1/venv/bin:"${PATH:-/usr/bin:/bin}"
export HOME="${HOME:-"$PWD"}"

# What is compiled at run time belongs to the release: another release never reads it.
mkdir -p /srv/fl/releases/r1/cache
export XDG_CACHE_HOME=/srv/fl/releases/r1/cache
export TRITON_CACHE_DIR=/srv/fl/releases/r1/cache/triton
export FLASHINFER_WORKSPACE_BASE=/srv/fl/releases/r1/cache/flashinfer
export TORCHINDUCTOR_CACHE_DIR=/srv/fl/releases/r1/cache/inductor
export CUDA_CACHE_PATH=/srv/fl/releases/r1/cache/cuda

# The weights are on this host; a name that is no folder must not start a download.
export HF_HUB_OFFLINE=1

# The compiler of the release, where it has one; by its real path, which caches remember.
if cuda=$(readlink -e /srv/fl/releases/r1/cuda); then
  export CUDA_HOME="$cuda" CUDA_PATH="$cuda" PATH="$cuda/bin:$PATH"
fi

exec /srv/fl/releases/r1/venv/bin/python -m sglang.launch_server \
  --model-path /srv/fl/models/m \
  --served-model-name m \
  --host 127.0.0.1 \
  --port 30000 \
  --kv-cache-dtype bf16
