#!/bin/sh
# One table of all_reduce_bench (shm, tcp) beside Open MPI (its shared memory), 2 and 4 ranks:
#   bench/all_reduce.sh path/to/all_reduce_bench
# Without mpicxx the columns of Open MPI stay empty. "ratio" is Open MPI's median over that of shm: above 1, Sinew
# is faster.
set -eu
bench=${1:?usage: bench/all_reduce.sh path/to/all_reduce_bench}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

have_mpi=no
if command -v mpicxx >/dev/null && command -v mpirun >/dev/null; then
  mpicxx -std=c++20 -O2 -o "$work/mpi_all_reduce" "$here/mpi_all_reduce.cpp" && have_mpi=yes
fi

echo "ranks    bytes |  shm us  p99 us   GB/s |  tcp us  p99 us   GB/s |  MPI us  p99 us   GB/s | ratio"
for ranks in 2 4; do
  "$bench" shm $ranks >"$work/shm"
  "$bench" tcp $ranks >"$work/tcp"
  : >"$work/mpi"
  if [ $have_mpi = yes ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      mpirun --oversubscribe -np $ranks "$work/mpi_all_reduce" >"$work/mpi"
  fi
  awk -v ranks=$ranks '
    FILENAME ~ /shm$/ { order[++count] = $2 }
    { source = FILENAME; sub(/.*\//, "", source)
      median[source, $2] = $3; late[source, $2] = $4; rate[source, $2] = $5 }
    END {
      for (i = 1; i <= count; ++i) {
        bytes = order[i]
        line = sprintf("%5d %8d", ranks, bytes)
        split("shm tcp mpi", sources, " ")
        for (s = 1; s <= 3; ++s) {
          key = sources[s]
          if ((key, bytes) in median)
            line = line sprintf(" | %7.1f %7.1f %6.2f", median[key, bytes], late[key, bytes], rate[key, bytes])
          else
            line = line " |       -       -      -"
        }
        if (("mpi", bytes) in median && median["shm", bytes] > 0)
          line = line sprintf(" | %5.2f", median["mpi", bytes] / median["shm", bytes])
        print line
      }
    }' "$work/shm" "$work/tcp" "$work/mpi"
done
