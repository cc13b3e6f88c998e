#!/usr/bin/env bash
# run.sh PROGRAM MODEL : starts `PROGRAM serve MODEL --ranks 2 --port 0`, runs the client tests against it and stops
# it. Output is TAP; the exit status is that of the tests, 2 if the server did not come up or did not go.
# Client packages are installed once, by the lock file, into the cache folder outside the checkout.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 PROGRAM MODEL" >&2; exit 64; }
readonly program=$1 model=$2
readonly here=$(cd "$(dirname "$0")" && pwd)
readonly start_seconds=60 test_seconds=300 stop_seconds=15

key=$(cat "$here/package.json" "$here/package-lock.json" | openssl dgst -sha256 | awk '{print substr($NF,1,12)}')
readonly packages="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}/api-tests-$key"
if [ ! -e "$packages/.complete" ]; then
  mkdir -p "$packages"
  cp "$here/package.json" "$here/package-lock.json" "$packages/"
  # The client names a newer Node than Debian 12 has and works with this one: a warning, not an error.
  timeout 300 npm ci --prefix "$packages" --no-audit --no-fund --loglevel=error >&2
  touch "$packages/.complete"
fi

work=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

"$program" serve "$model" --ranks 2 --port 0 2>"$work/log" >/dev/null &
server=$!
url=
for _ in $(seq $((start_seconds * 10))); do
  url=$(sed -n 's|.*listening on \(http://[^ ]*\).*|\1|p' "$work/log" | head -1)
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$url" ]; then
  echo "the server did not come up within $start_seconds s; it said:" >&2
  cat "$work/log" >&2
  exit 2
fi

# Node finds packages beside the test file.
cp "$here/openai.test.mjs" "$packages/openai.test.mjs"
status=0
SINEW_URL=$url timeout "$test_seconds" node --test --test-reporter=tap "$packages/openai.test.mjs" || status=$?
[ "$status" -eq 0 ] || { echo "# the server's log:"; sed 's/^/# /' "$work/log"; }

kill -TERM "$server" 2>/dev/null || true
for _ in $(seq $((stop_seconds * 10))); do
  kill -0 "$server" 2>/dev/null || { server=; break; }
  sleep 0.1
done
if [ -n "$server" ]; then
  echo "the server did not stop within $stop_seconds s of SIGTERM" >&2
  exit 2
fi
exit "$status"
