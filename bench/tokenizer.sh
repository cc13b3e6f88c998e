#!/usr/bin/env bash
# Speed of Sinew's tokenizer and of llama.cpp's on the same texts, in one interleaved run: MB of text a second of
# processor time (both encode on one thread), without loading. Medians and their ratio as a table.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: bench/tokenizer.sh [--build DIR] [--repeat N] [--bytes N]
  --build   a build folder configured with SINEW_TESTS=ON and CMAKE_BUILD_TYPE=Release (build/release)
  --repeat  rounds; each runs every setup once (5)
  --bytes   of generated text (2000000)
The vocabularies are those of llama.cpp's source tree; pre-tokenizers that these lack run over the one of GPT-2.
Needs node, for the text.
TEXT
}

build=build/release repeat=5 bytes=2000000
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --repeat) repeat=$2; shift 2 ;;
    --bytes) bytes=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

readonly run_limit=300
stop() { printf 'bench: %s\n' "$*" >&2; exit 1; }
ours=$(find "$build" -name token-ids -type f -perm -u+x | head -1)
oracle=$(find "$build" -name sinew-oracle -type f -perm -u+x | head -1)
[ -n "$ours" ] && [ -n "$oracle" ] || stop "no token-ids or sinew-oracle under $build: configure with -DSINEW_TESTS=ON and build both"
command -v node >/dev/null || stop "node is missing"
models=$(tools/deps source)/models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# This repository's own text, as far as it is tracked, and generated text of every script.
git ls-files -z '*.md' '*.cpp' '*.h' '*.sh' | xargs -0 node tests/tokenizers/pack_text.mjs "$work/source" --files
node tests/tokenizers/pack_text.mjs "$work/mixed" "$bytes"
node tests/tokenizers/pack_text.mjs "$work/asian" "$bytes" cjk korean thai

# GPT-2's file with another tokenizer.ggml.pre. Nothing in a file without tensors depends on the length of the name.
with_pre() { # NAME : path
  python3 - "$models/ggml-vocab-gpt-2.gguf" "$work/$1.gguf" "$1" <<'PYTHON'
import struct, sys
source, target, name = sys.argv[1:]
data = open(source, 'rb').read()
key = b'tokenizer.ggml.pre'
at = data.index(key) + len(key) + 4
(length,) = struct.unpack_from('<Q', data, at)
open(target, 'wb').write(data[:at] + struct.pack('<Q', len(name)) + name.encode() + data[at + 8 + length:])
PYTHON
  echo "$work/$1.gguf"
}

seconds() { # PROGRAM.. <TEXT : processor seconds of encoding
  timeout "$run_limit" "$@" 2>"$work/said" >/dev/null || stop "$*: $(tail -1 "$work/said")"
  tail -1 "$work/said"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

printf '%-16s %-7s %10s %10s %7s\n' vocabulary text ours llama.cpp ratio
for name in llama-bpe qwen2 deepseek-llm llama-spm gemma-4 deepseek-v3 gpt-4o kimi-k2; do
  model=$models/ggml-vocab-$name.gguf
  [ -e "$model" ] || model=$(with_pre "$name")
  for text in source mixed asian; do
    : >"$work/ours" >"$work/theirs"
    for _ in $(seq "$repeat"); do
      seconds "$ours" "$model" <"$work/$text" >>"$work/ours"
      seconds "$oracle" tokenize "$model" <"$work/$text" >>"$work/theirs"
    done
    awk -v name="$name" -v text="$text" -v size="$(stat -c %s "$work/$text")" -v a="$(median <"$work/ours")" \
      -v b="$(median <"$work/theirs")" 'BEGIN { if (a <= 0) a = 0.001
        printf "%-16s %-7s %6.1f MB/s %6.1f MB/s %6.1fx\n", name, text, size / a / 1e6, size / b / 1e6, b / a }'
  done
done
