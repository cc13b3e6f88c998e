#!/usr/bin/env bash
# usage: tests/netns/run.sh PROGRAM
# Four ranks over TCP inside a network namespace of their own, whose loopback is slow and loses packets (where
# the kernel can do that), and then loses all of them. Needs root. Status 77 and a reason on the last line where the system does not allow it.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly program=$PWD/${1:?usage: tests/netns/run.sh PROGRAM}
readonly model=models/tiny/sinew-tiny-q8_0.gguf
readonly space="sinew-netns-$$"
folder=$(mktemp -d)
running=""

finish() {
  [ -z "$running" ] || kill -KILL "$running" 2>/dev/null || true
  ip netns del "$space" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT

skip() { echo "$*"; exit 77; }
fail() { echo "FAILED: $*"; cat "$folder"/*.err 2>/dev/null | tail -n 20; exit 1; }

[ -x "$program" ] || fail "$program is not built"
reason=$(ip netns add "$space" 2>&1) || skip "no network namespace may be made here: $reason"
ip -n "$space" link set lo up
network="1 ms delay and 0.5 % loss"
if ! reason=$(tc -n "$space" qdisc add dev lo root netem delay 1ms 200us loss 0.5% 2>&1); then
  network="neither delay nor loss"
  echo "SKIP: slow network: the kernel has no netem ($reason)"
fi

answer=(run "$model" "Tell me a story about a fox." --ranks 4 --temp 0 -n 40)

# The same words whatever the network does to the packets.
timeout 60 "$program" "${answer[@]}" --link shm >"$folder/shm.out" 2>"$folder/shm.err" || fail "shared memory: status $?"
timeout 120 ip netns exec "$space" "$program" "${answer[@]}" --link tcp >"$folder/slow.out" 2>"$folder/slow.err" ||
  fail "slow network: status $?"
[ -s "$folder/shm.out" ] || fail "no answer"
cmp "$folder/shm.out" "$folder/slow.out" || fail "another answer over the slow network"
echo "ok: the same answer over TCP with $network"

# A network that swallows everything, without a sign: the deadline has to end it.
ip netns exec "$space" "$program" run "$model" "Tell me a story." --ranks 4 --link tcp --ignore-eos -n 100000 --temp 1 \
  >"$folder/black.out" 2>"$folder/black.err" &
running=$!
for _ in $(seq 100); do [ "$(wc -c <"$folder/black.out")" -lt 16 ] || break; sleep 0.2; done
[ -s "$folder/black.out" ] || fail "no word of the answer within 20 s"
ip -n "$space" link set lo down
for _ in $(seq 240); do kill -0 "$running" 2>/dev/null || break; sleep 0.25; done
! kill -0 "$running" 2>/dev/null || fail "still waiting 60 s after the network went"
status=0
wait "$running" || status=$?
running=""
[ "$status" -ne 0 ] && [ "$status" -lt 128 ] || fail "status $status after the network went"
grep -Eq 'rank [0-3]' "$folder/black.err" || fail "no rank was named"
# The rank that was waited for, not only that some rank gave up.
! grep -q 'ended with status' "$folder/black.err" || fail "the late rank was not named"
echo "ok: a dead network ends in status $status and: $(grep -E 'rank [0-3]' "$folder/black.err" | tail -n 1)"
