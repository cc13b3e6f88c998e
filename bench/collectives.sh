#!/bin/sh
# The all-reduce table of docs/benchmarks.md: Sinew beside Open MPI and UCX (Open MPI over UCX), over shared memory
# and over loopback TCP, median microseconds:
#   bench/collectives.sh path/to/sinew [ROUNDS]
# All programs run in turn, ROUNDS times (default 5); of each figure the best round counts, because other work on the
# machine only adds. What cannot be had is a '-' and a line on standard error. Needs jq.
set -eu
sinew=${1:?usage: bench/collectives.sh path/to/sinew [ROUNDS]}
rounds=${2:-5}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sizes="8192 28672 262144 4194304"
repeats=1000

have_mpi=no
have_ucx=no
if command -v mpicxx >/dev/null && command -v mpirun >/dev/null; then
  mpicxx -std=c++20 -O2 -o "$work/mpi_all_reduce" "$here/mpi_all_reduce.cpp" && have_mpi=yes
  if ompi_info 2>/dev/null | grep -q 'pml: ucx'; then have_ucx=yes; fi
fi
[ $have_mpi = yes ] || echo "no mpicxx: install libopenmpi-dev for the columns of Open MPI" >&2
[ $have_ucx = yes ] || echo "Open MPI has no UCX here: its columns stay empty" >&2

# What every program writes: "program ranks bytes p50 p99".
run_sinew() {
  "$sinew" bench collectives --ranks "$2" --transport "$1" --only measured --repeats $repeats --json \
    --sizes "$(echo $sizes | tr ' ' ',')" |
    jq -r --arg name "sinew_$1" '.collectives[] | "\($name) \(.ranks) \(.bytes) \(.p50_us) \(.p99_us)"'
}
run_mpi() {
  name=$1
  ranks=$2
  shift 2
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "$@" -np "$ranks" \
    "$work/mpi_all_reduce" $repeats $sizes 2>"$work/errors" | sed "s/^/$name $ranks /" || {
    echo "$name failed: $(head -n 1 "$work/errors")" >&2
  }
}

round=0
while [ $round -lt "$rounds" ]; do
  for ranks in 2 4; do
    run_sinew shm $ranks
    run_sinew tcp $ranks
    if [ $have_mpi = yes ]; then
      run_mpi mpi_shm $ranks --mca pml ob1 --mca btl self,vader
      run_mpi mpi_tcp $ranks --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo
    fi
    if [ $have_ucx = yes ]; then
      run_mpi ucx_shm $ranks --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=self,sm
      run_mpi ucx_tcp $ranks --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=self,tcp \
        -x UCX_NET_DEVICES=lo
    fi
  done
  round=$((round + 1))
done >"$work/all"

awk '
  { key = $1 " " $2 " " $3
    if (!(key in best) || $4 < best[key]) best[key] = $4
    if (!(($2, $3) in seen)) { seen[$2, $3] = 1; order[++count] = $2 " " $3 } }
  function cell(name, place) { return (name " " place) in best ? sprintf("%.1f", best[name " " place]) : "-" }
  # Sinew against the best of the others.
  function ratio(kind, place,   own, other, least) {
    own = best["sinew_" kind " " place]
    least = 0
    if (("mpi_" kind " " place) in best) least = best["mpi_" kind " " place]
    other = ("ucx_" kind " " place) in best ? best["ucx_" kind " " place] : 0
    if (other > 0 && (least == 0 || other < least)) least = other
    return least > 0 ? sprintf("%.2f", own / least) : "-"
  }
  END {
    print "| ranks | bytes | Sinew shm | Open MPI shm | UCX shm | Sinew / best | Sinew tcp | Open MPI tcp | UCX tcp | Sinew / best |"
    print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= count; ++i) {
      split(order[i], part, " ")
      printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", part[1], part[2],
        cell("sinew_shm", order[i]), cell("mpi_shm", order[i]), cell("ucx_shm", order[i]), ratio("shm", order[i]),
        cell("sinew_tcp", order[i]), cell("mpi_tcp", order[i]), cell("ucx_tcp", order[i]), ratio("tcp", order[i])
    }
  }' "$work/all" | sort -t'|' -k2,2n -s
