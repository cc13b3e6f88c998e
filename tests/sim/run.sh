#!/usr/bin/env bash
# run.sh COUNT [FIRST] [BUILD]: COUNT seeds from FIRST on, spread over the processors. Prints the seeds
# that break an invariant, and the sums; status 1 if there is one. Replay: sim --seed N --verbose.
set -euo pipefail
count=${1:?how many seeds}
first=${2:-1}
build=${3:-$(dirname "$0")/../../build/dev}
jobs=$(nproc 2>/dev/null || sysctl -n hw.ncpu)
each=$(((count + jobs - 1) / jobs))
pids=()
for ((job = 0; job < jobs; ++job)); do
  at=$((first + job * each))
  left=$((first + count - at))
  ((left > 0)) || break
  "$build/tests/sim/sim" --seed "$at" --count "$((left < each ? left : each))" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
