#!/usr/bin/env bash
# usage: tests/netns/run.sh PROGRAM WIRE
# Four ranks over TCP, each in a network namespace of its own, on cables that are slow, lose packets, and are cut in one
# direction without a sign (WIRE is sinew-wire, tests/netns/wire.cpp); then ranks on one loopback that dies. Needs root.
# Status 77 and a reason on the last line where the system does not allow it.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/netns/cables.bash
readonly program=$PWD/${1:?usage: tests/netns/run.sh PROGRAM WIRE} wire=$PWD/${2:?usage: tests/netns/run.sh PROGRAM WIRE}
readonly model=models/tiny/sinew-tiny-q8_0.gguf ranks=4 space="sinew-netns-$$"
folder=$(mktemp -d)
running=()

finish() {
  for process in "${running[@]}"; do kill -KILL "$process" 2>/dev/null && wait "$process" 2>/dev/null; done || true
  ip netns del "$space" 2>/dev/null || true
  remove_cables "$space" $ranks
  rm -rf "$folder"
}
trap finish EXIT

skip() { echo "$*"; exit 77; }
fail() { echo "FAILED: $*"; tail -n 20 "$folder"/*.err 2>/dev/null; exit 1; }
# has_words FILE : an answer has begun.
has_words() {
  for _ in $(seq 100); do [ "$(wc -c <"$1")" -lt 16 ] || return 0; sleep 0.2; done
  fail "no word of the answer within 20 s"
}
# ends_naming FILE PROCESS WHAT : the answer ends within a minute with an error that names a rank.
ends_naming() {
  local status=0
  for _ in $(seq 240); do kill -0 "$2" 2>/dev/null || break; sleep 0.25; done
  ! kill -0 "$2" 2>/dev/null || fail "still waiting 60 s after $3"
  wait "$2" || status=$?
  [ "$status" -ne 0 ] && [ "$status" -lt 128 ] || fail "status $status after $3"
  grep -Eq 'rank [0-3]' "$1" || fail "no rank was named after $3"
  # The rank that was waited for, not only that some rank gave up.
  ! grep -q 'ended with status' "$1" || fail "the late rank was not named after $3"
  echo "ok: $3 ends in status $status and: $(grep -E 'rank [0-3]' "$1" | tail -n 1)"
}

[ -x "$program" ] || fail "$program is not built"
[ -x "$wire" ] || fail "$wire is not built"
reason=$(ip netns add "$space" 2>&1) || skip "no network namespace may be made here: $reason"
ip -n "$space" link set lo up
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun here"
lay_cables "$wire" "$folder" "$space" $ranks --mtu 1500 || skip "the cables cannot be had: $wire_reason"
running+=("$wire_process")
set_wire() { tell_wire "$1" || fail "the wire refuses '$1'"; }

# launch NAME PORT FLAG... : rank 0's process in $leader, the others in $running; one in each namespace.
launch() {
  local name=$1 port=$2 rank
  shift 2
  for ((rank = ranks - 1; rank >= 0; --rank)); do
    SINEW_RANK=$rank SINEW_SIZE=$ranks SINEW_RENDEZVOUS=10.88.0.1:$port timeout 120 ip netns exec "$space-$rank" \
      "$program" run "$model" "Tell me a story about a fox." --launcher env --threads 1 "$@" >"$folder/$name-$rank.out" 2>"$folder/$name-$rank.err" &
    running+=($!)
    leader=$!
  done
}

# The same words whatever the network does to the packets.
timeout 60 "$program" run "$model" "Tell me a story about a fox." --ranks $ranks --temp 0 -n 40 --link shm >"$folder/shm.out" 2>"$folder/shm.err" ||
  fail "shared memory: status $?"
[ -s "$folder/shm.out" ] || fail "no answer"
set_wire "delay 1000"
set_wire "loss 0.005"
launch slow 7100 --temp 0 -n 40
wait "$leader" || fail "slow network: status $?"
cmp "$folder/shm.out" "$folder/slow-0.out" || fail "another answer over the slow network"
echo "ok: the same answer over TCP with 1 ms delay and 0.5 % loss"

# A cable that carries one direction only: both ends still look well to the system.
set_wire "delay 0"
set_wire "loss 0"
launch oneway 7200 --temp 1 --ignore-eos -n 100000 --timeout 5
has_words "$folder/oneway-0.out"
set_wire "cut $space-2 > $space-1"
ends_naming "$folder/oneway-0.err" "$leader" "a cable that carries one direction only"
set_wire mend

# A network that swallows everything, without a sign: the deadline has to end it.
ip netns exec "$space" "$program" run "$model" "Tell me a story." --ranks 4 --link tcp --recover 0 --ignore-eos -n 100000 --temp 1 \
  >"$folder/black.out" 2>"$folder/black.err" &
leader=$!
running+=($leader)
has_words "$folder/black.out"
ip -n "$space" link set lo down
ends_naming "$folder/black.err" "$leader" "a dead network"
