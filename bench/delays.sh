#!/usr/bin/env bash
# usage: bench/delays.sh [--build DIR] [--model FILE] [--ranks N] [--threads N] [--tokens N] [--floats N] [--repeat N] [--delays "10 50 300"] [--rpc]
# Decode speed over slow cables: one rank in each of four network namespaces, whose packets tests/netns/wire.cpp holds
# for 10, 50 and 300 us each way, beside what the design says of a token:
#   T = computing + collectives x (a + n/B)
# where computing and the number of collectives are what the slowest rank tells of that run, and a + n/B is what one sum of
# two ranks takes over the same cable when nothing else runs (tests/guest/link_peer.cpp). With --rpc also llama.cpp's RPC, one server in each namespace, on the same cables. Needs
# root and jq. All setups of a delay run in turn; of each the best round counts. 4 ranks on fewer cores compute in turns,
# which is in all rows alike.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/netns/cables.bash

build=build/bench model=models/tiny/sinew-tiny-q8_0.gguf ranks=4 threads=1 tokens=64 floats=256 repeat=3 delays="10 50 300" rpc=no
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --tokens) tokens=$2; shift 2 ;;
    --floats) floats=$2; shift 2 ;;  # of one token's hidden state
    --repeat) repeat=$2; shift 2 ;;
    --delays) delays=$2; shift 2 ;;
    --rpc) rpc=yes; shift ;;
    *) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
readonly sinew=$build/sinew peer=$build/tests/guest/link_peer wire=$build/tests/netns/sinew-wire port=7100 prompt=1 limit=300
readonly tag="sd$$"
work=$(mktemp -d)
started=()

finish() {
  for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null && wait "$process" 2>/dev/null; done || true
  remove_cables "$tag" "$ranks"
  rm -rf "$work"
}
trap finish EXIT
stop() { echo "bench/delays.sh: $*" >&2; exit 1; }
for needed in "$sinew" "$peer" "$wire"; do [ -x "$needed" ] || stop "$needed is not built: cmake --build $build --target $(basename "$needed")"; done

lay_cables "$wire" "$work" "$tag" "$ranks" || stop "the wire does not come up: $wire_reason"
started+=("$wire_process")

inside() { local rank=$1; shift; ip netns exec "$tag-$rank" "$@"; }

# "tokens/s of decode, collectives of one token, seconds of computing of one token"
run_sinew() {
  local rank answer followers=()
  for ((rank = 1; rank < ranks; ++rank)); do
    SINEW_RANK=$rank SINEW_SIZE=$ranks SINEW_RENDEZVOUS=10.88.0.1:$port inside "$rank" \
      timeout $limit "$sinew" bench "$model" --launcher env --threads "$threads" >/dev/null 2>"$work/rank$rank" &
    followers+=($!)
  done
  answer=$(SINEW_RANK=0 SINEW_SIZE=$ranks SINEW_RENDEZVOUS=10.88.0.1:$port inside 0 timeout $limit "$sinew" bench "$model" \
    --launcher env --threads "$threads" -p $prompt -n "$tokens" --repeats 3 --json 2>"$work/rank0") || stop "$(tail -n 3 "$work"/rank*)"
  wait "${followers[@]}" || true
  # A step for the prompt and one for each token but the last.
  jq -r '"\(.decode_all | last) \(.rank_seconds[0].collectives / .answer_tokens) \([.rank_seconds[].compute] | max / '"$tokens"')"' <<<"$answer"
}

# Microseconds of one hop: a + n/B.
run_hop() {
  inside 1 "$peer" --rank 1 --hosts 10.88.0.1,10.88.0.2 --port 7300 --floats "$floats" --steps 2000 >/dev/null &
  inside 0 "$peer" --rank 0 --hosts 10.88.0.1,10.88.0.2 --port 7300 --floats "$floats" --steps 2000 |
    sed -n 's/^done.* took \(.*\) us/\1/p'
  wait $!
}

servers=""
start_llama() {
  cmake --build "$build" --target sinew_oracle_rpc sinew-oracle >"$work/build.log" 2>&1 || stop "$(tail -n 3 "$work/build.log")"
  oracle=$(find "$build" -name sinew-oracle -type f | head -n 1)
  plugin=$(find "$build" -name libsinew_oracle_rpc.so | head -n 1)
  local rank
  for ((rank = 0; rank < ranks; ++rank)); do
    ip netns exec "$tag-$rank" "$oracle" serve "10.88.0.$((rank + 1)):50171" --rpc "$plugin" --threads "$threads" >/dev/null 2>"$work/server$rank" &
    started+=($!)
    servers="$servers,10.88.0.$((rank + 1)):50171"
  done
  servers=${servers#,}
  sleep 1
}
run_llama() {
  local answer
  answer=$(inside 0 timeout $limit "$oracle" bench "$model" -p $prompt -n "$tokens" --rpc "$plugin" --split layer --servers "$servers" \
    2>"$work/llama") || { tail -n 1 "$work/llama" >&2; echo -; return; }
  jq -r '"\(.decode_tps)"' <<<"$answer"
}
[ "$rpc" = no ] || start_llama

for ((round = 0; round < repeat; ++round)); do
  for delay in 0 $delays; do
    tell_wire "delay $delay" || stop "the wire refuses 'delay $delay'"
    echo "hop $delay $(run_hop)"
    echo "sinew $delay $(run_sinew)"
    [ "$rpc" = no ] || echo "llama $delay $(run_llama)"
  done
done >"$work/all"

printf '%s, %d ranks of %d threads on %d cores, load %s\n' "$(basename "$model")" "$ranks" "$threads" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
awk '
  !($2 in seen) { seen[$2] = 1; order[++count] = $2 }
  $1 == "hop" { if (!($2 in hop) || $3 < hop[$2]) hop[$2] = $3; next }
  $1 == "llama" { if ($3 > rpc[$2]) rpc[$2] = $3; next }
  $3 > best[$2] { best[$2] = $3; sums[$2] = $4; computing[$2] = $5 }
  END {
    print "| delay us | one hop us | collectives a token | computing ms | tokens/s | by the model | measured / model | llama.cpp RPC | times RPC |"
    print "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= count; ++i) {
      d = order[i]; model = 1 / (computing[d] + sums[d] * hop[d] / 1e6)
      printf "| %d | %.0f | %.0f | %.2f | %.1f | %.1f | %.2f | %s | %s |\n", d, hop[d], sums[d], computing[d] * 1e3, best[d], model, best[d] / model,
        rpc[d] ? sprintf("%.1f", rpc[d]) : "-", rpc[d] ? sprintf("%.1f", best[d] / rpc[d]) : "-"
    }
  }' "$work/all"
