#!/bin/bash
# Test hosts: keeps one host up. Boots it again when it reboots, shuts it down on SIGTERM.
# usage: keep_booted.sh CGROUP... -- SYSTEMD_NSPAWN ARGUMENT...
# A host needs a control group of its own: two that share one would tidy up each other's units.
set -u

until [ "$1" = -- ]; do
  echo $$ > "$1/cgroup.procs"
  shift
done
shift

stopping=
trap 'stopping=1; kill -TERM "${!-}" 2> /dev/null' TERM

# systemd-nspawn --keep-unit ends with 133 when the host asks for a reboot.
status=133
while [ "$status" = 133 ] && [ -z "$stopping" ]; do
  "$@" &
  wait $!
  status=$?
  # A signal ends `wait` early; the host is down only when its process is gone.
  while kill -0 $! 2> /dev/null; do
    wait $!
    status=$?
  done
done
