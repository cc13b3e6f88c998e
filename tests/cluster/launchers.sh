#!/usr/bin/env bash
# usage: tests/cluster/launchers.sh PROGRAM
# Ranks that mpirun starts, or a shell as any other launcher would: the same answer as from ranks that the program
# starts itself, every process ends, and a killed one is named. Status 77 and a reason where there is no mpirun.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly program=${1:?usage: tests/cluster/launchers.sh PROGRAM}
readonly answer=(run models/tiny/sinew-tiny-q8_0.gguf "Tell me a story about a fox." --threads 1)
folder=$(mktemp -d)
started=()

finish() {
  for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap finish EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$folder"/*.err; exit 1; }

same_answer() { # NAME: what was written is what ranks of the program's own said
  [ -s "$folder/own.out" ] || fail "no answer to compare with"
  cmp "$folder/own.out" "$folder/$1.out" || fail "$1: another answer"
  echo "ok: $1"
}
has_ucx() { ! "$program" "${answer[@]}" --ranks 2 -n 1 --link ucx 2>&1 >/dev/null | grep -q 'ucx: '; }

# One process a rank, from 1 up, in the background; rank 0 is the caller's.
readonly size=4
start_followers() { # PORT NAME FLAG...
  local port=$1 name=$2 rank
  shift 2
  started=()
  for ((rank = 1; rank < size; ++rank)); do
    SINEW_RANK=$rank SINEW_SIZE=$size SINEW_RENDEZVOUS=127.0.0.1:$port \
      "$program" "${answer[@]}" --launcher env "$@" >"$folder/$name-$rank.out" 2>"$folder/$name-$rank.err" &
    started+=($!)
  done
}
lead() { # PORT FLAG...
  local port=$1
  shift
  SINEW_RANK=0 SINEW_SIZE=$size SINEW_RENDEZVOUS=127.0.0.1:$port timeout 100 "$program" "${answer[@]}" --launcher env "$@"
}
free_port() { echo $((21000 + ($$ + $1 * 97) % 9000)); }

timeout 60 "$program" "${answer[@]}" --ranks $size -n 40 >"$folder/own.out" 2>"$folder/own.err" || fail "own ranks: status $?"

port=$(free_port 1)
start_followers "$port" env -n 40
lead "$port" -n 40 >"$folder/env.out" 2>"$folder/env.err" || fail "ranks started by a shell: status $?"
for process in "${started[@]}"; do wait "$process" || fail "a rank ended with status $?"; done
[ -z "$(cat "$folder"/env-*.out)" ] || fail "a rank other than 0 wrote to standard output"
same_answer env

# A rank that dies is named, and nobody stays.
port=$(free_port 2)
start_followers "$port" killed --temp 1 --ignore-eos -n 100000
lead "$port" --temp 1 --ignore-eos -n 100000 >"$folder/killed.out" 2>"$folder/killed.err" &
leader=$!
for ((i = 0; i < 300; ++i)); do [ -s "$folder/killed.out" ] && break; sleep 0.1; done
[ -s "$folder/killed.out" ] || fail "no answer to interrupt"
kill -KILL "${started[1]}"
wait "${started[1]}" 2>/dev/null || true  # keeps bash from reporting it
status=0
wait $leader || status=$?
[ "$status" = 1 ] || fail "rank 2 was killed: status $status"
grep -q 'error: rank 2 (at 127.0.0.1, .*closed its connection' "$folder/killed.err" || fail "rank 2 is not named"
for ((i = 0; i < 50; ++i)); do
  left=$(for process in "${started[@]}"; do kill -0 "$process" 2>/dev/null && echo "$process"; done || true)
  [ -z "$left" ] && break
  sleep 0.1
done
[ -z "$left" ] || fail "still there: $left"
echo "ok: a killed rank is named"

command -v mpirun >/dev/null || { echo "mpirun is not installed (Debian: openmpi-bin)"; exit 77; }
as_root=()
[ "$(id -u)" != 0 ] || as_root=(--allow-run-as-root)
links=(tcp)
if has_ucx; then links+=(ucx); else echo "SKIP: ucx: neither built in nor installed"; fi
for link in "${links[@]}"; do
  timeout 100 mpirun "${as_root[@]}" --oversubscribe -np $size "$program" "${answer[@]}" -n 40 --launcher mpi --link "$link" \
    >"$folder/mpirun-$link.out" 2>"$folder/mpirun-$link.err" </dev/null || fail "mpirun over $link: status $?"
  same_answer "mpirun-$link"
done
