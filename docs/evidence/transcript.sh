#!/usr/bin/env bash
# Prints a transcript: each command line read from standard input, what it printed, its exit
# status and its wall time. Commands run in the present folder, one shell each.
while IFS= read -r line; do
  [ -n "$line" ] || continue
  printf '\n$ %s\n' "$line"
  begin=$(date +%s%N)
  bash -c "$line" 2>&1 </dev/null
  status=$?
  took=$((($(date +%s%N) - begin) / 100000000))
  printf '[exit status %d, %d.%d s]\n' "$status" $((took / 10)) $((took % 10))
done
