#!/usr/bin/env bash
# Prefill and decode speed of Sinew and of llama.cpp on the same files, in one interleaved run, so that a slow
# hour of the machine hits both. Medians and ratios as a table; every single run as CSV.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: bench/decode.sh [--build DIR] [--repeat N] [--models "dense15 k2cut"] [--rpc] [--csv FILE]
  --build   a build folder configured with SINEW_TESTS=ON and CMAKE_BUILD_TYPE=Release (build/release)
  --repeat  rounds; each runs every setup once (3)
  --rpc     also llama.cpp's RPC over two local servers of one thread each
  --csv     where the single runs go (standard output's table holds medians only)
The models are written once, by sinew-generate, to bench-models/ in the cache folder (SINEW_CACHE, or
sinew/ in XDG_CACHE_HOME or ~/.cache). k2cut is 5 GB.
TEXT
}

build=build/release repeat=3 models="dense15 k2cut" rpc=no csv=""
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --repeat) repeat=$2; shift 2 ;;
    --models) models=$2; shift 2 ;;
    --rpc) rpc=yes; shift ;;
    --csv) csv=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

readonly prompt=64 tokens=32 run_limit=600
readonly store="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}/bench-models"
readonly rpc_port=50171
work=$(mktemp -d)
servers=""
clean_up() {
  [ -z "$servers" ] || kill $servers 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
stop() { printf 'bench: %s\n' "$*" >&2; exit 1; }

sinew=$(find "$build" -name sinew -type f -perm -u+x | head -1)
oracle=$(find "$build" -name sinew-oracle -type f -perm -u+x | head -1)
generate=$(find "$build" -name sinew-generate -type f -perm -u+x | head -1)
[ -n "$sinew" ] || stop "no program sinew under $build: build it first"
[ -n "$oracle" ] && [ -n "$generate" ] ||
  stop "no sinew-oracle or sinew-generate under $build: configure with -DSINEW_TESTS=ON and build both"
command -v jq >/dev/null || stop "jq is missing"
runs="${csv:-$work/runs.csv}"
echo "model,setup,round,prefill_tps,decode_tps" >"$runs"

model_file() { # NAME : its path; written first if it is not there
  local path="$store/$1.gguf"
  if [ ! -e "$path" ]; then
    mkdir -p "$store"
    "$generate" "$1" "$path.part" >&2 || stop "$1 could not be generated"
    mv "$path.part" "$path"
  fi
  echo "$path"
}

# One run: "prefill decode", or nothing if it failed (its reason goes to standard error).
speeds() {
  local answer
  answer=$(timeout "$run_limit" "$@" 2>"$work/errors") || {
    printf 'bench: failed (%s): %s\n' "$*" "$(tail -1 "$work/errors")" >&2
    return 0
  }
  jq -r '"\(.prefill_tps) \(.decode_tps)"' <<<"$answer"
}

# llama.cpp has several kernels for one processor, and the one it would choose may be slow or refuse the
# model (its AMX layout and latent attention). It is measured with the fastest that works.
llama_flags() { # MODEL
  local best=0 chosen="" flags got score
  for flags in "--repack" "" "--cpu icelake --repack" "--cpu haswell --repack"; do
    # shellcheck disable=SC2086
    got=$(speeds "$oracle" bench "$1" -p $prompt -n 8 --threads 1 $flags 2>>"$work/probes")
    [ -n "$got" ] || { printf 'llama.cpp %-24s refuses or cannot run this model\n' "[$flags]" >&2; continue; }
    printf 'llama.cpp %-24s prefill, decode: %s\n' "[$flags]" "$got" >&2
    score=$(awk '{ print $1 * $2 }' <<<"$got")
    if awk "BEGIN { exit !($score > $best) }"; then best=$score chosen=$flags; fi
  done
  [ "$best" != 0 ] || stop "llama.cpp runs $1 in no way"
  echo "$chosen"
}

start_servers() { # PLUGIN
  local i
  for i in 0 1; do
    "$oracle" serve 127.0.0.1:$((rpc_port + i)) --rpc "$1" --threads 1 >/dev/null 2>"$work/server$i" &
    servers="$servers $!"
  done
  sleep 1
}

run_setup() { # MODEL SETUP FLAGS : the command of one setup
  case "$2" in
    sinew-*)
      local ranks=${2#sinew-} threads
      threads=${ranks#*x} ranks=${ranks%x*}
      speeds "$sinew" bench "$1" --ranks "$ranks" --threads "$threads" -p $prompt -n $tokens --repeats 1 --json ;;
    llama-rpc-*)
      speeds "$oracle" bench "$1" -p $prompt -n $tokens --rpc "$plugin" --split "${2#llama-rpc-}" \
        --servers 127.0.0.1:$rpc_port,127.0.0.1:$((rpc_port + 1)) ;;
    llama-*)
      # shellcheck disable=SC2086
      speeds "$oracle" bench "$1" --threads "${2#llama-}" -p $prompt -n $tokens $3 ;;
  esac
}

plugin=""
if [ "$rpc" = yes ]; then
  cmake --build "$build" --target sinew_oracle_rpc >"$work/build.log" 2>&1 || { tail -5 "$work/build.log" >&2; stop "llama.cpp's RPC plugin did not build"; }
  plugin=$(find "$build" -name 'libsinew_oracle_rpc.so' | head -1)
  start_servers "$plugin"
fi

printf '%s, %s threads, load %s\n' "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- || uname -m)" \
  "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
failed=no
for model in $models; do
  path=$(model_file "$model")
  flags=$(llama_flags "$path")
  setups="sinew-1x1 llama-1 sinew-1x2 llama-2 sinew-2x1 sinew-4x1"
  [ "$rpc" = no ] || setups="$setups llama-rpc-layer"
  # The tensor split of llama.cpp refuses latent attention.
  [ "$rpc" = no ] || [ "$model" != dense15 ] || setups="$setups llama-rpc-tensor"
  for round in $(seq "$repeat"); do
    for setup in $setups; do
      got=$(run_setup "$path" "$setup" "$flags")
      if [ -n "$got" ]; then echo "$model,$setup,$round,${got/ /,}" >>"$runs"; else failed=yes; fi
    done
  done
done

# Medians, and the ratios that the project's bars are about.
tail -n +2 "$runs" | sort -t, -k1,2 | awk -F, '
  function median(list, n,   i, j, x, a) {
    n = split(list, a, " ")
    for (i = 2; i <= n; i++) { x = a[i] + 0; for (j = i - 1; j > 0 && a[j] + 0 > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
    return n % 2 ? a[(n + 1) / 2] + 0 : (a[n / 2] + a[n / 2 + 1]) / 2
  }
  function ratio(model, over, under,   a, b) {
    a = model "," over; b = model "," under
    if (!(a in p) || !(b in p)) return
    printf "%-8s %-12s / %-17s prefill %5.2f   decode %5.2f\n", model, over, under, p[a] / p[b], d[a] / d[b]
  }
  { key = $1 "," $2; if (!(key in prefill)) order[++count] = key; if (!($1 in seen)) { seen[$1] = 1; models[++kinds] = $1 }
    prefill[key] = prefill[key] " " $4; decode[key] = decode[key] " " $5 }
  END {
    printf "\n%-8s %-18s %12s %12s   single runs of decode\n", "model", "setup", "prefill t/s", "decode t/s"
    for (i = 1; i <= count; i++) {
      key = order[i]; split(key, part, ","); p[key] = median(prefill[key]); d[key] = median(decode[key])
      printf "%-8s %-18s %12.2f %12.2f  %s\n", part[1], part[2], p[key], d[key], decode[key]
    }
    print "\nratios (sinew-RxT: R ranks of T threads; llama-T: one process of T threads)"
    for (i = 1; i <= kinds; i++) {
      m = models[i]
      ratio(m, "sinew-1x1", "llama-1"); ratio(m, "sinew-1x2", "llama-2"); ratio(m, "sinew-2x1", "llama-2")
      ratio(m, "sinew-2x1", "sinew-1x2"); ratio(m, "sinew-2x1", "sinew-1x1"); ratio(m, "sinew-4x1", "sinew-2x1")
      ratio(m, "sinew-2x1", "llama-rpc-layer"); ratio(m, "sinew-2x1", "llama-rpc-tensor")
    }
  }'
[ "$failed" = no ] || stop "some runs failed; their setups have fewer rounds"
